"""What can be read of a schedule, of its slots, and of why it does or does not fire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

FLOW, FLOW_END = "watchbill.flow", "watchbill.flow_end"  # types of the jobs that start a chain, and wait for its end

Missed = Literal["skip", "once", "catch_up"]
Overlap = Literal["skip", "queue", "cancel_previous", "allow"]
Status = Literal["disabled", "orphaned", "ended", "on_demand", "due", "failing", "ok"]


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as it stands: a row of the view `schedule`."""

    id: int
    tenant: str
    name: str
    status: Status
    pattern: str | None
    every: timedelta | None
    at: datetime | None
    tz: str
    dst: str
    start: datetime | None
    end: datetime | None
    max_runs: int | None
    jitter: timedelta | None
    type: str | None
    payload: dict[str, Any]
    version: int
    command: str | None
    role: str | None
    queue: str
    priority: int
    max_attempts: int
    retry: dict[str, Any] | None
    timeout: timedelta | None
    missed: Missed
    catch_up: int
    grace: timedelta | None
    overlap: Overlap
    deadline: timedelta | None
    run_on_start: bool
    enabled: bool
    description: str | None
    category: str | None
    tags: list[str]
    context: dict[str, Any] | None
    created_by: str | None
    owner: str | None
    hash: str | None
    orphaned: bool
    differs_from_code: bool
    next_run: datetime | None
    last_run: datetime | None
    last_slot: datetime | None
    last_outcome: str | None
    last_error: str | None
    last_error_at: datetime | None
    runs: int
    successes: int
    failures: int
    skips: int
    missed_slots: int
    running: int
    overdue: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleStats:
    """All schedules in a few numbers. Late: due for longer than a minute, so nobody fires it; overdue: a run that
    should have ended by now; capped: there are more than were counted."""

    schedules: int
    due: int
    late: int
    orphaned: int
    overdue: int
    next_run: datetime | None
    capped: bool


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What became of one instant at which a schedule was due: a row of the view `slot`.

    A run of missed ones is one row: from `slot` to `until`, `count` of them. `outcome` is None until it has ended.
    """

    slot: datetime
    kind: Literal["clock", "hand", "start"]
    until: datetime | None
    count: int
    outcome: str | None
    reason: str | None
    job_id: UUID | None
    fired_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration: timedelta | None
    error: str | None
    result: Any
    node: str | None
    host: str | None
    due_by: datetime | None
    overdue_at: datetime | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a schedule fires, and when, or why it does not; of several the decisive one comes first."""

    fires: bool
    reason: str
    next_run: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """Which schedules: every condition that is given must hold. The next page comes after the last name."""

    tenant: str | None = None
    category: str | None = None
    tag: str | None = None
    status: Status | None = None
    after: str | None = None
    limit: int = 100
