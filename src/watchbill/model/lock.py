"""Values that are read from the database about named locks and leaders."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

LockState = Literal["held", "expired", "free"]


class Try(NamedTuple):
    """The answer to one try to acquire a lock. If `fence` is None, the lock was not acquired: the other fields say who
    holds it, and for how many seconds if the holder does not renew it. Both are None while another transaction has the
    row of the lock locked."""

    fence: int | None = None
    held_by: str | None = None
    expires_in: float | None = None


@dataclass(frozen=True)
class LockRecord:
    """A named lock. `epoch` is the epoch of the node that holds it; None for the many locks that belong to no node."""

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
