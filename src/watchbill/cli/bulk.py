"""`watchbill operations`, and how `jobs retry --where` and its like change all jobs that match.

Such a command starts a bulk operation and does its steps itself, as every node does. So it goes on after Ctrl-C, if a
node runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, NoReturn

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import (
    AsJson,
    GlobalOptions,
    Usage,
    format_local_time,
    pluralize,
    print_facts,
    print_json,
    print_records,
    show_json,
)
from watchbill.cli.screen import is_terminal, say, show_progress
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import bulk_operations
from watchbill.errors import name_commands
from watchbill.filters.condition import Condition
from watchbill.model.bulk_operation import BulkOperation, ChangeKind, OperationKind, OperationPreview

app = command_group(
    "List, show, pause, resume and cancel bulk operations, which change many jobs. Without a command: list."
)

# What each kind asks, and what it says of the jobs that it has changed.
_WORDS: dict[OperationKind, tuple[str, str]] = {
    "retry": ("Retry", "queued again"),
    "cancel": ("Cancel", "canceled or asked to stop"),
    "release": ("Release", "queued again"),
    "purge": ("Purge", "deleted"),
    "set_priority": ("Change the priority of", "changed"),
    "move_queue": ("Move", "moved"),
    "backfill_slots": ("Backfill", "enqueued"),
    "enqueue": ("Enqueue", "enqueued"),
}
# How those are called that it leaves out; of other kinds, jobs that are not changed.
_UNCHANGED: dict[OperationKind, tuple[str, str]] = {
    "backfill_slots": ("slot", "backfilled"),
    "enqueue": ("item", "enqueued"),
}
MOST_TO_CONFIRM = 1000  # of more jobs the number has to be typed
_MOST_TYPES = 10
_LONGEST_PAUSE_SECONDS = 1.0
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_RATE_SECONDS = {"s": 1, "m": 60, "h": 3600}

Rate = Annotated[
    str | None, typer.Option(metavar="NUMBER/UNIT", help="With --where: no faster, such as 100/s or 50/m.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --where: only show which jobs match.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
OperationId = Annotated[int, typer.Argument(metavar="ID", help="The number of the operation.")]


def change_all(
    options: GlobalOptions,
    kind: ChangeKind,
    conditions: Sequence[Condition],
    *,
    text: str | None,
    arguments: dict[str, Any] | None = None,
    rate: str | None = None,
    most: int | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> None:
    """Shows which jobs match, asks, and changes them. Exits with 1 if some could not be changed."""
    if not conditions:
        raise Usage("The filter is empty.", hint="Say which jobs: --where 'queue:mail'.")
    speed = read_rate(rate)
    found = options.run(bulk_operations.preview(kind, conditions, most))
    _print_preview(found)
    if dry_run or not (found.jobs or not found.is_complete):
        return
    if not yes:
        ask(kind, found.jobs, "job", is_complete=found.is_complete)
    operation = options.run(
        bulk_operations.start(kind, conditions, text=text, arguments=arguments, rate=speed, max_jobs=most)
    )
    finish(options, operation, _count(found))


def finish(options: GlobalOptions, operation: int, total: str) -> NoReturn:
    """Does the steps of an operation, says how it ended, and exits."""
    ended = _work_off(options, operation, total)
    _print_end(ended)
    raise typer.Exit(0 if ended.state == "done" and not ended.failed else 1)


def read_rate(rate: str | None) -> float | None:
    if rate is None:
        return None
    match = _RATE.fullmatch(rate)
    if match is None or not float(match[1]):
        raise Usage(f"The rate {rate!r} is invalid.", hint="Write 100/s, 50/m or 20/h.")
    return float(match[1]) / _RATE_SECONDS[match[2] or "s"]


def _count(found: OperationPreview) -> str:
    return count_things(found.jobs, "job", is_complete=found.is_complete)


def count_things(number: int, noun: str, *, is_complete: bool) -> str:
    return pluralize(number, noun) if is_complete else f"at least {pluralize(number, noun)}"


def _print_preview(found: OperationPreview) -> None:
    match = "matches" if found.jobs == 1 and found.is_complete else "match"
    times = f", enqueued from {format_local_time(found.oldest)} to {format_local_time(found.newest)}"
    say(f"{_count(found)} {match}{times if found.jobs else ''}")
    width = len(f"{max(found.by_type.values(), default=0):,}")
    for name, number in list(found.by_type.items())[:_MOST_TYPES]:
        say(f"  {number:>{width},}  {name}")
    if len(found.by_type) > _MOST_TYPES:
        say(f"  {'':>{width}}  and {pluralize(len(found.by_type) - _MOST_TYPES, 'other type')}")
    for reason, number in found.reasons.items():
        say(f"{pluralize(number, 'other job')} cannot be changed: {reason}")


def ask(kind: OperationKind, number: int, noun: str, *, is_complete: bool) -> None:
    verb, _ = _WORDS[kind]
    things = count_things(number, noun, is_complete=is_complete)
    if is_complete and number <= MOST_TO_CONFIRM and kind != "purge":
        typer.confirm(f"{verb} {things}?", abort=True)
        return
    typed: str = typer.prompt(f"{verb} {things}? Type the number")
    if re.sub(r"[\s,.]", "", typed) != str(number):
        raise Usage(f"{typed!r} is not the number of {noun}s. Nothing was changed.", hint=f"Type {number}.")


def _work_off(options: GlobalOptions, operation: int, total: str) -> BulkOperation:
    """Does the steps until the operation has ended, or is paused."""
    try:
        with options.open_client() as client:
            while (pause := client.run(bulk_operations.run_step(operation))) is not None:
                if is_terminal():
                    seen = client.run(bulk_operations.get(operation)).seen
                    show_progress(f"{seen:,} of {total}")
                time.sleep(min(pause, _LONGEST_PAUSE_SECONDS))
            return client.run(bulk_operations.get(operation))
    except KeyboardInterrupt:
        say(
            name_commands(
                f"\nOperation {operation} goes on while a node runs. `watchbill operations show {operation}` shows it,"
                f" `watchbill operations cancel {operation}` ends it."
            ),
            err=True,
        )
        raise typer.Exit(130) from None
    finally:
        show_progress()


def _print_end(ended: BulkOperation) -> None:
    say(f"{pluralize(ended.done, 'job')} {_WORDS[ended.kind][1]}")
    noun, verb = _UNCHANGED.get(ended.kind, ("job", "changed"))
    for reason, number in ended.reasons.items():
        say(f"{pluralize(number, noun)} not {verb}: {reason}")
    if ended.state != "done":
        cause = f": {ended.error}" if ended.error else ""
        commands = f"To go on: watchbill operations resume {ended.id}"
        say(name_commands(f"Operation {ended.id} is {ended.state}{cause}. {commands}"), err=True)


@app.command("list", reads=True)
def list_(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List bulk operations, newest first."""
    print_records(
        ctx.obj.run(bulk_operations.find(limit=limit)),
        ("id", "kind", "state", "done", "skipped", "failed", "started", LongName("by"), Wrapped("filter")),
        lambda o: (o.id, o.kind, o.state, o.done, o.skipped, o.failed, o.created_at, o.created_by, o.filter),
        as_json=as_json,
        empty="There are no operations. To start one: watchbill jobs retry --where FILTER",
    )


