"""The small chores: partitions ahead of time, jobs that nobody can run, what a pause or a claim left behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from watchbill.store.line import Line, Refused

logger = logging.getLogger("watchbill.maintenance")

AGAIN = 10.0  # seconds


class Caretaker:
    """Each chore in its own rhythm; any node may do any of them at any time."""

    def __init__(self, line: Line, *, unknown_type_grace: float, slot_retention: float) -> None:
        self._line, self._grace = line, unknown_type_grace
        self._swept: UUID | None = None
        self._chores: list[tuple[float, Callable[[], Awaitable[object]]]] = [
            (3600.0, lambda: line.execute("make_partitions", ("finished_succeeded",))),
            (3600.0, lambda: line.execute("make_partitions", ("finished_otherwise",))),
            (3600.0, lambda: line.execute("make_partitions", ("attempts",))),
            (min(60.0, max(1.0, unknown_type_grace / 4)), lambda: line.execute("expire_unsupported", (self._grace,))),
            (10.0, lambda: line.execute("unpark_paused")),
            (60.0, lambda: line.execute("sweep_claims")),
            (60.0, self._sweep_dependencies),
            (10.0, lambda: line.execute("release_held")),
            (3600.0, lambda: line.execute("make_slot_partitions")),
            (3600.0, lambda: line.execute("prune_slots", (slot_retention,))),
        ]
        self._due = [0.0] * len(self._chores)

    async def _sweep_dependencies(self) -> None:
        """A part of them each time, from where the last one ended."""
        ((last,),) = await self._line.execute("sweep_dependencies", (self._swept,))
        self._swept = None if last is None else UUID(bytes=last)

    async def run(self) -> float:
        """Does what is due; seconds until the next chore is. One that breaks its connection each time, since a resource
        of the server's is at its end, must not keep the others from theirs."""
        for index, (every, chore) in enumerate(self._chores):
            if time.monotonic() >= self._due[index]:
                self._due[index] = time.monotonic() + min(every, AGAIN)
                try:
                    await chore()
                except Refused as error:  # a lock timeout, say: the next round tries again
                    logger.warning("A chore was refused: %s", error)
                self._due[index] = time.monotonic() + every
        return max(0.1, min(self._due) - time.monotonic())
