"""How many jobs a second this process ends while it has work; the measure of how far to claim ahead."""

from __future__ import annotations

import time

WINDOW = 0.02


class Rate:
    """Time without work does not count: `begin` when work arrives at an idle worker, `pause` when it has run out."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._since = time.monotonic()
        self._count = 0

    def begin(self) -> None:
        self._since, self._count = time.monotonic(), 0

    def count(self) -> None:
        self._count += 1
        if not self._count & 15 and time.monotonic() - self._since >= WINDOW:
            self._measure()

    def pause(self) -> None:
        if self._count:
            self._measure()

    def _measure(self) -> None:
        now = time.monotonic()
        measured = self._count / max(now - self._since, 1e-6)
        self.per_second += (measured - self.per_second) * 0.5
        self._since, self._count = now, 0
