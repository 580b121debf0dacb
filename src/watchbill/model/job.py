"""Jobs, attempts, nodes and queues: what a producer sends, and what is read from the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, overload
from uuid import UUID

from watchbill.model.dependency_graph import RunIf
from watchbill.model.states import STATES, WAITS, State, Waits
from watchbill.model.unique import KeyFormat


class NewJob(NamedTuple):
    """A job that is not stored yet. `payload` and `meta` are JSON; durations are seconds. A key format may be a
    function, which is replaced by its result before the job is sent."""

    id: UUID
    type: str
    payload: bytes
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    delay: float | None = None
    tenant: str = "default"
    max_attempts: int = 10
    retry: dict[str, Any] | None = None
    timeout: float | None = None
    version: int = 1
    idempotency_key: str | None = None
    idempotency_window: float | None = None
    created_by: str | None = None
    meta: bytes | None = None
    depends_on: tuple[UUID, ...] | None = None
    run_if: RunIf | None = None
    limit_keys: tuple[KeyFormat, ...] | None = None
    ordered_by: KeyFormat | None = None
    route_by: KeyFormat | None = None
    token_group: str | None = None
    runs_on: dict[str, Any] | None = None
    unique_by: KeyFormat | None = None
    unique_until: str | None = None
    on_duplicate: str | None = None
    debounce_wait: float | None = None
    debounce_max: float | None = None
    expires_at: datetime | None = None
    expires_in: float | None = None
    results: dict[str, Any] | None = None


class AlikeJobs(Sequence[NewJob]):
    """Jobs that differ in nothing but their ids, which are integers here, and payloads; `pattern` has what they share.
    Each NewJob is made when it is read, because most bulks are stored without: a client sends the columns."""

    def __init__(self, pattern: NewJob, ids: list[int], payloads: list[bytes]) -> None:
        self.pattern, self.ids, self.payloads = pattern, ids, payloads

    @classmethod
    def gather(cls, jobs: Sequence[NewJob]) -> AlikeJobs | None:
        """The same jobs as columns; None if they differ in more."""
        if isinstance(jobs, AlikeJobs):
            return jobs
        if not jobs:
            return None
        first, others = jobs[0], [job[_AFTER_PAYLOAD:] for job in jobs]
        if others.count(others[0]) < len(jobs) or any(job.type != first.type for job in jobs):
            return None
        return cls(first, [job.id.int for job in jobs], [job.payload for job in jobs])

    def replace(self, **fields: Any) -> AlikeJobs:
        """The same jobs with these fields, the same for all of them."""
        return AlikeJobs(self.pattern._replace(**fields), self.ids, self.payloads)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewJob]:
        kind, others = self.pattern.type, self.pattern[_AFTER_PAYLOAD:]
        for number, payload in zip(self.ids, self.payloads, strict=True):
            yield NewJob._make((UUID(int=number), kind, payload, *others))

    @overload
    def __getitem__(self, place: int) -> NewJob: ...
    @overload
    def __getitem__(self, place: slice) -> AlikeJobs: ...
    def __getitem__(self, place: int | slice) -> NewJob | AlikeJobs:
        if isinstance(place, slice):
            return AlikeJobs(self.pattern, self.ids[place], self.payloads[place])
        return self.pattern._replace(id=UUID(int=self.ids[place]), payload=self.payloads[place])


_AFTER_PAYLOAD = NewJob._fields.index("payload") + 1


class Enqueued(NamedTuple):
    """The answer to an enqueue: the id of the job, whether the job is new, and, if an earlier job has the same key,
    whether that job's payload differs."""

    id: UUID
    seq: int
    created: bool
    payload_differs: bool


