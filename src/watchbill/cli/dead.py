"""`watchbill dead`: jobs whose attempts are spent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer

from watchbill.cli.jobs import AsJson
from watchbill.cli.jobs import list_ as list_jobs
from watchbill.cli.output import command_group, counted, print_json, print_table

app = command_group("List, group, retry and purge dead jobs. Alone: list.")

Type = Annotated[str | None, typer.Option(help="Only of this type.")]
Queue = Annotated[str | None, typer.Option(help="Only in this queue.")]
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Message = Annotated[str | None, typer.Option(help="Only with exactly this error message.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many.")]


@app.callback(invoke_without_command=True)
def dead(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_(ctx)


@app.command("list")
def list_(
    ctx: typer.Context,
    type: Type = None,
    queue: Queue = None,
    tenant: Tenant = None,
    after: Annotated[UUID | None, typer.Option(help="The page after this id.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead jobs, newest first."""
    list_jobs(ctx, ["dead"], type, queue, tenant, after, limit, as_json)


@app.command()
def groups(ctx: typer.Context, type: Type = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Group dead jobs by type and error message."""
    from watchbill.client import plans

    found = ctx.obj.run(plans.dead_groups(type=type, tenant=tenant))
    if as_json:
        print_json([asdict(group) for group in found])
        return
    rows = [
        (
            g.count,
            g.type,
            g.message.splitlines()[0][:100] if g.message else "",
            f"{g.last.astimezone():%Y-%m-%d %H:%M:%S}",
            g.example,
        )
        for g in found
    ]
    print_table(("count", "type", "message", "last", "example"), rows)


@app.command()
def retry(
    ctx: typer.Context,
    type: Type = None,
    queue: Queue = None,
    tenant: Tenant = None,
    message: Message = None,
    limit: Limit = 1_000_000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run dead jobs again, with fresh attempts."""
    _many(ctx, "retry", type, queue, tenant, message, limit, dry_run=dry_run, yes=yes)


@app.command()
def purge(
    ctx: typer.Context,
    type: Type = None,
    queue: Queue = None,
    tenant: Tenant = None,
    message: Message = None,
    limit: Limit = 1_000_000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead jobs with their attempts."""
    _many(ctx, "purge", type, queue, tenant, message, limit, dry_run=dry_run, yes=yes)


def _many(
    ctx: typer.Context,
    verb: str,
    type: str | None,
    queue: str | None,
    tenant: str | None,
    message: str | None,
    limit: int,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    from watchbill.client import plans
    from watchbill.model.job import JobFilter

    wanted = JobFilter(type=type, queue=queue, tenant=tenant, message=message, limit=limit)
    count = ctx.obj.run(plans.count_dead(wanted))
    if dry_run or not count:
        typer.echo(f"{counted(count, 'dead job')} {'matches' if count == 1 else 'match'}")
        return
    if not yes:
        typer.confirm(f"{verb.capitalize()} {counted(count, 'dead job')}?", abort=True)
    plan = plans.retry_dead(wanted) if verb == "retry" else plans.purge_dead(wanted)
    typer.echo(f"{counted(ctx.obj.run(plan), 'job')} {'queued again' if verb == 'retry' else 'deleted'}")
