"""`watchbill endpoints`: the servers to which connectors send requests."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from watchbill.app.application import App
from watchbill.app.job import JobFailed
from watchbill.cli.help import command_group
from watchbill.cli.limits import read_rate, show_rates
from watchbill.cli.output import AsJson, Usage, print_json, print_records
from watchbill.cli.screen import say
from watchbill.cli.table import LongName
from watchbill.client import endpoint_operations
from watchbill.model.durations import seconds, show_duration
from watchbill.model.endpoint_record import EndpointRecord
from watchbill.model.webhook import WEBHOOK_DELIVERY

app = command_group("List, show and change the servers to which connectors send requests. Without a command: list.")

Name = Annotated[str, typer.Argument(help="Its name.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that it belongs to.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Such as https://api.example.com/v2.")]
Bearer = Annotated[
    str | None, typer.Option("--bearer", metavar="REFERENCE", help="Send this secret as Authorization: Bearer.")
]
Basic = Annotated[
    str | None, typer.Option("--basic", metavar="USER:REFERENCE", help="Send this user and secret as a password.")
]
SecretHeader = Annotated[
    str | None, typer.Option("--secret-header", metavar="NAME:REFERENCE", help="Send this secret in a header.")
]
Signature = Annotated[
    list[str] | None,
    typer.Option(
        "--signature", metavar="REFERENCE", help="Sign webhooks with this secret; several while one is replaced."
    ),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="Send this header, which is not secret.")
]
Host = Annotated[list[str] | None, typer.Option("--host", help="A host to which its secret may go.")]
Timeout = Annotated[str | None, typer.Option(help="How long a request may take, such as 10s.")]
Max = Annotated[int | None, typer.Option("--max", min=0, help="How many of its jobs run at once.")]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="COUNT/DURATION",
        help="How many of its jobs start in a time, such as 10/1m; none removes all rates. Several: give it again.",
    ),
]
Ordered = Annotated[
    bool | None, typer.Option("--ordered/--no-ordered", help="Run its jobs in the order of their enqueues.")
]


@app.command("list", reads=True)
def list_endpoints(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Of this tenant only.")] = None,
    as_json: AsJson = False,
) -> None:
    """List endpoints, with where their requests go and whether deliveries fail."""
    print_records(
        ctx.obj.run(endpoint_operations.endpoints(tenant)),
        (LongName("name"), "tenant", "kind", LongName("address"), "auth", "max", "state"),
        lambda each: (
            each.name,
            each.tenant,
            each.kind,
            each.base_url,
            (each.auth or {}).get("kind", ""),
            each.max,
            describe_state(each),
        ),
        as_json=as_json,
        empty="There are no endpoints. Declare them in code, or: watchbill endpoints add",
    )


@app.command(reads=True)
def show(ctx: typer.Context, name: Name, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show an endpoint. Exits with 1 if there is no such endpoint."""
    found = _find(ctx, name, tenant)
    if as_json:
        print_json(asdict(found))
        return
    say(f"{name} of tenant {tenant}: {found.kind}, {found.base_url}")
    say(f"  state      {describe_state(found)}")
    say(f"  auth       {_describe_auth(found.auth)}")
    say(f"  secret to  {', '.join(found.hosts) or 'the host of its address'}")
    say(f"  at once    {found.max}{', in order' if found.ordered else ''}")
    if found.rates:
        say(f"  rate       {show_rates(found.rates)}")
    say(f"  time-out   {'30s' if found.timeout is None else show_duration(timedelta(seconds=found.timeout))}")
    for header, value in found.headers.items():
        say(f"  header     {header}: {value}")
    say(f"  made by    {found.created_by}{'; changed by an operator' if found.changed else ''}")


@app.command()
def add(
    ctx: typer.Context,
    name: Name,
    base_url: Annotated[str, typer.Option("--base-url", help="Such as https://api.example.com/v2.")],
    tenant: Tenant = "default",
    bearer: Bearer = None,
    basic: Basic = None,
    secret_header: SecretHeader = None,
    signature: Signature = None,
    header: Header = None,
    host: Host = None,
    timeout: Timeout = None,
    max: Max = None,
    rate: Rates = None,
    ordered: Ordered = None,
) -> None:
    """Add an endpoint. A reference to a secret is env:NAME, file:PATH or resolver:NAME; never give a secret itself."""
    if ctx.obj.run(endpoint_operations.endpoints(tenant, name)):
        raise Usage(f"The endpoint {name} exists already.", hint="watchbill endpoints update changes it.")
    definition = _define(base_url, bearer, basic, secret_header, signature, header, host, timeout, max, rate, ordered)
    ctx.obj.run(endpoint_operations.set_endpoint(name, definition, tenant))
    say(f"{name} added")


@app.command()
def update(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    base_url: BaseUrl = None,
    bearer: Bearer = None,
    basic: Basic = None,
    secret_header: SecretHeader = None,
    signature: Signature = None,
    header: Header = None,
    host: Host = None,
    timeout: Timeout = None,
    max: Max = None,
    rate: Rates = None,
    ordered: Ordered = None,
) -> None:
    """Change what is given of an endpoint. The change stands until the code declares something else."""
    definition = _define(base_url, bearer, basic, secret_header, signature, header, host, timeout, max, rate, ordered)
    if not definition:
        raise Usage("There is nothing to change.", hint="Give --base-url, --bearer or --max, for example.")
    _find(ctx, name, tenant)
    ctx.obj.run(endpoint_operations.set_endpoint(name, definition, tenant))
    say(f"{name} changed")


