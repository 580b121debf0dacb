"""Named locks and leaders: operations, as in `operations.py`."""

from __future__ import annotations

from uuid import UUID

from watchbill.client.operations import Operation, Statement
from watchbill.model.lock import Leader, LockRecord, Try


def try_acquire(name: str, ttl: float, holder: str, request: UUID, *, waits: bool = False) -> Operation[Try]:
    """Tries once. The same request again gets the same grant. `waits`: the release sends a notification."""
    rows = yield Statement("acquire_lock", (name, ttl, holder, request, waits))
    return Try._make(rows[0]) if rows else Try()


def renew(name: str, fence: int, ttl: float) -> Operation[bool]:
    ((is_renewed,),) = yield Statement("renew_lock", (name, fence, ttl))
    return bool(is_renewed)


def release(name: str, fence: int | None = None) -> Operation[bool]:
    """Releases a lock; without a fence, from any holder. False if it was not held, or under another fence."""
    ((is_released,),) = yield Statement("release_lock", (name, fence))
    return bool(is_released)


def release_request(name: str, request: UUID) -> Operation[None]:
    """Releases the lock if this request was granted and its caller does not know it."""
    yield Statement("release_request", (name, request))


def check(name: str, fence: int) -> Operation[None]:
    yield Statement("check_lock", (name, fence))


def channel() -> Operation[str]:
    ((name,),) = yield Statement("lock_channel")
    return str(name)


def locks(*, free: bool = False, name: str | None = None) -> Operation[list[LockRecord]]:
    return [LockRecord(*row) for row in (yield Statement("locks", (free, name)))]


def leaders(group: str | None = None) -> Operation[list[Leader]]:
    return [Leader(*row) for row in (yield Statement("leaders", (group,)))]
