"""What a client can ask for, without colour: each is a plan, a generator that yields statements and is sent rows.

`run` drives a plan over a blocking connection, `arun` over an asyncio one; there is no second copy of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from watchbill.errors import WatchbillError
from watchbill.model.job import (
    AttemptRecord,
    DeadGroup,
    Enqueued,
    JobFilter,
    JobRecord,
    NewJob,
    NodeRecord,
    Pause,
    QueueCount,
)  # fmt: skip
from watchbill.store.refusals import elsewhere

R = TypeVar("R")


class Statement(NamedTuple):
    """A named query and its parameters."""

    query: str
    params: Sequence[Any] | dict[str, Any] = ()


class Copy(NamedTuple):
    """Rows for COPY ... FROM STDIN."""

    query: str
    rows: list[bytes]


Rows = list[tuple[Any, ...]]
Plan = Generator[Statement | Copy, Rows, R]

COPY_FROM = 500  # as many jobs pay for a temporary table


class Home(NamedTuple):
    """Where an App's jobs live; the installation's id as far as it is known."""

    schema: str
    installation: str | None = None


class NoSuchJob(WatchbillError):
    """There is no job with this id."""


def enqueue(job: NewJob, *, resend: bool = False, strict: bool = False) -> Plan[Enqueued]:
    if job.depends_on:
        (answer,) = yield from enqueue_many([job], resend=resend, strict=strict)
        return answer
    retry = None if job.retry is None else orjson.dumps(job.retry).decode()
    meta = None if job.meta is None else job.meta.decode()
    rows = yield Statement(
        "enqueue",
        (
            job.type,
            job.payload.decode(),
            job.queue,
            job.priority,
            job.run_at,
            job.delay,
            job.tenant,
            job.max_attempts,
            retry,
            job.timeout,
            job.idempotency_key,
            job.idempotency_window,
            job.version,
            job.id,
            job.created_by,
            meta,
            resend,
            strict,
        ),
    )
    return Enqueued(*rows[0])


def enqueue_many(jobs: Sequence[NewJob], *, resend: bool = False, strict: bool = False) -> Plan[list[Enqueued]]:
    """All or none, answers in the order given."""
    if not jobs:
        return []
    if not _worth_copying(jobs):
        rows = yield Statement("enqueue_many", (_as_array(jobs), resend, strict))
        return [Enqueued(*row) for row in rows]
    yield Statement("incoming")
    if any(job.depends_on for job in jobs):
        yield Copy("copy_incoming_flow", [_with_dependencies(job, _as_copy_row(job)) for job in jobs])
    else:
        yield Copy("copy_incoming", [_as_copy_row(job) for job in jobs])
    rows = yield Statement("enqueue_incoming", (resend, strict))
    yield Statement("drop_incoming")
    answers = [Enqueued(job.id, 0, True, False) for job in jobs]
    if rows:
        others = {each.id: each for each in map(_enqueued, rows)}
        answers = [others.get(answer.id, answer) for answer in answers]
    return answers


def enqueue_here(job: NewJob, home: Home, *, strict: bool = False) -> Plan[Enqueued]:
    """In a caller's transaction, and never sent again: whether it is lost is his to decide, with the rest of it."""
    rows = yield Statement("enqueue_here", (strict, orjson.dumps(as_object(job)).decode(), home.installation))
    if not rows:
        raise elsewhere(home.schema)
    return _enqueued(rows[0])


def enqueue_many_here(
    jobs: Sequence[NewJob], home: Home, *, copy: bool = False, strict: bool = False
) -> Plan[list[Enqueued]]:
    """`copy`: the connection can."""
    if not jobs:
        return []
    if copy and _worth_copying(jobs):
        ((found,),) = yield Statement("installation")
        if home.installation not in (None, found):
            raise elsewhere(home.schema)
        return (yield from enqueue_many(jobs, strict=strict))
    rows = yield Statement("enqueue_many_here", (strict, _as_array(jobs), home.installation))
    if not rows:
        raise elsewhere(home.schema)
    return [_enqueued(row) for row in rows]


