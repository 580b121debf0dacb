"""`watchbill audit`: what operators did."""

from __future__ import annotations

from typing import Annotated

import typer

from watchbill.cli.arguments import OnlyTenant, complete_job, find_job, read_since
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_records, show_json
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import job_operations
from watchbill.model.audit import AuditRecord

app = command_group("List what operators did. Without a command: list.")


@app.callback()
def audit() -> None:
    pass


@app.command("list", reads=True)
def list_(
    ctx: typer.Context,
    subject: Annotated[
        str | None,
        typer.Option(help="Only about this: 'queue mail', 'schedule nightly', or the beginning of it: 'job *'."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Only about this job.", autocompletion=complete_job)
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this person or program did.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as pause or cancel.")] = None,
    tenant: OnlyTenant = None,
    since: Annotated[str | None, typer.Option(help="Since when: an instant, or how long ago, such as 2h.")] = None,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Start after this row, for the next page.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what operators did: who paused, canceled, retried or changed something, and when. Newest first."""
    if job is not None:
        if subject is not None:
            raise Usage("Give --subject or --job.", hint="--job ID is short for --subject 'job ID'.")
        subject = f"job {find_job(ctx.obj, job)}"
    operation = job_operations.audit(
        subject=subject, actor=actor, action=action, tenant=tenant, limit=limit, before=before,
        since=None if since is None else read_since(since),
    )  # fmt: skip
    print_records(
        ctx.obj.run(operation),
        ("id", "at", LongName("actor"), "action", LongName("subject"), "tenant", Wrapped("detail")),
        lambda a: (a.id, a.at, _show_actor(a), a.action, a.subject, a.tenant, show_json(a.detail) if a.detail else ""),
        as_json=as_json,
        empty="No operator did such a thing, or it is older than keep_audit.",
    )


def _show_actor(record: AuditRecord) -> str:
    """Any session may call itself as it likes, so a login that differs is shown too."""
    is_same = record.actor == record.login_role
    return record.actor if is_same else f"{record.actor} ({record.login_role})"
