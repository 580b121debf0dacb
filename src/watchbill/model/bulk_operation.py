"""Bulk operations: changes of many jobs, which nodes work off in steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

ChangeKind = Literal["retry", "cancel", "release", "purge", "set_priority", "move_queue"]
OperationKind = ChangeKind | Literal["backfill_slots", "enqueue"]  # the last two make jobs
OperationState = Literal["pending", "running", "paused", "done", "canceled", "failed"]
# The states of jobs that each kind takes: those that a filter without states means, and all that it can change.
USUAL_STATES: dict[ChangeKind, tuple[str, ...]] = {
    "retry": ("failed", "dead"),
    "cancel": ("blocked", "queued", "running", "failed", "suspended"),
    "release": ("running",),
    "purge": ("succeeded", "dead", "canceled"),
    "set_priority": ("blocked", "queued", "failed"),
    "move_queue": ("blocked", "queued", "failed"),
}
POSSIBLE_STATES = USUAL_STATES | {"retry": ("failed", "dead", "canceled", "succeeded")}


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """A row of the table `bulk_operations`. Of the jobs that it has `seen`, it has changed those that are `done`;
    `reasons` counts why others were skipped or failed. `tenant` is None if it acts for all tenants."""

    id: int
    kind: OperationKind
    state: OperationState
    tenant: str | None
    filter: str | None
    arguments: dict[str, Any]
    rate: float | None
    max_jobs: int | None
    created_by: str
    created_at: datetime
    ended_at: datetime | None
    seen: int
    done: int
    skipped: int
    failed: int
    reasons: dict[str, int]
    error: str | None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "canceled", "failed")


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """For how many slots a backfill would make jobs: from `first` to `last`. `obstacles` counts those for which it
    makes none, by reason. If `is_complete` is false, there are more."""

    slots: int
    first: datetime | None
    last: datetime | None
    obstacles: dict[str, int]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class OperationPreview:
    """What an operation would change. If `is_complete` is false, the counts are those of the jobs that were looked at
    so far: there are more."""

    jobs: int
    by_type: dict[str, int]
    oldest: datetime | None
    newest: datetime | None
    reasons: dict[str, int]  # of jobs that match, but cannot be changed
    is_complete: bool
