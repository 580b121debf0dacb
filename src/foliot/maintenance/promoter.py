"""Makes delayed jobs ready when they are due, and knows when the next one is."""

from __future__ import annotations

import time

from foliot.store.line import Line

BATCH = 1000
LONGEST_WAIT = 5.0  # producers ring only for what is due sooner: wake_later()
FULL_LOOK_EVERY = 60.0
RECENT = 300.0


class Promoter:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._next_full = 0.0

    async def run(self) -> float:
        """Promotes what is due; seconds until the next one is.

        Mostly it looks at the last minutes only: entries that an old snapshot keeps in the index are not walked again.
        """
        full = time.monotonic() >= self._next_full
        ((wait,),) = await self._line.execute("promote", (BATCH, 1e9 if full else RECENT))
        if full:
            self._next_full = time.monotonic() + FULL_LOOK_EVERY
        return LONGEST_WAIT if wait is None else min(LONGEST_WAIT, max(0.0, wait))
