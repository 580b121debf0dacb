"""Reads and completes arguments of commands: jobs, queues, types, schedules and nodes.

A job may be given by the beginning of its id, as long as no other id begins so.
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from watchbill.cli.discovery import find_app_or_none, hide_output
from watchbill.cli.output import GlobalOptions, Usage
from watchbill.model.durations import seconds
from watchbill.model.ids import id_range
from watchbill.model.states import STATES, WAITS, State, Waits
from watchbill.model.tenant import acting_tenant

if TYPE_CHECKING:
    from watchbill.model.job import JobMatch

_MAX_MATCHES = 10  # how many jobs an error about an ambiguous id lists at most
_MAX_COMPLETIONS = 100


def _make_completion(find: Callable[[GlobalOptions, str], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """Makes a shell completion that asks the database. It never fails: without a database it completes nothing."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        root = ctx.find_root()
        options = GlobalOptions(
            root.params.get("database_url"), root.params.get("schema"), root.obj or {}, root.params.get("cell")
        )
        with contextlib.suppress(Exception), hide_output():
            return sorted({name for name in find(options, incomplete) if name.startswith(incomplete)})
        return []

    return complete


def _complete_state(incomplete: str) -> list[str]:
    """Completes the name of a state, also the last one of several that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    words = [word for word in (*STATES, *WAITS) if word.startswith(last) and word not in before.split(",")]
    return [f"{before}{comma}{word}" for word in words]


def _find_jobs(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    from watchbill.client import job_operations

    found = options.run(job_operations.find_by_prefix(*find_id_range(incomplete), _MAX_COMPLETIONS))
    return (str(job.id) for job in found)


def _find_queues(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    from watchbill.client import job_operations

    return options.run(job_operations.known_queues())


def _find_types(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    """Yields the types of the App in this directory, and those that the database knows."""
    from watchbill.client import job_operations

    found = find_app_or_none(options.load_settings().app)
    types = set(found[0].handlers()) if found else set()
    with contextlib.suppress(Exception):  # without a database, the App's own types are still completed
        types |= options.run(job_operations.known_types())
    return types


def _find_schedules(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    from watchbill.client import schedule_operations

    return options.run(schedule_operations.find_names("default"))


def _find_nodes(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    from watchbill.client import job_operations

    return (node.name for node in options.run(job_operations.nodes()))


def _find_locks(options: GlobalOptions, incomplete: str) -> Iterable[str]:
    from watchbill.client import lock_operations

    return (lock.name for lock in options.run(lock_operations.locks()))


complete_job, complete_queue, complete_type = (
    _make_completion(_find_jobs),
    _make_completion(_find_queues),
    _make_completion(_find_types),
)
complete_schedule, complete_node = _make_completion(_find_schedules), _make_completion(_find_nodes)
complete_lock = _make_completion(_find_locks)

JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, or a unique beginning of it.", autocompletion=complete_job)
]
OneJob = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The job's id, or a unique beginning of it.", autocompletion=complete_job),
]
AfterJob = Annotated[
    str | None, typer.Option(metavar="ID", help="Start after this job, for the next page.", autocompletion=complete_job)
]
StateNames = Annotated[
    list[str] | None,
    typer.Option(
        help="Only in these states, separated by commas; also ready, paused and so on.", autocompletion=_complete_state
    ),
]
OnlyType = Annotated[str | None, typer.Option("--type", help="Only of this type.", autocompletion=complete_type)]
OnlyQueue = Annotated[str | None, typer.Option("--queue", help="Only in this queue.", autocompletion=complete_queue)]


def act_for_tenant(ctx: typer.Context, tenant: str | None) -> str | None:
    """Sets the tenant for the rest of the command, if --tenant was given. With row security, a role that is not bound
    to a tenant sees no rows without it."""
    source = ctx.get_parameter_source("tenant")
    if tenant and source is not None and source.name == "COMMANDLINE":
        acting_tenant.set(tenant)
    return tenant


OnlyTenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.", callback=act_for_tenant)]
RunAt = Annotated[
    str | None, typer.Option(metavar="INSTANT", help="When; without an offset in the time zone of this machine.")
]


def read_states(words: list[str] | None) -> tuple[State | Waits, ...]:
    """Reads the values of --state. `--state queued,running` and `--state queued --state running` mean the same. A value
    may also be what a job waits for, such as `paused`."""
    given = [word for each in words or () for word in each.split(",")]
    for word in given:
        if word not in STATES and word not in WAITS:
            hint = f"The states are {', '.join(STATES)}.\nQueued and failed jobs are {', '.join(WAITS)}."
            raise Usage(f"The state {word!r} is invalid.", hint=hint)
    return tuple(word for word in (*STATES, *WAITS) if word in given)


def read_instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (OverflowError, ValueError):
        hint = "Write 2026-03-29, 2026-03-29T02:30 or 2026-03-29T02:30+01:00."
        raise Usage(f"The instant {text!r} is invalid.", hint=hint) from None


def read_since(text: str) -> datetime:
    """Reads an instant, or how long ago it was, such as `2h`."""
    try:
        return datetime.now().astimezone() - timedelta(seconds=seconds(text))
    except (OverflowError, ValueError):
        instant = read_instant(text)
        assert instant is not None
        return instant


def find_job(options: GlobalOptions, text: str) -> UUID:
    """Returns the id of the job whose id is `text` or begins with it. Raises if several ids begin so."""
    low, high = find_id_range(text)
    if low == high:
        return low
    from watchbill.client import job_operations

    found = options.run(job_operations.find_by_prefix(low, high, _MAX_MATCHES + 1))
    if not found:
        raise job_operations.NoSuchJob(f"whose id begins with {text}")
    if len(found) > 1:
        raise _make_ambiguous_error(text, found)
    return found[0].id


def find_job_or_none(options: GlobalOptions, text: str | None) -> UUID | None:
    return None if text is None else find_job(options, text)


def _make_ambiguous_error(text: str, found: list[JobMatch]) -> Usage:
    lines = [f"  {job.id}  {job.state.ljust(9)}  {job.type}" for job in found[:_MAX_MATCHES]]
    more = ["  ..."] if len(found) > _MAX_MATCHES else []
    number = f"more than {_MAX_MATCHES}" if more else len(found)
    return Usage(f"{text} is the beginning of {number} ids.", hint="\n".join(["Give more of it:", *lines, *more]))


def find_id_range(text: str) -> tuple[UUID, UUID]:
    """Returns the lowest and the highest id that begin with `text`."""
    digits = text.replace("-", "")
    if len(digits) > 32 or not set(digits) <= set(string.hexdigits):
        hint = "Copy it from `watchbill jobs`; its first characters are enough if no other job has the same."
        raise Usage(f"The job id {text!r} is invalid.", hint=hint)
    return id_range(digits)
