"""Time that passes in a test: the clock goes from slot to slot, as it would with a scheduler running all the while.

Nothing runs meanwhile. A schedule whose job has not ended skips its next slot, or queues behind it, as its `overlap`
says: drain() between two calls of advance() is what a worker would have done.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from watchbill._version import __version__
from watchbill.client.plans import Plan, Statement
from watchbill.errors import WatchbillError

MOST = 10_000  # ticks on the way; a schedule for each second, and a year, would take an hour
Tell = Callable[[str], None]


class TooManySlots(WatchbillError):
    """Between now and then there are more slots than a test should wait for."""


class Tick(NamedTuple):
    done: int
    next_at: datetime | None
    events: str


def pass_time(by: timedelta, tell: Tell) -> Plan[datetime]:
    """Moves the clock, and has every slot on the way fired at its own time; what the clock shows then."""
    ((now,),) = yield Statement("clock")
    target = now + by
    yield from _fire_until(target, tell)
    ((now,),) = yield Statement("clock")
    ((now,),) = yield Statement("advance_clock", (max(target - now, timedelta(0)),))
    assert isinstance(now, datetime)
    return now


def _fire_until(target: datetime, tell: Tell) -> Plan[None]:
    for _ in range(MOST):
        tick = yield from _tick()
        tell(tick.events)
        if tick.next_at is None or tick.next_at > target:
            return
        ((now,),) = yield Statement("clock")
        if tick.next_at > now:
            yield Statement("advance_clock", (tick.next_at - now,))
        elif not tick.done:  # due, and a node that runs meanwhile is at it
            return
    raise TooManySlots(
        f"advance() stopped at {tick.next_at}, after {MOST:,} slots.",
        hint="Advance in smaller steps, or disable the schedules that this test is not about.",
    )


def _tick() -> Plan[Tick]:
    ((fired, missed, skipped, next_at, events),) = yield Statement("tick_now")
    return Tick(fired + missed + skipped, next_at, events)


def declare(app: str, declared: bytes) -> Plan[list[str]]:
    """As a node of this app does that starts, and leaves at once; the names of what it declared."""
    params: dict[str, Any] = {
        "name": f"test/{uuid4().hex[:8]}",
        "lease": 30.0,
        "app": app,
        "types": "{}",
        "labels": "{}",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "instance": uuid4(),
        "watchbill_version": __version__,
    }
    ((epoch,),) = yield Statement("register", params)
    rows = yield Statement("declare_schedules", (epoch, declared.decode()))
    yield Statement("leave", (epoch,))
    return [name for name, _ in rows]
