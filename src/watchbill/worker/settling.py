"""Stores how runs ended in the database, many in one statement.

There is no timer: runs that end during one statement are settled by the next. If a reply is lost, the batch is sent
again; ids that are refused then are looked up in the history, because the first statement may have settled them. A
batch that the server refuses is halved until the offending job is alone. That job is settled as failed with the
server's message; if the server refuses even this, because of a user's trigger for example, the job stays claimed and is
sent again later. What is too large for the server is not refused: the server closes the connection. So batches have a
limit in bytes, and a large one that breaks its connection again and again, while other statements work, counts as
refused. A job whose row another transaction keeps locked is set aside and tried every second, so that one forgotten
transaction does not hold up the others.

A claim is closed together with the end of its last job, never earlier: if this node died, its jobs would be found by
their claim.

The next statement (`unblock`) decides about jobs that waited for those that have ended. This is only the fast way: the
chores of any node find within seconds what was not decided here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

from watchbill.maintenance.promoter import Promoter
from watchbill.postgres.arrays import float8s, int8s, intervals, jsonbs, texts, uuids
from watchbill.store.node_connection import Busy, Disconnected, NodeConnection, Refused, is_outage
from watchbill.worker.endings import Ending, EndingBatch
from watchbill.worker.notifications import Wakeups, wait_for
from watchbill.worker.outcomes import OutcomeReporter
from watchbill.worker.run import Claimed, Outcome, Run
from watchbill.worker.tally import Tally

logger = logging.getLogger("watchbill.worker")

LOCKED_RETRY_SECONDS = 1.0  # wait this long before settling jobs again whose rows were locked
REFUSED_RETRY_SECONDS = 30.0  # wait this long before an ending that the server refused is sent again
LARGEST_BATCH_BYTES = 16_000_000  # a batch whose results and errors are larger is halved; a single ending may be larger
LARGE_BYTES = 100_000  # a statement with less than this is never blamed for a connection that breaks
PACK_IN_THREAD_BYTES = 1_000_000
SHARED_BREAKS = 2  # a batch that has broken its connection so often is halved
SINGLE_BREAKS = 5  # a single ending that has broken its connection so often is recorded as failed
BREAK_PAUSE_SECONDS = 1.0  # wait this long before a single ending that broke its connection is sent again
CASCADE_LIMIT = 100  # canceled jobs cancel jobs that wait for them, and so on: at most so many statements follow
UNBLOCK_RECENT_SECONDS = 30.0  # `unblock_any` looks at jobs that ended less than this ago: here, those just canceled
UNBLOCK_BATCH = 1000  # how many blocked jobs one statement queues or cancels at most
_FENCE = itemgetter(Claimed._fields.index("fence"))


class Settler:
    """The only writer of endings in this process."""

    def __init__(
        self, connection: NodeConnection, reporter: OutcomeReporter, wakeups: Wakeups, promoter: Promoter | None = None
    ) -> None:
        self._connection, self._reporter, self._wakeups = connection, reporter, wakeups
        self._promoter = promoter  # must know when a retried or snoozed job is due
        self._next = EndingBatch()  # endings that the next statement settles
        self._under_way = EndingBatch()  # endings that were sent, and whose answer has not come
        self._locked = EndingBatch()  # jobs whose rows another transaction keeps locked
        self._next_locked_retry = 0.0
        self._refused: list[EndingBatch] = []  # single endings that the server refuses in every form
        self._next_refused_retry = 0.0
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open: dict[int, int] = {}  # fence -> jobs of that claim that have not ended yet
        self._dependents: list[bytes] = []  # jobs that wait for one that has ended
        self.epoch = 0
        self.tally = Tally()

    @property
    def waiting(self) -> int:
        return len(self._next) + len(self._locked) + len(self._refused)

    @property
    def being_stored(self) -> int:
        """How many endings the next statements store, or the current one."""
        return len(self._next) + len(self._under_way)

    @property
    def claimed(self) -> int:
        """How many jobs are claimed and their endings not stored, except those that cannot be stored for now."""
        return sum(self._open.values()) + self.being_stored

    @property
    def known_fences(self) -> list[int]:
        """The claims that still have jobs on this node, or endings that may not be stored yet."""
        return list({*self._open, *self._under_way.fences, *self._next.fences, *self._locked.fences})

    def add_claimed(self, rows: Iterable[Claimed]) -> None:
        """Counts the jobs of each claim, because a claim is closed together with the end of its last job."""
        for fence, count in Counter(map(_FENCE, rows)).items():
            self._open[fence] = self._open.get(fence, 0) + count

    def discard_endings(self) -> None:
        """Drops endings that are not stored yet: the node has lost its epoch, so that other nodes have its jobs now."""
        self._next, self._locked, self._refused = EndingBatch(), EndingBatch(), []
        self._open.clear()

    def add_success(self, claimed: Claimed, started: float, result: bytes | None, reported: Run | None = None) -> None:
        self._next.succeeded.append((claimed, started, result, reported))
        self._count_ended(claimed.fence)

    def add_ending(self, ending: Ending) -> None:
        self._next.endings.append(ending)
        self._count_ended(ending.claimed.fence)

    def _count_ended(self, fence: int) -> None:
        """Notes that one job of this claim has ended. If it was the last one, the next statement closes the claim."""
        left = self._open.get(fence, 0) - 1
        if left > 0:
            self._open[fence] = left
        elif left == 0:  # a negative number means that the claim belongs to a lost epoch, so other nodes close it
            del self._open[fence]
            self._next.closed.append(fence)
        self._work.set()
        self._idle.clear()

    def _reopen_claims_of(self, batch: EndingBatch) -> None:
        """Counts the jobs of the batch as not ended, so that their claims stay open: their ends could not be stored."""
        for fence in batch.fences:
            if self._under_way.keep_open(fence) or self._next.keep_open(fence) or fence in self._open:
                self._open[fence] = self._open.get(fence, 0) + 1

    async def run(self) -> None:
        while True:
            await self._wait_for_endings()
            batch, self._next = self._next, EndingBatch()
            await self._settle_and_unblock(batch)
            if self._refused and time.monotonic() >= self._next_refused_retry:
                await self._retry_refused()
            if not len(self._next) and not len(self._locked):
                self._idle.set()
            self._wakeups.progress.set()

    async def _wait_for_endings(self) -> None:
        if len(self._locked) or self._refused:
            await wait_for(self._work, LOCKED_RETRY_SECONDS if len(self._locked) else REFUSED_RETRY_SECONDS)
        else:
            await self._work.wait()
        self._work.clear()
        if len(self._locked) and time.monotonic() >= self._next_locked_retry:
            self._next_locked_retry = time.monotonic() + LOCKED_RETRY_SECONDS
            still_locked = await self._find_locked(self._locked.ids)
            unlocked = self._locked.split_off(set(self._locked.ids) - still_locked)
            self._next.add(unlocked)
            for fence in unlocked.fences:
                self._count_ended(fence)

    async def _settle_and_unblock(self, batch: EndingBatch) -> None:
        self._under_way = batch
        await self._settle_batch(batch)
        if self._dependents:
            await self._unblock_dependents()
        self._under_way = EndingBatch()

    async def _retry_refused(self) -> None:
        """Sends the endings that the server has refused again, each alone: the server would refuse a whole batch."""
        refused, self._refused = self._refused, []
        for batch in refused:
            for fence in batch.fences:
                self._count_ended(fence)
            await self._settle_and_unblock(batch)

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    @property
    def unsettled(self) -> int:
        """How many endings may not be stored yet."""
        return len(self._under_way) + len(self._next) + len(self._locked) + len(self._refused)

    @property
    def has_unsettled_single_attempt(self) -> bool:
        """Whether one of the endings that are not stored is of a job with one attempt, which must not run again."""
        return any(batch.has_single_attempt for batch in (self._under_way, self._next, self._locked, *self._refused))

    async def wait_until_idle(self) -> None:
        """Returns when every ending so far is stored."""
        await self._idle.wait()

    async def wait_for_releases(self) -> None:
        """Waits until released jobs are back in their queue, so that the next claim finds them before later jobs."""
        while self._has_unsettled_release and not self._wakeups.draining.is_set():
            self._wakeups.progress.clear()
            await wait_for(self._wakeups.progress, LOCKED_RETRY_SECONDS)

    @property
    def _has_unsettled_release(self) -> bool:
        return any(e.outcome.name == "released" for batch in (self._under_way, self._next) for e in batch.endings)

    async def close(self) -> None:
        await self._connection.close()

    async def _settle_batch(self, batch: EndingBatch) -> None:
        if len(batch) > 1 and batch.count_bytes() > LARGEST_BATCH_BYTES:
            await self._settle_halves(batch)
        while True:
            try:
                await self._send_batch(batch)
            except Busy as error:
                await self._set_locked_aside(batch, error)
            except Refused as error:
                await self._isolate_refused(batch, error)
            else:
                return

    async def _send_batch(self, batch: EndingBatch) -> None:
        if batch.endings:
            await self._send_endings(batch.endings, [] if batch.succeeded else batch.closed)
            batch.endings, batch.closed = [], batch.closed if batch.succeeded else []
        if batch.succeeded or batch.closed:
            refused = await self._send_successes(batch)
            for job_id in refused:
                self._reporter.report_refused(job_id)
            self.tally.add_successes(batch.succeeded, refused)
            for claimed, _, _, run in batch.succeeded:
                if run is not None and claimed.id not in refused:
                    self._reporter.report_success(run)

    async def _set_locked_aside(self, batch: EndingBatch, error: Busy) -> None:
        """Moves the jobs whose rows another transaction has locked out of the batch. If no job is locked, the lock is
        on something else, and the whole batch is retried."""
        locked = await self._find_locked(batch.ids)
        for job_id in locked:
            name = UUID(bytes=job_id)
            logger.warning(
                "Job %s has ended, but another transaction keeps its row locked; trying again every second", name
            )
        aside = batch.split_off(locked)
        self._reopen_claims_of(aside)
        self._locked.add(aside)
        self._next_locked_retry = time.monotonic() + LOCKED_RETRY_SECONDS
        if not locked:
            logger.warning(
                "Could not store how jobs ended, because another transaction holds a lock; will retry: %s", error
            )
            await self._connection.wait_to_retry()

    async def _settle_halves(self, batch: EndingBatch) -> None:
        """Settles each half of the batch in a statement of its own. The batch keeps no job, only claims to close."""
        for half in batch.split_in_half():
            await self._settle_batch(half)
        batch.split_off(set(batch.ids))

    async def _isolate_refused(self, batch: EndingBatch, error: Refused) -> None:
        """Halves a batch that the server refuses until the offending job is alone, and settles that job as failed."""
        if len(batch) > 1:
            await self._settle_halves(batch)
            return
        if not batch:  # the batch has no job, only claims to close, and `release_unknown` closes them later
            logger.error("The server refused to mark finished claims as closed; trying again later: %s", error)
            batch.closed = []
            return
        job_id = UUID(bytes=batch.ids[0])
        if batch.refused is None:
            logger.error("The server refused the result of job %s; recording it as failed: %s", job_id, error)
            failure = _replace_refused_ending(batch, error)
            batch.refused, batch.endings = batch.split_off(set(batch.ids)), [failure]
        else:
            message = "The server refused to record job %s as failed; it stays claimed, retrying in %g s: %s"
            logger.error(message, job_id, REFUSED_RETRY_SECONDS, error)
            batch.split_off(set(batch.ids))
            self._reopen_claims_of(batch.refused)
            if not self._refused:
                self._next_refused_retry = time.monotonic() + REFUSED_RETRY_SECONDS
            self._refused.append(batch.refused)

    async def _execute_until_answered(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        """Runs a query, and retries until the database answers. Raises if one job of the batch may be the cause."""
        while True:
            try:
                return await self._connection.execute(query, params)
            except (Disconnected, Refused) as error:
                if isinstance(error, Busy) or (isinstance(error, Refused) and error.by_data):
                    raise
                if not is_outage(error):
                    logger.warning("The server refused to store the outcomes of jobs; will retry: %s", error)
                await self._connection.wait_to_retry()

    async def _execute_settle(
        self, query: str, make_params: Callable[[], Any], batch: EndingBatch
    ) -> list[tuple[Any, ...]]:
        """Like `_execute_until_answered`, but also raises Refused if a large statement breaks its connection again and
        again, although the database answers a small one in between. `make_params` is called before each try, because
        the parameters say how long ago runs began."""
        breaks, limit = 0, SHARED_BREAKS if len(batch) > 1 else SINGLE_BREAKS
        size = batch.count_bytes()
        while True:
            # Copying large results takes so long that the event loop must not wait for it.
            params = await asyncio.to_thread(make_params) if size >= PACK_IN_THREAD_BYTES else make_params()
            try:
                return await self._connection.execute(query, params)
            except (Disconnected, Refused) as error:
                if isinstance(error, Busy) or (isinstance(error, Refused) and error.by_data):
                    raise
                if isinstance(error, Disconnected) and error.may_be_too_large:
                    breaks += size >= LARGE_BYTES
                if breaks >= limit:
                    raise Refused(f"the connection broke {breaks} times with this statement: {error}") from error
                if not is_outage(error):
                    logger.warning("The server refused to store the outcomes of jobs; will retry: %s", error)
            await self._connection.wait_to_retry()
            if breaks:
                await self._find_locked([])  # waits until the database answers: a break during an outage proves nothing
                await asyncio.sleep(BREAK_PAUSE_SECONDS * (len(batch) == 1))

    async def _find_locked(self, ids: list[bytes]) -> set[bytes]:
        try:
            return {row[0] for row in await self._execute_until_answered("locked_jobs", (uuids(ids),))}
        except Busy:  # another transaction has locked the whole table, so no single job can be named
            return set()

    async def _send_successes(self, batch: EndingBatch) -> list[bytes]:
        """Settles the jobs of the batch that succeeded. Returns the ids of those that were taken from this node."""
        rows = await self._execute_settle("settle_succeeded", partial(self._make_success_params, batch), batch)
        self._dependents += [row[0] for row in rows if row[1] == "blocked"]
        refused = [row[0] for row in rows if row[1] is None]
        return await self._find_jobs_taken_away(batch.jobs, refused) if refused else refused

    def _make_success_params(self, batch: EndingBatch) -> tuple[Any, ...]:
        now, results = time.monotonic(), [result for _, _, result, _ in batch.succeeded]
        return (
            self.epoch,
            uuids([claimed.id for claimed, _, _, _ in batch.succeeded]),
            int8s([claimed.fence for claimed, _, _, _ in batch.succeeded]),
            float8s([now - started for _, started, _, _ in batch.succeeded]),
            jsonbs(results) if any(results) else None,
            int8s(batch.closed),
        )

    async def _find_jobs_taken_away(self, claimed: Iterable[Claimed], refused: list[bytes]) -> list[bytes]:
        """Returns those of the refused ids whose jobs were reclaimed or released meanwhile. The others were settled by
        this node before: by a statement whose reply was lost, or in a handler's own transaction."""
        fences = {each.id: each.fence for each in claimed}
        settled = await self._execute_until_answered(
            "settled_runs", (uuids(refused), int8s([fences[i] for i in refused]))
        )
        self._dependents += [child for row in settled for child in row[1] or ()]
        return list(set(refused) - {row[0] for row in settled})

    async def _send_endings(self, endings: list[Ending], closed: list[int]) -> None:
        make_params = partial(self._make_ending_params, endings, closed)
        query = "settle" if all(ending.logs is None for ending in endings) else "settle_with_logs"
        rows = await self._execute_settle(query, make_params, EndingBatch(endings=endings))
        self._dependents += [row[0] for row in rows if row[1] == "blocked"]
        delays = [row[2] for row in rows if row[2] is not None]
        if delays and self._promoter is not None:
            self._promoter.expect_due_job(min(delays))
        states = {row[0]: row[1] for row in rows if row[1] != "blocked"}
        refused = [e.claimed.id for e in endings if states.get(e.claimed.id, "succeeded") is None]
        if refused:
            taken = await self._find_jobs_taken_away([e.claimed for e in endings], refused)
            endings = [e for e in endings if e.claimed.id not in refused or e.claimed.id in taken]
        for ending in endings:
            state = states.get(ending.claimed.id, "succeeded")
            if state is None:
                self._reporter.report_refused(ending.claimed.id)
            else:
                self.tally.add_ending(ending.claimed, ending.outcome.name, state, ending.started)
                self._reporter.report_ending(ending.claimed, ending.run, ending.outcome, state)

    def _make_ending_params(self, endings: list[Ending], closed: list[int]) -> tuple[Any, ...]:
        now, outcomes = time.monotonic(), [e.outcome for e in endings]
        logged = [e for e in endings if e.logs is not None]
        logs = () if not logged else (
            uuids([e.claimed.id for e in logged]),
            int8s([e.claimed.fence for e in logged]),
            texts([e.logs for e in logged]),
        )  # fmt: skip
        return (
            *logs,
            self.epoch,
            uuids([e.claimed.id for e in endings]),
            int8s([e.claimed.fence for e in endings]),
            texts([outcome.name for outcome in outcomes]),
            float8s([None if e.started is None else now - e.started for e in endings]),
            intervals([outcome.delay for outcome in outcomes]),
            jsonbs([outcome.result for outcome in outcomes]),
            jsonbs([e.error for e in endings]),
            int8s(closed),
        )

    async def _unblock_dependents(self) -> None:
        """Queues or cancels the jobs that waited for those that have ended. `unblock_any` then finds the jobs that
        waited for the canceled ones."""
        query: str = "unblock"
        params: tuple[Any, ...] = (uuids(self._dependents),)
        self._dependents = []
        for _ in range(CASCADE_LIMIT):
            try:
                decided = await self._connection.execute(query, params)
            except (Disconnected, Refused) as error:
                if not is_outage(error):
                    logger.warning("Could not unblock dependent jobs; will retry: %s", error)
                return
            self._reporter.report_unblocked(decided)
            if len(decided) < UNBLOCK_BATCH and not any(row[1] == "canceled" for row in decided):
                return
            query, params = "unblock_any", (UNBLOCK_RECENT_SECONDS,)


def _replace_refused_ending(single: EndingBatch, refusal: Refused) -> Ending:
    """Returns the ending to record instead of one that the server refused. If the job has succeeded, the failure is
    permanent, so that the job does not run again."""
    error = {"type": "EndingRefused", "message": f"the database refused what was to be recorded: {refusal.message}"}
    if single.endings:
        refused = single.endings[0]
        if refused.outcome.name == "succeeded":
            return replace(refused, outcome=Outcome("failed", error={"kind": "permanent"} | error))
        return replace(refused, outcome=replace(refused.outcome, delay=None, error=error, result=None))
    ((claimed, started, _, run),) = single.succeeded
    return Ending(claimed, Outcome("failed", error={"kind": "permanent"} | error), started, run)