def installation() -> Plan[str]:
    ((found,),) = yield Statement("installation")
    return str(found)


def guard(job_id: UUID, fence: int) -> Plan[None]:
    yield Statement("guard", (str(job_id), fence))


def complete(job_id: UUID, fence: int, result: bytes | None, age: float) -> Plan[None]:
    yield Statement("complete", (str(job_id), fence, None if result is None else result.decode(), age))


def get(job_id: UUID) -> Plan[JobRecord]:
    rows = yield Statement("job", (job_id,))
    if not rows:
        raise NoSuchJob(
            f"There is no job {job_id}.", hint="It may have been purged, or live in another schema or database."
        )
    return JobRecord(*rows[0])


def find(wanted: JobFilter) -> Plan[list[JobRecord]]:
    params = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    rows = yield Statement("jobs", params | {"state": list(wanted.state)})
    return [JobRecord(*row) for row in rows]


def ending(job_id: UUID) -> Plan[tuple[str, Any, dict[str, Any] | None] | None]:
    """(state, result, error) once the job is finished."""
    rows = yield Statement("ending", (job_id,))
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


def attempts(job_id: UUID) -> Plan[list[AttemptRecord]]:
    rows = yield Statement("attempts", {"id": job_id})
    return [AttemptRecord(*row) for row in rows]


def cancel(
    job_id: UUID, *, reason: str | None = None, force: bool = False, tell: Callable[[UUID], None] | None = None
) -> Plan[str]:
    """The state it is in afterwards; `running`: it was asked to stop. `tell` is called if it has ended by this."""
    ((state, ended),) = yield Statement("cancel", (job_id, reason, force))
    if ended and tell is not None:
        tell(job_id)
    return _known(job_id, state)


def retry(job_id: UUID, *, run_at: datetime | None = None) -> Plan[str]:
    """Reschedules a job; the state it was in."""
    ((state,),) = yield Statement("reschedule", (job_id, run_at))
    return _known(job_id, state)


def _known(job_id: UUID, state: str | None) -> str:
    if state is None:
        raise NoSuchJob(f"There is no job {job_id}.")
    return state


def release(job_id: UUID, *, tell: Callable[[UUID], None] | None = None) -> Plan[bool]:
    """Takes a running job away from its node; False when it does not run. `tell` is called if it has ended by this."""
    ((released, ended),) = yield Statement("release", (job_id,))
    if ended and tell is not None:
        tell(job_id)
    return bool(released)


def pause(*, queue: str | None = None, type: str | None = None, reason: str | None = None) -> Plan[bool]:
    return (yield from _truth("pause", queue, type, reason))


def resume(*, queue: str | None = None, type: str | None = None) -> Plan[bool]:
    return (yield from _truth("resume", queue, type))


def drain(name: str) -> Plan[bool]:
    return (yield from _truth("drain", name))


def _truth(query: str, *params: Any) -> Plan[bool]:
    ((answer,),) = yield Statement(query, params)
    return bool(answer)


def pauses() -> Plan[list[Pause]]:
    return [Pause(*row) for row in (yield Statement("pauses"))]


def stats() -> Plan[list[QueueCount]]:
    return [QueueCount(*row) for row in (yield Statement("stats"))]


def nodes(*, gone: bool = False) -> Plan[list[NodeRecord]]:
    return [NodeRecord(*row) for row in (yield Statement("nodes", (gone,)))]


def dead_groups(*, type: str | None = None, tenant: str | None = None) -> Plan[list[DeadGroup]]:
    return [DeadGroup(*row) for row in (yield Statement("dead_groups", (type, tenant)))]


def retry_dead(wanted: JobFilter) -> Plan[int]:
    return (yield from _repeat("retry_dead", wanted))


def purge_dead(wanted: JobFilter) -> Plan[int]:
    return (yield from _repeat("purge_dead", wanted))


