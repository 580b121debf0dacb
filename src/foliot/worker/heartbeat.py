"""Keeps the node alive from a thread of its own, so that a busy event loop is not mistaken for a dead process.

It beats at a third of the lease, brings back stop requests every second while something runs, and watches two clocks:
when no beat was acknowledged in time it tells the engine to stop its handlers (best effort; the fence in the database
is the promise), and when the loop itself stands still it names the handler that holds it and, in the end, ends the
process.
"""

from __future__ import annotations

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

from foliot.errors import NoDatabase
from foliot.postgres.connect import Connection
from foliot.store.queries import Queries
from foliot.worker.run import Run

logger = logging.getLogger("foliot.worker")

_boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
EXIT_WEDGED = 70


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
        super().__init__(name="foliot-heartbeat", daemon=True)
        self._url, self._queries, self._epoch, self._lease, self._stuck_after = url, queries, epoch, lease, stuck_after
        self._running, self._driven = running, driven
        self._on_stop, self._on_lost, self._on_fence, self._loop_tick = on_stop, on_lost, on_fence, loop_tick
        self._connection: Connection | None = None
        self._over = threading.Event()
        self._deadline = now() + lease * 0.8
        self._fenced = False
        self._reported: Run | None = None

    def run(self) -> None:
        interval = self._lease / 3
        next_beat = now() + interval
        while not self._over.wait(min(1.0, interval / 2)):
            beat_due = now() >= next_beat
            if (beat_due or self._running()) and self._talk(beat=beat_due) and beat_due:
                next_beat = now() + interval
            self._watch_lease()
            self._watch_loop()
        if self._connection is not None:
            self._connection.close()

    def stop(self) -> None:
        self._over.set()

    def _talk(self, *, beat: bool) -> bool:
        sent = now()
        try:
            if self._connection is None:
                self._connection = Connection.connect(self._url, autocommit=True, application_name="foliot heartbeat")
            query, params = (
                ("heartbeat", (self._epoch, self._long_runs())) if beat else ("stop_requests", (self._epoch,))
            )
            row = self._connection.execute(self._queries[query].encode(), params).fetchone()
        except (psycopg.Error, OSError, NoDatabase) as error:
            self._no_beat(error)
            return False
        if beat:
            self._deadline, self._fenced = sent + self._lease * 0.8, False
        if row and row[0]:
            self._on_stop(row[0])
        return True

    def _no_beat(self, error: Exception) -> None:
        if getattr(error, "sqlstate", None) == "FO001":
            self._over.set()
            self._on_lost()
            return
        logger.warning("No heartbeat: %s", str(error).strip().splitlines()[0])
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _long_runs(self) -> str:
        """Handlers that have lasted for longer than a beat, with their progress."""
        runs = [run for run in self._running() if run.age > self._lease / 3 or run.last_progress is not None]
        return orjson.dumps([_report(run) for run in runs], default=str).decode()

    def _watch_lease(self) -> None:
        if now() > self._deadline and not self._fenced:
            self._fenced = True
            logger.error(
                "No heartbeat was acknowledged in time: handlers are told to stop before others take their jobs"
            )
            self._on_fence()

    def _watch_loop(self) -> None:
        """A handler that blocks the loop is named once, and ends the process after its time-out or stuck_after."""
        run, still = self._driven(), time.monotonic() - self._loop_tick()
        if run is None or still < 5.0:
            return
        if self._reported is not run:
            self._reported = run
            logger.error("Job %s (%s) has held the event loop for %.0f s; its stack follows", run.id, run.type, still)
            faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        limit = self._stuck_after if run.claimed.timeout is None else min(run.claimed.timeout + 10.0, self._stuck_after)
        if run.age > limit:
            logger.critical("Job %s (%s) has held the event loop for too long: this process ends", run.id, run.type)
            os._exit(EXIT_WEDGED)


def _report(run: Run) -> dict[str, Any]:
    return {"id": str(run.id), "fence": run.fence, "age": run.age, "progress": run.last_progress}
