"""Operations, and how jobs are enqueued.

An operation is what a client can ask of the database, written once for blocking and asyncio connections: a generator
that yields statements and is sent their rows. `drive` runs one over a blocking connection, `adrive` over an asyncio
one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from watchbill.model.durations import LONGEST_TIMEOUT_SECONDS
from watchbill.model.job import AlikeJobs, AllCreated, Enqueued, NewJob
from watchbill.model.job_fields import JOB_COLUMNS, JobField
from watchbill.model.tenant import DEFAULT_TENANT, acting_tenant
from watchbill.store.refusals import wrong_installation

if TYPE_CHECKING:
    from watchbill.store.queries import Queries

R = TypeVar("R")


class Statement(NamedTuple):
    """A named query, its parameters, and the types of its columns: a tuple of types, or a record with such fields.

    Only a caller's connection needs the types (`caller_connection.py`): there, parameters and rows are sent as text.
    """

    query: str
    params: Sequence[Any] | dict[str, Any] = ()
    columns: type | tuple[Any, ...] | None = None


class Copy(NamedTuple):
    """Rows for COPY ... FROM STDIN."""

    query: str
    rows: list[bytes]


Step = Statement | Copy
Rows = list[tuple[Any, ...]]
Operation = Generator[Step, Rows, R]

MIN_JOBS_TO_COPY = 500  # fewer are sent faster in one statement than through a temporary table


class Home(NamedTuple):
    """The schema of an App's jobs, and the id of the installation there, if it is known."""

    schema: str
    installation: str | None = None


def drive(
    operation: Operation[R], execute: Callable[[Any, Step, Queries], Rows], connection: Any, queries: Queries
) -> R:
    """Runs an operation: `execute` sends each of its steps over the connection."""
    try:
        step = next(operation)
        while True:
            step = operation.send(execute(connection, step, queries))
    except StopIteration as end:
        result: R = end.value
        return result


async def adrive(
    operation: Operation[R],
    execute: Callable[[Any, Step, Queries], Awaitable[Rows]],
    connection: Any,
    queries: Queries,
) -> R:
    try:
        step = next(operation)
        while True:
            step = operation.send(await execute(connection, step, queries))
    except StopIteration as end:
        result: R = end.value
        return result


def installation() -> Operation[str]:
    """The id of the installation in this schema."""
    ((found,),) = yield Statement("installation")
    return str(found)


def at_home(operation: Operation[R], home: Home) -> Operation[R]:
    """Runs an operation on a caller's connection, unless that is known to lead to another installation."""
    if home.installation is not None and (yield from installation()) != home.installation:
        raise wrong_installation(home.schema)
    return (yield from operation)


def enqueue(job: NewJob, resend: bool = False, *, new_ids: bool = False, strict: bool = False) -> Operation[Enqueued]:
    """Stores one job. `resend`: an earlier try may have stored this very job; then the answer is that job, as created.
    `new_ids`: the id was made for this call, so it need not be looked for among finished jobs."""
    if new_ids and not resend and _is_plain(job):
        ((seq,),) = yield Statement("enqueue_plain", _plain_params(job))
        return Enqueued(job.id, seq, True, False)
    if job.depends_on:
        (answer,) = yield from enqueue_many([job], resend=resend, new_ids=new_ids, strict=strict)
        return answer
    rows = yield Statement(
        "enqueue",
        (
            job.type,
            job.payload.decode(),
            job.queue,
            job.priority,
            job.run_at,
            job.delay,
            _names_tenant(job),
            job.tenant,
            job.max_attempts,
            None if job.retry is None else _to_json(job.retry),
            job.timeout,
            job.idempotency_key,
            job.idempotency_window,
            job.version,
            job.id,
            job.created_by,
            None if job.meta is None else job.meta.decode(),
            resend,
            new_ids and not resend,
            strict,
            None if job.limit_keys is None else list(job.limit_keys),
            job.ordered_by,
            job.route_by,
            job.token_group,
            None if job.runs_on is None else _to_json(job.runs_on),
            job.unique_by,
            job.unique_until,
            job.on_duplicate,
            job.debounce_wait,
            job.debounce_max,
            job.expires_at,
            job.expires_in,
            None if job.results is None else _to_json(job.results),
        ),
    )
    return Enqueued._make(rows[0])


def _plain_params(job: NewJob) -> tuple[Any, ...]:
    return (
        job.type,
        job.payload.decode(),
        job.queue,
        job.priority,
        _names_tenant(job),
        job.tenant,
        job.max_attempts,
        job.timeout,
        job.version,
        job.id,
        job.created_by,
        None if job.meta is None else job.meta.decode(),
    )


