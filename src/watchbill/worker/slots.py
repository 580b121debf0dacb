"""Runs claimed jobs in handler slots: accept -> start -> finish.

One event loop runs `async def` handlers, and passes `def` handlers to threads and CPU-bound ones to child processes.
Never more handlers run than there are handler slots, and never more transactional handlers than the pools have
connections (`pool_size`). A claimed job that does not start within a second is released.

An `async def` handler is driven to its first suspension by a Task that runs one job after the other. When a handler
suspends, that Task stays with it, so that `asyncio.timeout`, TaskGroup and cancellation work as usual, and a new Task
takes the remaining jobs. Most short jobs never suspend and cost no Task of their own.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from typing import Protocol
from uuid import UUID

from watchbill.model.durations import LONGEST_TIMEOUT_SECONDS
from watchbill.telemetry.context import log_fields
from watchbill.telemetry.events import Events
from watchbill.telemetry.job_lines import LogTail
from watchbill.worker.attempt import Suspended, attempt_on_loop, fail
from watchbill.worker.batch_run import BatchRun, WaitingBatch
from watchbill.worker.claiming import Claiming, SlotCounts
from watchbill.worker.collecting import Collector, Entry, is_late, list_rows
from watchbill.worker.config import NodeConfig
from watchbill.worker.endings import Ending
from watchbill.worker.handlers import TRANSACTIONAL_KINDS, BadTimeout, Handlers, Kind, SlotKind, UnsupportedTypes
from watchbill.worker.job_logs import JobLogs
from watchbill.worker.notifications import Wakeups, wait_for
from watchbill.worker.run import Claimed, Outcome, Run
from watchbill.worker.settling import Settler
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

TURN_SECONDS = 0.005  # handlers run one after the other for this long, then the event loop reads its sockets
RELEASE_AFTER_SECONDS = 1.0  # a claimed job that has not started by then is released
STOP_AGAIN_SECONDS = 1.0
CHILD_START_SECONDS = 60.0  # how long a child process may take to import a handler, beyond the time-out of its job
WATCH_INTERVAL_SECONDS = 0.25
RATE_WINDOW_SECONDS = 0.02


class Executor(Protocol):
    """Runs handlers outside of the event loop, and calls `Slots.finish_run` on the loop when a handler has ended."""

    def submit(self, run: Run) -> None: ...
    def stop(self, run: Run) -> None: ...
    def stop_member(self, run: Run, place: int) -> None: ...


class Rate:
    """Measures how many jobs end per second while there is work."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self.resume()

    def resume(self) -> None:
        self._since, self._count = time.monotonic(), 0

    def count_ends(self, count: int) -> None:
        self._count += count
        if (count > 1 or not self._count & 15) and time.monotonic() - self._since >= RATE_WINDOW_SECONDS:
            self._measure()

    def pause(self) -> None:
        if self._count:
            self._measure()

    def _measure(self) -> None:
        now = time.monotonic()
        measured = self._count / max(now - self._since, 1e-6)
        self.per_second += (measured - self.per_second) * 0.5
        self._since, self._count = now, 0


def _count_slots_by_kind(config: NodeConfig) -> dict[SlotKind, int]:
    slots: dict[SlotKind, int] = dict(config.capacity.by_kind.items())
    return slots | {own: min(config.pool_size, slots[kind]) for kind, own in TRANSACTIONAL_KINDS.items()}