def count_dead(wanted: JobFilter) -> Plan[int]:
    ((count,),) = yield Statement("count_dead", (*_selection(wanted), wanted.limit))
    return int(count)


def _repeat(query: str, wanted: JobFilter) -> Plan[int]:
    """In batches, each its own statement, so that no lock is held for long."""
    total = 0
    while total < wanted.limit:
        ((count,),) = yield Statement(query, (*_selection(wanted), min(1000, wanted.limit - total)))
        if not count:
            break
        total += count
    return total


def _selection(wanted: JobFilter) -> tuple[str | None, ...]:
    return (wanted.type, wanted.queue, wanted.tenant, wanted.message)


def _worth_copying(jobs: Sequence[NewJob]) -> bool:
    """Not those with keys: the answer for one that was known names another job, so only its place says whose it is."""
    return len(jobs) >= COPY_FROM and all(job.idempotency_key is None for job in jobs)


def _enqueued(row: tuple[Any, ...]) -> Enqueued:
    """Of a row whose id is text."""
    return Enqueued(UUID(row[0]), *row[1:])


def _as_array(jobs: Sequence[NewJob]) -> str:
    return orjson.dumps([as_object(job) for job in jobs]).decode()


def as_object(job: NewJob) -> dict[str, Any]:
    told = job._asdict()
    told["payload"] = orjson.Fragment(job.payload)
    told["meta"] = None if job.meta is None else orjson.Fragment(job.meta)
    for duration in ("delay", "timeout", "idempotency_window"):
        told[duration] = _interval(told[duration])
    return {name: value for name, value in told.items() if value is not None}


def _as_copy_row(job: NewJob) -> bytes:
    """COPY's text format, in the order of the type new_job. Of a bulk's jobs mostly the id and the payload differ."""
    retry = None if job.retry is None else orjson.dumps(job.retry)
    before, between, after = _same_for_many(
        job.type,
        job.queue,
        job.priority,
        job.run_at,
        job.delay,
        job.tenant,
        job.max_attempts,
        retry,
        job.timeout,
        job.version,
        job.idempotency_window,
        job.created_by,
    )
    payload = _field(job.payload)
    if job.idempotency_key is None and job.meta is None:
        return b"%b%b%b%b\\N%b\\N\n" % (job.id.hex.encode(), before, payload, between, after)
    return b"%b%b%b%b%b%b%b\n" % (
        job.id.hex.encode(),
        before,
        payload,
        between,
        _field(job.idempotency_key),
        after,
        _field(job.meta),
    )


@lru_cache(maxsize=1000)
def _same_for_many(
    type: str,
    queue: str,
    priority: int,
    run_at: datetime | None,
    delay: float | None,
    tenant: str,
    max_attempts: int,
    retry: bytes | None,
    timeout: float | None,
    version: int,
    window: float | None,
    created_by: str | None,
) -> tuple[bytes, bytes, bytes]:
    """What stands between id and payload, payload and key, key and meta."""
    when = None if run_at is None else run_at.isoformat()
    between = (
        queue,
        str(priority),
        when,
        _interval(delay),
        tenant,
        str(max_attempts),
        retry,
        _interval(timeout),
        str(version),
    )
    return (
        b"\t%b\t" % _field(type),
        b"\t%b\t" % b"\t".join(map(_field, between)),
        b"\t%b\t%b\t" % (_field(_interval(window)), _field(created_by)),
    )


def _with_dependencies(job: NewJob, row: bytes) -> bytes:
    parents = f"{{{','.join(map(str, job.depends_on))}}}" if job.depends_on else None
    return b"%b\t%b\t%b\n" % (row[:-1], _field(parents), _field(job.run_if))


def _interval(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds} seconds"


def _field(value: str | bytes | None) -> bytes:
    if value is None:
        return b"\\N"
    raw = value.encode() if isinstance(value, str) else value
    if b"\\" in raw or b"\t" in raw or b"\n" in raw or b"\r" in raw:
        raw = raw.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return raw
