"""A worker: one process's claims, handlers and settlements, from registration to the last release."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import orjson

from watchbill._version import __version__
from watchbill.errors import WatchbillError
from watchbill.store.line import Busy, Disconnected, Line, NameTaken, NodeDraining, NodeLost, Refused
from watchbill.store.queries import Queries
from watchbill.telemetry.context import about
from watchbill.telemetry.events import Events
from watchbill.worker.alone import AloneTurns
from watchbill.worker.bell import Bell
from watchbill.worker.cancel import cancel_all
from watchbill.worker.claimer import Claimer
from watchbill.worker.engine import GIVE_BACK_AFTER, Engine
from watchbill.worker.handlers import Handlers
from watchbill.worker.heartbeat import EXIT_WEDGED, Heartbeat
from watchbill.worker.namesake import bury_if_dead, here, this_machine
from watchbill.worker.pause import pause
from watchbill.worker.plan import Plan
from watchbill.worker.processes import Processes
from watchbill.worker.run import Run
from watchbill.worker.settler import Settler
from watchbill.worker.teller import Teller
from watchbill.worker.threads import Threads
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

LONGEST_DOZE = 5.0
FIRST_MOMENT = 0.001  # while a producer is about to commit
TIME_TO_LEAVE = 5.0


class Worker:
    """`run()` returns when it has drained after `drain()`, or at once after `stop()`."""

    def __init__(self, plan: Plan, queries: Queries, handlers: Handlers, events: Events, doorbell: Bell) -> None:
        self._plan, self._queries, self._handlers, self._events = plan, queries, handlers, events
        self.doorbell = doorbell
        self._claims = self._line("claims")
        self.settler = Settler(self._line("settlements"))
        self._claimer = Claimer(self._claims, plan.queues)
        self._transactions = Transactions(plan.url, lease=plan.lease, most=plan.capacity.total, prepare=plan.prepare)
        self.engine = Engine(handlers, plan.capacity, self.settler, events, self._transactions)
        self._threads = Threads(plan.capacity.by_kind["thread"], self.engine.ended_elsewhere, self._transactions)
        self._processes = Processes(
            self.engine.ended_elsewhere, plan.for_children, plan.jobs_per_child, plan.memory_per_child
        )
        self.engine.executors |= {"thread": self._threads, "process": self._processes}
        teller = Teller(events)
        self.settler.on_settled, self.settler.on_refused = teller.settled, teller.refused
        self.settler.on_progress, self.engine.scarcity.on_slot = self.engine.room.set, self.doorbell.ring
        self.settler.on_decided = teller.decided
        self.registered = asyncio.Event()
        self.on_registered: Callable[[int], Awaitable[None]] | None = None  # before it works under a new epoch
        self.on_idle: Callable[[], Awaitable[None]] | None = None  # before a worker that runs once takes that for all
        self._draining = asyncio.Event()
        self._over = asyncio.Event()
        self._heartbeat: Heartbeat | None = None
        self._tick = time.monotonic()
        self._pause, self._moment = plan.poll_interval, FIRST_MOMENT
        self._lost_jobs, self._next_abandon = AloneTurns(self.engine), 0.0
        self._lost = False
        self._failure: BaseException | None = None
        self.epoch, self._instance = 0, uuid4()
        self.exit_code = 0

    def _line(self, purpose: str) -> Line:
        return Line(
            self._plan.url,
            self._queries,
            purpose=purpose,
            patience=max(5.0, self._plan.lease),
            prepare=self._plan.prepare,
        )

    # -- its life

    async def run(self) -> None:
        try:
            if await self._register_in_time():
                await self._run()
        finally:
            await self._claims.close()

    async def _run(self) -> None:
        tasks = [asyncio.create_task(self.settler.run()), asyncio.create_task(self._keep_time())]
        for task in tasks:
            task.add_done_callback(self._stop_without)
        try:
            await self._work()
            await self._drain()
        except BaseException:  # canceled, say: handlers must not go on when their jobs are given back
            self.stop()
            await self._drain()
            raise
        finally:
            for task in tasks:
                task.remove_done_callback(self._stop_without)
            await cancel_all(tasks)
            await self._leave()
        if self._failure is not None:
            raise self._failure

    def _stop_without(self, task: asyncio.Task[None]) -> None:
        """Without its settler a worker would hold its jobs for ever: rather none at all."""
        self._failure = RuntimeError("a task of the worker was canceled") if task.cancelled() else task.exception()
        logger.critical("The worker has failed and stops", exc_info=self._failure)
        self.stop()

    def drain(self) -> None:
        """Claim nothing more, let what runs end, give back the rest."""
        if not self._draining.is_set():
            running, patience = len(self.engine.runs), self._plan.drain_timeout
            logger.info("Draining: running handlers (%d) may go on for %g s, the rest goes back", running, patience)
        self._draining.set()
        self.engine.room.set()
        self.doorbell.ring()

    def stop(self) -> None:
        """At once: handlers are canceled and their jobs go back unspent."""
        self._over.set()
        self.drain()

    async def _register_in_time(self) -> bool:
        """Waits for the database, and for the name if a node that died has it still. False: told to stop meanwhile."""
        deadline = time.monotonic() + 2 * self._plan.lease + 10
        while not self._draining.is_set():
            try:
                await self._register()
            except (NameTaken, Disconnected, Busy, NodeLost) as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("Registration waits: %s", error)
                if isinstance(error, NameTaken):
                    await self._bury_namesake()
                await pause(self._draining, max(0.5, self._claims.pause()))
            else:
                return True
        return False

    async def _bury_namesake(self) -> None:
        with contextlib.suppress(Disconnected, Refused):  # the next try may find out
            await bury_if_dead(self._claims, self._plan.name)

    async def _register(self) -> None:
        """`instance` is the process: lost replies are found by it, and who was taken for dead starts no cluster."""
        types = {name: handler.version for name, handler in self._handlers.items()}
        params = {
            "name": self._plan.name,
            "lease": self._plan.lease,
            "app": self._plan.app,
            "types": orjson.dumps(types).decode(),
            "labels": orjson.dumps({"machine": this_machine()} | self._plan.labels).decode(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "instance": self._instance,
            "watchbill_version": __version__,
        }
        ((epoch,),) = await self._claims.execute("register", params)
        here.add(self._instance.bytes)
        if self.on_registered is not None:
            await self.on_registered(epoch)
        self.epoch = self.settler.epoch = self._claimer.epoch = epoch
        self._next_abandon = time.monotonic() + self._plan.lease
        self._lost = False
        self._heartbeat = self._new_heartbeat()
        self._heartbeat.start()
        self.registered.set()
        self._events.tell("node_started", name=self._plan.name, epoch=self.epoch)

    def _new_heartbeat(self) -> Heartbeat:
        loop, engine, epoch = asyncio.get_running_loop(), self.engine, self.epoch
        return Heartbeat(
            self._plan.url, self._queries, self.epoch, self._plan.lease,
            stuck_after=self._plan.stuck_after,
            running=lambda: list(engine.runs), driven=engine.holder_of_loop, loop_tick=lambda: self._tick,
            on_stop=lambda ids: _call(loop, self._stop_these, ids),
            on_lost=lambda: _call(loop, self._hear_of_loss, epoch), on_fence=lambda: _call(loop, self._fence, epoch),
        )  # fmt: skip

    async def _keep_time(self) -> None:
        """Shows the heartbeat thread that the loop is alive, and gives back what has waited here for too long."""
        while True:
            self._tick = time.monotonic()
            self.engine.give_back(older=GIVE_BACK_AFTER)
            for run in self.engine.runs:
                if self._is_stuck(run) and not self._draining.is_set():
                    told = "Job %s (%s) does not return from its time-out: this process ends"
                    logger.error(told, run.id, run.type, extra=about(run))
                    self.exit_code = EXIT_WEDGED
                    self.drain()
            await asyncio.sleep(0.25)

    def _is_stuck(self, run: Run) -> bool:
        """A thread cannot be stopped; it has its slot until the process ends."""
        told, timeout = run.stopping is not None, run.timeout
        return told and timeout is not None and run.age > timeout + self._plan.stuck_after

    # -- claiming

    async def _work(self) -> None:
        while not self._draining.is_set():
            try:
                if self._lost:
                    await self._start_again()
                if self._claimer.doubtful or time.monotonic() >= self._next_abandon:
                    await self._abandon()
                await self._claim_or_wait()
            except (Disconnected, Refused, NameTaken) as error:
                logger.warning("Claiming waits for the database: %s", error)
                await pause(self._draining, self._claims.pause())
            except NodeDraining:
                logger.info("This node was asked to drain")
                self.drain()
            except NodeLost:
                self._hear_of_loss(self.epoch)

    async def _abandon(self) -> None:
        """Once per lease without any doubt too: a claim may reach the server long after its connection was given up."""
        await self._claimer.abandon(self.settler.known_fences)
        self._next_abandon = time.monotonic() + self._plan.lease

    async def _claim_or_wait(self) -> None:
        if await self._claim():
            self._pause, self._moment = self._plan.poll_interval, FIRST_MOMENT
            return
        if self.engine.wanted() <= 0:
            await self._wait_for_room()
        elif self._plan.once and self.engine.idle:
            await self.settler.drained()
            if self.on_idle is not None:
                await self.on_idle()
            self._claimer.start_from_top()
            if not await self._claim():  # what has ended last may have been waited for
                self.drain()
        elif self._plan.once:  # the end of a handler is what it waits for, not the bell
            await self._changed(self._plan.poll_interval)
        else:
            await self._doze()

    async def _claim(self) -> bool:
        """Whether anything was found."""
        looked = self._lost_jobs.is_due
        if looked and await self._claim_alone():
            return True
        return await self._claim_ready() or (not looked and await self._claim_alone())

    async def _claim_ready(self) -> bool:
        wanted, without = self.engine.wanted(), self.engine.scarcity.without()
        if wanted <= 0:
            return False
        rows = await self._claimer.claim(wanted, self.engine.free(), without)
        if not without:
            self.engine.scarcity.saw(rows, wanted)
        if rows:
            self.engine.accept(rows)
        return bool(rows)

    async def _claim_alone(self) -> bool:
        """A job that was lost before; nothing else is started beside it."""
        if not self._lost_jobs.take():
            return False
        rows = await self._claimer.claim_alone()
        if rows:
            self.engine.give_back()
            self.engine.alone_waited = False
            self.engine.accept(rows, alone=True)
        return bool(rows)

    async def _wait_for_room(self) -> None:
        self.engine.room.clear()
        if self.engine.wanted() <= 0 and not self._draining.is_set() and not self._lost:
            await pause(self.engine.room, self._plan.lease)

    async def _doze(self) -> None:
        """Nothing to claim: sleep until it rings, as porter if nobody is one; without a bell look now and then."""
        if await self.doorbell.hold():
            if not self._draining.is_set() and not await self._claim():
                await self.doorbell.wait(min(LONGEST_DOZE, self._claimer.top_is_due_in))
                # A new job, most likely (lost ones can wait for the next round), and its handler comes before the bell.
                if not self._draining.is_set() and await self._claim_ready():
                    await asyncio.sleep(0)
            await self.doorbell.let_go()
            self._moment = FIRST_MOMENT
        elif await self.doorbell.has_porter():
            await self.doorbell.wait(min(self._pause, self._claimer.top_is_due_in))
            self._pause = min(self._plan.poll_max_interval, self._pause * self._plan.poll_multiplier)
        else:
            await self.doorbell.wait(self._moment)
            self._moment = min(self._plan.poll_interval, self._moment * 2)

    # -- what may happen to it

    def _stop_these(self, ids: list[UUID]) -> None:
        for job_id in ids:
            self.engine.stop_job(job_id.bytes, "canceled")

    def stop_request(self, job_id: str) -> None:
        with contextlib.suppress(ValueError):  # anybody may send a note
            self.engine.stop_job(UUID(job_id).bytes, "canceled")

    def beat(self) -> None:
        if self._heartbeat is not None:  # somebody wants to know whether we are alive
            self._heartbeat.hurry()

    def _fence(self, epoch: int) -> None:
        if epoch == self.epoch:
            self.engine.give_up()

    def _hear_of_loss(self, epoch: int) -> None:
        """From a claim or from the heartbeat, whichever asked first; one of an earlier epoch is no news."""
        if epoch != self.epoch or self._lost:
            return
        self._lost = True
        logger.error("Node %s (epoch %s) was declared lost; it starts again under a new epoch", self._plan.name, epoch)
        self._events.tell("node_lost", name=self._plan.name, epoch=epoch)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.engine.forget()
        self.settler.forget()
        self.doorbell.ring()
        self.engine.room.set()

    async def _start_again(self) -> None:
        await self._register()
        self._claimer.doubtful = False

    # -- its end

    async def _drain(self) -> None:
        self.engine.give_back()
        deadline = time.monotonic() + self._plan.drain_timeout
        while self._still_running() and not self._over.is_set() and (left := deadline - time.monotonic()) > 0:
            await self._changed(min(left, 0.5))
        self.engine.stop_all("released")
        grace = time.monotonic() + 1.0
        while self._still_running() and time.monotonic() < grace:
            await self._changed(0.1)
        self.engine.give_up_stuck()
        await self._settle_the_rest(max(deadline, time.monotonic() + TIME_TO_LEAVE))

    def _still_running(self) -> bool:
        return any(not self._is_stuck(run) for run in self.engine.runs)

    async def _settle_the_rest(self, deadline: float) -> None:
        """While the database does not answer, until the deadline; told to stop at once, for a moment only."""
        while not self.settler.idle and time.monotonic() < deadline:
            if self._over.is_set():
                deadline = min(deadline, time.monotonic() + 1.0)
            await self._changed(0.1)
        if not self.settler.idle:
            logger.error("The database has not heard of the last %d runs that ended here", self.settler.unheard)

    async def _changed(self, seconds: float) -> None:
        self.engine.room.clear()
        await pause(self.engine.room, seconds)

    async def _leave(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._threads.close()
        await self._processes.close()
        try:
            if self.settler.unheard_once or any(run.claimed.max_attempts == 1 for run in self.engine.runs):
                raise WatchbillError("a job that may run once has run here, and the database has not heard of its end")
            async with asyncio.timeout(TIME_TO_LEAVE):
                await self._say_goodbye()
        except (WatchbillError, TimeoutError, asyncio.CancelledError) as error:
            logger.warning("Could not leave politely; the lease will run out: %s", error)
        here.discard(self._instance.bytes)
        await self.settler.close()
        await self._transactions.close()
        self._events.tell("node_stopped", name=self._plan.name, epoch=self.epoch)

    async def _say_goodbye(self) -> None:
        """Twice: the connection may have been broken while nobody used it."""
        try:
            await self._claims.execute("leave", (self.epoch,))
        except Disconnected:
            await self._claims.execute("leave", (self.epoch,))


def _call(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    """From another thread; the loop may have ended meanwhile."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)