class Slots:
    """The jobs that run in this process, and the claimed jobs that wait here for a handler slot."""

    def __init__(
        self,
        handlers: Handlers,
        config: NodeConfig,
        claiming: Claiming,
        settler: Settler,
        events: Events,
        transactions: Transactions,
        wakeups: Wakeups,
        steps: StepRunner,
    ) -> None:
        self._handlers, self._claiming, self._settler, self._events = handlers, claiming, settler, events
        # These lists are kept, because a look into the dict would cost every run time.
        self._start_observers = events.observers["job_started"]
        self._success_observers = events.observers["job_completed"]
        self._transactions, self._wakeups, self._stuck_after = transactions, wakeups, config.stuck_after
        self._retry_delay, self._steps = config.retry_delay, steps
        self.logs = JobLogs(config.job_logs, config.redaction)
        self._capacity, self._most = _count_slots_by_kind(config), config.capacity.total
        self._total = self._count_usable_slots()
        self._loop = asyncio.get_running_loop()
        self.executors: dict[Kind, Executor] = {}
        self._waiting: dict[SlotKind, deque[Entry]] = {kind: deque() for kind in self._capacity}
        self.waiting = 0  # how many jobs and batches `_waiting` has: they are claimed and not started
        self._collector = Collector(claiming, wakeups, self._queue_entry, self._start_jobs)
        # A transactional run is counted twice: with all runs of its kind, and with the transactional ones.
        self._busy: dict[SlotKind, int] = dict.fromkeys(self._capacity, 0)
        self._ended_stuck: list[Run] = []
        self.runs: set[Run] = set()  # not by job: a reclaimed job may come back while its first run goes on
        self._driven: Run | None = None  # the run that the driver executes and that has not suspended yet
        self._driver: asyncio.Task[None] | None = None
        self.loop_tick = time.monotonic()  # when the event loop last ran `watch_runs`
        self.has_stuck_run = False
        self.reports_all_successes = False
        self.finished = 0
        self._rate = Rate()
        self._unsupported_types = UnsupportedTypes(handlers)

    def _count_usable_slots(self) -> int:
        """Counts the handler slots, except those of kinds that no handler has."""
        slots: dict[Kind, int] = {}
        for handler in self._handlers.values():
            slots[handler.kind] = max(slots.get(handler.kind, 0), self._capacity[handler.slot_kind])
        return min(self._most, sum(slots.values()) or self._most)

    def add_handlers(self, handlers: Handlers) -> None:
        self._handlers = {**self._handlers, **handlers}
        self._total = self._count_usable_slots()

    def count_handler_slots(self) -> SlotCounts:
        free_by_kind = {
            kind: self._capacity[kind] - busy - len(self._waiting[kind]) for kind, busy in self._busy.items()
        }
        for kind, transactional in TRANSACTIONAL_KINDS.items():
            free_by_kind[transactional] = min(free_by_kind[transactional], free_by_kind[kind])
        free, unsettled = max(0, self._total - len(self.runs)), self._settler.waiting
        counts = SlotCounts(free, self.waiting, free_by_kind, unsettled, self._rate.per_second)
        if self._claiming.key_window.size is not None:
            counts = counts._replace(claimed=self._settler.claimed, being_stored=self._settler.being_stored)
        if not self._collector.is_used:
            return counts
        return counts._replace(
            waiting=self.waiting - self._collector.growing,
            collected=self._collector.collected,
            room_by_type=self._collector.count_room(self._handlers),
        )

    @property
    def is_idle(self) -> bool:
        return not self.runs and not self.waiting and (not self._collector.is_used or self._collector.is_empty)

    def list_job_runs(self) -> list[Run]:
        """The run of each job; the handler slot of a batch has several. Other threads may call this."""
        return [each for run in list(self.runs) for each in run.batch]

    # -- accept

    def accept_jobs(self, rows: list[Claimed]) -> None:
        self._settler.add_claimed(rows)
        if self.is_idle:
            self._rate.resume()
        now = time.monotonic()
        for row in rows:
            handler = self._handlers.get(row.type)
            if handler is None or row.version > handler.version:
                self._unsupported_types.log_once(row.type, row.version, UUID(bytes=row.id))
                self._end_unstarted(row, Outcome("unsupported"))
            elif row.timeout is not None and not 0 < row.timeout <= LONGEST_TIMEOUT_SECONDS:
                self._fail_unstarted(Run(row, handler, now))
            elif handler.batch is None and handler.max_per_node is None:
                self._waiting[handler.slot_kind].append((row, handler, now))
                self.waiting += 1
            else:
                self._collector.add(row, handler, now)
        if self._collector.is_used:
            self._collector.queue_urgent_batches()
        self._start_jobs()

    def _queue_entry(self, entry: Entry) -> None:
        self._waiting[entry[1].slot_kind].append(entry)
        self.waiting += 1

    def start_batches(self, *, at_once: bool = False) -> None:
        """Called when a claim found no jobs: a batch need not wait for that claim any more. `at_once`: nor for its
        time to be up, since no more jobs are expected."""
        if self._collector.is_used:
            if at_once:
                self._collector.queue_all_batches()
            self._start_jobs()

    def release_waiting(self, older_than: float = 0.0) -> None:
        """Releases claimed jobs that have waited here for `older_than` seconds. Jobs with one attempt are released at
        once: if this process died now, such a job would be dead without having run."""
        now, collector = time.monotonic(), self._collector
        rows = list(collector.take_late(older_than)) if collector.is_used else []
        for kind, queue in self._waiting.items():
            late = [entry for entry in queue if is_late(entry, now, older_than)]
            if older_than and any(list_rows(entry)[0] is not self._claiming.quarantined for entry in late):
                self._claiming.shortage.kinds.add(kind)
            for entry in late:
                queue.remove(entry)
                self.waiting -= 1
                rows += self._collector.remove(entry)
        for row in rows:
            if row is self._claiming.quarantined:
                self._claiming.end_quarantine(lacked_slot=True)
            self._end_unstarted(row, Outcome("released"))

    def discard_jobs(self) -> None:
        """Forgets the waiting jobs and stops the running ones, because the node has lost its epoch."""
        for queue in self._waiting.values():
            queue.clear()
        self._collector.clear()
        self.waiting = 0
        if not any(run.claimed is self._claiming.quarantined for run in self.runs):
            self._claiming.end_quarantine()
        self.stop_all_runs("released")

    def _fail_unstarted(self, run: Run) -> None:
        """Fails a job whose time-out no timer can have, such as NaN: it would end the event loop. enqueue() refuses it,
        but anybody who may write to the table can store it."""
        fail(run, BadTimeout(f"its time-out is {run.timeout:g} s; it must be more than 0 and at most 365 days"))
        assert run.outcome is not None
        self._end_unstarted(run.claimed, run.outcome, run)

    def _end_unstarted(self, row: Claimed, outcome: Outcome, run: Run | None = None) -> None:
        """With `run`, the outcome is logged and reported to observers once it is stored."""
        if self._claiming.quarantined is row:
            self._claiming.end_quarantine()
        self._settler.add_ending(Ending(row, outcome, run=run))
        self._wakeups.progress.set()

    # -- start

    def _start_jobs(self) -> None:
        while self._may_start("thread"):
            self._submit_run("thread")
        while self._may_start_transactional("thread"):
            self._submit_run("thread transactional")
        while self._may_start("process"):
            self._submit_run("process")
        if self._driver is None and (self._may_start("async") or self._may_start_transactional("async")):
            self._driver = self._loop.create_task(self._drive_handlers())
            self._driver.add_done_callback(self._replace_failed_driver)

    def _may_start(self, kind: SlotKind) -> bool:
        waiting, collector = self._waiting[kind], self._collector
        is_free = bool(waiting) and self._busy[kind] < self._capacity[kind] and len(self.runs) < self._total
        return is_free and not (collector.is_used and collector.awaits_claim(waiting[0]))

    def _may_start_transactional(self, kind: Kind) -> bool:
        return self._busy[kind] < self._capacity[kind] and self._may_start(TRANSACTIONAL_KINDS[kind])

    def _submit_run(self, kind: SlotKind) -> None:
        run = self._begin_run(kind)
        self._start_timer(run)
        self.executors[run.handler.kind].submit(run)

    def _choose_async_kind(self) -> SlotKind:
        """Returns which kind of job is the next on the event loop: of two that may start, the one that has waited
        longer."""
        plain, transactional = self._waiting["async"], self._waiting["async transactional"]
        if not self._may_start_transactional("async"):
            return "async"
        is_first = not plain or transactional[0][2] < plain[0][2] or not self._may_start("async")
        return "async transactional" if is_first else "async"

    def _begin_run(self, kind: SlotKind) -> Run:
        entry = self._waiting[kind].popleft()
        row, handler, _ = entry
        if isinstance(row, WaitingBatch) or handler.max_per_node is not None:
            run = self._begin_call(entry)
        else:
            run = Run(row, handler, time.monotonic())
        self.waiting -= 1
        run.context = contextvars.copy_context()
        self.runs.add(run)
        self._busy[kind] += 1
        if handler.transactional:
            self._busy[handler.kind] += 1
        if self._start_observers:
            for each in run.batch:
                self._events.emit("job_started", job=each)
        return run

    def _begin_call(self, entry: Entry) -> Run:
        """Makes the run of a batch, or of a task with `max_per_node`."""
        rows, handler, now = self._collector.begin_call(entry), entry[1], time.monotonic()
        runs = [Run(row, handler, now) for row in rows]
        return runs[0] if handler.batch is None else BatchRun(runs)

    def _start_timer(self, run: Run) -> None:
        if run.timeout is not None:
            start = CHILD_START_SECONDS if run.handler.kind == "process" else 0.0
            run.timer = self._loop.call_later(run.timeout + start, self._time_out, run)

    def note_start(self, run: Run) -> None:
        """Starts the time of a run whose child process has imported the handler: only now the handler is called."""
        now = time.monotonic()
        for each in (run, *run.batch):
            each.started = now
        if run.timer is not None and run.timeout is not None:
            run.timer.cancel()
            run.timer = self._loop.call_later(run.timeout, self._time_out, run)

    async def _drive_handlers(self) -> None:
        """Runs waiting `async def` handlers until one suspends; see the head of this file."""
        task = asyncio.current_task()
        assert task is not None
        until, transactional = time.monotonic() + TURN_SECONDS, self._waiting["async transactional"]
        while not task.cancelling():
            kind = self._choose_async_kind() if transactional else "async"
            if not self._may_start(kind):
                break
            self._driven = run = self._begin_run(kind)
            coroutine = attempt_on_loop(run, self._transactions, self._steps)
            assert run.context is not None
            try:
                future = run.context.run(coroutine.send, None)
            except StopIteration:
                self._driven = None
                self.finish_run(run)
            else:
                rest = Suspended(coroutine, future, run.context)
                self._driven = self._driver = None
                self._start_jobs()
                run.task = task
                self._start_timer(run)
                await rest
                self.finish_run(run)
                return
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + TURN_SECONDS
        self._driver = None
        self._start_jobs()  # a handler may have canceled this Task; then another Task takes the remaining jobs
        self._wakeups.progress.set()

    def _replace_failed_driver(self, task: asyncio.Task[None]) -> None:
        """Starts the waiting jobs even if a bug ended the driver."""
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "The asyncio task that runs handlers failed; starting a new one for the jobs that wait"
            logger.critical(message, exc_info=error)
        if self._driver is task:
            self._driver = None
            self._start_jobs()

    def find_run_on_loop(self) -> Run | None:
        """Finds the run whose handler the event loop executes now. The heartbeat calls this from its thread."""
        if self._driven is not None:
            return self._driven
        task = asyncio.current_task(self._loop)
        return next((run for run in list(self.runs) if run.task is task), None) if task is not None else None

    # -- finish

    def finish_run(self, run: Run) -> None:
        """Frees the handler slot of a run that has ended, and passes its end to the settler."""
        if run not in self.runs:  # `end_stuck_runs` has finished it before
            return
        if run.stopping == "timed_out" and run.outcome is None:
            fail(run, TimeoutError(f"ended {run.age - (run.timeout or 0):.3f} s after its time-out"))
        self._free_handler_slot(run)
        for each in run.members if isinstance(run, BatchRun) else (run,):
            self._settle_run(each, run.log)
        self._wakeups.progress.set()

    def _settle_run(self, run: Run, log: LogTail | None) -> None:
        lines = None if log is None else self.logs.choose(run, log)
        if run.outcome is None and lines is None:
            is_reported = self.reports_all_successes or self._success_observers
            if is_reported:
                run.seconds = run.age
            self._settler.add_success(run.claimed, run.started, run.result, run if is_reported else None)
        else:
            run.seconds = run.age
            outcome = run.outcome or Outcome("succeeded", result=run.result)
            if self._retry_delay is not None and outcome.delay is None:  # a delay that the handler asked for stays
                outcome.delay = self._retry_delay
            self._settler.add_ending(Ending(run.claimed, outcome, run.started, run, lines))

    def _free_handler_slot(self, run: Run) -> None:
        handler, claiming = run.handler, self._claiming
        self.runs.discard(run)
        if run.timer is not None:
            run.timer.cancel()
        self._busy[handler.slot_kind] -= 1
        if handler.transactional:
            self._busy[handler.kind] -= 1
        count = len(run.members) if isinstance(run, BatchRun) else 1
        self.finished += count
        self._rate.count_ends(count)
        if run.handler.max_per_node is not None:
            self._collector.end_call(run.handler.type)
        if claiming.quarantined is run.claimed:
            claiming.end_quarantine(has_run=True)
        if self.is_idle:
            self._rate.pause()
        if claiming.shortage.kinds:
            claiming.shortage.note_freed_slot(handler.kind, run.age)
            claiming.shortage.note_freed_slot(handler.slot_kind, run.age)
            self._wakeups.jobs.set()
        if self._driver is None:
            self._start_jobs()

    # -- stop

    async def watch_runs(self) -> None:
        """Carries out stop requests, releases jobs that wait too long for a handler slot, and updates `loop_tick`.

        A thread cannot be stopped: if a handler's thread does not return after its time-out, the process has to end.
        """
        while True:
            self.loop_tick = time.monotonic()
            asked = self._wakeups.stop_requests
            if asked:
                self._stop_requested(asked)
                asked.clear()
            if not self._claiming.is_uncertain:  # jobs that a claim is bringing would start before the released ones
                self.release_waiting(older_than=RELEASE_AFTER_SECONDS)
            for run in self.runs:
                if self.is_stuck(run) and not self._wakeups.draining.is_set():
                    message = "The handler of job %s (%s) did not stop within %g s of its time-out; ending this process"
                    logger.error(message, run.id, run.type, self._stuck_after, extra=log_fields(run))
                    self.has_stuck_run = True
                    self._wakeups.drain()
            self._wakeups.stop.clear()
            await wait_for(self._wakeups.stop, WATCH_INTERVAL_SECONDS)

    def _stop_requested(self, asked: set[tuple[bytes, int]]) -> None:
        for run in list(self.runs):
            if not isinstance(run, BatchRun):
                if (run.claimed.id, run.claimed.fence) in asked:
                    self._stop_run(run, "canceled")
                continue
            for place, each in enumerate(run.batch):
                if (each.claimed.id, each.claimed.fence) in asked and each.stopping is None:
                    each.stopping = "canceled"
                    if run.handler.kind == "process":
                        self.executors["process"].stop_member(run, place)
            if all(each.stopping is not None for each in run.batch):
                self._stop_run(run, "canceled")

    def is_stuck(self, run: Run) -> bool:
        return run.stopping is not None and run.timeout is not None and run.age > run.timeout + self._stuck_after

    def stop_all_runs(self, reason: str) -> None:
        for run in list(self.runs):
            self._stop_run(run, reason)

    def _stop_run(self, run: Run, reason: str) -> None:
        if run.stopping is None:
            run.stopping = reason
            for each in run.batch:
                each.stopping = each.stopping or reason
            self._cancel_run(run)

    def _cancel_run(self, run: Run) -> None:
        """Asks the handler to stop, every second until it does, because a handler may swallow a cancellation."""
        if run not in self.runs:
            return
        if run.task is not None:
            run.task.cancel()
            self._loop.call_later(STOP_AGAIN_SECONDS, self._cancel_run, run)
        elif run.handler.kind != "async":
            self.executors[run.handler.kind].stop(run)

    def _time_out(self, run: Run) -> None:
        if run in self.runs and run.stopping is None:
            can_stop = run.handler.kind != "thread"
            action = "stopping its handler" if can_stop else "its thread cannot be stopped and goes on"
            message = "Job %s (%s) has timed out after %g s; %s"
            logger.warning(message, run.id, run.type, run.timeout, action, extra=log_fields(run))
            self._stop_run(run, "timed_out")

    def end_stuck_runs(self) -> None:
        """Settles, before the process ends, jobs whose handlers did not stop after their time-out or that have one
        attempt only."""
        for run in list(self.runs):
            if run.stopping == "timed_out" or run.max_attempts == 1:
                self._ended_stuck.append(run)
                fail(run, TimeoutError("did not return after it was asked to stop"))
                self.finish_run(run)

    @property
    def unstoppable_runs(self) -> list[Run]:
        """The runs whose handlers still run on the event loop although they were asked to stop."""
        asked = [*self._ended_stuck, *(run for run in self.runs if run.stopping is not None)]
        return [run for run in asked if run.task is not None and not run.task.done()]
