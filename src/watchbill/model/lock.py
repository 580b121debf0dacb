"""Named locks and leaders, as operators see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

LockState = Literal["held", "expired", "free"]


class Try(NamedTuple):
    """What one try to acquire a lock has brought. Without a fence: who holds it, and for how many seconds if the holder
    does not renew it; both None if another transaction has its row locked."""

    fence: int | None = None
    held_by: str | None = None
    expires_in: float | None = None


@dataclass(frozen=True)
class LockRecord:
    """A named lock. `epoch` is that of the node that holds it; most locks belong to no node."""

    name: str
    state: LockState
    holder: str | None
    fence: int
    epoch: int | None
    acquired_at: datetime | None
    expires_at: datetime | None
    released_at: datetime | None


@dataclass(frozen=True)
class Leader:
    """The leader of a group, and its term: the fence of the lock `leader/GROUP`."""

    group: str
    name: str
    epoch: int
    term: int
    elected_at: datetime
    expires_at: datetime
