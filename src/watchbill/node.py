"""A node: puts the worker and the chores of one process together, and starts, drains and stops them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Literal

from watchbill.alerts.sender import AlertSender
from watchbill.cluster.elector import Elector, LeaderTask
from watchbill.cluster.lease import Lease
from watchbill.cluster.membership import Memberships
from watchbill.cluster.options import GroupOptions, Membership
from watchbill.cluster.ownership import Ownership
from watchbill.maintenance.archive import Archiver
from watchbill.maintenance.chores import PeriodicChores, repeat
from watchbill.maintenance.promoter import Promoter
from watchbill.maintenance.reclaimer import Reclaimer
from watchbill.maintenance.retention import Keep, Retention
from watchbill.maintenance.survey import Survey
from watchbill.maintenance.sweeper import Sweeper
from watchbill.maintenance.unblocker import Unblocker
from watchbill.maintenance.verification import DailyVerification
from watchbill.payloads import PayloadStore
from watchbill.scheduler.declarer import Declared, Declarer
from watchbill.scheduler.scheduler import Scheduler
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events, Observer
from watchbill.worker.builtin import make_builtin_handlers
from watchbill.worker.config import LONGEST_UPKEEP_SECONDS, NodeConfig
from watchbill.worker.handlers import Handlers
from watchbill.worker.health import HealthServer, Vitals, make_pages
from watchbill.worker.meters import Meters
from watchbill.worker.notifications import Listener, Wakeups
from watchbill.worker.worker import Worker, WorkerChores, cancel_all


class Node:
    """`await run()` works until `drain()` or `stop()` is called. A signal handler of the event loop may call both."""

    def __init__(
        self,
        config: NodeConfig,
        handlers: Handlers,
        events: Events,
        *,
        unknown_type_grace: float = 86_400.0,
        keep: Keep = Keep(),  # noqa: B008  (a Keep is frozen)
        alive: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        payload_store: PayloadStore | None = None,
        leader_tasks: Iterable[tuple[str, LeaderTask]] = (),
        memberships: Sequence[Membership] = (),
        lease: Lease | None = None,
    ) -> None:
        self.config, self._events = config, events
        self._handlers = {**handlers, **make_builtin_handlers(config.listen_url or config.url, config.schema)}
        self._grace, self._keep = unknown_type_grace, keep
        self._alive, self._payload_store = alive, payload_store
        self._leader_tasks = list(leader_tasks)  # pairs of group and leader task
        self._elector: Elector | None = None
        self._groups, self._lease = list(memberships), Lease() if lease is None else lease
        self._memberships: Memberships | None = None
        self._queries = queries(config.schema)
        self._worker: Worker | None = None
        self._worker_lock = threading.Lock()  # a thread may declare a task while another starts the worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_made = asyncio.Event()
        self.health: HealthServer | None = None
        self._meters: Meters | None = None
        self._asked: Literal["", "drain", "stop"] = ""

    async def run(self) -> None:
        async with self._alive():
            await self._run_worker_and_chores()

    async def _run_worker_and_chores(self) -> None:
        config = self.config
        self._meters = None if config.health_port is None else Meters()
        # Three connections, so that a long tick of the scheduler or a slow sweep delays no other chore.
        connection, ticks, upkeep = connections = [
            self._new_connection(purpose) for purpose in ("chores", "scheduler", "upkeep")
        ]
        wakeups = Wakeups()
        listen_url = config.listen_url or config.url
        notifications = Listener(wakeups, listen_url, self._queries, direct=config.listen_url is not None)
        is_listening = lambda: notifications.is_listening  # noqa: E731
        poll = config.poll_max_interval
        with self._worker_lock:
            self._elector = elector = Elector(connection, self._events, config.name, config.lease, wakeups.leaders)
            for group, task in self._leader_tasks:
                elector.add_task(group, task)
            chores = WorkerChores(
                Promoter(connection, wakeups.delayed, is_listening=is_listening, poll_seconds=poll),
                Unblocker(connection, self._events, wakeups, is_listening=is_listening, poll_seconds=poll),
                Declarer(connection, self.config.declared, wakeups.declarations),
                Scheduler(ticks, self._events, wakeups.schedules) if config.scheduler else None,
                elector,
            )
            self._loop = asyncio.get_running_loop()
            self._worker = Worker(
                self.config, self._queries, self._handlers, self._events, notifications, chores, self._lease,
                self._meters,
            )  # fmt: skip
        vitals = Vitals(
            self._worker.slots, self._worker.lease, self._worker.settler.tally, self._worker.registered,
            wakeups.draining, stuck_after=config.stuck_after, capacity=config.capacity,
        )  # fmt: skip
        if config.health_port is not None and self._meters is not None:
            health = HealthServer(config.health_host, config.health_port, make_pages(vitals, self._meters.measure))
            health.start()
            self.health = health
        self._is_made.set()
        if self._asked:  # stop() or drain() was called before the worker existed
            (self._worker.stop if self._asked == "stop" else self._worker.drain)()
        tasks = self._start_chores(chores, connection, upkeep, notifications)
        if self.health is not None:
            tasks.append(asyncio.create_task(vitals.note_turns()))
        observers = self._list_metering_observers()
        for event, observer in observers:
            self._events.on(event, observer)
        try:
            await self._worker.run()
        finally:
            for event, observer in observers:
                self._events.observers[event].remove(observer)
            try:
                if self.health is not None:
                    await asyncio.to_thread(self.health.stop)
                await cancel_all(tasks)
            finally:  # another cancellation may end these waits; closing waits for nothing
                await notifications.close()
                for each in connections:
                    await each.close()

    def _new_connection(self, purpose: str) -> NodeConnection:
        config = self.config
        timeout, prepare = config.statement_timeout, config.prepare
        if purpose == "upkeep":
            timeout = max(timeout, LONGEST_UPKEEP_SECONDS)
        connection = NodeConnection(config.url, self._queries, purpose=purpose, timeout=timeout, prepare=prepare)
        connection.observe = None if self._meters is None else self._meters.note_query
        return connection

    def _list_metering_observers(self) -> list[tuple[str, Observer]]:
        if self._meters is None:
            return []
        return [("job_enqueued", self._meters.note_enqueued), ("node_lost", self._meters.note_lost_lease)]

    def _start_chores(
        self, chores: WorkerChores, connection: NodeConnection, upkeep: NodeConnection, notifications: Listener
    ) -> list[asyncio.Task[None]]:
        wakeups = notifications.wakeups
        reclaimer = Reclaimer(connection, self._events)
        periodic = PeriodicChores(upkeep, unknown_type_grace=self._grace)
        sender = AlertSender(upkeep, self.config.alerts, wakeups.deliveries)
        survey = Survey(
            connection, self.worker, wakeups, chores.promoter, reclaimer, periodic, chores.elector,
            lease=self.config.lease, poll_seconds=self.config.poll_max_interval,
            longest_pause=self.config.survey_interval,
        )  # fmt: skip
        with self._worker_lock:
            self._memberships = memberships = Memberships(
                connection, self.worker, chores.elector, self._events, self._groups, wakeups.tokens, self.config.lease,
                wakeups.draining,
            )  # fmt: skip
        measured = partial(repeat, meter=self._meters)
        loops = [
            notifications.keep_open(),
            measured("survey", survey.run, connection),
            measured("promote", chores.promoter.run, connection, wakeups.delayed),
            measured("unblock", chores.unblocker.run, connection, wakeups.dependents),
            measured("declare schedules", chores.declarer.run, connection, wakeups.declarations),
            measured("elect leaders", chores.elector.run, connection, wakeups.leaders),
            measured("token groups", memberships.run, connection, wakeups.tokens),
            measured("reclaim", reclaimer.run, connection, reclaimer.wakeup),
            measured("periodic statements", periodic.run, upkeep, periodic.wakeup),
            measured("send alerts", sender.run, upkeep, wakeups.deliveries),
            measured("retention", Retention(upkeep, self._keep, archiver=self._make_archiver(upkeep)).run, upkeep),
        ]
        if self.config.verify_at is not None:
            verification = DailyVerification(upkeep, self.config.url, self.config.schema, self.config.verify_at)
            loops.append(repeat("verify", verification.run, upkeep))
        if self._payload_store is not None:
            loops.append(measured("sweep payloads", Sweeper(upkeep, self._payload_store).run, upkeep))
        if chores.scheduler is not None:
            registered = self.worker.registered
            is_listening = lambda: notifications.is_listening  # noqa: E731
            loops.append(chores.scheduler.tick_repeatedly(self.config.name, registered, is_listening))
        return [asyncio.create_task(loop) for loop in loops]

    def _make_archiver(self, upkeep: NodeConnection) -> Archiver | None:
        place = self.config.archive_to
        return None if place is None else Archiver(upkeep, place, self.config.redaction)

    def add_handlers(self, handlers: Handlers, queues: Iterable[str] = ()) -> None:
        """Adds the handlers of tasks that were declared after the node was made, and the queues of these tasks. May be
        called from any thread, also while the node runs."""
        with self._worker_lock:
            if self._worker is None or self._loop is None:
                self._handlers |= handlers
                self.config = replace(self.config, queues=tuple(dict.fromkeys((*self.config.queues, *queues))))
            elif not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._worker.add_handlers, handlers, list(queues))

    def declare(self, declared: Declared) -> None:
        """Replaces the declarations of the node, after the program has declared more schedules, limits or queues. May
        be called from any thread."""
        with self._worker_lock:
            if self._worker is None or self._loop is None:
                self.config = replace(self.config, declared=declared)
            elif not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._worker.declare, declared)

    def add_leader_task(self, group: str, task: LeaderTask) -> None:
        """Adds a leader task that was declared after the node was made. May be called from any thread."""
        with self._worker_lock:
            self._leader_tasks.append((group, task))
            if self._elector is not None and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._elector.add_task, group, task)

    def join_group(self, group: str, queues: Iterable[str], options: GroupOptions | None) -> None:
        """Joins the token group of a task that was declared after the node was made. May be called from any thread."""
        membership = Membership(Ownership(group, self._lease), options, tuple(queues))
        with self._worker_lock:
            self._groups.append(membership)
            if self._memberships is not None and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._memberships.add, membership)

    def find_term(self, group: str) -> int | None:
        """Returns the number of this node's term, if it leads the group now. May be called from any thread."""
        return None if self._elector is None else self._elector.find_term(group)

    async def wait_until_ready(self) -> None:
        """Waits until the node is registered and works."""
        await self._is_made.wait()
        await self.worker.registered.wait()

    def drain(self) -> None:
        """Claims nothing more, waits for running handlers, and releases the other jobs."""
        self._asked = self._asked or "drain"
        if self._worker is not None:
            self._worker.drain()

    def stop(self) -> None:
        """Cancels running handlers and releases their jobs at once. That costs no attempt."""
        self._asked = "stop"
        if self._worker is not None:
            self._worker.stop()

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "the node has not been started"
        return self._worker

    @property
    def exit_code(self) -> int:
        """The exit code for this process: 0, unless the node ended because a handler could not be stopped."""
        return 0 if self._worker is None else self._worker.exit_code

    @property
    def unstoppable_jobs(self) -> list[str]:
        """Jobs whose handlers still run on the event loop after the node has ended, although they were asked to
        stop."""
        return [] if self._worker is None else [f"{run.type} {run.id}" for run in self._worker.slots.unstoppable_runs]

    @property
    def finished(self) -> int:
        """How many runs have ended on this node so far."""
        return 0 if self._worker is None else self._worker.slots.finished
