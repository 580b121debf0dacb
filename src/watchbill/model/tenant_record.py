"""Values that are read from the database about tenants: what they use, their quotas, and their erasure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict


class Quotas(TypedDict, total=False):
    """Quotas to set for a tenant. The value None removes a quota."""

    running: int | None
    unfinished: int | None
    payload_bytes: int | None
    per_minute: int | None
    heartbeats: float | None  # per minute; a tenant that needs more is shown as over budget, but not refused


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant: what it uses, and its quotas (None: no quota).

    `enqueued` counts the jobs of the last minute; it is known only for tenants with a quota. `expected_heartbeats` per
    minute is running jobs * 60 / heartbeat interval. `over_budget`: this is more than `heartbeat_budget`.
    """

    tenant: str
    running: int
    max_running: int | None
    unfinished: int
    max_unfinished: int | None
    payload_bytes: int
    max_payload_bytes: int | None
    enqueued: int | None
    max_per_minute: int | None
    expected_heartbeats: float
    heartbeat_budget: float | None
    over_budget: bool
    schedules: int
    roles: list[str]  # the database roles that are bound to the tenant
    erasing_since: datetime | None


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """What an erasure has deleted so far. `waiting` says what the erasure waits for; None if it is done."""

    tenant: str
    deleted: dict[str, int]  # how many rows each step has deleted, by the name of the step
    payloads: int  # how many payloads were deleted from the payload store
    waiting: str | None

    @property
    def is_done(self) -> bool:
        return self.waiting is None
