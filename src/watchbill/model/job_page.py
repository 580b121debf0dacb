"""Pages of jobs that match a filter: what the SQL function `job_page` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from watchbill.model.states import State, Waits


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of a list. `error` is the first 500 characters of the error of its last run."""

    id: UUID
    seq: int
    state: State
    waits: Waits | None
    type: str
    queue: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    node: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs that match a filter, newest first. `scanned` jobs were looked at, the last of them enqueued at `reached`.
    The next page starts after the job `next`; None: there are no more."""

    jobs: Sequence[ListedJob]
    next: UUID | None
    scanned: int
    reached: datetime | None


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that has finished, or a failed run whose job is tried again: at `run_at`, if it does not run already."""

    id: UUID
    state: State
    outcome: str
    type: str
    queue: str
    tenant: str
    attempt: int
    max_attempts: int
    started_at: datetime | None
    ended_at: datetime
    run_at: datetime | None
    node: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EndPage:
    """What has ended up to `until`, the oldest first: the first of `total`."""

    ends: Sequence[JobEnd]
    total: int
    until: datetime
