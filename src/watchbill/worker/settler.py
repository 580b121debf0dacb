"""Tells the database how runs ended, many at a time.

Nobody waits for a timer: what ended while the last statement was under way goes into the next one. A reply that was
lost is no answer, so the batch is sent again; ids refused then are looked up in the history, because it may have been
us. A batch that the server refuses is halved until the offender is alone, and that one is settled as failed with the
server's message; if even that is refused, by somebody's trigger, say, it stays claimed and is told again now and then.
A job whose row an open transaction keeps locked is set aside and looked at again every second: one forgotten
transaction must not keep all others from being settled.

A claim is closed with the end of its last job, and not before: without its claim nobody would find a job if we died.

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
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from watchbill.errors import WatchbillError
from watchbill.postgres.arrays import float8s, int8s, intervals, jsonbs, texts, uuids
from watchbill.store.line import Busy, Disconnected, Line, Refused
from watchbill.worker.endings import Batch, Ending, Settled
from watchbill.worker.run import Claimed, Run

logger = logging.getLogger("watchbill.worker")

LOOK_AGAIN = 1.0  # seconds between two looks at what somebody keeps locked
TELL_AGAIN = 30.0  # seconds after which the server is told again what it has refused
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
        self._held: list[Batch] = []  # single ends that the server refuses, in whatever words
        self._tell_again = 0.0
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open: dict[int, int] = {}  # fence -> jobs of that claim not yet ended
        self._waiting: list[bytes] = []  # jobs that wait for what has ended
        self.epoch = 0

    @property
    def waiting(self) -> int:
        return len(self._next) + len(self._aside) + len(self._held)

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
        self._next, self._aside, self._held = Batch(), Batch(), []
        self._open.clear()

    def succeeded(self, claimed: Claimed, started: float, result: bytes | None) -> None:
        batch = self._next
        batch.succeeded.append(claimed)
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
        elif left == 0:  # less is a claim of an epoch that was lost: what else it holds we do not know any more
            del self._open[fence]
            self._next.closed.append(fence)
        self._work.set()
        self._idle.clear()

    def _not_ended(self, batch: Batch) -> None:
        """These have not ended after all, as far as the database knows: their claims stay open."""
        for fence in batch.all_fences:
            if self._under_way.keep_open(fence) or self._next.keep_open(fence) or fence in self._open:
                self._open[fence] = self._open.get(fence, 0) + 1

    async def run(self) -> None:
        while True:
            await self._something_to_do()
            batch, self._next = self._next, Batch()
            await self._tell(batch)
            if self._held and time.monotonic() >= self._tell_again:
                await self._tell_held()
            if not len(self._next) and not len(self._aside):
                self._idle.set()
            self.on_progress()

    async def _tell(self, batch: Batch) -> None:
        self._under_way = batch
        await self._settle(batch)
        await self._unblock()
        self._under_way = Batch()

    async def _tell_held(self) -> None:
        """Each on its own: what is refused again would have its batch halved."""
        held, self._held = self._held, []
        for batch in held:
            for fence in batch.all_fences:
                self._ended(fence)
            await self._tell(batch)

    async def _something_to_do(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN if len(self._aside) else TELL_AGAIN if self._held else None):
                await self._work.wait()
        self._work.clear()
        if len(self._aside) and time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + LOOK_AGAIN
            locked = await self._kept_locked(self._aside.all_ids)
            back = self._aside.take(set(self._aside.all_ids) - locked)
            self._next.add(back)
            for fence in back.all_fences:
                self._ended(fence)

    @property
    def idle(self) -> bool:
        return self._idle.is_set()

    @property
    def unheard(self) -> int:
        """Ends of which the database may not know."""
        return len(self._under_way) + len(self._next) + len(self._aside) + len(self._held)

    @property
    def unheard_once(self) -> bool:
        """Whether among them is one that has run and must not run again."""
        return any(batch.has_run_once for batch in (self._under_way, self._next, self._aside, *self._held))

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
            except Refused as error:
                await self._single_out(batch, error)
            else:
                return

    async def _send(self, batch: Batch) -> None:
        if batch.endings:
            told = await self._send_endings(batch.endings, [] if batch.succeeded else batch.closed)
            batch.endings, batch.closed = [], batch.closed if batch.succeeded else []
            self.on_settled([], told)
        if batch.succeeded or batch.closed:
            refused = await self._send_successes(batch)
            if refused:
                self.on_refused(refused)
            if batch.observed:
                self.on_settled([run for run in batch.observed if run.claimed.id not in refused], [])

    async def _set_aside(self, batch: Batch, error: Busy) -> None:
        """The others are told without those that somebody keeps locked; if there are none, the lock is another."""
        locked = await self._kept_locked(batch.all_ids)
        for job_id in locked:
            logger.warning("Job %s has ended, but an open transaction keeps its row locked", UUID(bytes=job_id))
        aside = batch.take(locked)
        self._not_ended(aside)
        self._aside.add(aside)
        self._look_again = time.monotonic() + LOOK_AGAIN
        if not locked:
            logger.warning("Settling waits for somebody's open transaction: %s", error)
            await self._line.recover()

    async def _single_out(self, batch: Batch, error: Refused) -> None:
        """Halves what the server refuses until the offender is alone. That one is a failure, of which the server says
        why; where not even this can be recorded, nothing is."""
        if len(batch) > 1:
            for half in batch.halves():
                await self._settle(half)
            batch.take(set(batch.all_ids))
            return
        if not batch:  # then it is the claims that stay; abandon sees to them
            logger.error("The server refused to close claims: %s", error)
            batch.closed = []
            return
        job_id = UUID(bytes=batch.all_ids[0])
        if batch.refused is None:
            logger.error("The server refused the end of job %s: %s", job_id, error)
            failure = _failure(batch, error)
            batch.refused, batch.endings = batch.take(set(batch.all_ids)), [failure]
        else:
            told = "Nor can job %s be recorded as failed: it stays claimed here, and its end is told again in %g s: %s"
            logger.error(told, job_id, TELL_AGAIN, error)
            batch.take(set(batch.all_ids))
            self._hold(batch.refused)

    def _hold(self, batch: Batch) -> None:
        self._not_ended(batch)
        if not self._held:
            self._tell_again = time.monotonic() + TELL_AGAIN
        self._held.append(batch)

    async def _kept_locked(self, ids: list[bytes]) -> set[bytes]:
        while True:
            try:
                return {row[0] for row in await self._line.execute("kept_locked", (uuids(ids),))}
            except Busy:  # then the table itself is
                return set()
            except (Disconnected, Refused) as error:
                await self._wait(error)

    async def _send_successes(self, batch: Batch) -> list[bytes]:
        while True:
            try:
                rows = await self._line.execute("settle_succeeded", self._success_params(batch))
            except (Disconnected, Refused) as error:
                await self._wait(error)
            else:
                self._waiting += [row[0] for row in rows if row[1] == "blocked"]
                refused = [row[0] for row in rows if row[1] is None]
                return await self._not_by_us(batch.succeeded, refused) if refused else refused

    def _success_params(self, batch: Batch) -> tuple[Any, ...]:
        """For each try anew: meanwhile their handlers have started longer ago."""
        now = time.monotonic()
        return (
            self.epoch,
            uuids([claimed.id for claimed in batch.succeeded]),
            int8s([claimed.fence for claimed in batch.succeeded]),
            float8s([now - s for s in batch.started]),
            jsonbs(batch.results) if batch.with_results else None,
            int8s(batch.closed),
        )

    async def _not_by_us(self, claimed: Iterable[Claimed], refused: list[bytes]) -> list[bytes]:
        """Those we did not end ourselves, by a statement whose reply was lost or in a handler's own transaction."""
        fences = {each.id: each.fence for each in claimed}
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

    async def _wait(self, error: WatchbillError) -> None:
        """For the database; not where a single job may be the reason."""
        if isinstance(error, Busy) or (isinstance(error, Refused) and error.by_data):
            raise error
        logger.warning("Settling waits for the database: %s", error)
        await self._line.recover()

    async def _send_endings(self, endings: list[Ending], closed: list[int]) -> list[Settled]:
        while True:
            try:
                rows = await self._line.execute("settle", self._ending_params(endings, closed))
            except (Disconnected, Refused) as error:
                await self._wait(error)
            else:
                self._waiting += [row[0] for row in rows if row[1] == "blocked"]
                if put_off := [row[2] for row in rows if row[2] is not None]:
                    self.on_later(min(put_off))
                return await self._settled(endings, {row[0]: row[1] for row in rows if row[1] != "blocked"})

    async def _settled(self, endings: list[Ending], states: dict[bytes, str | None]) -> list[Settled]:
        refused = [e.claimed.id for e in endings if states.get(e.claimed.id, "succeeded") is None]
        foreign = await self._not_by_us([e.claimed for e in endings], refused) if refused else refused
        known = [e for e in endings if e.claimed.id not in refused or e.claimed.id in foreign]
        return [Settled(e, states.get(e.claimed.id, "succeeded")) for e in known]

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


def _failure(one: Batch, refusal: Refused) -> Ending:
    """What was to be recorded is lost, and why is recorded instead. A job that has succeeded does not run again."""
    error = {"type": "EndingRefused", "message": f"the database refused what was to be recorded: {refusal.message}"}
    if one.endings:
        return replace(one.endings[0], result=None, delay=None, error=error)
    run = one.observed[0] if one.observed else None
    return Ending(one.succeeded[0], "failed", one.started[0], error={"kind": "permanent"} | error, run=run)
