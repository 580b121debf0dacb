"""Runs the jobs that are ready in a test, with the claims, attempts and settlements of a real worker.

A retry or a delayed job becomes ready only when the test moves the clock; with `fast_retries`, a retry is ready at
once. Time that merely passes makes no job ready, so neither a retry's jitter nor a slow machine decides what a test
sees. Jobs that handlers enqueue meanwhile run too. Jobs run one at a time, in the order of the queue, unless
`concurrency` is given.

A blocking drain has its event loop in a thread of its own, and runs `def` handlers in the thread that called it, so
that a debugger works and thread-local values (Django's connections, a scoped_session) are those of the test. A drain on
the test's own loop runs `async def` handlers there and `def` handlers in threads, as a node does. Handlers with
`executor="process"` run like `def` handlers, so that a monkeypatch reaches them. No handler sees the context variables
of the test, because it would not in a worker.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple
from uuid import UUID

from watchbill.app.application import App, living_apps
from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError
from watchbill.model.decisions import RetryAfter
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events
from watchbill.testing.crashing import Crash, CrashingStepRunner
from watchbill.testing.session import IdleConnections, ReusingConnection, TestSession
from watchbill.worker.builtin import BUILTIN_TYPES, make_builtin_handlers
from watchbill.worker.claim_request import Request
from watchbill.worker.claiming import Claimer, Claiming
from watchbill.worker.config import NodeConfig, make_capacity, make_config, make_node_name
from watchbill.worker.dependencies import Dependencies
from watchbill.worker.handlers import BadPayload, BadResult, Handlers
from watchbill.worker.notifications import Listener, Wakeups
from watchbill.worker.outcomes import OutcomeReporter
from watchbill.worker.run import Claimed, Outcome, Run
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.threads import Finish, Threads
from watchbill.worker.transactions import Transactions
from watchbill.worker.worker import Worker


class DrainFailed(WatchbillError):
    """A run failed, but not by an exception of its handler: it timed out, or its payload does not fit."""


class NeverEnding(WatchbillError):
    """The drain has reached its limit, and more jobs may be ready."""


@dataclass(frozen=True)
class Ran:
    """One run of a job, its outcome, and the state of the job after it."""

    id: UUID
    type: str
    attempt: int
    outcome: str  # succeeded, skipped, failed, timed_out, snoozed, canceled or released
    state: str  # the job's: succeeded, queued, failed (and waits for its next attempt), dead or canceled
    error: dict[str, Any] | None = field(default=None, repr=False)
    exception: BaseException | None = field(default=None, repr=False)

    @property
    def is_failure(self) -> bool:
        """Whether the run failed. RetryAfter does not count as a failure, because a handler raises it on purpose."""
        return self.outcome in ("failed", "timed_out") and not isinstance(self.exception, RetryAfter)


@dataclass
class RunLog:
    """The runs of a drain so far, and whether the drain has to stop: at its limit, a failure or an interrupt."""

    limit: int
    raising: bool
    fast_retries: bool = False
    crash: Crash | None = None  # at which write of a step a run ends
    ran: list[Ran] = field(default_factory=list)
    failure: Ran | None = None
    interrupt: BaseException | None = None

    @property
    def is_full(self) -> bool:
        is_stopped = self.interrupt is not None or (self.raising and self.failure is not None)
        return is_stopped or len(self.ran) >= self.limit

    def add(self, claimed: Claimed, run: Run | None, outcome: Outcome, state: str) -> None:
        """Adds a run. If its handler was ended by Ctrl-C, or by pytest's fail() or skip(), the drain stops and raises
        that, because these are meant for the test."""
        if outcome.name == "unsupported":
            return
        raised = None if run is None or isinstance(run.raised, BadPayload | BadResult) else run.raised
        if raised is not None and not isinstance(raised, Exception | CancelledError | SystemExit | GeneratorExit):
            self.interrupt = raised
        job_id, attempt = UUID(bytes=claimed.id), claimed.attempt + 1
        self.ran.append(Ran(job_id, claimed.type, attempt, outcome.name, state, outcome.error, raised))
        if self.failure is None and self.ran[-1].is_failure:
            self.failure = self.ran[-1]

    def finish(self) -> list[Ran]:
        """Returns the runs. Raises instead what interrupted the drain, its first failure, or NeverEnding at the
        limit."""
        if self.interrupt is not None:
            raise self.interrupt
        if self.raising and self.failure is not None:
            raise _make_error(self.failure)
        if len(self.ran) >= self.limit:
            raise NeverEnding(
                f"The drain stopped after {len(self.ran):,} runs, its limit; more jobs may be ready.",
                hint="Does a task enqueue itself, or snooze without a delay? If not, use drain(limit=...).",
            )
        return self.ran


def _make_error(ran: Ran) -> BaseException:
    if ran.outcome == "failed" and ran.exception is not None:
        return ran.exception
    error, outcome = ran.error or {}, ran.outcome.replace("_", " ")
    return DrainFailed(
        f"Attempt {ran.attempt} of {ran.type} has {outcome} and the job is {ran.state}: {error.get('message')}",
        hint=error.get("traceback"),
    )


Calls = SimpleQueue[Callable[[], None] | None]


class DrainWorker(Worker):
    """The worker of a drain. The queue `calls` passes `def` handlers to the thread that waits for the drain. Handlers
    for child processes run in the same way, so that a monkeypatch reaches them."""

    def __init__(
        self,
        config: NodeConfig,
        handlers: Handlers,
        events: Events,
        idle: IdleConnections,
        log: RunLog,
        calls: Calls | None,
    ) -> None:
        self._idle, self._log, self._calls, own = idle, log, calls, queries(config.schema)
        here = {
            name: replace(handler, kind="thread") if handler.kind == "process" else handler
            for name, handler in handlers.items()
        }
        super().__init__(config, own, here, events, Listener(Wakeups(), config.url, own))
        self.slots.reports_all_successes = True

    async def run(self) -> None:
        try:
            await super().run()
        finally:  # also when the drain is interrupted: no handler may go on while the test goes on
            self.slots.stop_all_runs("released")

    def _new_connection(self, purpose: str) -> NodeConnection:
        prepare = self._config.prepare
        return ReusingConnection(
            self._idle, self._config.url, self._queries, purpose=purpose, timeout=30.0, prepare=prepare
        )

    def _new_reporter(self) -> OutcomeReporter:
        return LoggingReporter(self._events, self._log, self._wakeups)

    def _new_threads(self) -> Threads:
        if self._calls is None:
            return super()._new_threads()
        return CallersThread(self._calls, self.slots.finish_run, self._transactions, self._steps)

    def _new_step_runner(self, connection: NodeConnection) -> StepRunner:
        if self._log.crash is None:
            return super()._new_step_runner(connection)
        return CrashingStepRunner(connection, self._transactions, self._wakeups.draining.is_set, self._log.crash)

    def _new_claimer(self, claiming: Claiming) -> Claimer:
        claimer = OneByOneClaimer(
            self._connection, claiming, self.slots, self.settler, self.notifications, self._config
        )
        claimer.log = self._log
        return claimer


class LoggingReporter(OutcomeReporter):
    """Reports outcomes as a worker does, adds each run to the log of the drain, and ends the drain when the log is
    full."""

    def __init__(self, events: Events, log: RunLog, wakeups: Wakeups) -> None:
        super().__init__(events)
        self._log, self._wakeups = log, wakeups

    def report_success(self, run: Run) -> None:
        self._log.add(run.claimed, run, Outcome("succeeded"), "succeeded")
        super().report_success(run)
        self._end_drain_if_full()

    def report_ending(self, claimed: Claimed, run: Run | None, outcome: Outcome, state: str) -> None:
        self._log.add(claimed, run, outcome, state)
        super().report_ending(claimed, run, outcome, state)
        self._end_drain_if_full()

    def _end_drain_if_full(self) -> None:
        self._wakeups.jobs.set()
        if self._log.is_full:
            self._wakeups.drain()


class OneByOneClaimer(Claimer):
    """Claims one job at a time, so that jobs run in the order of the queue, and claims none once the log is full."""

    log: RunLog

    async def send(self, request: Request) -> list[Claimed]:
        await self._settler.wait_until_idle()
        if request.free <= 0 or self.log.is_full:
            return []
        return await super().send(request._replace(wanted=min(request.wanted, request.free)))


class CallersThread(Threads):
    """Runs handlers in the thread that called drain(), one after the other."""

    def __init__(self, calls: Calls, finish: Finish, transactions: Transactions, steps: StepRunner) -> None:
        super().__init__(1, finish, transactions, steps)
        self._calls = calls

    def submit(self, run: Run) -> None:
        self._under_way += 1
        self._calls.put(partial(self._run_one, run))

    def _run_one(self, run: Run) -> None:
        self._todo.put(run)
        self._todo.put(None)  # makes _run_handlers() return after this run
        self._run_handlers()


class AppJobs(NamedTuple):
    """What one App runs in a drain: all its types, from the queues in which jobs of these types wait."""

    app: App
    types: set[str]
    queues: set[str]


async def drain(session: TestSession, log: RunLog, concurrency: int, calls: Calls | None = None) -> None:
    while not log.is_full:
        before = len(log.ran)
        for app_jobs in _assign_to_apps(await session.aclient.run(_read_ready_types())):
            await _run_app_jobs(session, log, app_jobs, concurrency, calls)
        if len(log.ran) == before:
            return


async def drain_on_loop(session: TestSession, log: RunLog, concurrency: int) -> None:
    await asyncio.get_running_loop().create_task(drain(session, log, concurrency), context=Context())


def drain_blocking(session: TestSession, log: RunLog, concurrency: int) -> None:
    calls: Calls = SimpleQueue()
    here = calls if concurrency == 1 else None  # several handlers at once need several threads
    loop = _LoopThread(lambda: drain(session, log, concurrency, here), ended=lambda: calls.put(None))
    try:
        loop.start()
        while (call := calls.get()) is not None:
            call()
    except BaseException:  # such as Ctrl-C or a time-out of the test, which may come at any point
        loop.cancel()
        raise
    finally:
        with suppress(RuntimeError):  # raised if the test was interrupted before the thread had started
            loop.join()
    if loop.error is not None:
        raise loop.error


class _LoopThread(threading.Thread):
    """A thread with an event loop that runs one coroutine, while another thread waits for it. Its context variables are
    empty, as in a worker."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[], None]) -> None:
        super().__init__(name="watchbill-drain", daemon=True)
        self._make, self._ended = make, ended
        self._task: asyncio.Task[None] | None = None
        self._canceled = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            Context().run(asyncio.run, self._run())
        except BaseException as error:  # noqa: BLE001  (kept, so that the thread that waits can raise it)
            self.error = error
        finally:
            self._ended()

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        if not self._canceled:
            await self._make()

    def cancel(self) -> None:
        self._canceled = True
        if self._task is not None:
            with suppress(RuntimeError):  # raised if the event loop of the task has ended meanwhile
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _read_ready_types() -> Operation[list[tuple[Any, ...]]]:
    """Returns (type, version, queue) of all jobs that could be claimed."""
    while (yield Statement("unblock_any", (1e9,))):  # unblocks jobs whose parents had ended when they were enqueued
        pass
    return (yield Statement("ready"))