@app.command()
def disable(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    reason: Annotated[str, typer.Option(help="Why; the errors of its jobs say it.")] = "an operator has disabled it",
) -> None:
    """Let the jobs of an endpoint end as dead, until it is enabled."""
    _find(ctx, name, tenant)
    ctx.obj.run(endpoint_operations.set_endpoint(name, {"disabled": reason}, tenant))
    say(f"{name} disabled")


@app.command()
def enable(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Let the jobs of an endpoint run again. Jobs that are dead stay dead: watchbill dead retry."""
    _find(ctx, name, tenant)
    ctx.obj.run(endpoint_operations.set_endpoint(name, {"disabled": None}, tenant))
    say(f"{name} enabled")


@app.command()
def remove(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove an endpoint with its limit. Jobs that name it end as dead when they run."""
    _find(ctx, name, tenant)
    if not yes:
        typer.confirm(f"Remove the endpoint {name} of tenant {tenant}?", abort=True)
    ctx.obj.run(endpoint_operations.remove_endpoint(name, tenant))
    say(f"{name} removed")


@app.command("test")
def try_(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    path: Annotated[str, typer.Option(help="A path below its address, for a GET. A webhook has none.")] = "",
    wait: Annotated[str, typer.Option(help="How long to wait for a worker, such as 30s.")] = "30s",
) -> None:
    """Let a worker send a request to an endpoint, and explain the answer. Exits with 1 unless it was a success.

    A job sends it, once: a GET, or a webhook of the type endpoint.test. So it has the secrets and rules of a worker."""
    found = _find(ctx, name, tenant)
    is_webhook = found.kind == "webhook"
    given = {"type": "endpoint.test", "data": {}} if is_webhook else {"path": path, "expect": list(range(200, 600))}
    settings = ctx.obj.find_settings()
    producer = App(ctx.obj.find_address(settings).url, schema=settings.schema)
    connector = WEBHOOK_DELIVERY if is_webhook else "connector.http.request"
    try:
        job = producer.enqueue(connector, {"endpoint": name, **given}, tenant=tenant, retry=1)
        answer = job.result(wait)
    except JobFailed as error:
        say(str(error.error.get("message", error)), err=True)
        raise typer.Exit(1) from None
    except TimeoutError:
        say(f"no worker has sent it within {wait}: watchbill jobs why {job.id}", err=True)
        raise typer.Exit(1) from None
    finally:
        producer.close()
    say(f"{found.base_url} answered {answer['status']} in {answer['seconds']:.2f} s")
    raise typer.Exit(0 if answer["status"] < 400 else 1)


def _find(ctx: typer.Context, name: str, tenant: str) -> EndpointRecord:
    found: list[EndpointRecord] = ctx.obj.run(endpoint_operations.endpoints(tenant, name))
    if not found:
        say(f"there is no endpoint {name} of tenant {tenant}", err=True)
        raise typer.Exit(1)
    return found[0]


def _define(
    base_url: str | None,
    bearer: str | None,
    basic: str | None,
    secret_header: str | None,
    signature: list[str] | None,
    header: list[str] | None,
    host: list[str] | None,
    timeout: str | None,
    max: int | None,
    rate: list[str] | None,
    ordered: bool | None,
) -> dict[str, Any]:
    given = {
        "base_url": base_url,
        "auth": _define_auth(bearer, basic, secret_header, signature),
        "headers": None if not header else dict(_split("--header", each) for each in header),
        "hosts": host or None,
        "max": max,
        "rates": None if rate is None else [read_rate(each, evenly=False).rule for each in rate if rate != ["none"]],
        "ordered": ordered,
    }
    kind: Literal["webhook", "http"] = "webhook" if signature else "http"
    definition: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "auth" in definition:
        definition["kind"] = kind
    if timeout is not None:
        try:
            definition["timeout"] = seconds(timeout)
        except ValueError as error:
            raise Usage(f"--timeout is invalid: {error}.", hint="Give a duration, such as 10s.") from None
    return definition


def _define_auth(
    bearer: str | None, basic: str | None, secret_header: str | None, signature: list[str] | None
) -> dict[str, Any] | None:
    if sum(each not in (None, []) for each in (bearer, basic, secret_header, signature)) > 1:
        raise Usage("An endpoint authenticates in one way.", hint="Give one of the options.")
    if bearer is not None:
        return {"kind": "bearer", "secret": bearer}
    if basic is not None:
        user, secret = _split("--basic", basic)
        return {"kind": "basic", "user": user, "secret": secret}
    if secret_header is not None:
        name, secret = _split("--secret-header", secret_header)
        return {"kind": "header", "name": name, "secret": secret}
    return {"kind": "signature", "secrets": signature} if signature else None


def _split(option: str, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise Usage(f"{option} is invalid: it has no colon.", hint="Write the name, a colon, and the value.")
    return name.strip(), value.strip()


def describe_state(endpoint: EndpointRecord) -> str:
    if endpoint.disabled_at is not None:
        return f"disabled: {endpoint.disabled_reason}"
    if endpoint.failing_since is not None:
        return f"failing since {endpoint.failing_since:%Y-%m-%d %H:%M}"
    return "ok"


def _describe_auth(auth: dict[str, Any] | None) -> str:
    if auth is None:
        return "none"
    references = auth.get("secrets") or [auth["secret"]]
    return " ".join([auth["kind"], *(auth[each] for each in ("user", "name") if each in auth), *references])
