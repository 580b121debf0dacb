"""Where to start looking for ready jobs.

A claim reads the head of the ready index. Entries of jobs that were claimed or finished stay there until vacuum, and
an old snapshot anywhere in the database keeps vacuum away; walking them costs more with every job. So each claimer
remembers, for every queue and priority, how far it has looked, its *floor*, and may start above it: the last position
it took, or, where it found less than it wanted, the time of that claim, since what was left there others have taken.

What arrives behind a floor (a long transaction's job, one put back, one due in the past) is seen only from the top.
Therefore: from the top whenever that is cheap, which is always in a healthy database; and else one of the nodes every
second, or less often when that alone would take a twentieth of the time; a tenth, when there is nothing else to do.
Who was woken looks above the floors first: what woke it is there, most likely. What is cheap is told by the number of
entries that the last look from the top has read; its time would tell more about the load of the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from watchbill.worker.run import Claimed

Key = tuple[str, int]  # a queue and a priority
Position = tuple[int, bytes]
CHEAP = 5_000  # entries that are walked over in a few milliseconds
LATE = 250_000  # microseconds between a job's run_at and its commit for which it lands above every floor
LAST_ID = b"\xff" * 16
BUSY, IDLE = 20, 10  # times its cost that pass between two looks from the top


class Look(NamedTuple):
    """One claim: how many it asked for, what it got, when it began on the server's clock (microseconds), if known."""

    wanted: int
    rows: Sequence[Claimed]
    began: int | None
    seconds: float
    from_top: bool


class Floors:
    """One per claimer. Ask `above()` before a claim, tell `took()` after it."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._rank = {queue: place for place, queue in enumerate(queues)}
        self._at: dict[Key, Position] = {}
        self._top_is_due = 0.0
        self._cost = 0.0  # seconds that the last look from the top took
        self._was_from_top = True
        self.matter = False  # looking from the top is dear
        self.nodes = 1  # who look from the top in turns, more or less

    def above(self) -> dict[Key, Position] | None:
        """The floors to start from; None: from the top."""
        return self._at if self.matter and (self._was_from_top or self.top_is_due_in > 0) else None

    @property
    def top_is_due_in(self) -> float:
        """Seconds; infinite when the last look was from there."""
        return math.inf if self._was_from_top else self._top_is_due - time.monotonic()

    def start_from_top(self) -> None:
        """The next look is to see everything."""
        self._was_from_top, self._top_is_due = False, 0.0

    def took(self, look: Look) -> None:
        for row in look.rows:
            self._at[row.queue, row.priority] = (row.raw_run_at, row.id)
        if look.began is not None:
            self._adjust((look.began - LATE, LAST_ID), set(self._exhausted(look)))
        self._was_from_top, now = look.from_top, time.monotonic()
        if look.from_top:
            self._cost, self._top_is_due = look.seconds, now + self.nodes * max(1.0, BUSY * look.seconds)
            if look.rows:
                self.matter = look.rows[0].walked - len(look.rows) > CHEAP
        elif not look.rows:
            self._top_is_due = min(self._top_is_due, now + self.nodes * IDLE * self._cost)

    def _exhausted(self, look: Look) -> Iterator[Key]:
        """A claim goes to the next priority, and to the next queue, only when this one has nothing left to take."""
        if len(look.rows) < look.wanted:
            yield from self._at
        elif ready := [self._order((row.queue, row.priority)) for row in look.rows if row.max_attempts > 1]:
            yield from (key for key in self._at if self._order(key) < max(ready))

    def _order(self, key: Key) -> tuple[int, int]:
        queue, priority = key
        return self._rank.get(queue, 0), -priority

    def _adjust(self, latest: Position, exhausted: set[Key]) -> None:
        for key, position in self._at.items():
            self._at[key] = latest if key in exhausted else min(latest, position)