class AllCreated(Sequence[Enqueued]):
    """The answers to a bulk that has made all its jobs. Each is made when it is read: the ids are all that they say."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Enqueued: ...
    @overload
    def __getitem__(self, place: slice) -> AllCreated: ...
    def __getitem__(self, place: int | slice) -> Enqueued | AllCreated:
        if isinstance(place, slice):
            return AllCreated(self.ids[place])
        return Enqueued(UUID(int=self.ids[place]), 0, True, False)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, finished or not: a row of the view `job`. `waits` says what a queued or failed job waits for."""

    id: UUID
    seq: int
    type: str
    tenant: str
    queue: str
    priority: int
    payload: dict[str, Any]
    version: int
    state: State
    waits: Waits | None
    wait: str | None
    attempt: int
    max_attempts: int
    run: int
    lost: int
    run_at: datetime
    holder: str | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str | None
    error: dict[str, Any] | None
    result: Any
    progress: Any
    canceling: bool
    timeout: float | None
    idempotency_key: str | None
    created_by: str | None
    meta: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime
    schedule_id: int | None
    slot: datetime | None
    expires_at: datetime | None

    @property
    def artifact_ref(self) -> str | None:
        """Where something is that the job has made, as its handler said with `current_job().artifact(...)`."""
        return (self.meta or {}).get("artifact_ref")

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made the job; None for other jobs. If a person ran the schedule by hand, `slot`
        is None."""
        return None if self.schedule_id is None else (self.meta or {}).get("schedule")


@dataclass(frozen=True, slots=True)
class JobReason:
    """A cause why a job does not run, such as `paused`, with a sentence. Of several causes the lowest `rank` decides.
    `until` is when it ends by itself, and `since` when it began, if that is known. `needs_action` says that it does not
    end before a person acts, and `way_out` has the commands that help."""

    cause: str
    reason: str
    until: datetime | None
    rank: int
    needs_action: bool
    since: datetime | None
    way_out: list[str]
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How many jobs wait because of a cause, with one of them and why it waits. `is_estimate`: they were counted in a
    sample of the jobs."""

    cause: str
    jobs: int
    is_estimate: bool
    needs_action: bool
    example: UUID
    reason: str
    way_out: list[str]


class JobMatch(NamedTuple):
    """A job that was found by the beginning of its id."""

    id: UUID
    type: str
    state: State


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt of a job: a row of the view `attempt`."""

    job_id: UUID
    run: int
    attempt: int
    outcome: str
    holder: str | None
    started_at: datetime | None
    ended_at: datetime
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunLog:
    """The last log lines of a run of a job."""

    run: int
    ended_at: datetime | None  # None: the run goes on
    lines: list[str]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node: a row of the view `node`."""

    epoch: int
    name: str
    app: str | None
    state: str
    host: str | None
    pid: int | None
    started_at: datetime
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    claimed: int
    types: list[str] | None
    queues: list[str] | None
    processed: int
    labels: dict[str, Any]
    capacity: int | None  # how many handlers may run at once on this node
    leads: list[str]  # the groups of which this node is the leader


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many jobs of a queue are in one state and wait for the same thing: None, `delayed`, `blocked`, `paused`,
    `unsupported`, `parked` or `unmatched`. `estimated`: the count comes from a sample, because there are too many."""

    queue: str
    state: State
    wait: str | None
    count: int
    oldest: datetime | None
    estimated: bool

    @property
    def column(self) -> str:
        """The column of a printed table that counts these jobs: their state, or what they wait for (`Waits`)."""
        if self.state not in ("queued", "failed"):
            return self.state
        if self.wait in (None, "delayed"):
            return "retrying" if self.state == "failed" else "scheduled" if self.wait else "ready"
        return "limited" if self.wait == "parked" else str(self.wait)


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue, a type, or a type in a queue that is paused: none of its jobs start."""

    queue: str | None
    type: str | None
    reason: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs of one type with the same exception, whose messages differ in numbers, ids, quoted texts and addresses
    only. `message` is that of `example`, the newest of them."""

    type: str
    message: str
    count: int
    first: datetime
    last: datetime
    example: UUID
    exception: str | None
    failure: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Conditions for jobs; all that are given must hold. `state` is a state, what a job waits for, or several of
    these."""

    state: State | Waits | tuple[State | Waits, ...] = ()
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    after: UUID | None = None
    message: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        states = (self.state,) if isinstance(self.state, str) else tuple(self.state)
        if unknown := [state for state in states if state not in STATES and state not in WAITS]:
            words = f"the states are {', '.join(STATES)}, and queued and failed jobs are {', '.join(WAITS)}"
            raise ValueError(f"there is no state {unknown[0]!r}; {words}")
        object.__setattr__(self, "state", states)


class JobConditions(TypedDict, total=False):
    """The fields of JobFilter, for type checkers."""

    state: State | Waits | tuple[State | Waits, ...]
    type: str
    queue: str
    tenant: str
    after: UUID
    message: str
    limit: int