def _names_tenant(job: NewJob) -> bool:
    """Whether a caller named the job's tenant. Otherwise row security refuses the job: that may be a mistake."""
    return job.tenant != DEFAULT_TENANT or acting_tenant.get() is not None


def _is_plain(job: NewJob) -> bool:
    """Whether the SQL function _enqueue_plain can store the job by itself: it leaves others to enqueue()."""
    return (
        (job.run_at, job.delay, job.retry, job.idempotency_key, job.idempotency_window) == _NO_OPTIONS
        and job[_FIRST_RARE:] == _NO_RARE_OPTIONS
        and job.payload[:1] == b"{"
        and (job.meta is None or job.meta[:1] == b"{")
        and _are_valid(job.type, job.queue, job.priority, job.tenant, job.max_attempts, job.timeout, job.version)
    )


_FIRST_UNIQUE = NewJob._fields.index("unique_by")
_AFTER_UNIQUE = NewJob._fields.index("debounce_max") + 1
_NOT_UNIQUE = (None,) * (_AFTER_UNIQUE - _FIRST_UNIQUE)
_FIRST_RARE = NewJob._fields.index("depends_on")
_NO_RARE_OPTIONS = (None,) * (len(NewJob._fields) - _FIRST_RARE)
_NO_OPTIONS = (None,) * 5


@lru_cache(maxsize=1000)
def _are_valid(
    type: str, queue: str, priority: int, tenant: str, max_attempts: int, timeout: float | None, version: int
) -> bool:
    """Whether these are within the limits of SQL's _job_error, which explains what is not."""
    return (
        1 <= len(type) <= 200
        and not type.startswith("watchbill.")
        and 1 <= len(queue) <= 100
        and 1 <= len(tenant) <= 200
        and -32768 <= priority <= 32767
        and 2 <= max_attempts <= 32767  # a job with one attempt has another class
        and (timeout is None or 0 < timeout <= LONGEST_TIMEOUT_SECONDS)
        and 1 <= version < 2**31
    )


def can_enqueue_alike(jobs: AlikeJobs) -> bool:
    """Whether `enqueue_alike` can store the jobs, if their ids are new."""
    return _is_plain(jobs.pattern) and all(payload[:1] == b"{" for payload in jobs.payloads)


def enqueue_alike(jobs: AlikeJobs, resend: bool = False) -> Operation[AllCreated]:
    """Stores plain jobs, all or none, in one statement. Their ids were made for this call."""
    from watchbill.postgres.arrays import jsonbs, uuids

    shared = jobs.pattern
    yield Statement(
        "enqueue_plain_many",
        (
            shared.type,
            shared.queue,
            shared.priority,
            shared.tenant,
            shared.max_attempts,
            shared.timeout,
            shared.version,
            shared.created_by,
            None if shared.meta is None else shared.meta.decode(),
            uuids([number.to_bytes(16) for number in jobs.ids]),
            jsonbs(jobs.payloads),
            resend,
        ),
    )
    return AllCreated(jobs.ids)


def enqueue_many(
    jobs: Sequence[NewJob], resend: bool = False, *, new_ids: bool = False, strict: bool = False
) -> Operation[list[Enqueued]]:
    """Stores all jobs or none; the answers are in the order of the jobs. Takes several statements, and so needs a
    transaction, if `should_copy(jobs)`."""
    if not jobs:
        return []
    if not should_copy(jobs):
        new_ids = new_ids and not resend
        rows = yield Statement("enqueue_many", (_to_json(list(map(as_object, jobs))), resend, new_ids, strict))
        return [Enqueued._make(row) for row in rows]
    yield Statement("incoming")
    if any(job[_FIRST_RARE:] != _NO_RARE_OPTIONS for job in jobs):
        yield Copy("copy_incoming_whole", [_format_whole_copy_row(job) for job in jobs])
    else:
        yield Copy("copy_incoming", [_format_copy_row(job) for job in jobs])
    rows = yield Statement("enqueue_incoming", (resend, new_ids and not resend, strict))
    yield Statement("drop_incoming")
    answers = [Enqueued(job.id, 0, True, False) for job in jobs]
    if rows:
        exceptions = {answer.id: answer for answer in map(_read_text_id, rows)}
        answers = [exceptions.get(answer.id, answer) for answer in answers]
    return answers


