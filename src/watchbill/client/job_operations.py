"""Looking at jobs, queues and nodes, and acting on them: operations, as in `operations.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError
from watchbill.model.audit import AuditRecord
from watchbill.model.dependency_graph import AdjacentJob, Dependency, DependencyGraph, EarlierJob, GraphJob
from watchbill.model.ids import id_range, read_id
from watchbill.model.job import (
    AttemptRecord,
    CauseCount,
    DeadGroup,
    JobFilter,
    JobMatch,
    JobReason,
    JobRecord,
    NodeRecord,
    Pause,
    QueueCount,
    RunLog,
)
from watchbill.model.job_page import EndPage, JobEnd, JobPage, ListedJob
from watchbill.model.steps import StepRecord, WaitingStep
from watchbill.store.refusals import Invalid

_LISTED_NAMES = [field.name for field in fields(ListedJob)]
_LISTED = len(_LISTED_NAMES)
_END_NAMES = [field.name for field in fields(JobEnd)]
Ending = tuple[str, Any, dict[str, Any] | None]  # state, result, error
MAX_GRAPH_JOBS = 10_000
MAX_ADJACENT_JOBS = 20  # in each direction
_INSTANT_LENGTH = 13  # of an id as text: the millisecond at which it was made
MAX_SCANNED_JOBS = 20_000  # for one page


class NoSuchJob(WatchbillError):
    """There is no job with this id."""

    def __init__(self, which: UUID | str, why: str | None = None) -> None:
        hint = why or "If a transaction has enqueued it and not committed yet, only that transaction sees it."
        super().__init__(f"There is no job {which}.", hint=hint)


def check_id(given: object) -> UUID:
    """Returns an id that a caller gives as a UUID or as its text. Refuses anything else, before the database does."""
    found = read_id(given)
    if found is None:
        raise Invalid(f"{given!r} is not the id of a job.", hint="An id is a UUID, such as job.id.")
    return found


def guard(job_id: UUID, fence: int) -> Operation[None]:
    yield Statement("guard", (str(job_id), fence))


def set_artifact(job_id: UUID, fence: int, reference: str) -> Operation[None]:
    yield Statement("set_artifact", (str(job_id), fence, reference))


def complete(
    job_id: UUID, fence: int, result: bytes | None, age: float, lock_timeout: str | None = None
) -> Operation[None]:
    """`lock_timeout`: the setting for the rest of the transaction."""
    raw = None if result is None else result.decode()
    yield Statement("complete", (lock_timeout, str(job_id), fence, raw, age))


def guard_many(jobs: Sequence[tuple[UUID, int]]) -> Operation[None]:
    """`jobs` are ids and fences."""
    yield Statement("guard_many", (orjson.dumps([{"id": job_id, "fence": fence} for job_id, fence in jobs]).decode(),))


def complete_many(
    jobs: Sequence[tuple[UUID, int, bytes | None, float]], lock_timeout: str | None = None
) -> Operation[None]:
    """`jobs` are ids, fences, results and ages. One JSON text, which every driver sends alike."""
    rows = [
        {"id": job_id, "fence": fence, "result": None if result is None else orjson.Fragment(result), "age": age}
        for job_id, fence, result, age in jobs
    ]
    yield Statement("complete_many", (lock_timeout, orjson.dumps(rows).decode()))


def get(job_id: UUID) -> Operation[JobRecord]:
    job_id = check_id(job_id)
    rows = yield Statement("job", (job_id,), JobRecord)
    if not rows:
        raise NoSuchJob(job_id)
    return JobRecord(*rows[0])


def find(wanted: JobFilter) -> Operation[list[JobRecord]]:
    params = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    rows = yield Statement("jobs", params | {"state": list(wanted.state)}, JobRecord)
    return [JobRecord(*row) for row in rows]


def read_page(conditions: str, *, after: UUID | None = None, limit: int = 50) -> Operation[JobPage]:
    """The next page of the jobs that match a filter, whose conditions are a JSON text. The page may have few jobs, or
    none, although more match: it looks at a limited number of jobs."""
    *rows, last = yield Statement("job_page", (conditions, after, MAX_SCANNED_JOBS, limit))
    next_after, scanned, _ = last[_LISTED:]
    reached = last[_LISTED_NAMES.index("created_at")]
    return JobPage([ListedJob(*row[:_LISTED]) for row in rows], next_after, scanned, reached)


def read_ends(conditions: str, since: datetime | None, *, limit: int = 50) -> Operation[EndPage]:
    """What has ended since then; nothing without `since`. The next page starts where this one ends."""
    *rows, last = yield Statement("job_ends", (conditions, since, limit))
    return EndPage([JobEnd(*row[:-1]) for row in rows], last[-1], last[_END_NAMES.index("ended_at")])


def exists(job_id: UUID) -> Operation[bool]:
    return bool((yield Statement("job", (job_id,), JobRecord)))


def ending(job_id: UUID) -> Operation[Ending | None]:
    """The state, result and error of a job; None until it is finished."""
    rows = yield Statement("ending", (job_id,), (str, Any, Any))
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


def why(job_id: UUID) -> Operation[list[JobReason]]:
    """Why a job does not run: every cause that holds, the deciding one first."""
    job_id = check_id(job_id)
    rows = yield Statement("why_job", (job_id,), JobReason)
    reasons = [JobReason(*row) for row in rows]
    if reasons[0].cause == "not_found":
        raise NoSuchJob(job_id, reasons[0].reason)
    return reasons


def count_causes(
    *, queue: str | None = None, type: str | None = None, tenant: str | None = None
) -> Operation[list[CauseCount]]:
    """Why the jobs of a queue, a type or a tenant do not run, the most frequent cause first."""
    rows = yield Statement("why_jobs", (queue, type, tenant), CauseCount)
    return [CauseCount(*row) for row in rows]


def attempts(job_id: UUID) -> Operation[list[AttemptRecord]]:
    rows = yield Statement("attempts", {"id": check_id(job_id)}, AttemptRecord)
    return [AttemptRecord(*row) for row in rows]


def steps(job_id: UUID) -> Operation[list[StepRecord]]:
    rows = yield Statement("job_steps", (check_id(job_id),), StepRecord)
    return [StepRecord(*row) for row in rows]


def logs(job_id: UUID) -> Operation[list[RunLog]]:
    job_id = check_id(job_id)
    rows = yield Statement("job_log", (job_id,), RunLog)
    if not rows and not (yield from exists(job_id)):
        raise NoSuchJob(job_id)
    return [RunLog(*row) for row in rows]


def watch(job_id: UUID, seconds: float) -> Operation[bool]:
    """Says that somebody looks at a job. Returns False if it has ended, or if the caller may only read."""
    job_id = check_id(job_id)
    ((is_open,),) = yield Statement("watch", (job_id, seconds), (bool,))
    return bool(is_open)


def wake(job_id: UUID) -> Operation[bool]:
    """Ends the sleep of a suspended job. Returns False if the job does not sleep."""
    job_id = check_id(job_id)
    ((ended,),) = yield Statement("wake", (job_id,), (int | None,))
    if ended is None and not (yield from exists(job_id)):
        raise NoSuchJob(job_id)
    return bool(ended)


def signal(job_id: UUID, name: str, payload: Any = None, *, key: str | None = None) -> Operation[str]:
    """Sends a signal to a job. Returns `stored`, `woken`, `duplicate` or `finished`."""
    job_id = check_id(job_id)
    ((answer,),) = yield Statement("signal", (job_id, name, _encode_signal(payload), key), (str | None,))
    return _refuse_missing(job_id, answer)


def signal_by_key(
    type: str,
    idempotency_key: str,
    name: str,
    payload: Any = None,
    *,
    key: str | None = None,
    tenant: str | None = None,
) -> Operation[str]:
    """Sends a signal to the job with this idempotency key. Returns what signal() returns."""
    sent = (type, idempotency_key, name, _encode_signal(payload), key, tenant)
    ((answer,),) = yield Statement("signal_by_key", sent, (str | None,))
    if answer is None:
        raise NoSuchJob(f"of {type} with the idempotency key {idempotency_key!r}")
    return str(answer)


def _encode_signal(payload: Any) -> str | None:
    """Returns the payload of a signal as JSON text."""
    try:
        return None if payload is None else orjson.dumps(payload).decode()
    except TypeError as error:
        raise Invalid(f"The payload of a signal must be JSON: {error}.") from None


def waiting_steps(
    *, signal: str | None = None, tenant: str | None = None, limit: int = 50
) -> Operation[list[WaitingStep]]:
    """The steps in which suspended jobs wait, the oldest first."""
    rows = yield Statement("waiting_steps", (signal, tenant, limit), WaitingStep)
    return [WaitingStep(*row) for row in rows]


def cancel(
    job_id: UUID, *, reason: str | None = None, force: bool = False, on_canceled: Callable[[UUID], None] | None = None
) -> Operation[str]:
    """Cancels a job and returns its new state; `running`: it was asked to stop. Calls `on_canceled` if it ended."""
    job_id = check_id(job_id)
    ((state, ended),) = yield Statement("cancel", (job_id, reason, force), (str | None, bool))
    if ended and on_canceled is not None:
        on_canceled(job_id)
    return _refuse_missing(job_id, state)


def retry(job_id: UUID, *, run_at: datetime | None = None, from_step: str | None = None) -> Operation[str]:
    """Reschedules a job, and returns the state it was in. With `from_step` it runs this step again, and those that
    were stored after it."""
    job_id = check_id(job_id)
    if from_step is not None:
        if run_at is not None:
            raise Invalid("A job is retried from a step at once: leave out run_at.")
        ((state,),) = yield Statement("rewind", (job_id, from_step), (str | None,))
        return _refuse_missing(job_id, state)
    ((state,),) = yield Statement("reschedule", (job_id, run_at), (str | None,))
    return _refuse_missing(job_id, state)


def _refuse_missing(job_id: UUID, state: str | None) -> str:
    if state is None:
        raise NoSuchJob(job_id)
    return state


def release(job_id: UUID, *, on_canceled: Callable[[UUID], None] | None = None) -> Operation[bool]:
    """Takes a running job from its node and queues it again. Returns False if it was not running.

    A job that was asked to stop is canceled instead, and `on_canceled` is called.
    """
    job_id = check_id(job_id)
    ((released, ended),) = yield Statement("release", (job_id,), (bool, bool))
    if ended and on_canceled is not None:
        on_canceled(job_id)
    return bool(released)


def pause(*, queue: str | None = None, type: str | None = None, reason: str | None = None) -> Operation[bool]:
    return (yield from _ask_yes_or_no("pause", queue, type, reason))


def resume(*, queue: str | None = None, type: str | None = None) -> Operation[bool]:
    return (yield from _ask_yes_or_no("resume", queue, type))


def drain(name: str) -> Operation[bool]:
    return (yield from _ask_yes_or_no("drain", name))


def _ask_yes_or_no(query: str, *params: Any) -> Operation[bool]:
    ((answer,),) = yield Statement(query, params, (bool,))
    return bool(answer)


def audit(
    *,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    tenant: str | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Operation[list[AuditRecord]]:
    """What operators did, newest first; the next page has rows with smaller ids than `before`."""
    rows = yield Statement("audit", (subject, actor, action, tenant, since, before, limit))
    return [AuditRecord(*row) for row in rows]


def pauses() -> Operation[list[Pause]]:
    return [Pause(*row) for row in (yield Statement("pauses", (), Pause))]


def stats() -> Operation[list[QueueCount]]:
    return [QueueCount(*row) for row in (yield Statement("stats", (), QueueCount))]


def nodes(*, gone: bool = False) -> Operation[list[NodeRecord]]:
    return [NodeRecord(*row) for row in (yield Statement("nodes", (gone,)))]


def dead_groups(*, type: str | None = None, tenant: str | None = None) -> Operation[list[DeadGroup]]:
    return [DeadGroup(*row) for row in (yield Statement("dead_groups", (type, tenant)))]


def ancestors(
    job_id: UUID, *, types: Sequence[str] | None = None, deepest: int | None = None
) -> Operation[list[EarlierJob]]:
    """The jobs that a job has waited for, directly or not; the nearest first."""
    rows = yield Statement("ancestors", (job_id, None if types is None else list(types), deepest))
    return [EarlierJob(*row) for row in rows]


def adjacent(job_id: UUID) -> Operation[list[AdjacentJob]]:
    """What a job waits for and what waits for it, the first twenty of each."""
    rows = yield Statement("neighbours", {"id": job_id, "most": MAX_ADJACENT_JOBS})
    return [AdjacentJob(*row) for row in rows]


def dependency_graph(job_id: UUID, *, largest: int = MAX_GRAPH_JOBS) -> Operation[DependencyGraph]:
    """A job with everything it depends on and everything that depends on it, directly or not."""
    job_id = check_id(job_id)
    members = [row[0] for row in (yield Statement("dependency_graph", (job_id, largest), (UUID,)))]
    jobs = [GraphJob(*row) for row in (yield Statement("relatives", {"ids": members}, GraphJob))]
    if not jobs:
        yield from get(job_id)  # raises NoSuchJob
    dependencies = [Dependency(*row) for row in (yield Statement("dependencies", {"ids": members}, Dependency))]
    return DependencyGraph(jobs, dependencies, len(members) < largest)


def find_by_prefix(lowest: UUID, highest: UUID, limit: int) -> Operation[list[JobMatch]]:
    """The first jobs whose ids lie between two ids: a prefix of an id is such a range."""
    rows = yield Statement("jobs_by_prefix", {"lowest": lowest, "highest": highest, "limit": limit})
    return [JobMatch(*row) for row in rows]


def shorten_ids(ids: Collection[UUID]) -> Operation[dict[UUID, str]]:
    """The shortest beginning of each id that no other job's id has, and at least the instant at which it was made."""
    bounds = [id_range(str(each)[:_INSTANT_LENGTH]) for each in ids]
    lowest, highest = [low for low, _ in bounds], [high for _, high in bounds]
    rows = yield Statement("ids_nearby", {"ids": list(ids), "lowest": lowest, "highest": highest})
    lengths = dict.fromkeys(ids, _INSTANT_LENGTH)
    for job_id, nearby in rows:
        lengths[job_id] = max(lengths[job_id], _count_common(str(job_id), str(nearby)) + 1)
    return {job_id: str(job_id)[:length] for job_id, length in lengths.items()}


def _count_common(one: str, other: str) -> int:
    """Returns how many characters two different texts have in common at their beginning."""
    return next(place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def describe_blind_caller() -> Operation[str | None]:
    """Who the caller is, if it sees no rows because it acts for no tenant; otherwise None."""
    ((caller,),) = yield Statement("describe_blind_caller")
    return None if caller is None else str(caller)


def handled_types() -> Operation[list[str]]:
    """The types of tasks that live nodes handle."""
    return [name for (name,) in (yield Statement("node_types"))]


def served_queues() -> Operation[set[str] | None]:
    """The queues that active nodes serve; None if a node has not said which it serves."""
    served = {name for (name,) in (yield Statement("served_queues"))}
    return None if None in served else served


def known_queues() -> Operation[set[str]]:
    """The queues that nodes serve, that have jobs, that a schedule uses or that are paused."""
    return {name for (name,) in (yield Statement("known_queues"))}


def known_types() -> Operation[set[str]]:
    """The types that nodes handle, that jobs wait for, that a schedule uses or that are paused."""
    return {name for (name,) in (yield Statement("known_types"))}
