"""Time in a test: moves the clock from slot to slot, as if a scheduler had run all the time.

No job runs meanwhile. A schedule whose job has not ended skips its next slot, or queues behind it, as its `overlap`
says: call drain() between two calls of advance(), as a worker would have run the jobs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from watchbill._version import __version__
from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError

MAX_TICKS = 10_000  # a schedule for each second would take an hour for a year
Report = Callable[[str], None]


class TooManySlots(WatchbillError):
    """There are more slots up to that time than a test should wait for."""


class Tick(NamedTuple):
    done: int
    next_at: datetime | None
    events: str


def pass_time(by: timedelta, report: Report) -> Operation[datetime]:
    """Moves the clock, fires every slot on the way at its own time, and returns the new time."""
    target = (yield from read_clock()) + by
    yield from _fire_until(target, report)
    remaining = max(target - (yield from read_clock()), timedelta(0))
    return (yield from _move_clock(remaining))


def read_clock() -> Operation[datetime]:
    ((now,),) = yield Statement("clock", (), (datetime,))
    assert isinstance(now, datetime)
    return now


def _move_clock(by: timedelta) -> Operation[datetime]:
    ((now,),) = yield Statement("advance_clock", (by,), (datetime,))
    assert isinstance(now, datetime)
    return now


def promote(at: datetime) -> Operation[None]:
    yield Statement("promote_all", (at,), (Any,))


def _fire_until(target: datetime, report: Report) -> Operation[None]:
    for _ in range(MAX_TICKS):
        tick = yield from _tick()
        report(tick.events)
        if tick.next_at is None or tick.next_at > target:
            return
        now = yield from read_clock()
        if tick.next_at > now:
            yield from _move_clock(tick.next_at - now)
        elif not tick.done:  # due, and a node that runs meanwhile fires it
            return
    raise TooManySlots(
        f"advance() stopped at {tick.next_at}, after {MAX_TICKS:,} slots.",
        hint="Advance in smaller steps, or disable the schedules that this test is not about.",
    )


def _tick() -> Operation[Tick]:
    ((fired, missed, skipped, next_at, events),) = yield Statement(
        "tick_now", (), (int, int, int, datetime | None, str)
    )
    return Tick(fired + missed + skipped, next_at, events)


def declare(app: str, declared: bytes) -> Operation[list[str]]:
    """Declares schedules as a starting node does, and leaves at once; returns their names."""
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
        "queues": [],
        "machine": None,
        "capacity": None,
        "take_over": False,
    }
    ((epoch,),) = yield Statement("register", params, (int,))
    rows = yield Statement("declare_schedules", (epoch, declared.decode()), (str, str))
    yield Statement("leave", (epoch,), (Any,))
    return [name for name, _ in rows]
