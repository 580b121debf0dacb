"""What a producer says of a job, and what can be read of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from watchbill.model.family import RunIf
from watchbill.model.states import STATES, State


class NewJob(NamedTuple):
    """A job that is not stored yet. `payload` and `meta` are JSON; durations are seconds."""

    id: UUID
    type: str
    payload: bytes
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    delay: float | None = None
    tenant: str = "default"
    max_attempts: int = 5
    retry: dict[str, Any] | None = None
    timeout: float | None = None
    version: int = 1
    idempotency_key: str | None = None
    idempotency_window: float | None = None
    created_by: str | None = None
    meta: bytes | None = None
    depends_on: tuple[UUID, ...] | None = None
    run_if: RunIf | None = None


class Enqueued(NamedTuple):
    """The database's answer: the job that stands, whether it is new, and whether its payload is another."""

    id: UUID
    seq: int
    created: bool
    payload_differs: bool


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it stands, finished or not: a row of the view `job`."""

    id: UUID
    seq: int
    type: str
    tenant: str
    queue: str
    priority: int
    payload: dict[str, Any]
    version: int
    state: State
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

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made it; `slot` is None when it was asked to by hand."""
        return None if self.schedule_id is None else (self.meta or {}).get("schedule")


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


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many jobs of a queue are in a state; `capped`: at least so many."""

    queue: str
    state: str
    count: int
    oldest: datetime | None
    capped: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue, a type, or a type in a queue, of which nothing is started."""

    queue: str | None
    type: str | None
    reason: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs that failed alike."""

    type: str
    message: str
    count: int
    first: datetime
    last: datetime
    example: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs: every condition that is given must hold. `state`: one, or any of several."""

    state: State | tuple[State, ...] = ()
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    after: UUID | None = None
    message: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        states = (self.state,) if isinstance(self.state, str) else tuple(self.state)
        if unknown := [state for state in states if state not in STATES]:
            raise ValueError(f"there is no state {unknown[0]!r}; the states are {', '.join(STATES)}")
        object.__setattr__(self, "state", states)


class JobConditions(TypedDict, total=False):
    """The same, word by word."""

    state: State | tuple[State, ...]
    type: str
    queue: str
    tenant: str
    after: UUID
    message: str
    limit: int
