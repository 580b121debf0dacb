"""Where to start looking for ready jobs.

A claim reads the head of the ready index. Entries of jobs that were claimed or finished stay there until vacuum, and
an old snapshot anywhere in the database keeps vacuum away; walking them costs more with every job. So each claimer
remembers, for every queue and priority, the last position it took, its *floor*, and may start above it.

What arrives behind a floor (a long transaction's job, one put back, an unseen priority) is seen only from the top.
Therefore: from the top whenever that is cheap, which is always in a healthy database; and else from the top every
second, or less often when that alone would take a tenth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from foliot.worker.run import Claimed

Position = tuple[int, bytes]
CHEAP = 0.002


class Floors:
    """One per claimer. Ask `above()` before a claim, tell `took()` after it."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], Position] = {}
        self._next_from_top = 0.0
        self._top_cost = self._floor_cost = 0.0

    def above(self) -> dict[tuple[str, int], Position] | None:
        """The floors to start from; None: from the top."""
        if not self._at or self._top_cost < self._floor_cost + CHEAP or time.monotonic() >= self._next_from_top:
            return None
        return self._at

    def took(self, rows: Sequence[Claimed], *, from_top: bool, seconds: float) -> None:
        """`rows` in the order of the claim."""
        for row in rows:
            self._at[row.queue, row.priority] = (row.raw_run_at, row.id)
        if from_top:
            self._top_cost = seconds
            self._next_from_top = time.monotonic() + max(1.0, 10 * seconds)
        elif rows:
            self._floor_cost = seconds
        else:
            self._next_from_top = 0.0
