"""A node: one process's worker and chores, put together, started, drained and stopped."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

from watchbill.maintenance.caretaker import Caretaker
from watchbill.maintenance.promoter import Promoter
from watchbill.maintenance.reclaimer import Reclaimer
from watchbill.maintenance.sweeper import Sweeper
from watchbill.maintenance.unblocker import Unblocker
from watchbill.payloads import PayloadStore
from watchbill.scheduler.declarer import Declarer
from watchbill.scheduler.scheduler import LONGEST_DEAF_SLEEP, LONGEST_SLEEP, Scheduler
from watchbill.settings import Settings
from watchbill.store.line import Busy, Disconnected, Line
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events
from watchbill.worker.bell import Bell
from watchbill.worker.cancel import cancel_all
from watchbill.worker.doorbell import Doorbell
from watchbill.worker.engine import Capacity
from watchbill.worker.handlers import Handlers
from watchbill.worker.own_types import own_handlers
from watchbill.worker.plan import Plan, default_name
from watchbill.worker.switchboard import SharedBell
from watchbill.worker.worker import Worker

logger = logging.getLogger("watchbill.node")


def capacity_for(concurrency: int | None, cores: int | None = None) -> Capacity:
    """How many handlers at once: as told, or by the number of cores."""
    cores = cores or os.cpu_count() or 1
    if concurrency is not None:
        return Capacity({"async": concurrency, "thread": concurrency, "process": min(concurrency, cores)}, concurrency)
    by_kind: dict[str, int] = {"async": 10 * cores, "thread": 4 * cores, "process": cores}
    return Capacity(by_kind, sum(by_kind.values()))  # type: ignore[arg-type]


def plan_for(
    settings: Settings,
    url: str,
    handlers: Handlers,
    *,
    app: str,
    queues: tuple[str, ...],
    once: bool = False,
    scheduler: bool = True,
    declared: bytes = b"[]",
) -> Plan:
    return Plan(
        url=url,
        listen_url=settings.listen_url,
        schema=settings.schema,
        name=settings.node_name or default_name(),
        app=app,
        queues=queues,
        capacity=capacity_for(settings.concurrency),
        lease=settings.lease,
        drain_timeout=settings.drain_timeout,
        stuck_after=settings.stuck_after,
        poll_interval=settings.poll_interval,
        poll_max_interval=settings.poll_max_interval,
        poll_multiplier=settings.poll_multiplier,
        prepare=settings.prepared_statements,
        jobs_per_child=settings.jobs_per_child,
        memory_per_child=None if settings.memory_per_child is None else settings.memory_per_child * 2**20,
        once=once,
        scheduler=scheduler,
        declared=declared,
    )


class Node:
    """`await run()` works until `drain()` or `stop()`; both may be called from a signal handler of the loop."""

    def __init__(
        self,
        plan: Plan,
        handlers: Handlers,
        events: Events,
        *,
        unknown_type_grace: float = 3600.0,
        slot_retention: float = 90 * 86_400.0,
        alive: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        payload_store: PayloadStore | None = None,
    ) -> None:
        self.plan, self._events = plan, events
        self._handlers = {**handlers, **own_handlers(plan.url, plan.schema)}
        self._grace, self._slot_retention = unknown_type_grace, slot_retention
        self._alive, self._payload_store = alive, payload_store
        self._queries = queries(plan.schema)
        self.plug: socket.socket | None = None  # to a supervisor that listens for several
        self._worker: Worker | None = None
        self._made = asyncio.Event()
        self._asked: Literal["", "drain", "stop"] = ""

    async def run(self) -> None:
        async with self._alive():
            await self._run()

    async def _run(self) -> None:
        plan = self.plan
        bell = self._bell()
        line = Line(plan.url, self._queries, purpose="chores", patience=max(5.0, plan.lease), prepare=plan.prepare)
        worker = Worker(plan, self._queries, self._handlers, self._events, bell)
        self._worker = worker
        self._made.set()
        if self._asked:  # told to stop before it began
            (worker.stop if self._asked == "stop" else worker.drain)()
        chores = self._chores(line, bell, worker)
        try:
            await worker.run()
        finally:
            await cancel_all(chores)
            await bell.close()
            await line.close()

    def _bell(self) -> Bell:
        plan, direct = self.plan, self.plan.listen_url is not None
        if self.plug is not None:
            return SharedBell(self.plug, plan.listen_url or plan.url, plan.schema, direct=direct)
        return Doorbell(plan.listen_url or plan.url, self._queries, direct=direct)

    def _chores(self, line: Line, bell: Bell, worker: Worker) -> list[asyncio.Task[None]]:
        plan, promoting, unblocking = self.plan, asyncio.Event(), asyncio.Event()
        bell.on_later, bell.on_unblock, bell.on_stop_request = promoting.set, unblocking.set, worker.stop_request
        promoter, unblocker = Promoter(line, promoting), Unblocker(line, self._events)
        caretaker = Caretaker(line, unknown_type_grace=self._grace, slot_retention=self._slot_retention)
        worker.settler.on_later, bell.on_beat = promoter.expect, worker.beat
        chores = [
            bell.keep_open(),
            _repeat(promoter.run, line, woken=promoting),
            _repeat(unblocker.run, line, woken=unblocking),
            _repeat(Reclaimer(line, self._events, plan.lease).run, line),
            _repeat(caretaker.run, line),
        ]
        if self._payload_store is not None:
            chores.append(_repeat(Sweeper(line, self._payload_store).run, line))
        declarer, scheduler = Declarer(line, plan.declared), Scheduler(line, self._events)
        chores.append(_repeat(declarer.run, line))
        if plan.scheduler:
            chores.append(self._schedule(scheduler, line, bell, worker))

        async def begin(epoch: int) -> None:
            await declarer.declare(epoch)
            if plan.once and plan.scheduler:  # what is due now is among what is left to do
                await scheduler.run_all()

        async def look_around() -> None:
            await promoter.run()
            await unblocker.run()

        worker.on_registered, worker.on_idle = begin, look_around
        return [asyncio.create_task(chore) for chore in chores]

    async def _schedule(self, scheduler: Scheduler, line: Line, bell: Bell, worker: Worker) -> None:
        """From the moment that the node has said what it declares, so that it does not fire what it makes obsolete."""
        changed = asyncio.Event()

        def hear() -> None:
            scheduler.heard()
            changed.set()

        bell.on_schedules = hear
        await worker.registered.wait()
        self._events.tell("scheduler_started", name=self.plan.name)
        try:
            await _repeat(
                scheduler.run,
                line,
                woken=changed,
                longest=lambda: LONGEST_SLEEP if bell.listening else LONGEST_DEAF_SLEEP,
            )
        finally:
            self._events.tell("scheduler_stopped", name=self.plan.name)

    async def ready(self) -> None:
        """Returns when the node is registered and works."""
        await self._made.wait()
        await self.worker.registered.wait()

    def drain(self) -> None:
        """Claim nothing more, let what runs end, give back the rest."""
        self._asked = self._asked or "drain"
        if self._worker is not None:
            self._worker.drain()

    def stop(self) -> None:
        """At once: handlers are canceled and their jobs go back unspent."""
        self._asked = "stop"
        if self._worker is not None:
            self._worker.stop()

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "the node has not been started"
        return self._worker

    @property
    def exit_code(self) -> int:
        """0, unless a handler that could not be stopped made it end."""
        return 0 if self._worker is None else self._worker.exit_code

    @property
    def stubborn(self) -> list[str]:
        """Jobs whose handlers are still on the loop after the end, though they were told to stop."""
        return [] if self._worker is None else [f"{run.type} {run.id}" for run in self._worker.engine.stubborn]

    @property
    def finished(self) -> int:
        """Runs that have ended here so far."""
        return 0 if self._worker is None else self._worker.engine.finished


async def _repeat(
    chore: Callable[[], Awaitable[float]],
    line: Line,
    *,
    woken: asyncio.Event | None = None,
    longest: Callable[[], float] = lambda: math.inf,
) -> None:
    """Runs a chore as often as it asks for, or sooner when it is woken."""
    while True:
        try:
            pause = await chore()
        except Disconnected as error:
            level = logging.WARNING if error.by_statement else logging.DEBUG  # of an outage all others speak
            logger.log(level, "A chore waits for the database: %s", error)
            await line.recover()
            continue
        except Busy as error:
            logger.warning("A chore waits for somebody's open transaction: %s", error)
            pause = 5.0
        except Exception:  # a chore that ended would be missed by nobody, and by all
            logger.exception("A chore has failed")
            pause = 5.0
        if woken is None:
            await asyncio.sleep(pause)
        else:
            await _sleep_unless(woken, min(pause, longest()))


async def _sleep_unless(woken: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        return
    finally:
        woken.clear()