@app.command(reads=True)
def show(ctx: typer.Context, operation: OperationId, as_json: AsJson = False) -> None:
    """Show a bulk operation: how far it is, and what it could not change."""
    found = ctx.obj.run(bulk_operations.get(operation))
    if as_json:
        print_json(asdict(found))
        return
    facts = {name: value for name, value in asdict(found).items() if value not in (None, {})}
    times = {name: format_local_time(value) for name, value in facts.items() if name.endswith("_at")}
    texts = {name: show_json(value) for name, value in facts.items() if isinstance(value, dict)}
    print_facts(facts | times | texts)


@app.command()
def pause(ctx: typer.Context, operation: OperationId) -> None:
    """Pause a bulk operation after its step; what it has done stays done."""
    _tell(operation, "paused", ctx.obj.run(bulk_operations.pause(operation)))


@app.command()
def resume(ctx: typer.Context, operation: OperationId) -> None:
    """Go on with a bulk operation that is paused or has failed. Nodes do the steps."""
    _tell(operation, "running", ctx.obj.run(bulk_operations.resume(operation)))


@app.command()
def cancel(ctx: typer.Context, operation: OperationId) -> None:
    """End a bulk operation after its step; what it has done stays done."""
    _tell(operation, "canceled", ctx.obj.run(bulk_operations.cancel(operation)))


def _tell(operation: int, wanted: str, state: str) -> None:
    say(f"operation {operation} is {state}", err=state != wanted)
    raise typer.Exit(0 if state == wanted else 1)