def enqueue_here(
    jobs: Sequence[NewJob], home: Home, *, copy: bool = False, new_ids: bool = False, strict: bool = False
) -> Operation[list[Enqueued]]:
    """Stores jobs in a caller's transaction. Sent only once: the caller decides what to do if the transaction is lost.

    `copy`: the connection can run COPY.
    """
    if not jobs:
        return []
    jobs = list(jobs)
    tenants = {job.tenant for job in jobs if _names_tenant(job)}
    tenant = tenants.pop() if len(tenants) == 1 else None
    if copy and should_copy(jobs):
        if tenant is not None:
            yield Statement("act_for_tenant", (tenant,), (str,))
        return (yield from at_home(enqueue_many(jobs, new_ids=new_ids, strict=strict), home))
    if len(jobs) == 1:
        rows = yield Statement("enqueue_here", (new_ids, strict, _to_json(as_object(jobs[0])), home.installation))
    else:
        objects = _to_json(list(map(as_object, jobs)))
        rows = yield Statement("enqueue_many_here", (new_ids, strict, objects, tenant, home.installation))
    if not rows:
        raise wrong_installation(home.schema)
    return [_read_text_id(row) for row in rows]


def should_copy(jobs: Sequence[NewJob]) -> bool:
    """Whether to store the jobs with COPY. Not if a key may lead to an earlier job, since COPY's answers go by id."""
    return len(jobs) >= MIN_JOBS_TO_COPY and all(
        job.idempotency_key is None and job[_FIRST_UNIQUE:_AFTER_UNIQUE] == _NOT_UNIQUE for job in jobs
    )


def _read_text_id(row: tuple[Any, ...]) -> Enqueued:
    return Enqueued(UUID(row[0]), *row[1:])


# -- These functions write a job as JSON.


def as_object(job: NewJob) -> dict[str, Any]:
    """The fields of a job that are set, as SQL reads them with jsonb_populate_record."""
    return {
        field.name: _JSON_FORMS[field.kind](value) if field.kind in _JSON_FORMS else value
        for field, value in zip(JOB_COLUMNS, job, strict=True)
        if value is not None
    }


def _to_json(value: object) -> str:
    return orjson.dumps(value).decode()


def _format_interval(seconds: float) -> str:
    return f"{seconds} seconds"


_JSON_FORMS: dict[str, Callable[[Any], Any]] = {"json": orjson.Fragment, "duration": _format_interval}


# -- These functions write a job as a row of COPY's text format, in the order of SQL's type new_job.

_QUEUE, _RETRY, _META = (NewJob._fields.index(name) for name in ("queue", "retry", "meta"))
_SHARED_COLUMNS = (JOB_COLUMNS[NewJob._fields.index("type")], *JOB_COLUMNS[_QUEUE:_META])
_NULL = b"\\N"


def _format_copy_row(job: NewJob) -> bytes:
    """One line for COPY. In a bulk mostly the id and the payload differ, so the text of the other columns is cached."""
    retry = None if job.retry is None else orjson.dumps(job.retry)  # a dict cannot be part of the cache's key
    before, after = _format_shared_columns(job.type, job[_QUEUE:_RETRY], retry, job[_RETRY + 1 : _META])
    meta = _NULL if job.meta is None else _escape(job.meta)
    return b"%b\t%b\t%b\t%b\t%b\n" % (job.id.hex.encode(), before, _escape(job.payload), after, meta)


def _format_whole_copy_row(job: NewJob) -> bytes:
    """Formats a line with all columns: few jobs use those after meta."""
    rare = [_format_column(*each) for each in zip(JOB_COLUMNS[_FIRST_RARE:], job[_FIRST_RARE:], strict=True)]
    return b"\t".join([_format_copy_row(job)[:-1], *rare]) + b"\n"


@lru_cache(maxsize=1000)
def _format_shared_columns(
    type: str, head: tuple[Any, ...], retry: bytes | None, tail: tuple[Any, ...]
) -> tuple[bytes, bytes]:
    """The columns before the payload, and those after it."""
    first, *rest = [
        _format_column(field, value) for field, value in zip(_SHARED_COLUMNS, (type, *head, retry, *tail), strict=True)
    ]
    return first, b"\t".join(rest)


def _format_column(field: JobField, value: Any) -> bytes:
    if value is None:
        return _NULL
    match field.kind:
        case "duration":
            value = _format_interval(value)
        case "instant":
            value = value.isoformat()
        case "parents" | "formats":
            value = _format_array(value)
        case "labels":
            value = orjson.dumps(value)
    return _escape(value if isinstance(value, bytes) else str(value).encode())


def _format_array(values: Iterable[object]) -> str:
    quoted = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _escape(raw: bytes) -> bytes:
    if b"\\" in raw or b"\t" in raw or b"\n" in raw or b"\r" in raw:
        raw = raw.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return raw
