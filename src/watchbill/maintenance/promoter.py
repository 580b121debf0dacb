"""Makes delayed jobs ready when they are due, and knows when the next one is.

It hears of what is put off while it sleeps in three ways: what this process puts back itself, `expect` tells it; a
producer rings for what is due before the next look; and everything else it finds when it looks, once a second.
"""

from __future__ import annotations

import asyncio
import math
import time

from watchbill.store.line import Line

BATCH = 1000
LONGEST_WAIT = 1.0  # producers ring only for what is due sooner, or a little later: wake_later()
LEAST_WAIT = 0.005  # between two looks, however close the next jobs are: they are promoted together
FULL_LOOK_EVERY = 60.0
RECENT = 300.0


class Promoter:
    """`woken` ends its sleep."""

    def __init__(self, line: Line, woken: asyncio.Event) -> None:
        self._line, self._woken = line, woken
        self._next_full = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.next_look = 0.0  # on the monotonic clock

    def expect(self, seconds: float) -> None:
        """A job is due so soon; if that is before the next look, the next look is then."""
        wait = max(LEAST_WAIT, seconds)
        if time.monotonic() + wait < self.next_look:
            self.next_look = time.monotonic() + wait
            self._forget_alarm()
            self._alarm = asyncio.get_running_loop().call_later(wait, self._woken.set)

    def _forget_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def run(self) -> float:
        """Promotes what is due; seconds until the next one is.

        Mostly it looks at the last minutes only: entries that an old snapshot keeps in the index are not walked again.
        """
        full = time.monotonic() >= self._next_full
        self._forget_alarm()
        self.next_look = math.inf  # what is expected from now on, this look may not see
        ((wait,),) = await self._line.execute("promote", (BATCH, 1e9 if full else RECENT))
        if full:
            self._next_full = time.monotonic() + FULL_LOOK_EVERY
        pause = _pause(wait)
        self.next_look = min(self.next_look, time.monotonic() + pause)
        return pause


def _pause(wait: float | None) -> float:
    if wait is None:
        return LONGEST_WAIT
    return 0.0 if wait <= 0 else min(LONGEST_WAIT, max(LEAST_WAIT, wait))
