"""`watchbill tenants`: what tenants use, their quotas, and their erasure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, pluralize, print_json, print_records, print_table
from watchbill.cli.reasons import tell_causes
from watchbill.cli.screen import say
from watchbill.client import tenant_operations
from watchbill.client.tenant_operations import Erasure
from watchbill.model.tenant_record import TenantRecord

app = command_group("List, show, limit and erase tenants. Without a command: list.")

LONGEST_STATEMENT_SECONDS = 3600.0  # long, because the preview of an erasure reads the whole history
Name = Annotated[str, typer.Argument(help="The tenant.")]


@app.command("list", reads=True)
def list_tenants(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List tenants that have quotas, unfinished jobs, schedules or roles, with what they use."""
    print_records(
        ctx.obj.run(tenant_operations.tenants()),
        ("tenant", "running", "unfinished", "payload bytes", "last minute", "heartbeats", "schedules", "note"),
        lambda tenant: (
            tenant.tenant,
            _show_usage(tenant.running, tenant.max_running),
            _show_usage(tenant.unfinished, tenant.max_unfinished),
            _show_usage(tenant.payload_bytes, tenant.max_payload_bytes),
            _show_usage(tenant.enqueued, tenant.max_per_minute),
            _show_usage(tenant.expected_heartbeats, tenant.heartbeat_budget),
            tenant.schedules,
            _show_note(tenant),
        ),
        as_json=as_json,
        empty="There are no tenants with jobs, schedules or quotas. To limit one: watchbill tenants set",
    )


@app.command(reads=True)
def why(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Count why jobs of a tenant do not run, with an example each. Exits with 1 if a person must act."""
    tell_causes(ctx.obj, tenant=name, as_json=as_json)


@app.command(reads=True)
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show what a tenant uses of its quotas. Exits with 1 if it has no quota, unfinished job, schedule or role."""
    found = ctx.obj.run(tenant_operations.tenants(name))
    if not found:
        say(f"tenant {name} has no quota, no unfinished job and no schedule", err=True)
        raise typer.Exit(1)
    if as_json:
        print_json(asdict(found[0]))
        return
    tenant: TenantRecord = found[0]
    rows = [
        ("running jobs", tenant.running, tenant.max_running),
        ("unfinished jobs", tenant.unfinished, tenant.max_unfinished),
        ("payload bytes", tenant.payload_bytes, tenant.max_payload_bytes),
        ("enqueued in the last minute", tenant.enqueued, tenant.max_per_minute),
        ("heartbeats per minute", tenant.expected_heartbeats, tenant.heartbeat_budget),
    ]
    print_table(("what", "used", "quota"), [tuple("" if each is None else each for each in row) for row in rows])
    say(f"{pluralize(tenant.schedules, 'schedule')}; bound roles: {', '.join(tenant.roles) or 'none'}")
    if note := _show_note(tenant):
        say(note)


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    running: Annotated[str | None, typer.Option(help="Jobs that run at once.", metavar="NUMBER|none")] = None,
    unfinished: Annotated[str | None, typer.Option(help="Jobs that have not ended.", metavar="NUMBER|none")] = None,
    payload_bytes: Annotated[
        str | None, typer.Option(help="Bytes of the payloads of unfinished jobs.", metavar="NUMBER|none")
    ] = None,
    per_minute: Annotated[str | None, typer.Option(help="Enqueues per minute.", metavar="NUMBER|none")] = None,
    heartbeats: Annotated[
        str | None, typer.Option(help="Budget of heartbeats per minute; only shown.", metavar="NUMBER|none")
    ] = None,
) -> None:
    """Change quotas of a tenant; `none` removes one. Exits with 1 if nothing has changed."""
    given = {
        "running": running,
        "unfinished": unfinished,
        "payload_bytes": payload_bytes,
        "per_minute": per_minute,
        "heartbeats": heartbeats,
    }
    quotas = {quota: _read_number(quota, text) for quota, text in given.items() if text is not None}
    if not quotas:
        raise Usage("Nothing to change.", hint="Give a quota, such as --running 10.")
    is_changed = ctx.obj.run(tenant_operations.set_tenant(name, quotas))
    say(f"{name}: {_describe_quotas(ctx.obj.run(tenant_operations.tenants(name)))}")
    raise typer.Exit(0 if is_changed else 1)


@app.command()
def erase(
    ctx: typer.Context,
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="End running jobs at once instead of asking them to stop.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for running jobs.")] = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete everything of a tenant: jobs, history, schedules, keys, audit rows, quotas and stored payloads.

    Enqueues for the tenant are refused meanwhile. Exits with 1 if there is nothing to delete, or if jobs still run
    after --wait; run it again to continue."""
    from watchbill.client.client import Client
    from watchbill.payloads import open_store

    settings = ctx.obj.find_settings()
    url = ctx.obj.find_address(settings).url
    store = None if settings.payload_store is None else open_store(settings.payload_store)
    with Client(url, schema=settings.schema, pool_size=1, timeout=LONGEST_STATEMENT_SECONDS) as client:
        counts = client.run(tenant_operations.preview_erasure(name))
        is_under_way = any(each.erasing_since for each in client.run(tenant_operations.tenants(name)))
        if dry_run or not (counts or is_under_way):
            _print_counts(name, counts, as_json=as_json)
            raise typer.Exit(0 if counts or is_under_way else 1)
        if not yes:
            _print_counts(name, counts, as_json=False)
            typer.confirm(f"Erase {name}?", abort=True)
        record = tenant_operations.erase(Erasure(name, force=force, wait=wait, store=store), client.run)
    if as_json:
        print_json(asdict(record) | {"is_done": record.is_done})
    elif record.is_done:
        rows, payloads = pluralize(sum(counts.values()), "row"), pluralize(record.payloads, "stored payload")
        say(f"{name} is erased: {rows}, {payloads}")
    else:
        say(f"{name} is not erased yet: it waits for {record.waiting}. Run it again, or with --force.", err=True)
    raise typer.Exit(0 if record.is_done else 1)


def _print_counts(name: str, counts: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        print_json({"tenant": name, "would_delete": counts})
    elif counts:
        print_table(("what", "rows"), list(counts.items()))
    else:
        say(f"there is nothing of tenant {name}", err=True)


def _show_usage(used: object, quota: object) -> str:
    shown = "" if used is None else str(used)
    return shown if quota is None else f"{shown or 0} of {quota}"


def _show_note(tenant: TenantRecord) -> str:
    if tenant.erasing_since is not None:
        return "is being erased"
    return "over its heartbeat budget" if tenant.over_budget else ""


def _read_number(quota: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        number = float(text)
        return int(number) if number == int(number) else number
    except (ValueError, OverflowError):
        option = quota.replace("_", "-")
        raise Usage(f"--{option} {text!r} is invalid.", hint="Give a number, or none.") from None


def _describe_quotas(found: list[TenantRecord]) -> str:
    if not found:
        return "no quotas"
    tenant = found[0]
    quotas = {
        "running": tenant.max_running,
        "unfinished": tenant.max_unfinished,
        "payload bytes": tenant.max_payload_bytes,
        "per minute": tenant.max_per_minute,
        "heartbeats": tenant.heartbeat_budget,
    }
    return ", ".join(f"{name} {value:,.15g}" for name, value in quotas.items() if value is not None) or "no quotas"
