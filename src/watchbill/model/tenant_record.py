"""What tenants use and may use, and what an erasure has deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict


class Quotas(TypedDict, total=False):
    """Quotas to set; None removes one."""

    running: int | None
    unfinished: int | None
    payload_bytes: int | None
    per_minute: int | None
    heartbeats: float | None  # per minute; a tenant that needs more is only shown, not refused


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant: what it uses, and its quotas (None: no quota).

    `enqueued` is that of the last minute, and known only of tenants with a quota. `expected_heartbeats` a minute are by
    the formula running jobs * 60 / heartbeat interval; `over_budget`: more than `heartbeat_budget`.
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
    roles: list[str]  # bound to the tenant
    erasing_since: datetime | None


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """What an erasure has deleted so far. `waiting`: what it waits for; None if it is done."""

    tenant: str
    deleted: dict[str, int]  # by step
    payloads: int  # objects deleted from the payload store
    waiting: str | None

    @property
    def is_done(self) -> bool:
        return self.waiting is None