def _assign_to_apps(ready: list[tuple[Any, ...]]) -> list[AppJobs]:
    """Decides which App runs which types. If two Apps have a type, the newer App gets it, because the other one may be
    left over from an earlier test."""
    apps = living_apps()
    known = {name: (app, task.version) for app in apps for name, task in app.tasks.items()}
    if apps:
        known |= dict.fromkeys(BUILTIN_TYPES, (apps[-1], 1))
    queues: dict[App, set[str]] = {}
    for name, version, queue in ready:
        app, newest = known.get(name, (None, 0))
        if app is not None and version <= newest:
            queues.setdefault(app, set()).add(queue)
    return [AppJobs(app, {name for name, (a, _) in known.items() if a is app}, found) for app, found in queues.items()]


async def _run_app_jobs(
    session: TestSession, log: RunLog, app_jobs: AppJobs, concurrency: int, calls: Calls | None
) -> None:
    app = app_jobs.app
    dependencies = Dependencies(app.producer.overrides)
    known = {**app.handlers(dependencies), **make_builtin_handlers(app.database_url, app.settings.schema)}
    handlers = {name: handler for name, handler in known.items() if name in app_jobs.types}
    config = replace(
        make_config(app.settings, app.database_url, app=app.name, queues=tuple(sorted(app_jobs.queues)), once=True),
        name=make_node_name(),
        capacity=make_capacity(concurrency, cores=concurrency),
        stuck_after=1e9,
        watches_loop=False,  # a debugger may stop the event loop, which must not end the process
        retry_delay=0.0 if log.fast_retries else None,
        poll_interval=0.001,
        poll_max_interval=0.02,
    )
    async with app.alive(dependencies):
        await DrainWorker(config, handlers, app.events, session.idle_connections, log, calls).run()
