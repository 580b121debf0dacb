"""Makes delayed jobs ready when they are due, parked jobs when their limit key has a place, and sleeps meanwhile.

It learns of a job that is put off while it sleeps in three ways: this process puts it off itself and calls
`expect_due_job`; a producer sends a notification if the job is due soon; everything else the survey finds before it is
due (`survey.py`). Without notifications it looks every `poll_max_interval`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from watchbill.store.node_connection import NodeConnection

BATCH = 1000  # jobs
LONGEST_WAIT_SECONDS = 120.0
LEAST_WAIT_SECONDS = 0.005  # jobs that are due within this time are promoted together
FULL_LOOK_SECONDS = 60.0
RECENT_SECONDS = 300.0


class DueEvent(asyncio.Event):
    """Is set when a delayed job may be due before the promoter's next look."""

    next_look = math.inf  # in seconds since 1970, on the database's clock

    def note_due(self, due: str) -> None:
        """Takes the time of a notification, in seconds since 1970. A promoter that looks earlier anyway is not woken:
        producers may send many."""
        try:
            if float(due) >= self.next_look:
                return
        except ValueError:  # not from us: every role of the database may send notifications
            pass
        self.set()


class Promoter:
    def __init__(
        self,
        connection: NodeConnection,
        wakeup: DueEvent,
        *,
        is_listening: Callable[[], bool] = lambda: True,
        poll_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        """`poll_seconds`: the longest pause while no notification can arrive."""
        self._connection, self._wakeup = connection, wakeup
        self._is_listening, self._poll_seconds = is_listening, poll_seconds
        self._next_full = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.next_look = 0.0  # on the monotonic clock

    def expect_due_job(self, seconds: float) -> None:
        """Makes the promoter look when a job is due in so many seconds, if that is before its next look."""
        wait = max(LEAST_WAIT_SECONDS, seconds)
        if time.monotonic() + wait < self.next_look:
            self.next_look = time.monotonic() + wait
            self._cancel_alarm()
            self._alarm = asyncio.get_running_loop().call_later(wait, self._wakeup.set)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def run(self) -> float:
        """Promotes the jobs that are due; returns the seconds until the next look.

        Mostly it reads only jobs that were due in the last minutes, because an old snapshot may keep many index
        entries of earlier ones. Once a minute it reads all.
        """
        is_full = time.monotonic() >= self._next_full
        self._wakeup.clear()
        self._cancel_alarm()
        # This look may not see a job that is announced while it runs. With infinity, every announcement is earlier than
        # the next look, and so wakes the promoter again.
        self.next_look = self._wakeup.next_look = math.inf
        since = 1e9 if is_full else RECENT_SECONDS
        ((wait, server_time),) = await self._connection.execute("promote", (BATCH, since))
        if is_full:
            self._next_full = time.monotonic() + FULL_LOOK_SECONDS
        pause = LONGEST_WAIT_SECONDS if self._is_listening() else self._poll_seconds
        if wait is not None:  # seconds until the next delayed job is due; None if there is none
            pause = 0.0 if wait <= 0 else min(pause, max(LEAST_WAIT_SECONDS, wait))
        self.next_look = min(self.next_look, time.monotonic() + pause)
        self._wakeup.next_look = server_time + pause
        return pause
