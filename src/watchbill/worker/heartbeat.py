"""Keeps the node alive from a thread of its own, so that a busy event loop is not taken for a dead process.

It sends a heartbeat every third of the lease. While a job runs, it asks every second, and after a notification at once,
which runs have to stop. A second thread watches the first, which may hang on a network that drops everything, and gives
up a heartbeat that gets no answer. If none was acknowledged in time, it asks handlers to stop; this is best effort, the
fence in the database is the promise. If the event loop does not run, it logs the handler that blocks it, and in the end
ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

import orjson
import psycopg

from watchbill.cluster.lease import Lease
from watchbill.errors import NoDatabase
from watchbill.model.clock import boot_seconds as now
from watchbill.postgres.connect import Connection
from watchbill.postgres.hosts import leave_standby, shut_down
from watchbill.store.node_connection import classify_error, first_line, is_outage
from watchbill.store.queries import Queries
from watchbill.telemetry.job_lines import LogTail
from watchbill.telemetry.outage import outage_of
from watchbill.worker.config import NodeConfig
from watchbill.worker.meters import Meters
from watchbill.worker.notifications import Wakeups
from watchbill.worker.run import Run, progress_as_json
from watchbill.worker.slots import Slots
from watchbill.worker.tally import Tally

logger = logging.getLogger("watchbill.worker")

EXIT_STUCK = 70
LOST = "WB001"
STANDSTILL_SECONDS = 5.0  # if the event loop does not run for this long, its blocker is logged
LONGEST_ANSWER_SECONDS = 10.0  # a heartbeat that gets no answer is given up after this time, however long the lease is
NOTE_PAUSE_SECONDS = 0.05  # pause after each notification, because any role of the database may send very many
WATCH_SECONDS = 3.0  # a run that was watched so short ago stores its log lines when it ends
OVERTIME_SECONDS = 10.0  # how long a handler may block the loop after its time-out


class Leaseholder(Protocol):
    """The part of the worker that its heartbeat uses. The heartbeat calls both methods on the event loop."""

    @property
    def lease(self) -> Lease: ...

    def lose_epoch(self, epoch: int) -> None: ...
    def release_all_jobs(self, epoch: int) -> None: ...


class Heartbeat(threading.Thread):
    """The thread that sends heartbeats for one epoch of a node. It also reads the running jobs of `slots`."""

    def __init__(
        self,
        config: NodeConfig,
        queries: Queries,
        epoch: int,
        slots: Slots,
        wakeups: Wakeups,
        worker: Leaseholder,
        tally: Tally,
        meters: Meters | None = None,
    ) -> None:
        super().__init__(name="watchbill-heartbeat", daemon=True)
        self._config, self._queries, self._epoch, self._lease = config, queries, epoch, config.lease
        self._slots, self._wakeups, self._worker, self._tally = slots, wakeups, worker, tally
        self._meters = meters
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._is_over = threading.Event()
        self._is_fenced = False
        self._outage = outage_of(config.url)
        self._has_failed = False  # the last statement failed, because the database did not answer
        self._period = min(1.0, self._lease / 6, config.heartbeat_interval)
        self._asked_at: float | None = None  # when the current statement was sent; None while none waits for its answer
        self._seen_tick = 0.0
        self._standstill = 0.0  # for how many seconds the event loop has not run
        self._reported: object = None

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch_all, name="watchbill-watch", daemon=True).start()

    def run(self) -> None:
        interval = min(self._config.heartbeat_interval, self._lease / 3)
        next_beat, wanted = now() + interval, self._wakeups.heartbeat
        while True:
            was_woken = wanted.wait(self._period)
            if self._is_over.is_set():
                break
            wanted.clear()
            is_due = self._wakeups.wants_beat or now() >= next_beat
            self._wakeups.wants_beat = False
            if is_due:
                began, is_acknowledged = now(), self._run_statement(self._send_heartbeat)
                if self._meters is not None:
                    self._meters.note_beat(now() - began, is_acknowledged=is_acknowledged)
                if not is_acknowledged:
                    continue
                next_beat = now() + interval
            if self._slots.runs:
                self._run_statement(self._ask_for_stop_requests)
            if was_woken:
                self._is_over.wait(NOTE_PAUSE_SECONDS)
        self._close_connection()

    def stop(self) -> None:
        self._is_over.set()
        self._wakeups.heartbeat.set()
        self._interrupt_statement()

    def _call_on_loop(self, function: Any, *arguments: Any) -> None:
        """Calls a function on the event loop, unless the loop has ended meanwhile."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _run_statement(self, action: Callable[[], None]) -> bool:
        """Calls `action`, which sends a heartbeat or asks for stop requests. Returns whether the server has
        answered."""
        self._asked_at = now()
        try:
            action()
        except Exception as error:  # noqa: BLE001  (no error may keep the thread from sending the next heartbeat)
            self._handle_error(error)
            return False
        finally:
            self._asked_at = None
        if self._has_failed:
            self._has_failed = False
            self._outage.note_answer()
        return True

    def _send_heartbeat(self) -> None:
        sent, asked, report = now(), time.monotonic(), self._tally.next_report()
        try:
            beat = (self._epoch, self._list_long_runs(), self._slots.finished)
            if report is None:
                ((_, clock),) = self._execute_query("heartbeat", *beat)
            else:
                ((_, clock, _),) = self._execute_query("heartbeat_with_tally", *beat, self._epoch, *report)
                self._tally.acknowledge(report)
            self._tally.set_clock(clock, asked)
        except psycopg.Error as error:  # the server may refuse the progress of a run, which must not end the node
            if error.sqlstate in (None, LOST) or self._connection is None or self._connection.closed:
                raise
            logger.warning(
                "The server refused what the heartbeat reports; sending it without that: %s", first_line(error)
            )
            self._execute_query("heartbeat", self._epoch, None, self._slots.finished)
        self._worker.lease.renew(self._epoch, sent, self._lease)
        self._is_fenced = False

    def _ask_for_stop_requests(self) -> None:
        runs = self._slots.list_job_runs()
        ids, fences = [run.id for run in runs], [run.fence for run in runs]
        rows = self._execute_query("stop_requests", self._epoch, ids, fences)
        if found := [(job_id, fence) for job_id, fence, is_watched in rows if not is_watched]:
            self._call_on_loop(self._wakeups.request_stop, found)
        if watched := {job_id for job_id, _, is_watched in rows if is_watched}:
            self._show_watched_runs(watched)

    def _show_watched_runs(self, watched: set[UUID]) -> None:
        """Writes the progress and the new log lines of the runs that somebody looks at."""
        shown = []
        for run in list(self._slots.runs):
            for each in run.batch:
                if each.id in watched:
                    each.watch = time.monotonic() + WATCH_SECONDS
                    shown.append(_run_as_json(each, self._read_new_lines(each, run.log)))
        if shown:
            self._execute_query("show_runs", self._epoch, f"[{','.join(each.decode() for each in shown)}]")

    def _read_new_lines(self, run: Run, log: LogTail | None) -> str | None:
        if log is None or log.added == run.shown_lines:
            return None
        run.shown_lines = log.added
        return self._slots.logs.read(log)

    def _execute_query(self, query: str, *params: object) -> list[Any]:
        if self._connection is None:
            self._connection = Connection.connect(
                self._config.url,
                autocommit=True,
                prepare_threshold=None,
                application_name="watchbill heartbeat",
                connect_timeout=max(2, int(min(self._lease / 3, LONGEST_ANSWER_SECONDS))),
            )
        return self._connection.execute(self._queries[query].encode(), params).fetchall()

    def _handle_error(self, error: Exception) -> None:
        if getattr(error, "sqlstate", None) == LOST:
            self._is_over.set()
            self._call_on_loop(self._worker.lose_epoch, self._epoch)
            return
        if isinstance(error, psycopg.OperationalError | OSError | NoDatabase) and is_outage(classify_error(error)):
            if self._has_failed or self._connection is None:  # otherwise only an idle connection broke: no outage yet
                self._outage.note_failure(first_line(error))
            self._has_failed = True
            if isinstance(error, psycopg.Error) and self._connection is not None:
                leave_standby(error, self._connection)
        else:
            logger.warning("The heartbeat failed; trying again in %g s: %s", self._period, first_line(error))
        self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _list_long_runs(self) -> str:
        """Returns, as JSON, the runs that have taken longer than a third of the lease, have reported progress or are
        watched."""
        runs = [
            run
            for run in self._slots.list_job_runs()
            if run.age > self._lease / 3 or run.last_progress is not None or run.watch > time.monotonic()
        ]
        return f"[{','.join(_run_as_json(run).decode() for run in runs)}]"

    # -- the thread that watches the heartbeat, the lease and the event loop

    def _watch_all(self) -> None:
        while not self._is_over.wait(self._period):
            try:
                self._watch_answer()
                self._watch_lease()
                if self._config.watches_loop:
                    self._watch_loop()
            except Exception:  # the watchdog must survive its own bugs
                logger.exception("The watchdog of the heartbeat failed; it continues. Please report this bug")

    def _watch_answer(self) -> None:
        asked_at = self._asked_at
        if asked_at is not None and now() - asked_at > min(max(1.0, self._lease / 3), LONGEST_ANSWER_SECONDS):
            self._interrupt_statement()

    def _interrupt_statement(self) -> None:
        """Shuts down the connection, so that a statement that waits for its answer fails at once."""
        connection = self._connection
        if connection is not None and self._asked_at is not None:
            shut_down(connection)

    def _watch_lease(self) -> None:
        if now() > self._worker.lease.deadline and not self._is_fenced:
            self._is_fenced = True
            logger.error("No heartbeat was acknowledged in time; stopping handlers before other nodes take their jobs")
            self._call_on_loop(self._worker.release_all_jobs, self._epoch)

    def _watch_loop(self) -> None:
        """Logs, once, which handler blocks the event loop. If it goes on blocking for too long, ends the process."""
        tick = self._slots.loop_tick
        if tick != self._seen_tick:
            self._seen_tick, self._standstill = tick, 0.0
        else:  # adds periods instead of reading a clock, so that time in which the process was frozen does not count
            self._standstill += self._period
        if self._standstill < STANDSTILL_SECONDS:
            self._reported = None
            return
        run = self._slots.find_run_on_loop()
        holder = "something" if run is None else f"job {run.id} ({run.type})"
        if self._reported is not (run or self):
            self._reported = run or self
            logger.error("The event loop is blocked by %s; the stacks of all threads follow", holder)
            with contextlib.suppress(Exception):  # a program may have replaced stderr by something that is not a file
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        if self._is_blocked_for_too_long(run):
            logger.critical("The event loop was blocked by %s for too long; ending this process", holder)
            os._exit(EXIT_STUCK)

    def _is_blocked_for_too_long(self, run: Run | None) -> bool:
        """Whether the handler that blocks the event loop is past its time-out, or the loop was blocked for longer than
        the setting allows. A blocked event loop cannot check the time-out itself."""
        is_overdue = run is not None and run.timeout is not None and run.age > run.timeout + OVERTIME_SECONDS
        return is_overdue or self._standstill > self._config.stuck_after


def _run_as_json(run: Run, lines: str | None = None) -> bytes:
    progress = orjson.Fragment(progress_as_json(run.last_progress))
    shown = {"id": str(run.id), "fence": run.fence, "age": run.age, "progress": progress}
    return orjson.dumps(shown if lines is None else shown | {"lines": lines})
