"""When to look for jobs that were lost before, each of which runs alone: every other second, and whatever the others
leave; so neither starves the other."""

from __future__ import annotations

import time

from watchbill.worker.engine import Engine

BARRED = 3.0  # seconds for which the others have all turns after one that found no slot of its kind


class AloneTurns:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next = self._until = self._barred = 0.0

    @property
    def is_due(self) -> bool:
        now = time.monotonic()
        return now >= self._next or (self._engine.alone_ran and now < self._until)

    def take(self) -> bool:
        """Whether one may be claimed now; then this was a turn."""
        now = time.monotonic()
        if self._engine.alone_waited:  # its kind of slots is taken; meanwhile the others shall not wait for it
            self._engine.alone_waited, self._barred = False, now + BARRED
        if now < self._barred or not self._engine.may_take_alone():
            return False
        if now >= self._next:
            self._until = now + 1.0
        self._next, self._engine.alone_ran = now + 1.0, False
        return True
