"""Keeps the node alive from a thread of its own, so that a busy event loop is not mistaken for a dead process.

It beats at a third of the lease and brings back stop requests every second while something runs. A second thread
watches, because the first may hang on a network that swallows everything: a beat without an answer is given up; when
none was acknowledged in time the engine is told to stop its handlers (best effort; the fence in the database is the
promise); and when the loop itself stands still, the handler that holds it is named and, in the end, the process ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson
import psycopg

from watchbill.postgres.connect import Connection
from watchbill.store.deadline import cut
from watchbill.store.queries import Queries
from watchbill.worker.progress import as_json
from watchbill.worker.run import Run

logger = logging.getLogger("watchbill.worker")

_boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
EXIT_WEDGED = 70
LOST = "WB001"
STANDSTILL = 5.0  # seconds without a sign of the loop that are worth a word
GRACE = 10.0  # after the time-out of the handler that holds it


def now() -> float:
    """Goes on while the machine sleeps, as the lease does."""
    return time.clock_gettime(_boot_clock)


class Heartbeat(threading.Thread):
    """`running` and `driven` are read from this thread; the callbacks are made safe for it by the caller."""

    def __init__(
        self,
        url: str,
        queries: Queries,
        epoch: int,
        lease: float,
        *,
        stuck_after: float,
        running: Callable[[], list[Run]],
        driven: Callable[[], Run | None],
        on_stop: Callable[[list[UUID]], None],
        on_lost: Callable[[], None],
        on_fence: Callable[[], None],
        loop_tick: Callable[[], float],
    ) -> None:
        super().__init__(name="watchbill-heartbeat", daemon=True)
        self._url, self._queries, self._epoch, self._lease, self._stuck_after = url, queries, epoch, lease, stuck_after
        self._running, self._driven = running, driven
        self._on_stop, self._on_lost, self._on_fence, self._loop_tick = on_stop, on_lost, on_fence, loop_tick
        self._connection: Connection | None = None
        self._over, self._hurry = threading.Event(), threading.Event()
        self._deadline = now() + lease * 0.8
        self._fenced = False
        self._period = min(1.0, lease / 6)
        self._asked: float | None = None  # since when an answer is awaited
        self._seen_tick = 0.0
        self._still = 0.0
        self._reported: object = None

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch, name="watchbill-watch", daemon=True).start()

    def run(self) -> None:
        interval = self._lease / 3
        next_beat = now() + interval
        while not self._is_over_after(self._period):
            beat_due = self._hurry.is_set() or now() >= next_beat
            self._hurry.clear()
            if (beat_due or self._running()) and self._talk(beat=beat_due) and beat_due:
                next_beat = now() + interval
        self._hang_up()

    def _is_over_after(self, seconds: float) -> bool:
        self._hurry.wait(seconds)
        return self._over.is_set()

    def hurry(self) -> None:
        """A beat at once."""
        self._hurry.set()

    def stop(self) -> None:
        self._over.set()
        self._hurry.set()
        self._give_up()

    def _talk(self, *, beat: bool) -> bool:
        sent = self._asked = now()
        try:
            row = self._beat() if beat else self._ask("stop_requests", self._epoch)
        except Exception as error:  # noqa: BLE001  (whatever it is, the next beat is tried)
            self._no_answer(error)
            return False
        finally:
            self._asked = None
        if beat:
            self._deadline, self._fenced = sent + self._lease * 0.8, False
        if row and row[0]:
            self._on_stop(row[0])
        return True

    def _beat(self) -> Any:
        try:
            return self._ask("heartbeat", self._epoch, self._long_runs())
        except psycopg.Error as error:  # what cannot be recorded of handlers, their progress say, must not end the node
            if error.sqlstate in (None, LOST) or self._connection is None or self._connection.closed:
                raise
            logger.warning("What runs here, and its progress, was refused: %s", _first_line(error))
            return self._ask("heartbeat", self._epoch, None)

    def _ask(self, query: str, *params: object) -> Any:
        if self._connection is None:
            self._connection = Connection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                application_name="watchbill heartbeat",
                connect_timeout=max(2, int(self._lease / 3)),
            )
        return self._connection.execute(self._queries[query].encode(), params).fetchone()

    def _no_answer(self, error: Exception) -> None:
        if getattr(error, "sqlstate", None) == LOST:
            self._over.set()
            self._on_lost()
            return
        logger.warning("No heartbeat: %s", _first_line(error))
        self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _long_runs(self) -> str:
        """Handlers that have lasted for longer than a beat, with their progress."""
        runs = [run for run in self._running() if run.age > self._lease / 3 or run.last_progress is not None]
        return f"[{','.join(_report(run).decode() for run in runs)}]"

    # -- the watch

    def _watch(self) -> None:
        while not self._over.wait(self._period):
            try:
                self._watch_answer()
                self._watch_lease()
                self._watch_loop()
            except Exception:  # nobody would notice that nobody watches
                logger.exception("The watch has stumbled, and goes on")

    def _watch_answer(self) -> None:
        asked = self._asked
        if asked is not None and now() - asked > max(1.0, self._lease / 3):
            self._give_up()

    def _give_up(self) -> None:
        """Whoever waits for an answer hears that there will be none."""
        connection = self._connection
        if connection is not None and self._asked is not None:
            cut(connection)

    def _watch_lease(self) -> None:
        if now() > self._deadline and not self._fenced:
            self._fenced = True
            logger.error(
                "No heartbeat was acknowledged in time: handlers are told to stop before others take their jobs"
            )
            self._on_fence()

    def _watch_loop(self) -> None:
        """A handler that blocks the loop is named once, and ends the process after its time-out or stuck_after."""
        tick = self._loop_tick()
        self._still = self._still + self._period if tick == self._seen_tick else 0.0  # a frozen process counts nothing
        self._seen_tick = tick
        if self._still < STANDSTILL:
            self._reported = None
            return
        run = self._driven()
        what = "something" if run is None else f"job {run.id} ({run.type})"
        if self._reported is not (run or self):
            self._reported = run or self
            logger.error("The event loop stands still, held by %s; the stacks follow", what)
            with contextlib.suppress(Exception):  # in somebody's program this may be no file, or nothing at all
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        if self._held_for_too_long(run):
            logger.critical("The event loop was held by %s for too long: this process ends", what)
            os._exit(EXIT_WEDGED)

    def _held_for_too_long(self, run: Run | None) -> bool:
        """Its time-out cannot strike while it holds the loop; how long it ran before it did so is no matter."""
        overdue = run is not None and run.timeout is not None and run.age > run.timeout + GRACE
        return overdue or self._still > self._stuck_after


def _report(run: Run) -> bytes:
    progress = orjson.Fragment(as_json(run.last_progress))
    return orjson.dumps({"id": str(run.id), "fence": run.fence, "age": run.age, "progress": progress})


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
