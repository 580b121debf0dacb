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
from dataclasses import dataclass
from typing import Any, Protocol

from watchbill.telemetry.context import about, current
from watchbill.telemetry.events import Events
from watchbill.worker.endings import Ending
from watchbill.worker.failures import describe, ending_of
from watchbill.worker.handlers import Handler, Handlers, Kind
from watchbill.worker.rate import Rate
from watchbill.worker.rest import Rest
from watchbill.worker.run import Claimed, Run
from watchbill.worker.scarcity import Scarcity
from watchbill.worker.settler import Settler
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

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
        kinds = {handler.kind for handler in handlers.values()}
        self._total = min(capacity.total, sum(capacity.by_kind[kind] for kind in kinds) or capacity.total)
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
        self._given_up: list[Run] = []
        self.runs: set[Run] = set()  # not by job: one that was taken away may run here again, beside its old self
        self._driven: Run | None = None  # the handler whose first step the loop is taking
        self._driver: asyncio.Task[None] | None = None
        self._alone: Claimed | None = None
        self.alone_ran = False  # the last of the jobs that are to run alone did run
        self.alone_waited = False  # it found no slot, and was given back
        self.scarcity = Scarcity(handlers, self._free_of)
        self._rate = Rate()
        self.room = asyncio.Event()
        self.finished = 0

    # -- claim and accept

    def wanted(self) -> int:
        """How many more jobs to hold."""
        if self._alone is not None or self._choked():
            return 0
        wanted = min(LARGEST_CLAIM, self._slots() + int(self._rate.per_second * 0.1) - self._held)
        return self.scarcity.limit(wanted, self.free()) if self.scarcity.kinds else wanted

    def _free_of(self, kind: Kind) -> int:
        return self._capacity.by_kind[kind] - self._busy[kind] - len(self._ready[kind])

    def free(self) -> int:
        """How many more could start this moment."""
        return max(0, self._slots() - self._held)

    def _slots(self) -> int:
        return max(0, self._total - len(self.runs))

    def may_take_alone(self) -> bool:
        """Into a free slot, or the next one where slots change hands quickly: a backlog must not starve lost jobs."""
        return self._alone is None and (self._slots() > 0 or self._held > 0) and not self._choked()

    def _choked(self) -> bool:
        return self._settler.waiting > 4 * LARGEST_CLAIM

    @property
    def idle(self) -> bool:
        return not self.runs and not self._held

    def accept(self, rows: list[Claimed], *, alone: bool = False) -> None:
        self._settler.expect(rows)
        if self.idle:
            self._rate.begin()
        if alone and rows:
            self._alone = rows[0]
        now = time.monotonic()
        for row in rows:
            handler = self._handlers.get(row.type)
            if handler is None or row.version > handler.version:
                self._end_unstarted(row, Ending(row, "unsupported"))
            else:
                self._ready[handler.kind].append((row, handler, now))
                self._held += 1
        self.start()

    # -- start

    def start(self) -> None:
        """Starts whatever may start now."""
        for kind in ("thread", "process"):
            while self._may_start(kind):
                row, handler, _ = self._ready[kind].popleft()
                self._start_elsewhere(kind, row, handler)
        if self._driver is None and self._may_start("async"):
            self._driver = self._loop.create_task(self._drive())
            self._driver.add_done_callback(self._driver_ended)

    def _may_start(self, kind: Kind) -> bool:
        return (
            bool(self._ready[kind]) and self._busy[kind] < self._capacity.by_kind[kind] and len(self.runs) < self._total
        )

    def _begin(self, row: Claimed, handler: Handler) -> Run | None:
        """A run, entered in the books with its arguments; None when its payload cannot be understood."""
        self._held -= 1
        handler = handler.for_payload(row.raw_payload)
        run = Run(row, handler, time.monotonic())
        try:
            if handler.kind != "process":  # a child decodes for itself
                run.arguments = handler.decode(row.raw_payload[1:], row.version)
        except BaseException as error:  # noqa: BLE001  (an upgrade function is the user's; what it raises is its job's end)
            ending = ending_of(row, run.started, error)
            ending.run, run.raised = run, error
            self._end_unstarted(row, ending)
            return None
        run.context = context = contextvars.copy_context()
        context.run(current.set, run)
        self.runs.add(run)
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
        if run.timeout is not None:
            run.timer = self._loop.call_later(run.timeout, self._time_out, run)

    async def _drive(self) -> None:
        """Runs ready `async def` handlers, one after the other, until one suspends; see the head of this file."""
        until, spoilt = time.monotonic() + TURN, _this_task().cancelling
        while self._may_start("async") and not spoilt():
            row, handler, _ = self._ready["async"].popleft()
            run = self._begin(row, handler)
            if run is None:
                continue
            assert run.context is not None
            self._driven = run
            try:
                coroutine = _coroutine(run) if not handler.transactional else self._transactions.arun(run)
                future = run.context.run(coroutine.send, None)
            except StopIteration as stop:
                self._driven = None
                self._succeed(run, stop.value)
            except BaseException as error:  # noqa: BLE001  (SystemExit and its like end the attempt, never the worker)
                self._driven = None
                self._fail(run, error)
            else:
                self._driven = self._driver = None
                self.start()
                await self._remain(run, coroutine, future)
                return
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + TURN
        self._driver = None
        self.start()  # if a handler canceled the Task it ran in, another one takes the rest
        self.room.set()

    def _driver_ended(self, task: asyncio.Task[None]) -> None:
        """A bug of ours in the driver must not pass in silence, nor stop the others."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("The driver of handlers failed", exc_info=error)
        if self._driver is task:
            self._driver = None
            self.start()

    async def _remain(self, run: Run, coroutine: Any, future: Any) -> None:
        """The rest of a handler that has suspended, in the Task that started it."""
        assert run.context is not None
        run.task = _this_task()
        self._arm(run)
        try:
            value = await Rest(coroutine, future, run.context)
        except BaseException as error:  # noqa: BLE001
            self._fail(run, error)
        else:
            self._succeed(run, value)

    def holder_of_loop(self) -> Run | None:
        """The handler that the loop is busy with this moment; asked from the heartbeat's thread."""
        if self._driven is not None:
            return self._driven
        task = asyncio.current_task(self._loop)
        return next((run for run in list(self.runs) if run.task is task), None) if task is not None else None

    # -- stop

    def stop_job(self, job_id: bytes, why: str) -> None:
        for run in [run for run in self.runs if run.claimed.id == job_id]:
            self._stop(run, why)

    def stop_all(self, why: str) -> None:
        for run in list(self.runs):
            self._stop(run, why)

    def _stop(self, run: Run, why: str) -> None:
        """Tells a handler to stop; what it does about it is its own affair until its end."""
        if run.stopping is None:
            run.stopping = why
            self._press(run)

    def _press(self, run: Run) -> None:
        """A handler may swallow a cancellation; it is told again every second."""
        if run not in self.runs:
            return
        if run.task is not None:
            run.task.cancel()
            self._loop.call_later(1.0, self._press, run)
        elif run.handler.kind != "async":
            self.executors[run.handler.kind].stop(run)

    def _time_out(self, run: Run) -> None:
        if run in self.runs and run.stopping is None:
            logger.warning("Job %s (%s) has timed out after %g s", run.id, run.type, run.timeout, extra=about(run))
            self._stop(run, "timed_out")

    def give_back(self, older: float = 0.0) -> int:
        """Releases what has waited here for longer than this many seconds without starting; with one attempt, at once:
        if this process died now, such a job would be dead without ever having run."""
        now, count = time.monotonic(), 0
        for kind, queue in self._ready.items():
            late = [entry for entry in queue if now - entry[2] >= older or entry[0].max_attempts == 1]
            if older and any(entry[0] is not self._alone for entry in late):
                self.scarcity.kinds.add(kind)
            for entry in late:
                queue.remove(entry)
                self._held -= 1
                self.alone_waited |= self._alone is entry[0]
                self._end_unstarted(entry[0], Ending(entry[0], "released"))
            count += len(late)
        return count

    # -- end

    def ended_elsewhere(self, run: Run, value: Any, error: BaseException | None) -> None:
        if error is None:
            self._succeed(run, value)
        else:
            self._fail(run, error)

    def _succeed(self, run: Run, value: Any) -> None:
        if run.stopping == "timed_out":
            self._fail(run, TimeoutError(f"ended {run.age - (run.timeout or 0):.3f} s after its time-out"))
            return
        if not self._leave(run):
            return
        try:
            result = value if value is None or run.handler.kind == "process" else run.handler.encode_result(value)
        except BaseException as error:  # noqa: BLE001  (a serializer, too)
            run.raised = error
            self._end(Ending(run.claimed, "failed", run.started, error=describe(error, "permanent"), run=run))
            return
        self._settler.succeeded(run.claimed, run.started, result)
        if self._events.heard("job_completed"):
            run.seconds = run.age
            self._settler.tell_when_settled(run)

    def _fail(self, run: Run, error: BaseException) -> None:
        if not self._leave(run):
            return
        ending = ending_of(run.claimed, run.started, error, run.stopping, run.timeout)
        ending.run, run.raised, run.seconds = run, error, run.age
        self._end(ending)

    def _leave(self, run: Run) -> bool:
        """False when it was given up before: its end is told, and told once."""
        if run not in self.runs:
            return False
        self.runs.discard(run)
        if run.timer is not None:
            run.timer.cancel()
        self._busy[run.handler.kind] -= 1
        self.finished += 1
        self._rate.count()
        if self._alone is run.claimed:
            self._alone, self.alone_ran = None, True
        if not self.runs and not self._held:
            self._rate.pause()
        if self.scarcity.kinds:
            self.scarcity.ended(run)
        if self._driver is None:
            self.start()
        self.room.set()
        return True

    def give_up_stuck(self) -> None:
        """At the end of the process: handlers that never returned from their time-out have failed by it, and those that
        may not begin again have failed by that."""
        for run in list(self.runs):
            if run.stopping == "timed_out" or run.claimed.max_attempts == 1:
                self._given_up.append(run)
                self._fail(run, TimeoutError("did not return after it was told to stop"))

    @property
    def stubborn(self) -> list[Run]:
        """Handlers that are still on the loop, though they were told to stop."""
        told = [*self._given_up, *(run for run in self.runs if run.stopping is not None)]
        return [run for run in told if run.task is not None and not run.task.done()]

    def _end(self, ending: Ending) -> None:
        self._settler.ended(ending)
        self.room.set()

    def _end_unstarted(self, row: Claimed, ending: Ending) -> None:
        """One that will not run here; if it was to run alone, others may start again."""
        if self._alone is row:
            self._alone = None
        self._end(ending)

    def give_up(self) -> None:
        """The lease may have run out: handlers are told to stop, and all goes back, as far as it is still ours."""
        self.give_back()
        self.stop_all("released")

    def forget(self) -> None:
        """The node is lost: handlers are told, and whatever they do is not ours to settle."""
        for queue in self._ready.values():
            queue.clear()
        self._held = 0
        if not any(run.claimed is self._alone for run in self.runs):
            self._alone = None
        self.stop_all("released")


def _coroutine(run: Run) -> Any:
    return run.handler.function(**run.arguments)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
