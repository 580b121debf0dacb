"""What a worker prints when it starts: the App and the database, what operators have changed, and queues that seem to
be misspelt."""

from __future__ import annotations

import os
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from watchbill.cli import supervisor
from watchbill.cli.limits import describe_rule
from watchbill.cli.operations import describe_pause
from watchbill.cli.output import pluralize
from watchbill.cli.screen import say, say_wrapped
from watchbill.client import job_operations, limit_operations, schedule_operations
from watchbill.client.client import Client
from watchbill.errors import WatchbillError, name_commands, name_quoted_commands
from watchbill.store.made_by_tests import describe_test_schema, is_made_by_tests
from watchbill.worker.config import Capacity, NodeConfig
from watchbill.worker.handlers import Kind

if TYPE_CHECKING:
    from watchbill import App
    from watchbill.postgres.address import Address
    from watchbill.postgres.schema_status import Status
    from watchbill.settings import Settings

_MAX_LINES = 10  # of schedules, and of changes
_KINDS: dict[Kind, str] = {"async": "async", "thread": "in threads", "process": "in processes"}


def print_start(app: App, reference: str, config: NodeConfig, address: Address, status: Status) -> None:
    tasks = len({id(task) for task in app.tasks.values()})
    queues = [f"{queue}:{config.weights[queue]}" if config.weights else queue for queue in config.queues]
    schedules = f"  {pluralize(len(app.declared), 'schedule')}" if len(app.declared) else ""
    found = f"{pluralize(tasks, 'task')}  {pluralize(len(queues), 'queue')} ({', '.join(queues)}){schedules}"
    say_wrapped(f"{reference}   {found}")
    say_wrapped(f"node {config.name}   {describe_capacity(config.capacity)}")
    if supervisor.UP_COMMAND not in os.environ:
        say_wrapped(f"{address}   schema {status.schema} v{status.version}   {describe_connections(app.settings)}")
    if is_made_by_tests(app.settings.listen_url or app.database_url, status.schema):
        say_wrapped(name_quoted_commands(describe_test_schema(status.schema)))
    from psycopg import Error

    # The worker starts even if its role may not read this.
    with suppress(WatchbillError, Error), Client(config.url, schema=config.schema, pool_size=1) as client:
        _print_lines(find_changes(app, config, client), "watchbill queues, limits and schedules")
        _print_lines(find_unused_queues(app, reference, config, client), "--queues")


def _print_lines(lines: list[str], rest: str) -> None:
    for line in lines[:_MAX_LINES]:
        say_wrapped(line)
    if len(lines) > _MAX_LINES:
        say(f"  and {len(lines) - _MAX_LINES} more: {name_commands(rest)}")


def describe_capacity(capacity: Capacity) -> str:
    kinds = ", ".join(f"{count} {_KINDS[kind]}" for kind, count in capacity.by_kind.items())
    return f"at most {capacity.total} handlers at once: up to {kinds}"


def describe_connections(settings: Settings) -> str:
    whole = " in all processes" if settings.processes > 1 else ""
    return f"up to {settings.worker_connections} connections{whole}"


def find_changes(app: App, config: NodeConfig, client: Client) -> list[str]:
    """Says what operators have changed of that which this worker serves: pauses, and limits and schedules of its code
    that are not as the code declares them."""
    own_limits = {f"queue:{queue}" for queue in config.queues} | {f"task:{name}" for name in app.tasks}
    return [
        *(
            f"paused: {describe_pause(pause)}"
            for pause in client.run(job_operations.pauses())
            if pause.queue in (None, *config.queues) and pause.type in (None, *app.tasks)
        ),
        *(
            f"limit {limit.name}: {describe_rule(limit)}"
            for limit in client.run(limit_operations.limits())
            if limit.changed and (limit.owner == config.app or limit.name in own_limits)
        ),
        *(
            f"schedule {name}: {'changed' if enabled else 'disabled'} by an operator"
            for name, enabled in client.run(schedule_operations.changed(config.app))
        ),
    ]


def find_unused_queues(app: App, reference: str, config: NodeConfig, client: Client) -> list[str]:
    """Says which of the worker's queues nothing uses: neither its tasks, nor jobs, schedules or other nodes."""
    own = app.queue_names()
    if own.issuperset(config.queues):
        return []
    known = own | client.run(job_operations.known_queues())
    return [
        f"No task of {reference} uses queue {queue}, and nothing else does. {_suggest_queue(queue, known)}".rstrip()
        for queue in config.queues
        if queue not in known
    ]


def _suggest_queue(queue: str, known: set[str]) -> str:
    name, colon, _ = queue.partition(":")
    if colon and name in known:
        return f"A weight is a number, as in {name}:3."
    near = get_close_matches(queue, known, n=1)
    return f"Did you mean {near[0]}?" if near else ""


def print_schedules(app: App) -> None:
    for declared in list(app.declared)[:_MAX_LINES]:
        say(f"  schedule {declared.name.ljust(20)} {declared.meaning}")
    if len(app.declared) > _MAX_LINES:
        say(f"  and {len(app.declared) - _MAX_LINES} more: watchbill schedules")


def print_next_command() -> None:
    """Prints the command with which the user can list jobs from another terminal, if `watchbill up` has set it."""
    command = os.environ.pop(supervisor.UP_COMMAND, None)
    if command is not None:
        say("  Look at it from another terminal:")
        for noun in ("jobs", "queues", "schedules"):
            say(f"    {command} {noun}")
        say("  Ctrl-C drains the worker and stops everything.")
