"""The scheduler's loop: ticks when the next slot is due, on the database's clock, and when a schedule was changed.

All that matters is in one SQL function, `tick`, in one transaction. So any number of these may run, any of them may die
at any point, and this one need not know what the others do: at worst it asks in vain.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchbill.store.line import Line
from watchbill.telemetry.events import Events, tell_canceled

logger = logging.getLogger("watchbill.scheduler")

BATCH = 2000  # of which the first waits for the last: some 80 ms
LONGEST_SLEEP = 60.0  # a monthly schedule is not looked at each second; a change rings
LONGEST_DEAF_SLEEP = 5.0  # while nothing can ring
TURN = 0.02  # something is due and in another scheduler's hands
FULL_LOOK_EVERY = 60.0
RECENT = 300.0
FOREVER = 1e9


class Scheduler:
    def __init__(self, line: Line, events: Events) -> None:
        self._line, self._events = line, events
        self._next_full, self._connection, self._news = 0.0, -1, True

    def heard(self) -> None:
        """A schedule was written, and may be due since any time."""
        self._news = True

    async def run(self) -> float:
        """One tick; seconds until the next one.

        Mostly it looks at the last minutes only: entries that an old snapshot keeps in the index are not walked again.
        After an outage everything may be due, so then it looks at all.
        """
        full = self._news or time.monotonic() >= self._next_full
        self._news = False  # before the look: what is heard meanwhile it may not see
        ((fired, missed, skipped, wait, events),) = await self._look(full)
        done = fired + missed + skipped
        if done:
            logger.debug("Tick: %d jobs, %d slots missed, %d skipped", fired, missed, skipped)
        if full and not done:
            self._next_full = time.monotonic() + FULL_LOOK_EVERY
        if events != "[]":
            tell(self._events, events)
        if self._was_away() and not full:
            self._news = True
            return 0.0
        return _pause(wait, done)

    def _was_away(self) -> bool:
        """Whether the connection was another at the last tick."""
        before, self._connection = self._connection, self._line.connections
        return before != self._connection

    async def _look(self, full: bool) -> list[tuple[Any, ...]]:
        try:
            return await self._line.execute("tick", (BATCH, FOREVER if full else RECENT))
        except BaseException:
            self._news = True
            raise

    async def run_all(self) -> None:
        """Until nothing is due that is not in other hands."""
        while await self.run() == 0.0:
            pass


def tell(events: Events, said: str) -> None:
    """What a tick had to say, to whoever listens."""
    for event in orjson.loads(said):
        name = event.pop("event")
        if name == "job_canceled":
            tell_canceled(events, UUID(event["id"]))
            continue
        if name == "schedule_overdue":
            logger.warning("Schedule %(schedule)s: the run of %(slot)s should have ended by %(due_by)s", event)
        events.tell(name, **{key: _value(key, value) for key, value in event.items()})


def _pause(wait: float | None, done: int) -> float:
    if wait is None:
        return LONGEST_SLEEP
    if wait > 0:
        return min(wait, LONGEST_SLEEP)
    return 0.0 if done else TURN


def _value(key: str, value: str) -> Any:
    return datetime.fromisoformat(value) if key in {"slot", "due_by"} else value
