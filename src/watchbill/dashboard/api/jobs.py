"""Jobs: enqueue, look, change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from pydantic import Field, RootModel, model_validator

from watchbill.app.json_round_trip import find_unstorable
from watchbill.client import job_operations, operations
from watchbill.client.operations import Operation, Statement
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.router import refuse_other_tenant
from watchbill.dashboard.api.shapes import (
    Answer,
    Body,
    Empty,
    Instant,
    Limit,
    Name,
    Query,
    Seconds,
    Text,
    Wide,
    describe,
    list_of,
    shape,
)
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.searches import read_search
from watchbill.filters.condition import write_conditions
from watchbill.model.audit import AuditRecord
from watchbill.model.dependency_graph import Dependency, GraphJob, RunIf
from watchbill.model.ids import new_id
from watchbill.model.job import AttemptRecord, Enqueued, JobReason, JobRecord, NewJob
from watchbill.model.job_page import ListedJob
from watchbill.model.tenant import DEFAULT_TENANT
from watchbill.model.webhook import WEBHOOK_DELIVERY, WEBHOOK_QUEUE, Ending
from watchbill.redaction import Redaction

KEY_SECONDS = 86_400.0  # how long the header Idempotency-Key is valid
MOST_JOBS = 10_000  # of one batch
MOST_COUNTED = 10_000
COUNT_SECONDS = 2.0
MOST_WAIT_SECONDS = 20.0
MOST_GRAPH_JOBS = 1_000
_MOST_AUDIT_ROWS = 200
_LONGEST_PAUSE_SECONDS = 1.0

Payload = Annotated[dict[str, Any], Field(description="One key per parameter of the task.")]
Priority = Annotated[int, Field(ge=-32768, le=32767, description="A higher number runs first.")]
Format = Annotated[Text, Field(max_length=1000, description="A format such as `{order_id}`.")]


class Notify(Body):
    """The webhook that says how the job has ended, to an endpoint of kind webhook or to a free address."""

    endpoint: Name | None = None
    url: Text | None = None
    on: Annotated[list[Ending], Field(min_length=1, max_length=3)] = Field(["succeeded", "dead"])
    result: bool = Field(False, description="Whether the webhook has the result of the job.")

    @model_validator(mode="after")
    def _names_one_place(self) -> Notify:
        if (self.endpoint is None) == (self.url is None):
            raise ValueError("give endpoint or url, and not both")
        return self


class NewJobBody(Body):
    """A job to enqueue: the arguments of the SQL function `enqueue`. Durations are seconds."""

    type: Name
    payload: Payload = Field(default_factory=dict)
    queue: Annotated[Name, Field(max_length=100)] = "default"
    priority: Priority = 0
    run_at: Instant | None = None
    delay: Seconds | None = None
    tenant: Name | None = None
    max_attempts: Annotated[int, Field(ge=1, le=32767)] = 10
    retry: dict[str, Any] | None = Field(None, description="kind, base, factor, cap, jitter and delays in seconds.")
    timeout: Seconds | None = None
    version: Annotated[int, Field(ge=1, lt=2**31)] = 1
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    idempotency_window: Seconds | None = None
    id: UUID | None = Field(None, description="A UUIDv7 of your own.")
    depends_on: Annotated[list[UUID], Field(max_length=1000)] | None = None
    run_if: RunIf | None = None
    limit_keys: Annotated[list[Format], Field(max_length=20)] | None = None
    ordered_by: Format | None = None
    route_by: Format | None = None
    token_group: Name | None = None
    runs_on: dict[str, Any] | None = Field(None, description="Labels that the node must have.")
    unique_by: Format | None = None
    unique_until: Annotated[Text, Field(max_length=100)] | None = None
    on_duplicate: Literal["keep", "replace", "reject"] | None = None
    debounce_wait: Seconds | None = None
    debounce_max: Seconds | None = None
    expires_at: Instant | None = None
    expires_in: Seconds | None = None
    notify: Notify | None = Field(None, description="Sends a webhook when the job has ended.")


class NewJobs(RootModel[Annotated[list[NewJobBody], Field(min_length=1, max_length=MOST_JOBS)]]):
    """Jobs to enqueue, all or none."""


class EnqueuedJob(Answer):
    """`created` is false if an earlier job has the idempotency key or the unique key: then it is that job."""

    id: UUID
    seq: Wide
    created: bool


class EnqueuedJobs(Answer):
    items: list[EnqueuedJob]


class JobQuery(Query):
    q: Text = Field("", description="A filter, such as `state:failed type:mail.* run>5s`: see filters.")
    limit: Limit = 50
    after: UUID | None = Field(None, description="`next` of the page before.")
    count: Literal["capped"] | None = Field(None, description=f"Also count what matches, up to {MOST_COUNTED:,}.")


JobAnswer = describe(JobRecord, "Job", waits=str | None)
JobItem = describe(ListedJob, "JobItem")


Jobs = shape(
    "Jobs",
    "Jobs that match, the newest first. A page may have few jobs, or none, although more match: it looks at a limited "
    "number. `next` leads to the next page.",
    items=list[JobItem],  # type: ignore[valid-type]
    next=UUID | None,
    is_complete=bool,
    scanned=int,
    count=int | None,
)


class WaitQuery(Query):
    wait: Annotated[float, Field(ge=0, le=MOST_WAIT_SECONDS, allow_inf_nan=False)] = Field(
        0.0, description="Seconds to wait for the end of the job."
    )


class Change(Body):
    """What to change of a job that waits."""

    run_at: Instant | None = None
    priority: Priority | None = None
    queue: Annotated[Name, Field(max_length=100)] | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Change:
        if not self.model_fields_set or all(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("give run_at, priority or queue")
        return self


class Cancellation(Body):
    reason: Annotated[Text, Field(max_length=1000)] | None = None
    force: bool = Field(False, description="End a running job at once; its handler may still work. Admins only.")


class Retry(Body):
    run_at: Instant | None = None


class Copy(Body):
    """What the copy has instead of what the job has."""

    payload: Payload | None = None
    queue: Annotated[Name, Field(max_length=100)] | None = None
    priority: Priority | None = None
    run_at: Instant | None = None


class State(Answer):
    """The state in which the job is now: of a retry, in which it was."""

    state: str


class Released(Answer):
    """`released` is false if the job was not running."""

    released: bool


AttemptItem = describe(AttemptRecord, "Attempt")
Attempts = list_of(AttemptItem, "Attempts")
ReasonItem = describe(JobReason, "JobReason")
Reasons = list_of(ReasonItem, "JobReasons")


AuditItem = describe(AuditRecord, "AuditRow")
Audit = list_of(AuditItem, "JobAudit", "What people did, the newest first.")


GraphJobItem, DependencyItem = describe(GraphJob, "GraphJob"), describe(Dependency, "Dependency")
Graph = shape(
    "Graph",
    "A job with everything it waits for and everything that waits for it.",
    jobs=list[GraphJobItem],  # type: ignore[valid-type]
    dependencies=list[DependencyItem],  # type: ignore[valid-type]
    is_complete=bool,
)


# -- Enqueue


async def enqueue(call: Call[NewJobBody, None]) -> Reply:
    job = _make_job(call, call.body)
    answer = await call.run(operations.enqueue(job, new_ids=call.body.id is None, strict=True))
    return Reply(answer._asdict(), 201 if answer.created else 200)


async def enqueue_many(call: Call[NewJobs, None]) -> Reply:
    jobs = [_make_job(call, body, place) for place, body in enumerate(call.body.root)]
    new_ids = all(body.id is None for body in call.body.root)
    answers = await call.run(_enqueue_all(call, jobs, new_ids=new_ids))
    return Reply({"items": [answer._asdict() for answer in answers]}, 201)


def _enqueue_all(call: Call[Any, Any], jobs: Sequence[NewJob], *, new_ids: bool) -> Operation[list[Enqueued]]:
    home = operations.Home(call.board.database.queries.schema)
    return operations.enqueue_here(jobs, home, new_ids=new_ids, strict=True)


def _make_job(call: Call[Any, Any], body: NewJobBody, place: int | None = None) -> NewJob:
    """The job that a request describes, if the caller may enqueue it. `place` is that in a batch."""
    at = () if place is None else (place,)
    refuse_other_work(call.identity, body.type, body.queue, at)
    tenant = body.tenant or call.tenant or DEFAULT_TENANT
    refuse_other_tenant(call.identity, tenant)
    if body.notify is not None:  # it makes a second job
        refuse_other_work(call.identity, WEBHOOK_DELIVERY, WEBHOOK_QUEUE, (*at, "notify"))
    given = body.model_dump(exclude={"id", "type", "payload", "tenant", "depends_on", "limit_keys", "notify"})
    if call.endpoint.takes_key and call.idempotency_key is not None:
        if body.idempotency_key not in (None, call.idempotency_key):
            raise Problem(422, "The body has another idempotency_key than the header Idempotency-Key.")
        given["idempotency_key"] = call.idempotency_key
        given["idempotency_window"] = body.idempotency_window or KEY_SECONDS
    return NewJob(
        body.id or new_id(),
        body.type,
        write_payload(call, body.payload, at),
        tenant=tenant,
        created_by=call.identity.name,
        depends_on=None if body.depends_on is None else tuple(body.depends_on),
        limit_keys=None if body.limit_keys is None else tuple(body.limit_keys),
        meta=None if body.notify is None else orjson.dumps({"notify": body.notify.model_dump(exclude_none=True)}),
        **given,
    )


def write_payload(call: Call[Any, Any], payload: dict[str, Any], at: Sequence[object] = ()) -> bytes:
    """The JSON of a payload, if PostgreSQL can store it."""
    wrong = [{"pointer": f"{_point(at)}/{path.replace('.', '/')}", "detail": why}
             for path, why in find_unstorable(payload, "payload")]  # fmt: skip
    if wrong:
        raise Problem(422, f"The payload cannot be stored: {wrong[0]['detail']}.", errors=wrong[:20])
    written = orjson.dumps(payload)
    most = call.board.app.producer.runtime.settings.max_payload
    if len(written) > most:
        raise Problem(
            422,
            f"The payload has {len(written):,} bytes, the limit is {most:,}.",
            hint="Raise max_payload, or send a reference.",
            errors=[{"pointer": f"{_point(at)}/payload", "detail": "is too large"}],
        )
    return written


def refuse_other_work(identity: Identity, type: str, queue: str, at: Sequence[object] = ()) -> None:
    """A key of a producer may be for some queues and types only."""
    for name, value, allowed in (("type", type, identity.types), ("queue", queue, identity.queues)):
        if allowed and value not in allowed:
            raise Problem(
                403,
                f"{identity.name} may not use the {name} {value!r}.",
                hint=f"It may use {', '.join(allowed)}.",
                errors=[{"pointer": f"{_point(at)}/{name}", "detail": "is not allowed for this key"}],
            )
    if not identity.may_use(type, queue):
        raise Problem(403, f"{identity.name} may use some queues only, and the steps of a chain may be in any.")


def _point(at: Sequence[object]) -> str:
    return "".join(f"/{each}" for each in at)


# -- Look


async def find(call: Call[None, JobQuery]) -> dict[str, Any]:
    query, redaction = call.query, call.board.redaction
    conditions = write_conditions(read_search(query.q, redaction, datetime.now(UTC)))
    page = await call.run(job_operations.read_page(conditions, after=query.after, limit=query.limit))
    count = await call.run(_count(conditions)) if query.count else None
    return {
        "items": [_hide_error(job, redaction) for job in page.jobs],
        "next": page.next,
        "is_complete": page.next is None,
        "scanned": page.scanned,
        "count": count,
    }


def _hide_error(job: ListedJob, redaction: Redaction) -> ListedJob:
    """The text of an error is its message, which may be hidden as a whole."""
    if job.error is None:
        return job
    shown = redaction.hide("error", {"message": job.error}, type=job.type)
    return replace(job, error=shown["message"] if isinstance(shown, dict) else str(shown))


def _count(conditions: str) -> Operation[int]:
    """How many jobs match, up to MOST_COUNTED, and as far as the count gets in COUNT_SECONDS."""
    found, after, until = 0, None, time.monotonic() + COUNT_SECONDS
    while True:
        page = yield from job_operations.read_page(conditions, after=after, limit=1_000)
        found, after = found + len(page.jobs), page.next
        if after is None or found >= MOST_COUNTED or time.monotonic() >= until:
            return min(found, MOST_COUNTED)


async def show(call: Call[None, WaitQuery]) -> JobRecord:
    job = read_job_id(call)
    if call.query.wait:
        with call.board.traffic.waiting(call.identity):
            await _wait_for_end(call, job, time.monotonic() + call.query.wait)
    return hide_job(call.board.redaction, await call.run(job_operations.get(job)))


async def _wait_for_end(call: Call[None, WaitQuery], job: UUID, until: float) -> None:
    """Asks again and again, less often with time, and holds no connection meanwhile."""
    pause = 0.05
    while (left := until - time.monotonic()) > 0 and not await call.request.is_disconnected():
        async with call.acting() as transaction:
            if await transaction.run(job_operations.ending(job)) is not None:
                return
            if not await transaction.run(job_operations.exists(job)):
                raise job_operations.NoSuchJob(job)
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def hide_job(redaction: Redaction, job: JobRecord) -> JobRecord:
    shown = {root: redaction.hide(root, getattr(job, root), type=job.type)
             for root in ("payload", "result", "progress", "meta", "error")}  # fmt: skip
    return replace(job, **shown)


def read_job_id(call: Call[Any, Any]) -> UUID:
    """The id in the path. A text that is not an id is the id of nothing."""
    try:
        return UUID(call.path["id"])
    except ValueError:
        raise job_operations.NoSuchJob(call.path["id"][:100]) from None


async def list_attempts(call: Call[None, None]) -> dict[str, Any]:
    redaction = call.board.redaction
    async with call.acting() as transaction:
        job = await transaction.run(job_operations.get(read_job_id(call)))
        found = await transaction.run(job_operations.attempts(job.id))
    return {"items": [replace(each, error=redaction.hide("error", each.error, type=job.type)) for each in found]}


async def show_graph(call: Call[None, None]) -> dict[str, Any]:
    redaction = call.board.redaction
    found = await call.run(job_operations.dependency_graph(read_job_id(call), largest=MOST_GRAPH_JOBS))
    jobs = [replace(job, error=redaction.hide("error", job.error, type=job.type)) for job in found.jobs]
    return {"jobs": jobs, "dependencies": found.dependencies, "is_complete": found.complete}


async def why(call: Call[None, None]) -> dict[str, Any]:
    found = await call.run(job_operations.why(read_job_id(call)))
    hide_text = call.board.redaction.hide_text
    return {"items": [replace(each, reason=hide_text(each.reason)) for each in found]}


async def list_audit(call: Call[None, None]) -> dict[str, Any]:
    async with call.acting() as transaction:
        job = await transaction.run(job_operations.get(read_job_id(call)))
        found = await transaction.run(
            job_operations.audit(subject=f"job {job.id}", since=job.created_at, limit=_MOST_AUDIT_ROWS)
        )
    return {"items": found}


# -- Change


async def change(call: Call[Change, None]) -> dict[str, Any]:
    job, body = read_job_id(call), call.body
    async with call.acting() as transaction:
        state = await transaction.run(_change_job(job, body.priority, body.queue))
        if body.run_at is not None:
            await transaction.run(job_operations.retry(job, run_at=body.run_at))
    return {"state": state}


def _change_job(job: UUID, priority: int | None, queue: str | None) -> Operation[str]:
    ((state,),) = yield Statement("change_job", (job, priority, queue))
    if state is None:
        raise job_operations.NoSuchJob(job)
    return str(state)


async def cancel(call: Call[Cancellation, None]) -> dict[str, Any]:
    body = call.body
    if body.force and not call.identity.may("admin"):
        raise Problem(403, f"{call.identity.name} is a {call.identity.role}; force needs the role admin.")
    return {"state": await _act(call, job_operations.cancel(read_job_id(call), reason=body.reason, force=body.force))}


async def retry(call: Call[Retry, None]) -> dict[str, Any]:
    return {"state": await _act(call, job_operations.retry(read_job_id(call), run_at=call.body.run_at))}


async def _act(call: Call[Any, Any], operation: Operation[str]) -> str:
    """Runs the operation on the job, if the caller may use its queue and type."""
    async with call.acting() as transaction:
        if call.identity.queues or call.identity.types:
            job = await transaction.run(job_operations.get(read_job_id(call)))
            refuse_other_work(call.identity, job.type, job.queue)
        return await transaction.run(operation)


async def release(call: Call[Empty, None]) -> dict[str, Any]:
    job = read_job_id(call)
    async with call.acting() as transaction:
        released = await transaction.run(job_operations.release(job))
        if not released and not await transaction.run(job_operations.exists(job)):
            raise job_operations.NoSuchJob(job)
    return {"released": released}


async def copy(call: Call[Copy, None]) -> Reply:
    """Enqueues a job with the type, version, payload, queue, priority, number of attempts, time limit and tenant of
    this one. Keys, dependencies and schedules are not copied: they belong to the first job."""
    body = call.body
    async with call.acting() as transaction:
        old = await transaction.run(job_operations.get(read_job_id(call)))
        queue = body.queue or old.queue
        refuse_other_work(call.identity, old.type, old.queue)
        refuse_other_work(call.identity, old.type, queue)
        if old.type.startswith("watchbill."):
            raise Problem(409, "Only a schedule makes jobs of this type.", hint="Run the schedule.")
        job = NewJob(
            new_id(),
            old.type,
            write_payload(call, old.payload if body.payload is None else body.payload),
            queue=queue,
            priority=old.priority if body.priority is None else body.priority,
            run_at=body.run_at,
            tenant=old.tenant,
            max_attempts=old.max_attempts,
            timeout=old.timeout,
            version=old.version,
            created_by=call.identity.name,
        )
        answer = await transaction.run(operations.enqueue(job, new_ids=True))
    return Reply(answer._asdict(), 201)
