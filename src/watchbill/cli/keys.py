"""`watchbill keys`: who may use the dashboard and the HTTP API."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_json, print_records
from watchbill.cli.screen import say
from watchbill.cli.table import LongName
from watchbill.client import key_operations
from watchbill.client.key_operations import NewKey
from watchbill.model.durations import seconds

app = command_group("Make and revoke API keys and logins for the dashboard. Without a command: list.")

RoleName = Literal["reader", "producer", "worker", "operator", "admin"]


@app.command("list")
def list_keys(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the API keys, with what they may do and when they were used."""
    print_records(
        ctx.obj.run(key_operations.keys()),
        ("id", LongName("name"), "role", "tenant", "state", "expires", "used", "queues", "types", "rate", "made by"),
        lambda key: (
            key.id,
            key.name,
            key.role,
            key.tenant or "",
            key.state,
            key.expires_at or "",
            key.used_at or "",
            ", ".join(key.queues),
            ", ".join(key.types),
            "" if key.rate is None else key.rate,
            key.created_by,
        ),
        as_json=as_json,
        empty="There are no API keys. To make one: watchbill keys add NAME --role producer",
    )


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Who or what uses it. Audit rows name it.")],
    role: Annotated[RoleName, typer.Option(metavar="ROLE", help="reader, producer, worker, operator or admin.")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="The only tenant that it sees.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", help="A queue that a producer may use.")] = None,
    type: Annotated[list[str] | None, typer.Option("--type", help="A type that a producer may use.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Requests per second; 100 if not given.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="DURATION", help="How long it is valid, such as 90d.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and print it. It is shown this once; the database has only its hash."""
    made: NewKey = ctx.obj.run(
        key_operations.add_key(
            name,
            role,
            tenant=tenant,
            queues=queue or (),
            types=type or (),
            rate=rate,
            expires_at=_read_expiry(expires),
        )
    )
    if as_json:
        print_json({"id": made.id, "name": name, "key": made.key})
        return
    say(made.key)
    say("Keep it: it cannot be shown again.", err=True)


@app.command()
def revoke(ctx: typer.Context, key: Annotated[str, typer.Argument(help="Its id or name.")]) -> None:
    """Revoke an API key. Dashboards refuse it within ten seconds."""
    say(f"{ctx.obj.run(key_operations.revoke_key(key))} revoked")


@app.command()
def user(
    name: Annotated[str, typer.Argument(help="The name of the person.")],
    role: Annotated[RoleName, typer.Option(metavar="ROLE", help="reader, producer, operator or admin.")] = "reader",
) -> None:
    """Print an entry of the setting dashboard_users. Asks for the password, or reads it from a pipe."""
    from watchbill.dashboard.sessions import User

    if sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        raise Usage("The password is too short.", hint="Use at least eight characters.")
    try:
        say(User.make(name, role, password).as_setting())
    except ValueError as error:
        raise Usage(f"This user is invalid: {error}.") from None


def _read_expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds(text))
    except (ValueError, OverflowError) as error:
        raise Usage(f"--expires is invalid: {error}.", hint="Give a duration, such as 90d.") from None
