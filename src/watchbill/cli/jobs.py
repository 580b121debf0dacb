"""`watchbill jobs`: enqueue, look at and act on jobs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from watchbill.cli.output import command_group, print_facts, print_json, print_table
from watchbill.errors import WatchbillError

app = command_group("Enqueue, list, show, cancel, retry and release jobs. Alone: list.")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
JobId = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]
State = Annotated[list[str] | None, typer.Option(help="Only in this state; may be given again.")]


class Usage(WatchbillError):
    exit_code = 2


@app.callback(invoke_without_command=True)
def jobs(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_(ctx)


@app.command()
def enqueue(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(help="The task's type, such as tasks.hello.")],
    payload: Annotated[str, typer.Argument(help="A JSON object, one key per parameter.")] = "{}",
    queue: Annotated[str | None, typer.Option(help="The queue.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds from now.")] = None,
    key: Annotated[str | None, typer.Option(help="An idempotency key.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job by its type; checked and with the task's own options, if the App is found here."""
    from watchbill.cli import producer

    said = {"queue": queue, "priority": priority, "delay": delay, "idempotency_key": key, "tenant": tenant}
    chosen = {name: value for name, value in said.items() if value is not None}
    job = producer.enqueue(ctx.obj, type, json_object(payload), chosen)
    if as_json:
        print_json({"id": job.id, "created": job.created, "payload_differs": job.payload_differs})
    else:
        typer.echo(f"{job.id}" + ("" if job.created else "  (was there before)"))


@app.command("list")
def list_(
    ctx: typer.Context,
    state: State = None,
    type: Annotated[str | None, typer.Option(help="Only of this type.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only in this queue.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    after: Annotated[UUID | None, typer.Option(help="The page after this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from watchbill.client import plans
    from watchbill.model.job import JobFilter
    from watchbill.model.states import STATES

    for word in state or ():
        if word not in STATES:
            raise Usage(f"There is no state {word!r}.", hint=f"The states are {', '.join(STATES)}.")
    states = tuple(each for each in STATES if each in (state or ()))
    wanted = JobFilter(state=states, type=type, queue=queue, tenant=tenant, after=after, limit=limit)
    found = ctx.obj.run(plans.find(wanted))
    if as_json:
        print_json([asdict(job) for job in found])
        return
    rows = [
        (
            job.id,
            job.type,
            job.queue,
            job.state,
            f"{job.attempt}/{job.max_attempts}",
            _time(job.run_at),
            _why(job.error),
        )
        for job in found
    ]
    print_table(("id", "type", "queue", "state", "attempt", "run at", "error"), rows)


@app.command()
def show(ctx: typer.Context, id: JobId, as_json: AsJson = False) -> None:
    """Show a job with every attempt, and what it is connected with."""
    from watchbill.client import plans, plans_families

    job, attempts = ctx.obj.run(plans.get(id)), ctx.obj.run(plans.attempts(id))
    near = ctx.obj.run(plans_families.neighbours(id))
    if as_json:
        print_json(
            asdict(job)
            | {
                "schedule": job.schedule,
                "attempts": [asdict(attempt) for attempt in attempts],
                "dependencies": [asdict(each) for each in near],
            }
        )
        return
    facts = asdict(job) | {"schedule": job.schedule, "schedule_id": None}
    print_facts({name: _shown(value) for name, value in facts.items() if value is not None})
    if attempts:
        rows = [
            (a.run, a.attempt, a.outcome, a.holder, _time(a.started_at), _time(a.ended_at), _why(a.error))
            for a in attempts
        ]
        typer.echo("")
        print_table(("run", "attempt", "outcome", "node", "started", "ended", "error"), rows)
    if near:
        typer.echo("")
        print_table(
            ("", "job", "type", "state", "if"),
            [(each.relation, each.id, each.type, each.state, each.run_if.replace("_", " ")) for each in near],
        )


@app.command()
def tree(ctx: typer.Context, id: JobId, as_json: AsJson = False) -> None:
    """Draw a job with all that it waits for and that waits for it."""
    from watchbill.cli.families import draw
    from watchbill.client import plans_families

    family = ctx.obj.run(plans_families.family(id))
    if as_json:
        print_json(asdict(family))
        return
    for line in draw(family, id):
        typer.echo(line)
    if not family.complete:
        typer.echo(f"... and more: these are the nearest {len(family.jobs):,}")


@app.command()
def cancel(
    ctx: typer.Context,
    id: JobId,
    reason: Annotated[str | None, typer.Option(help="Recorded with the job.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="End a running one at once; its handler is fenced off.")
    ] = False,
) -> None:
    """Cancel a job; a running one is asked to stop."""
    from watchbill.client import plans

    state = ctx.obj.run(plans.cancel(id, reason=reason, force=force))
    said = {"canceled": "canceled", "running": "asked to stop"}.get(state, f"left alone: it is {state} already")
    typer.echo(f"{id} {said}")
    raise typer.Exit(0 if state in ("canceled", "running") else 1)


@app.command()
def retry(
    ctx: typer.Context,
    id: JobId,
    at: Annotated[datetime | None, typer.Option(help="When; now if not given.")] = None,
) -> None:
    """Run a job again with fresh attempts, or a waiting one at another time."""
    from watchbill.client import plans

    before = ctx.obj.run(plans.retry(id, run_at=_instant(at) if at else None))
    typer.echo(f"{id} queued again; it was {before}")


@app.command()
def release(ctx: typer.Context, id: JobId) -> None:
    """Take a running job away from its node and queue it again."""
    from watchbill.client import plans

    if not ctx.obj.run(plans.release(id)):
        typer.echo(f"{id} is not running", err=True)
        raise typer.Exit(1)
    typer.echo(f"{id} queued again")


def json_object(text: str, what: str = "payload") -> dict[str, Any]:
    import json

    def refuse(word: str) -> None:
        raise ValueError(f"there is no {word}")

    try:  # not orjson, which makes a float of an integer that is too large
        payload = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        hint = 'Quote it for the shell: \'{"name": "you"}\'.'
        raise Usage(f"The {what} is not JSON: {error}.", hint=hint) from None
    if not isinstance(payload, dict):
        raise Usage(f"The {what} must be a JSON object: names and values.")
    return payload


def _instant(value: datetime) -> datetime:
    """Without an offset it is meant in the zone of this machine."""
    try:
        return value.astimezone()
    except (OverflowError, ValueError):
        raise Usage(f"{value} is no time that a clock will ever show.") from None


def _time(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone():%Y-%m-%d %H:%M:%S}"


def _why(error: dict[str, Any] | None) -> str:
    return (
        ""
        if not error
        else f"{error.get('type', error.get('kind', ''))}: {error.get('message', '')}".splitlines()[0][:80]
    )


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, dict) and "traceback" in value:
        return f"{value.get('type')}: {value.get('message')}\n{value['traceback']}"
    return value
