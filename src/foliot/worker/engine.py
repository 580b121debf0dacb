"""The life of a job in a worker: claim -> accept -> start -> end -> settle.

One event loop runs `async def` handlers, hands `def` handlers to threads and CPU-bound ones to child processes. It
claims as much as it can start within about a tenth of a second at the rate it measures, gives back what it could not
start within a second, and never runs more handlers than it has slots.

An `async def` handler is driven to its first suspension by a Task that runs job after job; when one suspends, that
Task stays with it (so that `asyncio.timeout`, TaskGroup and cancellation work as anywhere) and a new Task takes the
rest. Most short jobs never suspend, and cost no Task of their own.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from foliot.telemetry.context import current
from foliot.telemetry.events import Events
from foliot.worker.failures import describe, ending_of
from foliot.worker.handlers import Handler, Handlers, Kind
from foliot.worker.rate import Rate
from foliot.worker.run import Claimed, Run
from foliot.worker.settler import Ending, Settled, Settler
from foliot.worker.transactions import Transactions

logger = logging.getLogger("foliot.worker")

LARGEST_CLAIM = 1000
TURN = 0.005  # seconds that handlers may run without letting the loop look at its sockets
GIVE_BACK_AFTER = 1.0


class Executor(Protocol):
    """Runs handlers beside the loop; reports each end with `Engine.ended_elsewhere`."""

    def submit(self, run: Run) -> None: ...
    def stop(self, run: Run) -> None: ...


@dataclass(frozen=True)
class Capacity:
    """How many handlers may run at once: of each kind, and of all."""

    by_kind: dict[Kind, int]
    total: int


class Engine:
    """What runs here, what waits to run here, and the moves between the two."""

    def __init__(
        self, handlers: Handlers, capacity: Capacity, settler: Settler, events: Events, transactions: Transactions
    ) -> None:
        self._handlers, self._capacity, self._settler, self._events = handlers, capacity, settler, events
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self.executors: dict[Kind, Executor] = {}
        self._ready: dict[Kind, deque[tuple[Claimed, Handler, float]]] = {
            "async": deque(),
            "thread": deque(),
            "process": deque(),
        }
        self._held = 0  # claimed and not started
        self._busy: dict[Kind, int] = {"async": 0, "thread": 0, "process": 0}
        self.runs: dict[bytes, Run] = {}
        self.driven: Run | None = None  # the handler that holds the loop right now; the heartbeat thread looks at it
        self._driving = False
        self._alone: bytes | None = None
        self._rate = Rate()
        self.room = asyncio.Event()
        self.finished = 0

    # -- claim and accept

    def wanted(self) -> int:
        """How many more jobs to hold."""
        if self._alone is not None or self._settler.waiting > 4 * LARGEST_CLAIM:
            return 0
        free = self.free()
        return min(LARGEST_CLAIM, free + int(self._rate.per_second * 0.1) - self._held)

    def free(self) -> int:
        """How many could start this moment."""
        return max(0, self._capacity.total - len(self.runs))

    @property
    def idle(self) -> bool:
        return not self.runs and not self._held

    def accept(self, rows: list[Claimed], *, alone: bool = False) -> None:
        self._settler.expect(rows)
        if self.idle:
            self._rate.begin()
        now = time.monotonic()
        for row in rows:
            handler = self._handlers.get(row.type)
            if handler is None or row.version > handler.version:
                self._settler.ended(Ending(row, "unsupported"))
            else:
                self._ready[handler.kind].append((row, handler, now))
                self._held += 1
        if alone and rows:
            self._alone = rows[0].id
        self._loop.call_soon(self.start)

    # -- start

    def start(self) -> None:
        """Starts whatever may start now."""
        for kind in ("thread", "process"):
            while self._may_start(kind):
                row, handler, _ = self._ready[kind].popleft()
                self._start_elsewhere(kind, row, handler)
        if self._may_start("async") and not self._driving:
            self._driving = True
            task = self._loop.create_task(self._drive())
            task.add_done_callback(_raise_of)

    def _may_start(self, kind: Kind) -> bool:
        return (
            bool(self._ready[kind])
            and self._busy[kind] < self._capacity.by_kind[kind]
            and len(self.runs) < self._capacity.total
        )

    def _begin(self, row: Claimed, handler: Handler) -> Run | None:
        """A run, entered in the books with its arguments; None when its payload cannot be understood."""
        self._held -= 1
        run = Run(row, handler, time.monotonic())
        try:
            if handler.kind != "process":  # a child decodes for itself
                run.arguments = handler.decode(row.raw_payload[1:], row.version)
        except Exception as error:  # noqa: BLE001  (an upgrade function is the user's; whatever it raises is this job's end)
            self._end(ending_of(row, run.started, error))
            return None
        run.context = context = contextvars.copy_context()
        context.run(current.set, run)
        self.runs[row.id] = run
        self._busy[handler.kind] += 1
        if self._events.heard("job_started"):
            self._events.tell("job_started", job=run)
        return run

    def _start_elsewhere(self, kind: Kind, row: Claimed, handler: Handler) -> None:
        run = self._begin(row, handler)
        if run is None:
            return
        self._arm(run)
        self.executors[kind].submit(run)

    def _arm(self, run: Run) -> None:
        if run.claimed.timeout is not None:
            run.timer = self._loop.call_later(run.claimed.timeout, self._time_out, run)

    async def _drive(self) -> None:
        """Runs ready `async def` handlers, one after the other, until one suspends; see the head of this file."""
        until = time.monotonic() + TURN
        while self._may_start("async"):
            row, handler, _ = self._ready["async"].popleft()
            run = self._begin(row, handler)
            if run is None:
                continue
            assert run.context is not None
            self.driven = run
            try:
                coroutine = self._transactions.arun(run) if handler.transactional else handler.function(**run.arguments)
                future = run.context.run(coroutine.send, None)
            except StopIteration as stop:
                self.driven = None
                self._succeed(run, stop.value)
            except BaseException as error:  # noqa: BLE001  (SystemExit and its like end the attempt, never the worker)
                self.driven = None
                self._fail(run, error)
            else:
                self.driven = None
                self._driving = False
                self.start()
                await self._remain(run, coroutine, future)
                return
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + TURN
        self._driving = False
        self.room.set()

    async def _remain(self, run: Run, coroutine: Any, future: Any) -> None:
        """The rest of a handler that has suspended, in the Task that started it."""
        assert run.context is not None
        run.task = asyncio.current_task()
        self._arm(run)
        try:
            value = await _Rest(coroutine, future, run.context)
        except BaseException as error:  # noqa: BLE001
            self._fail(run, error)
        else:
            self._succeed(run, value)

    # -- stop

    def stop_run(self, job_id: bytes, why: str) -> None:
        """Tells a handler to stop; what it does about it is its own affair until its end."""
        run = self.runs.get(job_id)
        if run is None or run.stopping is not None:
            return
        run.stopping = why
        self._press(run)

    def _press(self, run: Run) -> None:
        """A handler may swallow a cancellation; it is told again every second."""
        if self.runs.get(run.claimed.id) is not run:
            return
        if run.task is not None:
            run.task.cancel()
            self._loop.call_later(1.0, self._press, run)
        elif run.handler.kind != "async":
            self.executors[run.handler.kind].stop(run)

    def _time_out(self, run: Run) -> None:
        if self.runs.get(run.claimed.id) is run and run.stopping is None:
            logger.warning("Job %s (%s) has timed out after %g s", run.id, run.type, run.claimed.timeout)
            self.stop_run(run.claimed.id, "timed_out")

    def give_back(self, older: float = 0.0) -> int:
        """Releases what has waited here for longer than this many seconds without starting."""
        now, count = time.monotonic(), 0
        for queue in self._ready.values():
            while queue and now - queue[0][2] >= older:
                row, _, _ = queue.popleft()
                self._held -= 1
                self._settler.ended(Ending(row, "released"))
                count += 1
        return count

    # -- end

    def ended_elsewhere(self, run: Run, value: Any, error: BaseException | None) -> None:
        if error is None:
            self._succeed(run, value)
        else:
            self._fail(run, error)

    def _succeed(self, run: Run, value: Any) -> None:
        if run.stopping == "timed_out":
            self._fail(run, TimeoutError(f"ended {run.age - (run.claimed.timeout or 0):.3f} s after its time-out"))
            return
        try:
            result = value if value is None or run.handler.kind == "process" else run.handler.encode_result(value)
        except Exception as error:  # noqa: BLE001
            self._leave(run)
            self._end(Ending(run.claimed, "failed", run.started, error=describe(error, "permanent"), run=run))
            return
        self._leave(run)
        self._settler.succeeded(run.claimed, run.started, result)
        if self._events.heard("job_completed"):
            run.seconds = run.age
            self._settler.tell_when_settled(run)

    def _fail(self, run: Run, error: BaseException) -> None:
        self._leave(run)
        ending = ending_of(run.claimed, run.started, error, run.stopping)
        ending.run, run.seconds = run, run.age
        self._end(ending)

    def _leave(self, run: Run) -> None:
        if self.runs.pop(run.claimed.id, None) is None:
            return
        if run.timer is not None:
            run.timer.cancel()
        self._busy[run.handler.kind] -= 1
        self.finished += 1
        self._rate.count()
        if self._alone == run.claimed.id:
            self._alone = None
        if not self.runs and not self._held:
            self._rate.pause()
        if not self._driving:
            self.start()
        self.room.set()

    def _end(self, ending: Ending) -> None:
        self._settler.ended(ending)
        self.room.set()

    def forget(self) -> None:
        """The node is lost: handlers are told, and whatever they do is not ours to settle."""
        for queue in self._ready.values():
            queue.clear()
        self._held = 0
        for job_id in list(self.runs):
            self.stop_run(job_id, "released")

    def settled(self, succeeded: list[Run], endings: list[Settled]) -> None:
        """After commit: tell what became of them."""
        for run in succeeded:
            self._events.tell("job_completed", job=run, outcome="succeeded")
        for each in endings:
            if each.state is None:
                self.refused([each.ending.claimed.id])
            elif each.ending.run is not None:
                _tell(self._events, each.ending.run, each.ending, each.state)

    def refused(self, ids: list[bytes]) -> None:
        for job_id in ids:
            logger.warning("Job %s was no longer ours when it ended; what it did is not recorded", UUID(bytes=job_id))


def _tell(events: Events, run: Run, ending: Ending, state: str) -> None:
    what = {"job": run, "outcome": ending.outcome}
    if state == "succeeded":
        events.tell("job_completed", **what)
    elif state == "canceled":
        events.tell("job_canceled", **what)
    elif ending.outcome in ("failed", "timed_out"):
        events.tell("job_failed", **what, error=ending.error, final=state == "dead")
        events.tell("job_died" if state == "dead" else "job_retry", **what, error=ending.error)
    elif ending.outcome in ("snoozed", "released"):
        events.tell(f"job_{ending.outcome}", **what)


def _raise_of(task: asyncio.Task[None]) -> None:
    """A bug of ours in the driver must not pass in silence."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("The driver of handlers failed", exc_info=error)


class _Rest:
    """What is left of a coroutine that has yielded a future, each step in the job's own context."""

    __slots__ = ("_context", "_coroutine", "_future")

    def __init__(self, coroutine: Any, future: Any, context: contextvars.Context) -> None:
        self._coroutine, self._future, self._context = coroutine, future, context

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, future, run = self._coroutine, self._future, self._context.run
        try:
            while True:
                try:
                    value = yield future
                except BaseException as error:  # noqa: BLE001  (thrown in by the Task, for the handler)
                    future = run(coroutine.throw, error)
                else:
                    future = run(coroutine.send, value)
        except StopIteration as stop:
            return stop.value
