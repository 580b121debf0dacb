"""Tells the database how runs ended, many at a time.

Nobody waits for a timer: what ended while the last statement was under way goes into the next one. A reply that was
lost is no answer, so the batch is sent again; ids refused then are looked up in the history, because it may have been
us. A batch that the server refuses is halved until the offender is alone, and that one is settled as failed with the
server's message. A job whose row an open transaction keeps locked is set aside and looked at again every second: one
forgotten transaction must not keep all others from being settled.

What is put back for later is known here first: whoever promotes in this process hears when the first of it is due.

Where others wait for what has ended, the statement after it looks whether they have all they wait for. It is only the
quick way: what is missed, any node's chores find within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import orjson

from foliot.errors import FoliotError
from foliot.postgres.arrays import float8s, int8s, intervals, jsonbs, texts, uuids
from foliot.store.line import Busy, Disconnected, Line, Refused
from foliot.worker.endings import Batch, Ending, Settled
from foliot.worker.run import Claimed, Run

logger = logging.getLogger("foliot.worker")

LOOK_AGAIN = 1.0  # seconds between two looks at what somebody keeps locked
DEEPEST_CASCADE = 100  # levels of canceled jobs that are followed at once
RECENT = 30.0  # seconds; what a worker has noted itself is younger
AT_ONCE = 1000  # jobs that one look decides


class Settler:
    """The one writer of endings in this process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.on_settled: Callable[[list[Run], list[Settled]], None] = lambda succeeded, endings: None
        self.on_refused: Callable[[list[bytes]], None] = lambda ids: None
        self.on_progress: Callable[[], None] = lambda: None
        self.on_decided: Callable[[list[tuple[Any, ...]]], None] = lambda decided: None
        self.on_later: Callable[[float], None] = lambda seconds: None
        self._next = Batch()
        self._under_way = Batch()
        self._aside = Batch()  # kept locked by somebody's open transaction
        self._look_again = 0.0
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open: dict[int, int] = {}  # fence -> jobs of that claim not yet ended
        self._waiting: list[bytes] = []  # jobs that wait for what has ended
        self.epoch = 0

    @property
    def waiting(self) -> int:
        return len(self._next) + len(self._aside)

    @property
    def known_fences(self) -> list[int]:
        """Of claims that are still held here, or whose ends the database may not have heard of yet."""
        unheard = [*self._under_way.all_fences, *self._next.all_fences, *self._aside.all_fences]
        return list({*self._open, *unheard})

    def expect(self, rows: Iterable[Claimed]) -> None:
        """These were claimed: each will be settled once."""
        for row in rows:
            self._open[row.fence] = self._open.get(row.fence, 0) + 1

    def forget(self) -> None:
        """The node lost its epoch: nothing it holds is its own any more."""
        self._next, self._aside = Batch(), Batch()
        self._open.clear()

    def succeeded(self, claimed: Claimed, started: float, result: bytes | None) -> None:
        batch = self._next
        batch.ids.append(claimed.id)
        batch.fences.append(claimed.fence)
        batch.started.append(started)
        batch.results.append(result)
        if result is not None:
            batch.with_results = True
        self._ended(claimed.fence)

    def tell_when_settled(self, run: Run) -> None:
        self._next.observed.append(run)

    def ended(self, ending: Ending) -> None:
        self._next.endings.append(ending)
        self._ended(ending.claimed.fence)

    def _ended(self, fence: int) -> None:
        left = self._open.get(fence, 0) - 1
        if left > 0:
            self._open[fence] = left
        else:
            self._open.pop(fence, None)
            self._next.closed.append(fence)
        self._work.set()
        self._idle.clear()

    async def run(self) -> None:
        while True:
            await self._something_to_do()
            self._under_way, self._next = self._next, Batch()
            await self._settle(self._under_way)
            await self._unblock()
            self._under_way = Batch()
            if not len(self._next) and not len(self._aside):
                self._idle.set()
            self.on_progress()

    async def _something_to_do(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN if len(self._aside) else None):
                await self._work.wait()
        self._work.clear()
        if len(self._aside) and time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + LOOK_AGAIN
            locked = await self._kept_locked(self._aside.all_ids)
            back = self._aside.without(set(self._aside.all_ids) - locked)
            self._next.add(back)
            for fence in back.all_fences:
                self._ended(fence)

    @property
    def idle(self) -> bool:
        return self._idle.is_set()

    @property
    def unheard(self) -> int:
        """Ends of which the database may not know."""
        return len(self._under_way) + len(self._next) + len(self._aside)

    async def drained(self) -> None:
        """Returns when everything that has ended is known to the database."""
        await self._idle.wait()

    async def close(self) -> None:
        await self._line.close()

    async def _settle(self, batch: Batch) -> None:
        while True:
            try:
                await self._send(batch)
            except Busy as error:
                await self._set_aside(batch, error)
            else:
                return

    async def _send(self, batch: Batch) -> None:
        if batch.endings:
            told = await self._send_endings(batch.endings, [] if batch.ids else batch.closed)
            batch.endings, batch.closed = [], batch.closed if batch.ids else []
            self.on_settled([], told)
        if batch.ids or batch.closed:
            refused = await self._send_successes(batch, batch.closed)
            if refused:
                self.on_refused(refused)
            if batch.observed:
                self.on_settled([run for run in batch.observed if run.claimed.id not in refused], [])

    async def _set_aside(self, batch: Batch, error: Busy) -> None:
        """The others are told without those that somebody keeps locked; if there are none, the lock is another."""
        locked = await self._kept_locked(batch.all_ids)
        for job_id in locked:
            logger.warning("Job %s has ended, but an open transaction keeps its row locked", UUID(bytes=job_id))
        aside = batch.without(locked)
        self._aside.add(aside)
        self._next.keep_open(aside.all_fences)
        for fence in aside.all_fences:  # not ended after all: without its claim nobody would find it if we died
            self._open[fence] = self._open.get(fence, 0) + 1
        self._look_again = time.monotonic() + LOOK_AGAIN
        if not locked:
            logger.warning("Settling waits for somebody's open transaction: %s", error)
            await self._line.recover()

    async def _kept_locked(self, ids: list[bytes]) -> set[bytes]:
        while True:
            try:
                return {row[0] for row in await self._line.execute("kept_locked", (uuids(ids),))}
            except Busy:  # then the table itself is
                return set()
            except (Disconnected, Refused) as error:
                await self._wait(error)

    async def _send_successes(self, batch: Batch, closed: list[int]) -> list[bytes]:
        now = time.monotonic()
        results = jsonbs(batch.results) if batch.with_results else None
        params = (
            self.epoch,
            uuids(batch.ids),
            int8s(batch.fences),
            float8s([now - s for s in batch.started]),
            results,
            int8s(closed),
        )
        while True:
            try:
                rows = await self._line.execute("settle_succeeded", params)
            except (Disconnected, Refused) as error:
                if isinstance(error, Refused) and error.by_data:
                    return await self._one_by_one(batch, closed, error)
                await self._wait(error)
            else:
                self._waiting += [row[0] for row in rows if row[1] == "blocked"]
                refused = [row[0] for row in rows if row[1] is None]
                return await self._not_by_us(dict(zip(batch.ids, batch.fences, strict=True)), refused)

    async def _not_by_us(self, fences: dict[bytes, int], refused: list[bytes]) -> list[bytes]:
        """Those we did not end ourselves, by a statement whose reply was lost or in a handler's own transaction."""
        if not refused:
            return refused
        while True:
            try:
                ours = await self._line.execute("settled_by", (uuids(refused), int8s([fences[i] for i in refused])))
                self._waiting += [child for row in ours for child in row[1] or ()]
                return list(set(refused) - {row[0] for row in ours})
            except (Disconnected, Refused) as error:
                await self._wait(error)

    async def _unblock(self) -> None:
        """Jobs that waited for what has ended. Who waits for one that is canceled for it, the next look finds."""
        waiting, self._waiting = self._waiting, []
        query: str = "unblock"
        params: tuple[Any, ...] = (uuids(waiting),)
        for _ in range(DEEPEST_CASCADE if waiting else 0):
            try:
                decided = await self._line.execute(query, params)
            except (Disconnected, Refused) as error:
                logger.warning("What waited is left to the chores: %s", error)
                return
            self.on_decided(decided)
            if len(decided) < AT_ONCE and not any(row[1] == "canceled" for row in decided):
                return
            query, params = "unblock_any", (RECENT,)

    async def _wait(self, error: FoliotError) -> None:
        """For the database; not for a lock, which may be that of a single job."""
        if isinstance(error, Busy):
            raise error
        logger.warning("Settling waits for the database: %s", error)
        await self._line.recover()

    async def _one_by_one(self, batch: Batch, closed: list[int], error: Refused) -> list[bytes]:
        """Only a result can be what the server refuses of a success."""
        logger.error("The server refused a batch of %d results: %s", len(batch.ids), error)
        if len(batch.ids) == 1:
            return await self._without_result(batch, closed, error)
        half = len(batch.ids) // 2
        first = Batch(
            batch.ids[:half], batch.fences[:half], batch.started[:half], batch.results[:half], with_results=True
        )
        second = Batch(
            batch.ids[half:], batch.fences[half:], batch.started[half:], batch.results[half:], with_results=True
        )
        return await self._send_successes(first, []) + await self._send_successes(second, closed)

    async def _without_result(self, batch: Batch, closed: list[int], refusal: Refused) -> list[bytes]:
        while True:
            try:
                rows = await self._line.execute("settle", self._refused_result(batch, closed, refusal))
                self._waiting += [row[0] for row in rows if row[1] == "blocked"]
                return [row[0] for row in rows if row[1] is None]
            except (Disconnected, Refused) as error:
                await self._wait(error)

    def _refused_result(self, batch: Batch, closed: list[int], error: Refused) -> tuple[Any, ...]:
        what = {
            "kind": "permanent",
            "type": "ResultRefused",
            "message": f"the database refused the result: {error.message}",
        }
        age = time.monotonic() - batch.started[0]
        return (
            self.epoch, uuids(batch.ids), int8s(batch.fences), texts(["failed"]), float8s([age]), intervals([None]),
            jsonbs([None]), jsonbs([orjson.dumps(what)]), int8s(closed),
        )  # fmt: skip

    async def _send_endings(self, endings: list[Ending], closed: list[int]) -> list[Settled]:
        while True:
            try:
                rows = await self._line.execute("settle", self._ending_params(endings, closed))
            except (Disconnected, Refused) as error:
                if isinstance(error, Refused) and error.by_data:
                    return await self._halve(endings, closed, error)
                await self._wait(error)
            else:
                self._waiting += [row[0] for row in rows if row[1] == "blocked"]
                if put_off := [row[2] for row in rows if row[2] is not None]:
                    self.on_later(min(put_off))
                return await self._settled(endings, {row[0]: row[1] for row in rows if row[1] != "blocked"})

    async def _settled(self, endings: list[Ending], states: dict[bytes, str | None]) -> list[Settled]:
        refused = [e.claimed.id for e in endings if states.get(e.claimed.id, "succeeded") is None]
        foreign = await self._not_by_us({e.claimed.id: e.claimed.fence for e in endings}, refused)
        known = [e for e in endings if e.claimed.id not in refused or e.claimed.id in foreign]
        return [Settled(e, states.get(e.claimed.id, "succeeded")) for e in known]

    async def _halve(self, endings: list[Ending], closed: list[int], error: Refused) -> list[Settled]:
        if len(endings) == 1:
            (one,) = endings
            logger.error("The server refused the ending of job %s: %s", UUID(bytes=one.claimed.id), error)
            if one.error is not None and one.error.get("type") == "EndingRefused":
                return []  # not even that; a claim that nobody here knows of goes back within a lease
            one.result, one.delay = None, None
            one.error = {
                "type": "EndingRefused",
                "message": f"the database refused what was to be recorded: {error.message}",
            }
            return await self._send_endings(endings, closed)
        half = len(endings) // 2
        return await self._send_endings(endings[:half], []) + await self._send_endings(endings[half:], closed)

    def _ending_params(self, endings: list[Ending], closed: list[int]) -> tuple[Any, ...]:
        now = time.monotonic()
        return (
            self.epoch,
            uuids([e.claimed.id for e in endings]),
            int8s([e.claimed.fence for e in endings]),
            texts([e.outcome for e in endings]),
            float8s([None if e.started is None else now - e.started for e in endings]),
            intervals([e.delay for e in endings]),
            jsonbs([e.result for e in endings]),
            jsonbs([None if e.error is None else orjson.dumps(e.error) for e in endings]),
            int8s(closed),
        )
