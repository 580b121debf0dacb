"""What a worker prints: what it found when it starts, and a line per job for those who watch."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import typer

from watchbill.cli.output import counted

if TYPE_CHECKING:
    from uuid import UUID

    from watchbill import App
    from watchbill.node import Node
    from watchbill.postgres.address import Address
    from watchbill.postgres.schema_status import Status
    from watchbill.worker.run import Run

_SHOWN = 10
_COLOURS = {"succeeded": "green", "skipped": "cyan", "failed": "yellow", "timed_out": "yellow", "dead": "red"}
IS_UP = "_WATCHBILL_UP"  # `watchbill up` has named the database already


def print_start(app: App, reference: str, node: Node, address: Address, status: Status) -> None:
    tasks = len({id(task) for task in app.tasks.values()})
    queues, capacity = node.plan.queues, node.plan.capacity
    kinds = ", ".join(f"{count} {kind}" for kind, count in capacity.by_kind.items())
    schedules = f"  {counted(len(app.declared), 'schedule')}" if len(app.declared) else ""
    found = f"{counted(tasks, 'task')}  {counted(len(queues), 'queue')} ({', '.join(queues)}){schedules}"
    typer.echo(f"  {reference}   {found}")
    typer.echo(f"  node {node.plan.name}   {capacity.total} handlers at once ({kinds})")
    if os.environ.pop(IS_UP, None) is None:
        typer.echo(f"  {address}   schema {status.schema} v{status.version}")


def print_schedules(app: App) -> None:
    """What the code declares, and what it means; the first few of them."""
    for declared in list(app.declared)[:_SHOWN]:
        typer.echo(f"  schedule {declared.name.ljust(20)} {declared.meaning}")
    if len(app.declared) > _SHOWN:
        typer.echo(f"  and {len(app.declared) - _SHOWN} more: watchbill schedules")


def print_lines(app: App) -> None:
    """One line per attempt, as it ends; the log keeps to what a line does not say, the tracebacks of dead jobs."""
    logging.getLogger("watchbill.jobs").setLevel(logging.ERROR)
    app.on("job_completed")(lambda job, outcome: _line(job, outcome))
    app.on("job_failed")(lambda job, outcome, error, final: _line(job, "dead" if final else outcome, error))
    app.on("job_snoozed")(lambda job, outcome: _line(job, outcome))
    app.on("job_released")(lambda job, outcome: _line(job, outcome))
    app.on("job_canceled")(_canceled)


def _line(job: Run, outcome: str, error: dict[str, Any] | None = None) -> None:
    word = typer.style(outcome.ljust(9), fg=_COLOURS.get(outcome, "magenta"))
    why = f"  {error['type']}: {error['message'].splitlines()[0]}" if error else ""
    name = f"{time.strftime('%H:%M:%S')}  {job.type.ljust(24)} {job.id}  attempt {job.attempt}"
    typer.echo(f"  {name}  {word} {_duration(job.seconds)}{why}")


def _canceled(id: UUID, job: Run | None) -> None:
    if job is not None:
        _line(job, "canceled")
        return
    word = typer.style("canceled", fg="magenta")
    typer.echo(f"  {time.strftime('%H:%M:%S')}  {'(never began)'.ljust(24)} {id}  {word}")


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
