"""`watchbill up` and `watchbill worker --lines`: a line per attempt as it ends, and every few seconds a summary.

A thread of its own prints, so that neither a slow terminal nor a look into the database delays a job.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import textwrap
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from watchbill.cli.output import elapsed
from watchbill.cli.screen import STATE_COLOURS, is_terminal, paint, say
from watchbill.client import job_operations
from watchbill.errors import WatchbillError
from watchbill.telemetry.printable import printable

if TYPE_CHECKING:
    from watchbill import App
    from watchbill.worker.run import Run

SUMMARY_SECONDS = 5.0
CLOSE_SECONDS = 2.0  # for the last lines when the worker ends
_MAX_TYPE_WIDTH = 40
_INDENT = " " * 9  # below the outcome, beside the time


@dataclass
class _Line:
    outcome: str
    id: UUID
    type: str | None = None  # None: not known yet
    seconds: float | None = None
    attempt: str = ""
    error: dict[str, Any] | None = None
    at: str = field(default_factory=lambda: time.strftime("%H:%M:%S"))


class JobLines:
    """Observes an App and prints. `close()` prints what is left."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lines: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._type_width = min(_MAX_TYPE_WIDTH, max(map(len, app.tasks), default=0))
        self._ended = self._failed = self._dead = 0  # since the last summary
        self._thread = threading.Thread(target=self._run, name="watchbill lines", daemon=True)

    def start(self) -> None:
        for event in ("job_completed", "job_snoozed", "job_released"):
            self._app.on(event)(self._note_attempt)
        self._app.on("job_failed")(self._note_failure)
        self._app.on("job_canceled")(self._note_canceled)
        for handler in logging.getLogger().handlers:  # the lines replace the log of each job
            handler.addFilter(lambda record: record.name != "watchbill.jobs")
        self._thread.start()

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(CLOSE_SECONDS)

    # -- observers, called by the worker

    def _note_attempt(self, job: Run, outcome: str, error: dict[str, Any] | None = None, **_: Any) -> None:
        attempt = "" if error is None else f"attempt {job.attempt} of {job.max_attempts}: "
        self._lines.put(_Line(outcome, job.id, job.type, job.seconds, attempt, error))

    def _note_failure(self, job: Run, outcome: str, error: dict[str, Any] | None, final: bool) -> None:
        self._note_attempt(job, "dead" if final else outcome, error or {})

    def _note_canceled(self, id: UUID, job: Run | None) -> None:
        if job is not None:
            self._note_attempt(job, "canceled")
        else:
            self._lines.put(_Line("canceled", id))

    # -- the thread

    def _run(self) -> None:
        summary_at = time.monotonic() + SUMMARY_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, summary_at - time.monotonic()))
            except queue.Empty:
                self._print_summary()
                summary_at = time.monotonic() + SUMMARY_SECONDS
                continue
            if line is None:
                return
            self._count(line)
            self._print(line)

    def _count(self, line: _Line) -> None:
        self._ended += line.outcome in ("succeeded", "skipped", "failed", "timed_out", "dead")
        self._failed += line.outcome in ("failed", "timed_out")
        self._dead += line.outcome == "dead"

    def _print(self, line: _Line) -> None:
        took = "" if line.seconds is None else elapsed(line.seconds)
        word = paint(line.outcome.ljust(9), STATE_COLOURS.get(line.outcome))
        task = printable(line.type or self._find_type(line.id)).ljust(self._type_width)
        first = f" {took.rjust(7)}  {task}  {line.id}"
        detail = _describe(line)
        width = shutil.get_terminal_size().columns if is_terminal() else None
        fits = width is None or len(line.at) + 10 + len(first) + 2 + len(detail) <= width
        say(f"{line.at} ", word, first, f"  {detail}" if detail and fits else "")
        if detail and not fits:
            assert width is not None
            for part in textwrap.wrap(detail, width - len(_INDENT)):
                say(_INDENT, part)
        if line.outcome == "dead" and line.error and line.error.get("kind") != "permanent":
            for part in line.error.get("traceback", "").splitlines():
                say(_INDENT, paint(part, dim=True))

    def _find_type(self, id: UUID) -> str:
        """Of a job that was canceled before it started here."""
        with contextlib.suppress(WatchbillError):
            return self._app.client.run(job_operations.get(id)).type
        return ""

    def _print_summary(self) -> None:
        """Nothing while nothing happens."""
        if not self._ended:
            return
        with contextlib.suppress(WatchbillError):  # the worker itself reports that the database does not answer
            counts = self._app.client.run(job_operations.stats())
            backlog: Counter[str] = Counter()
            for count in counts:
                backlog[count.column] += count.count
            waiting = ", ".join(f"{backlog[column]:,} {column}" for column in ("ready", "scheduled", "retrying"))
            recent = f"{self._failed:,} failed, {self._dead:,} dead"
            summary = f"── {self._ended / SUMMARY_SECONDS:.1f} jobs/s: {recent}; {waiting}"
            say(f"{time.strftime('%H:%M:%S')} ", paint(summary, bold=True))
        self._ended = self._failed = self._dead = 0


def _describe(line: _Line) -> str:
    """The attempt and its error, on one line."""
    if line.error is None:
        return ""
    message = str(line.error.get("message", "")).partition("\n")[0]
    return printable(f"{line.attempt}{line.error.get('type', 'error')}: {message}")
