"""Values that are read from the database about limits, and about queues with rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RateRecord:
    """A rate of a limit: at most `count` jobs start in any window of the length `per`; `evenly` spaces them."""

    count: int
    per: timedelta
    evenly: bool


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """A limit: its rule, and how many jobs hold it and wait for it. `changed`: an operator has changed what the code
    declares. `kept` says how many of the holders do not run. They keep ordered keys, because they are dead or wait for
    their next attempt."""

    name: str
    max: int | None
    rates: list[RateRecord]
    when_full: str | None
    when_dead: str | None
    owner: str | None
    changed: bool
    holders: int
    kept: int
    waiters: int | None


@dataclass(frozen=True, slots=True)
class LimitKey:
    """A key of a limit that jobs hold or wait for, or whose starts count for a rate. `kept` says how many of the
    holders do not run. `next_at` is when the rates of the limit allow the next start, if not now."""

    key: str
    holders: int
    kept: int
    held_since: datetime | None
    waiters: int
    waiting_since: datetime | None
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A job that holds a key: its state, the node that runs it, and since when."""

    key: str
    job_id: UUID
    type: str | None
    state: str
    node: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class LimitDetails:
    """A limit with the keys that jobs hold or wait for, and the jobs that hold them. `limit` is None if the keys have
    no rule, such as the ordered keys of a task, unless a dead job pauses its key."""

    limit: LimitRecord | None
    keys: list[LimitKey]
    holders: list[LimitHolder]


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The rule of a queue that has a limit, or that is fair."""

    name: str
    max: int | None
    running: int | None
    fair_by: str | None
    shares: dict[str, Any] | None
    token_group: str | None
    owner: str | None
