"""The scheduler's loop: ticks when the next slot is due, on the database's clock, and when a schedule was changed.

Everything that matters is in one SQL function, `tick`, in one transaction. So any number of schedulers may run, any of
them may die at any point, and none needs to know of the others: at worst a tick finds nothing to do.

A tick handles a limited number of slots, and is called again at once while more are due. If the server does not answer
in time, the next tick asks for fewer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from watchbill.maintenance.chores import repeat
from watchbill.store.node_connection import Disconnected, NodeConnection
from watchbill.telemetry.events import Events, emit_canceled

logger = logging.getLogger("watchbill.scheduler")

BATCH = 2000  # slots of one tick at most: so many take 80 ms, and no job can start before the whole tick has committed
BATCH_DIVISOR = 4  # after a tick that was given up, the next one asks for a quarter of the slots
LONGEST_SLEEP_SECONDS = 60.0  # long, because a changed schedule sends a notification
LONGEST_SLEEP_UNNOTIFIED_SECONDS = 5.0
LOCKED_PAUSE_SECONDS = 0.02  # pause while another scheduler has locked the schedules that are due
FULL_READ_SECONDS = 60.0  # how often a tick reads all timers, and not only those that became due in RECENT_SECONDS
RECENT_SECONDS = 300.0
ANY_TIME_SECONDS = 1e9


class Scheduler:
    """Turns due slots into jobs. The event `changed` is set when a schedule was written."""

    def __init__(self, connection: NodeConnection, events: Events, changed: asyncio.Event) -> None:
        self._connection, self._events, self.changed = connection, events, changed
        self._next_full, self._connections, self._is_full_read_due = 0.0, -1, True
        self._batch = BATCH
        self._unanswered: Disconnected | None = None  # the failure of the last tick, if the server had not answered

    async def tick_repeatedly(self, name: str, registered: asyncio.Event, is_listening: Callable[[], bool]) -> None:
        """Ticks until it is canceled. Waits first for the registration of the node: before that, schedules that are no
        longer in the node's code could fire."""

        async def tick() -> float:
            longest = LONGEST_SLEEP_SECONDS if is_listening() else LONGEST_SLEEP_UNNOTIFIED_SECONDS
            return min(await self.run(), longest)

        await registered.wait()
        self._events.emit("scheduler_started", name=name)
        try:
            await repeat("tick", tick, self._connection, self.changed)
        finally:
            self._events.emit("scheduler_stopped", name=name)

    async def run(self) -> float:
        """Makes the jobs of due schedules with one tick. Returns the seconds until the next tick.

        Mostly a tick reads only timers that became due in the last minutes, because the index may have many entries of
        earlier ones that vacuum cannot remove while an old snapshot is open. After an outage any schedule may be due,
        so then the tick reads all timers.
        """
        is_full = self._is_full_read_due or self.changed.is_set() or time.monotonic() >= self._next_full
        self.changed.clear()  # before the tick, because a schedule that changes during the tick must set it again
        self._is_full_read_due = is_full  # if this tick fails, the next tick reads all timers again
        since = ANY_TIME_SECONDS if is_full else RECENT_SECONDS
        fired, missed, skipped, wait, events = await self._call_tick(since)
        self._is_full_read_due = False
        done = fired + missed + skipped
        if done:
            logger.debug("A tick made %d jobs; %d slots were missed, %d skipped", fired, missed, skipped)
        is_locked = wait is not None and wait <= 0 and not done  # another tick has locked the timers that are due
        if is_full and not done and not is_locked:
            self._next_full = time.monotonic() + FULL_READ_SECONDS
        if events != "[]":
            emit_tick_events(self._events, events)
        before, self._connections = self._connections, self._connection.connections
        if before != self._connections and not is_full:
            # The connection was opened again since the last tick, so there may have been an outage. After an outage any
            # schedule may be due.
            self._is_full_read_due = True
            return 0.0
        return _choose_pause(wait, done)

    async def _call_tick(self, since: float) -> tuple[Any, ...]:
        """Calls the SQL function `tick` for a limited number of slots. If the server does not answer in time, the next
        call asks for fewer slots, because the same call would fail again and again."""
        try:
            (answer,) = await self._connection.execute("tick", (self._batch, since))
        except Disconnected as error:
            if error.is_unanswered:
                self._batch = max(1, self._batch // BATCH_DIVISOR)
            self._unanswered = error if error.is_unanswered else None
            raise
        if self._unanswered is not None:
            # The server has taken the next statement at once, so it was slow. In an outage, connecting fails first.
            message = "A tick was given up: %s; the next one had at most %d slots. Is the server overloaded?"
            logger.warning(message, self._unanswered, self._batch)
            self._unanswered = None
        self._batch = min(BATCH, self._batch * 2)
        return answer

    async def tick_until_nothing_is_due(self) -> None:
        while await self.run() == 0.0:
            pass


def emit_tick_events(events: Events, answer: str) -> None:
    """Emits the events that a tick returned, as JSON in `answer`."""
    for event in orjson.loads(answer):
        name = event.pop("event")
        if name == "job_canceled":
            emit_canceled(events, UUID(event["id"]))
            continue
        if name == "schedule_overdue":
            logger.warning(
                "Schedule %(schedule)s is overdue: the job of slot %(slot)s has not ended by %(due_by)s", event
            )
        try:
            for key in event.keys() & {"slot", "due_by"}:
                event[key] = datetime.fromisoformat(event[key])
        except ValueError as error:
            # A schedule of one tenant must not stop the scheduler of all.
            message = "The event %s of schedule %s of tenant %s is skipped: %s. Give the schedule other times."
            logger.warning(message, name, event["schedule"], event["tenant"], error)
            continue
        events.emit(name, **event)


def _choose_pause(wait: float | None, done: int) -> float:
    if wait is None:
        return LONGEST_SLEEP_SECONDS
    if wait > 0:
        return min(wait, LONGEST_SLEEP_SECONDS)
    return 0.0 if done else LOCKED_PAUSE_SECONDS
