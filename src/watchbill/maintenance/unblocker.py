"""Looks at jobs that wait for others, where the worker that ended those others did not: it died, or was no worker."""

from __future__ import annotations

import time

from watchbill.store.line import Line
from watchbill.telemetry.events import Events, tell_decided

PAUSE = 1.0
FULL_LOOK_EVERY = 60.0
RECENT = 30.0


class Unblocker:
    """It asks for ends that nobody has looked at, so that no statement runs for a job that merely waits."""

    def __init__(self, line: Line, events: Events) -> None:
        self._line, self._events = line, events
        self._next_full = 0.0

    async def run(self) -> float:
        """Looks until nothing is left to decide; seconds until it should look again.

        Mostly at the last seconds only: entries that an old snapshot keeps in the index are not walked again.
        """
        full = time.monotonic() >= self._next_full
        while decided := await self._line.execute("unblock_any", (1e9 if full else RECENT,)):
            tell_decided(self._events, decided)
        if full:
            self._next_full = time.monotonic() + FULL_LOOK_EVERY
        return PAUSE
