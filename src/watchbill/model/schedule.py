"""Values that are read from the database about schedules, their slots, and why a schedule does or does not fire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

FLOW, FLOW_END = "watchbill.flow", "watchbill.flow_end"  # types of the jobs that start a chain and wait for its end

Health = Literal["healthy", "warning", "unhealthy", "unknown"]
Missed = Literal["skip", "once", "catch_up"]
Overlap = Literal["skip", "queue", "cancel_previous", "allow"]
SlotOutcome = Literal["succeeded", "skipped", "failed", "timed_out", "canceled", "lost", "missed", "fired"]
Status = Literal["disabled", "orphaned", "ended", "on_demand", "due", "retrying", "failing", "ok"]


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule: a row of the view `schedule`."""

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
    expires: timedelta | None
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
    failed_attempts: int
    overdue: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleStats:
    """Counts of all schedules. `late`: due for more than a minute, which means that no scheduler runs. `overdue`: with
    a run that should have ended by now. `capped`: counting stopped at a limit, so there may be more."""

    schedules: int
    due: int
    late: int
    orphaned: int
    overdue: int
    next_run: datetime | None
    capped: bool


@dataclass(frozen=True, slots=True)
class ScheduleMetrics:
    """How the runs of one schedule went. The success rate is in percent. Rate and durations are None if there were no
    runs. `health` is healthy from 95 percent on, warning from 80 percent on, and unknown without runs."""

    runs: int
    success_rate: float | None
    average: timedelta | None
    shortest: timedelta | None
    longest: timedelta | None
    p95: timedelta | None
    health: Health


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What happened at one instant at which a schedule was due: a row of the view `slot`.

    Missed slots in a row are one record, which says how many there were (`count`) from `slot` to `until`. `outcome` is
    None until the job has ended. `attempt` says how many attempts the job has used.
    """

    slot: datetime
    kind: Literal["clock", "hand", "start", "backfill"]
    until: datetime | None
    count: int
    outcome: SlotOutcome | None
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
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a schedule fires, and when, or why it does not; the decisive reason comes first."""

    fires: bool
    reason: str
    next_run: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """Conditions for schedules; all that are given must hold. For the next page, `after` is the last name."""

    tenant: str | None = None
    category: str | None = None
    tag: str | None = None
    status: Status | None = None
    after: str | None = None
    limit: int = 100
