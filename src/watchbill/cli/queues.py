"""`watchbill queues`: how much is waiting where, and what is paused."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.jobs import AsJson, Usage
from watchbill.cli.output import command_group, print_json, print_table

if TYPE_CHECKING:
    from watchbill.model.job import Pause, QueueCount

app = command_group("List, pause and resume queues and types. Alone: list.")

Queue = Annotated[str | None, typer.Argument(help="The queue.")]
Type = Annotated[str | None, typer.Option(help="A task's type; with a queue: only there.")]
_STATES = ("queued", "running", "failed", "blocked", "succeeded", "dead", "canceled")


@app.callback(invoke_without_command=True)
def queues(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_(ctx)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List queues with their jobs by state; finished ones of the last hour."""
    counts, pauses = count_queues(ctx)
    if as_json:
        print_json({"counts": [asdict(c) for c in counts], "pauses": [asdict(p) for p in pauses]})
        return
    print_queues(counts, pauses)


def count_queues(ctx: typer.Context) -> tuple[list[QueueCount], list[Pause]]:
    from watchbill.client import plans

    return ctx.obj.run(plans.stats()), ctx.obj.run(plans.pauses())


def print_queues(counts: list[QueueCount], pauses: list[Pause]) -> None:
    by_queue: dict[str, dict[str, QueueCount]] = defaultdict(dict)
    for count in counts:
        by_queue[count.queue][count.state] = count
    for pause in pauses:
        if pause.queue and not pause.type:
            by_queue.setdefault(pause.queue, {})
    rows = [
        (name, *(_number(found.get(s)) for s in _STATES), _oldest(found), _paused(name, pauses))
        for name, found in by_queue.items()
    ]
    print_table(("queue", *_STATES, "oldest", "paused"), rows)
    for pause in pauses:
        if pause.type:
            typer.echo(f"paused: type {pause.type}" + (f" in queue {pause.queue}" if pause.queue else ""))


@app.command()
def pause(
    ctx: typer.Context,
    queue: Queue = None,
    type: Type = None,
    reason: Annotated[str | None, typer.Option(help="For those who wonder.")] = None,
) -> None:
    """Start nothing of a queue or type until it is resumed; what runs goes on."""
    from watchbill.client import plans

    changed = ctx.obj.run(plans.pause(queue=_given(queue, type), type=type, reason=reason))
    typer.echo(f"{_subject(queue, type)} {'paused' if changed else 'was paused already'}")


@app.command()
def resume(ctx: typer.Context, queue: Queue = None, type: Type = None) -> None:
    """Start jobs of a queue or type again."""
    from watchbill.client import plans

    changed = ctx.obj.run(plans.resume(queue=_given(queue, type), type=type))
    typer.echo(f"{_subject(queue, type)} {'resumed' if changed else 'was not paused'}")
    raise typer.Exit(0 if changed else 1)


def _given(queue: str | None, type: str | None) -> str | None:
    if queue is None and type is None:
        raise Usage("Which one?", hint="Name a queue, or --type a type, or both.")
    return queue


def _subject(queue: str | None, type: str | None) -> str:
    return " ".join(filter(None, (f"queue {queue}" if queue else "", f"type {type}" if type else "")))


def _number(count: QueueCount | None) -> str:
    return "0" if count is None else f"{count.count}{'+' if count.capped else ''}"


def _oldest(found: dict[str, QueueCount]) -> str:
    """How long the oldest ready job has been due."""
    count = found.get("queued")
    if count is None or count.oldest is None or count.oldest > datetime.now(UTC):
        return ""
    return f"{(datetime.now(UTC) - count.oldest).total_seconds():.0f} s"


def _paused(queue: str, pauses: list[Pause]) -> str:
    return next((pause.reason or "yes" for pause in pauses if pause.queue == queue and pause.type is None), "")
