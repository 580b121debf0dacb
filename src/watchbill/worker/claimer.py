"""Asks the database for jobs, one statement at a time, and knows where to start looking."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from watchbill.postgres.arrays import int2s, int8s, texts, times, uuids
from watchbill.store.line import Line
from watchbill.worker.floors import Floors, Key, Look, Position
from watchbill.worker.run import Claimed, claim_order

DEAR = 0.02  # seconds


class Claimer:
    """`doubtful`: a claim may have been carried out without our hearing of it; then `abandon` comes first."""

    def __init__(self, line: Line, queues: Sequence[str]) -> None:
        self._line, self._queues = line, list(queues)
        self._floors = Floors(queues)
        self._ahead: int | None = None  # microseconds from our clock to the server's, when floors need it
        self._others_due = 0.0
        self.epoch = 0
        self.doubtful = False

    async def claim(self, wanted: int, free: int, without: list[str] | None = None) -> list[Claimed]:
        """None means none above the floors; what may lie behind them is seen when the top is due."""
        if without:
            return await self._claim_others(wanted, free, without)
        floors = self._floors.above()
        if self._floors.matter and (floors is None or self._ahead is None):
            await self._look_around()
        return await self._claim(wanted, free, floors)

    @property
    def top_is_due_in(self) -> float:
        others = self._others_due - time.monotonic()
        return min(self._floors.top_is_due_in, others if others > 0 else math.inf)

    def start_from_top(self) -> None:
        self._floors.start_from_top()

    async def _claim(self, wanted: int, free: int, floors: dict[Key, Position] | None) -> list[Claimed]:
        began = time.perf_counter()
        self.doubtful = True
        if floors is None:
            found = await self._line.execute("claim", (self.epoch, self._queues, wanted, free, False))
        else:
            found = await self._line.execute("claim_above", (self.epoch, self._queues, wanted, free, *_packed(floors)))
        self.doubtful = False
        rows = _sorted(found)
        there = None if self._ahead is None else self._ahead + int(began * 1e6)
        self._floors.took(Look(wanted, rows, there, time.perf_counter() - began, from_top=floors is None))
        return rows

    async def _claim_others(self, wanted: int, free: int, without: list[str]) -> list[Claimed]:
        """Of other types. It walks over all that it leaves; where that takes long, in vain for a tenth of the time."""
        began = time.monotonic()
        if began < self._others_due:
            return []
        self.doubtful = True
        found = await self._line.execute("claim_others", (self.epoch, self._queues, wanted, free, without))
        self.doubtful = False
        now = time.monotonic()
        if not found and now - began > DEAR:
            self._others_due = now + 10 * (now - began)
        return _sorted(found)

    async def _look_around(self) -> None:
        """The time rather too early than too late, so that a floor is never above what a claim has seen."""
        ((there, nodes),) = await self._line.execute("surroundings")
        self._ahead, self._floors.nodes = there - int(time.perf_counter() * 1e6), max(1, nodes)

    async def claim_alone(self) -> list[Claimed]:
        """One job that is to run with nothing started beside it."""
        self.doubtful = True
        found = await self._line.execute("claim", (self.epoch, self._queues, 1, 1, True))
        self.doubtful = False
        return _sorted(found)

    async def abandon(self, known_fences: list[int]) -> None:
        await self._line.execute("abandon", (self.epoch, int8s(known_fences)))
        self.doubtful = False


def _sorted(found: list[tuple[object, ...]]) -> list[Claimed]:
    """RETURNING comes in physical order."""
    rows = [Claimed._make(row) for row in found]
    rows.sort(key=claim_order)
    return rows


def _packed(floors: dict[Key, Position]) -> tuple[object, ...]:
    """High priorities first: the statement takes them in the order given."""
    ordered = sorted(floors.items(), key=lambda item: -item[0][1])
    return (
        texts([queue for (queue, _), _ in ordered]),
        int2s([priority for (_, priority), _ in ordered]),
        times([at for _, (at, _) in ordered]),
        uuids([job_id for _, (_, job_id) in ordered]),
    )
