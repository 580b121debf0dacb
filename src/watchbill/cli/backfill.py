"""`watchbill backfill`: jobs for slots of the past, and for the lines of a file.

Both start a bulk operation and do its steps, as every node does. So it goes on after Ctrl-C, if a node runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import orjson
import typer

from watchbill.app.application import App
from watchbill.app.job_options import JobOptions
from watchbill.app.payload import InvalidPayload, encode_unchecked
from watchbill.app.task import new_job
from watchbill.cli.arguments import act_for_tenant, complete_queue, complete_schedule, complete_type, read_since
from watchbill.cli.bulk import Rate, Yes, ask, count_things, finish, read_rate
from watchbill.cli.help import command_group
from watchbill.cli.jobs import find_producer, find_queue
from watchbill.cli.known_names import check_names
from watchbill.cli.output import GlobalOptions, Usage, format_local_time, pluralize
from watchbill.cli.screen import say
from watchbill.client import bulk_operations
from watchbill.client.operations import as_object
from watchbill.model.bulk_operation import BackfillPreview
from watchbill.model.job import NewJob
from watchbill.model.unique import FORMAT_PARTS

app = command_group("Enqueue a job for each slot of the past, or for each line of a file.")

ITEMS_PER_STATEMENT = 1000

Tenant = Annotated[str | None, typer.Option(help="The tenant.", callback=act_for_tenant)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")]


@app.command()
def slots(
    ctx: typer.Context,
    schedule: Annotated[str, typer.Argument(help="The schedule's name.", autocompletion=complete_schedule)],
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first slot: an instant, or how long ago, such as 30d.")
    ],
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The last slot. Default: now.")] = None,
    only_missed: Annotated[
        bool, typer.Option("--missed", help="Leave out slots whose job has succeeded or has not ended.")
    ] = False,
    rate: Rate = None,
    tenant: Tenant = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Enqueue a job for each slot between two times, whether the slot ran or not.

    The job has the slot's own time. Each slot gets one such job, however often you say it. If the schedule does not
    allow its jobs to overlap, each job waits for the one before it."""
    wanted = bulk_operations.describe_backfill(
        schedule, read_since(since), read_since(until or "0s"), tenant=tenant, only_missed=only_missed
    )
    speed = read_rate(rate)
    found = ctx.obj.run(bulk_operations.preview_backfill(wanted))
    _print_preview(found)
    if dry_run or not (found.slots or not found.is_complete):
        return
    if not yes:
        ask("backfill_slots", found.slots, "slot", is_complete=found.is_complete)
    text = f"schedule {schedule} from {wanted['from'][:16]}Z to {wanted['until'][:16]}Z"
    operation = ctx.obj.run(bulk_operations.start("backfill_slots", (), text=text, arguments=wanted, rate=speed))
    finish(ctx.obj, operation, count_things(found.slots, "slot", is_complete=found.is_complete))


def _print_preview(found: BackfillPreview) -> None:
    times = f", from {format_local_time(found.first)} to {format_local_time(found.last)}" if found.slots else ""
    say(f"{count_things(found.slots, 'slot', is_complete=found.is_complete)}{times}")
    for reason, number in found.obstacles.items():
        say(f"{pluralize(number, 'other slot')} left out: {reason}")


@app.command()
def enqueue(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(help="The task's type, such as tasks.hello.", autocompletion=complete_type)],
    file: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A JSON object in each line: the payload of a job. - is standard input."),
    ],
    key: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="The idempotency key of each job, such as '{item_id}'."),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="The queue.", autocompletion=complete_queue)] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    rate: Rate = None,
    tenant: Tenant = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Also if no live node knows the type or the queue.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Enqueue a job for each line of a file. With --key, the same file can be given again: each item has one job.

    All lines are read and checked first. If the App is found here, its task checks each payload and adds its own
    options."""
    chosen = {"queue": queue, "priority": priority}
    options = {name: value for name, value in chosen.items() if value is not None}
    speed = read_rate(rate)
    with ExitStack() as stack:
        producer, reference = find_producer(ctx.obj, type)
        stack.callback(producer.close)
        make = _make_maker(producer, type, options)
        items = [_make_item(number, line, make, key) for number, line in _read_lines(stack, file)]
        if not unchecked:
            check_names(producer, reference, type, queue or find_queue(producer, type))
    say(f"{pluralize(len(items), 'job')} of type {type}{'' if key else ', without a key'}")
    if dry_run or not items:
        return
    if not yes:
        ask("enqueue", len(items), "job", is_complete=True)
    operation = _upload(ctx.obj, items, f"type {type} from {file}", speed, tenant)
    finish(ctx.obj, operation, pluralize(len(items), "job"))


def _read_lines(stack: ExitStack, file: Path) -> Iterator[tuple[int, str]]:
    source: IO[str] = sys.stdin
    if str(file) != "-":
        try:
            source = stack.enter_context(file.open(encoding="utf-8"))
        except OSError as error:
            raise Usage(f"{file} cannot be read: {error.strerror}.") from None
    return ((number, line) for number, line in enumerate(source, 1) if line.strip())


def _make_maker(producer: App, type: str, options: dict[str, Any]) -> Callable[[dict[str, Any]], NewJob]:
    """Returns the function that makes a job of a payload."""
    task = producer.tasks.get(type)
    if task is not None:
        changed = task.using(**options)
        return lambda payload: changed.new_job(changed.check(payload))
    plain = JobOptions().change(**options)
    return lambda payload: new_job(type, encode_unchecked(type, payload), 1, plain)


def _make_item(number: int, line: str, make: Callable[[dict[str, Any]], NewJob], key: str | None) -> dict[str, Any]:
    """The job of a line. Its id is made when it is enqueued."""
    try:
        payload = orjson.loads(line)
    except ValueError as error:
        raise Usage(f"Line {number} is not JSON: {error}.") from None
    if not isinstance(payload, dict):
        raise Usage(f"Line {number} is not a JSON object.", hint="Write one key per parameter of the task.")
    try:
        item = as_object(make(payload))
    except InvalidPayload as error:
        raise Usage(f"Line {number}: {error}") from None
    del item["id"]
    if key is not None:
        item["idempotency_key"] = _render(number, key, payload)
    return item


def _render(number: int, key: str, payload: dict[str, Any]) -> str:
    parts = []
    for found in FORMAT_PARTS.finditer(key):
        text, name = found[0], found[1]
        if name is None:
            parts.append(text[0] if text in ("{{", "}}") else text)
        elif name in payload:
            value = payload[name]
            parts.append(value if isinstance(value, str) else orjson.dumps(value).decode())
        else:
            raise Usage(f"Line {number} has no {name!r}, which the key {key!r} needs.")
    return "".join(parts)


def _upload(
    options: GlobalOptions, items: list[dict[str, Any]], text: str, rate: float | None, tenant: str | None
) -> int:
    """Starts an operation and gives it its items. Until it has all of them, no node begins with it."""
    arguments = {} if tenant is None else {"tenant": tenant}
    with options.open_client() as client:
        operation = client.run(bulk_operations.start("enqueue", (), text=text, arguments=arguments, rate=rate))
        for first in range(0, len(items), ITEMS_PER_STATEMENT):
            client.run(bulk_operations.add_items(operation, items[first : first + ITEMS_PER_STATEMENT]))
        client.run(bulk_operations.resume(operation))
    return operation
