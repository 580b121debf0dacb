"""A worker: claims, runs and settles jobs in one process, from its registration to the release of its last job.

Three parts work side by side: the claimer (`claiming.py`) claims jobs, the handler slots (`slots.py`) run them, and the
settler (`settling.py`) stores how they ended. This file registers the node, starts the parts, and ends them in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from watchbill._version import __version__
from watchbill.cluster.elector import Elector
from watchbill.cluster.lease import Lease
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.maintenance.promoter import Promoter
from watchbill.maintenance.unblocker import Unblocker
from watchbill.model.clock import boot_seconds
from watchbill.postgres.connect import detach_inherited_connections
from watchbill.scheduler.declarer import Declared, Declarer
from watchbill.scheduler.scheduler import Scheduler
from watchbill.store.node_connection import Disconnected, NameTaken, NodeConnection, NodeLost, Refused, is_outage
from watchbill.store.queries import Queries
from watchbill.telemetry.events import Events
from watchbill.telemetry.job_lines import keep_lines_of_jobs
from watchbill.worker import forks
from watchbill.worker.checkpoints import Checkpointer
from watchbill.worker.claiming import Claimer, Claiming
from watchbill.worker.config import NodeConfig
from watchbill.worker.handlers import Handlers
from watchbill.worker.heartbeat import EXIT_STUCK, Heartbeat
from watchbill.worker.meters import Meters
from watchbill.worker.notifications import Listener, wait_for
from watchbill.worker.outcomes import OutcomeReporter
from watchbill.worker.processes import Processes
from watchbill.worker.settling import Settler
from watchbill.worker.slots import Slots
from watchbill.worker.stale_name import expire_if_dead, find_machine_id, own_instances
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.threads import Threads
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

LOG_AGAIN_SECONDS = 10.0  # while a node cannot register for the same reason; it tries again sooner
NAME_PATIENCE_SECONDS = 10.0  # a start waits two leases and this long for a node name that a dead node may still have
LEAVE_SECONDS = 5.0  # how long a worker that ends tries to store the last endings, and to deregister
STOP_GRACE_SECONDS = 1.0  # how long handlers may run on after they were asked to stop
CANCEL_AGAIN_SECONDS = 1.0  # an asyncio task that was canceled and still runs after this time is canceled again


@dataclass(frozen=True)
class WorkerChores:
    """Those chores of the node that the worker itself calls. A drain in a test runs without them."""

    promoter: Promoter
    unblocker: Unblocker
    declarer: Declarer
    scheduler: Scheduler | None
    elector: Elector


class Worker:
    """`run()` works until `drain()` or `stop()` is called, and returns when all its jobs have ended or are released."""

    def __init__(
        self,
        config: NodeConfig,
        queries: Queries,
        handlers: Handlers,
        events: Events,
        notifications: Listener,
        chores: WorkerChores | None = None,
        lease: Lease | None = None,
        meters: Meters | None = None,
    ) -> None:
        self._config, self._queries, self._handlers, self._events = config, queries, handlers, events
        self._meters = meters
        self.notifications, self._wakeups, self._chores = notifications, notifications.wakeups, chores
        self._connection = self._new_connection("claims")
        settlements = self._new_connection("settlements")
        self.settler = Settler(
            settlements,
            self._new_reporter(),
            self._wakeups,
            chores.promoter if chores else None,
        )
        self.settler.tally.meters = meters
        self._transactions = Transactions(config.url, lease=config.lease, size=config.pool_size, prepare=config.prepare)
        self._steps = self._new_step_runner(settlements)
        self._claiming = claiming = Claiming(config.queues, handlers)
        self.slots = Slots(
            handlers, config, claiming, self.settler, events, self._transactions, self._wakeups, self._steps
        )
        self._threads = self._new_threads()
        self._processes = Processes(
            self.slots.finish_run,
            config.child_environment,
            config.jobs_per_child,
            config.memory_per_child,
            note_start=self.slots.note_start,
        )
        self.slots.executors |= {"thread": self._threads, "process": self._processes}
        self._claimer = self._new_claimer(claiming)
        self.registered = asyncio.Event()
        self._is_stopped = asyncio.Event()
        self._heartbeat: Heartbeat | None = None
        self._is_lost = False
        self._is_aborted = False  # the worker ends, but not by `drain()`, `stop()` or a cancellation of `run()`
        self._failure: BaseException | None = None
        self.epoch, self._instance = 0, uuid4()
        self.lease = Lease() if lease is None else lease

    # -- methods that make the worker's parts; the drain of watchbill.testing overrides them

    def _new_connection(self, purpose: str) -> NodeConnection:
        config = self._config
        timeout, prepare = config.statement_timeout, config.prepare
        connection = NodeConnection(config.url, self._queries, purpose=purpose, timeout=timeout, prepare=prepare)
        connection.observe = None if self._meters is None else self._meters.note_query
        return connection

    def _new_reporter(self) -> OutcomeReporter:
        return OutcomeReporter(self._events)

    def _new_step_runner(self, connection: NodeConnection) -> StepRunner:
        return StepRunner(Checkpointer(connection), self._transactions, self._wakeups.draining.is_set)

    def _new_threads(self) -> Threads:
        return Threads(self._config.capacity.by_kind["thread"], self.slots.finish_run, self._transactions, self._steps)

    def _new_claimer(self, claiming: Claiming) -> Claimer:
        last = (self._chores.promoter, self._chores.unblocker) if self._chores else ()
        return Claimer(self._connection, claiming, self.slots, self.settler, self.notifications, self._config, last)

    # -- from registration to the end

    async def run(self) -> None:
        try:
            deadline = time.monotonic() + 2 * self._config.lease + NAME_PATIENCE_SECONDS
            keep_lines_of_jobs()
            with forks.guard_against_forks(partial(_detach_fork, asyncio.get_running_loop())):
                if await self._register_with_retries(deadline):
                    await self._run_registered()
        finally:
            await self.settler.close()
            await self._connection.close()

    async def _run_registered(self) -> None:
        """Works as a registered node until the node drains or fails, and ends all parts in order."""
        tasks = [asyncio.create_task(self.settler.run()), asyncio.create_task(self.slots.watch_runs())]
        for task in tasks:
            task.add_done_callback(self._stop_after_failure)
        try:
            await self._claim_until_drain()
            if self._is_aborted:
                await self._abandon_jobs(tasks)
            await self._end_running_jobs()
        except BaseException:  # such as a cancellation: handlers must stop before their jobs are released
            self._is_aborted = self._is_aborted or any(task.cancelling() or task.done() for task in tasks)
            self.stop()
            if self._is_aborted:
                await self._abandon_jobs(tasks)
            await self._end_running_jobs()
            raise
        finally:
            for task in tasks:
                task.remove_done_callback(self._stop_after_failure)
            try:
                await cancel_all(tasks)
            finally:  # also if the wait itself is canceled: the heartbeat would go on in its thread
                await self._leave_cluster()
        if self._failure is not None:
            raise self._failure

    async def _claim_until_drain(self) -> None:
        while not self._wakeups.draining.is_set():
            try:
                await asyncio.create_task(self._claimer.run())
            except NodeLost:
                self.lose_epoch(self.epoch)
            if self._is_lost:
                await self._register_with_retries()

    def _stop_after_failure(self, task: asyncio.Task[None]) -> None:
        """Ends the worker after one of its parts has ended through a bug or a job. A worker that went on without its
        settler, for example, would keep its jobs for ever."""
        if self._failure is not None:  # the first failure is the cause; the worker's end then cancels the other parts
            return
        self._failure = RuntimeError("a part of the worker was canceled") if task.cancelled() else task.exception()
        logger.critical("A part of this worker has failed; ending. Please report the traceback", exc_info=self._failure)
        self._is_aborted = True
        self.stop()

    def add_handlers(self, handlers: Handlers, queues: Iterable[str]) -> None:
        """Makes this worker run jobs of tasks that the program has declared since this node started."""
        self._handlers = {**self._handlers, **handlers}
        self._config = replace(self._config, queues=tuple(dict.fromkeys((*self._config.queues, *queues))))
        self.slots.add_handlers(handlers)
        self._claiming.add_handlers(handlers)
        self._claiming.positions.add_queues(queues)
        self._claiming.positions.start_from_top()  # jobs of the new tasks may be at the top of the queue
        self._claimer.add_types({name: handler.version for name, handler in handlers.items()}, queues)

    def declare(self, declared: Declared) -> None:
        """Has the node write, within seconds, schedules and limits that the program has declared since the start."""
        if self._chores is not None:
            self._chores.declarer.replace(declared)

    async def _abandon_jobs(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Ends without releasing jobs, as if this process had been killed, so that other nodes count them as lost. The
        cause may be a handler that stopped the event loop, raised SystemExit in a callback or canceled all asyncio
        tasks. If its job were released, it would end one worker after the other; a job is dead at its third loss."""
        await cancel_all(tasks)  # also ends the settler, which would otherwise release the jobs that are stopped now
        if self.settler.known_fences:
            logger.critical(
                "This worker ends although it was not asked to: its event loop was stopped, or its asyncio tasks were "
                "canceled. Its jobs count as lost. Look for loop.stop(), sys.exit() and all_tasks() in these: %s",
                ", ".join(f"{run.type} {run.id}" for run in self.slots.runs) or "no job is running now",
            )

    def drain(self) -> None:
        """Claims nothing more, waits for running handlers, and releases the other jobs."""
        self._wakeups.drain()

    def stop(self) -> None:
        """Cancels running handlers and releases their jobs at once. That costs no attempt."""
        self._is_stopped.set()
        self._wakeups.drain()

    @property
    def queues(self) -> list[str]:
        """The queues that the worker serves. A task that is declared while the worker runs may add one."""
        return self._claimer.queues

    @property
    def needs_job_look(self) -> bool:
        """Whether the survey should also look for ready jobs: the worker sleeps, and this look is cheap. Otherwise the
        claimer looks for them itself."""
        return self._wakeups.slept_seconds >= 0 and not self._claiming.positions.is_top_expensive

    def note_claims(self, fences: list[int]) -> None:
        """Passes on the fences of this node's claims in the database, so that the claimer finds claims it missed."""
        self._claimer.note_claims(fences)

    @property
    def exit_code(self) -> int:
        return EXIT_STUCK if self.slots.has_stuck_run else 0

    # -- registration of this node in the database

    async def _register_with_retries(self, deadline: float = math.inf) -> bool:
        """Registers this node, and tries again while the database does not answer or a dead node still has the name.
        Returns False if the worker was asked to drain meanwhile. Raises NameTaken if a living node keeps the name."""
        name_deadline = time.monotonic() + 2 * self._config.lease + NAME_PATIENCE_SECONDS
        logged: type[WatchbillError] | None = None
        last_logged = -math.inf
        while not self._wakeups.draining.is_set():
            try:
                await self._register()
            except (NameTaken, Disconnected, Refused, NodeLost) as error:
                is_final = type(error) is Refused and deadline < math.inf
                is_final = is_final or (isinstance(error, NameTaken) and time.monotonic() > name_deadline)
                if is_final or time.monotonic() > deadline:
                    if is_outage(error):
                        hint = "Start the worker again when it does, or run `watchbill doctor`."
                        raise NoDatabase(f"The database does not answer: {error}", hint=hint) from error
                    raise
                is_news = type(error) is not logged or time.monotonic() > last_logged + LOG_AGAIN_SECONDS
                if is_news and not is_outage(error):
                    logged, last_logged = type(error), time.monotonic()
                    logger.warning("Could not register this node; will retry: %s", error.message)
                if isinstance(error, NameTaken):
                    with contextlib.suppress(Disconnected, Refused):  # the next try to register reports the error
                        await expire_if_dead(self._connection, self._config.name)
                await wait_for(self._wakeups.draining, max(0.5, self._connection.retry_delay()))
            else:
                return True
        return False

    async def _register(self) -> None:
        """Registers this node and begins its epoch. If the reply to an earlier try was lost, the server knows from
        `instance` that this is the same process."""
        types = {name: handler.version for name, handler in self._handlers.items()}
        params = {
            "name": self._config.name,
            "lease": self._config.lease,
            "app": self._config.app,
            "types": orjson.dumps(types).decode(),
            "labels": orjson.dumps(self._config.labels).decode(),
            "machine": find_machine_id(),
            "capacity": self._config.capacity.total,
            # Takes the name over only at the start: two processes would otherwise take it from each other for ever.
            "take_over": self._config.takes_over and not self.epoch,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "instance": self._instance,
            "watchbill_version": __version__,
            "queues": list(self._config.queues),
        }
        sent = boot_seconds()
        ((epoch,),) = await self._connection.execute("register", params)
        own_instances.add(self._instance.bytes)
        await self._run_first_chores(epoch)
        self.epoch = self.settler.epoch = epoch
        self._claimer.begin_epoch(epoch)
        self._is_lost = False
        if self._chores is not None:
            self._chores.elector.begin_epoch(epoch)
        self.lease.begin(epoch, sent, self._config.lease)
        self._wakeups.tokens.set()
        self.settler.tally.begin_epoch()
        self._heartbeat = Heartbeat(
            self._config, self._queries, epoch, self.slots, self._wakeups, self, self.settler.tally, self._meters
        )
        self._heartbeat.start()
        self.registered.set()
        self._events.emit("node_started", name=self._config.name, epoch=epoch)

    async def _run_first_chores(self, epoch: int) -> None:
        if self._chores is None:
            return
        await self._chores.declarer.declare_or_retry_later(epoch)
        if self._config.once and self._chores.scheduler is not None:  # `--once` also runs the jobs of due schedules
            await self._chores.scheduler.tick_until_nothing_is_due()

    def release_all_jobs(self, epoch: int) -> None:
        """Releases the jobs that wait on this node, and asks running handlers to stop. The heartbeat calls this before
        the lease runs out, because other nodes may take the jobs after that."""
        if epoch == self.epoch:
            self.slots.release_waiting()
            self.slots.stop_all_runs("released")
            if self._chores is not None:
                self._chores.elector.give_up("no heartbeat was acknowledged in time")

    def lose_epoch(self, epoch: int) -> None:
        """Drops all jobs, since other nodes have taken them. Called by the claimer or by the heartbeat, whichever
        notices the loss first."""
        if epoch != self.epoch or self._is_lost:
            return
        self._is_lost, self._claimer.epoch = True, 0
        self.lease.end()
        self._wakeups.tokens.set()
        logger.error("Node %s was declared lost; registering again", self._config.name)
        self._events.emit("node_lost", name=self._config.name, epoch=epoch)
        if self._chores is not None:
            self._chores.elector.lose_epoch()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.slots.discard_jobs()
        self.settler.discard_endings()
        self._wakeups.jobs.set()
        self._wakeups.progress.set()

    # -- the end of this node: drain, store the last endings, deregister

    async def _end_running_jobs(self) -> None:
        if not self._is_stopped.is_set():
            running = len(self.slots.runs)
            logger.info(
                "Draining: waiting up to %g s for %d running %s; releasing the other claimed jobs",
                self._config.drain_timeout, running, "job" if running == 1 else "jobs",
            )  # fmt: skip
        self.slots.release_waiting()
        if self._chores is not None:
            await self._chores.elector.close()
        deadline = time.monotonic() + self._config.drain_timeout
        while self._has_unstuck_runs() and not self._is_stopped.is_set() and (left := deadline - time.monotonic()) > 0:
            await self._wait_for_progress(min(left, 0.5))
        self.slots.stop_all_runs("released")
        grace = time.monotonic() + STOP_GRACE_SECONDS
        while self._has_unstuck_runs() and time.monotonic() < grace:
            await self._wait_for_progress(0.1)
        self.slots.end_stuck_runs()
        if self._is_aborted:
            return
        await self._wait_for_settler(max(deadline, time.monotonic() + LEAVE_SECONDS))

    def _has_unstuck_runs(self) -> bool:
        return any(not self.slots.is_stuck(run) for run in self.slots.runs)

    async def _wait_for_settler(self, deadline: float) -> None:
        """Waits until the settler has stored all endings, at most until the deadline, after `stop()` for a second."""
        while not self.settler.is_idle and time.monotonic() < deadline:
            if self._is_stopped.is_set():
                deadline = min(deadline, time.monotonic() + 1.0)
            await self._wait_for_progress(0.1)
        if not self.settler.is_idle:
            logger.error("Could not store how the last %d runs ended; their jobs may run again", self.settler.unsettled)

    async def _wait_for_progress(self, seconds: float) -> None:
        self._wakeups.progress.clear()
        await wait_for(self._wakeups.progress, seconds)

    async def _leave_cluster(self) -> None:
        self.lease.end()  # before anything else: once this node has left, other members may own its tokens
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._threads.close()
        try:
            await self._processes.close()
            if self._is_aborted and self.settler.known_fences:
                raise WatchbillError("this worker was ended from inside, perhaps by one of its jobs")
            if self.settler.has_unsettled_single_attempt or any(run.max_attempts == 1 for run in self.slots.runs):
                # If this node does not deregister, others find the job when the lease ends, and do not run it again.
                raise WatchbillError("a job with one attempt has run here, and its end is not stored")
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._deregister()
        except (WatchbillError, TimeoutError, asyncio.CancelledError) as error:
            message = "Could not deregister; this node's jobs are reclaimed when its lease expires in %g s: %s"
            logger.warning(message, self._config.lease, error)
        finally:
            own_instances.discard(self._instance.bytes)
            await self._steps.close()
            await self._transactions.close()
        self._events.emit("node_stopped", name=self._config.name, epoch=self.epoch)

    async def _deregister(self) -> None:
        """Tries twice, because the connection may have been lost while it was not used."""
        try:
            await self._report_and_leave()
        except Disconnected:
            await self._report_and_leave()

    async def _report_and_leave(self) -> None:
        if (report := self.settler.tally.next_report()) is not None:
            await self._connection.execute("report_tally", (self.epoch, *report))
        await self._connection.execute("leave", (self.epoch,))


def _detach_fork(loop: asyncio.AbstractEventLoop) -> None:
    """Called in a process that a handler has forked."""
    detach_inherited_connections()
    with contextlib.suppress(RuntimeError):  # the loop is closed, or belongs to a thread that a fork does not copy
        loop.call_soon(forks.end_fork)  # an asyncio task of a handler may have forked


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and waits until they have ended. A cancellation can get lost if another exception is raised in
    its place, so a task that goes on is canceled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
