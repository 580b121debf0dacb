"""Prints what `watchbill up` and `watchbill worker --lines` show: a line for each attempt when it ends, and every few
seconds a summary.

A separate thread prints, so that neither a slow terminal nor a query of the summary delays a job.
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

from watchbill.cli.output import format_elapsed
from watchbill.cli.screen import STATE_COLOURS, is_terminal, paint, say
from watchbill.client import job_operations
from watchbill.errors import WatchbillError
from watchbill.telemetry.printable import printable

if TYPE_CHECKING:
    from watchbill import App
    from watchbill.worker.run import Run

SUMMARY_SECONDS = 5.0
CLOSE_SECONDS = 2.0  # how long the worker waits at its end until the last lines are printed
_MAX_TYPE_WIDTH = 40
_INDENT = " " * 9  # as wide as the time, so that further lines stand below the outcome


@dataclass
class _Line:
    outcome: str
    id: UUID
    type: str | None = None  # None if the type is not known yet, and has to be read from the database
    seconds: float | None = None
    attempt: str = ""
    error: dict[str, Any] | None = None
    at: str = field(default_factory=lambda: time.strftime("%H:%M:%S"))


class JobLines:
    """Observes the jobs of an App, and prints a line for each attempt. `close()` prints the lines that are left."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lines: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._type_width = min(_MAX_TYPE_WIDTH, max(map(len, app.tasks), default=0))
        self._ended = self._failed = self._dead = 0  # how many attempts and jobs, since the last summary
        self._thread = threading.Thread(target=self._print_until_closed, name="watchbill lines", daemon=True)

    def start(self) -> None:
        for event in ("job_completed", "job_snoozed", "job_released"):
            self._app.on(event)(self._note_attempt)
        self._app.on("job_failed")(self._note_failure)
        self._app.on("job_canceled")(self._note_canceled)
        for (
            handler
        ) in logging.getLogger().handlers:  # hides the log lines of failed jobs, which would repeat these lines
            handler.addFilter(lambda record: record.name != "watchbill.jobs")
        self._thread.start()

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(CLOSE_SECONDS)

    # -- observers, which the worker calls when an attempt ends

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

    # -- the thread that prints

    def _print_until_closed(self) -> None:
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
            self._count_line(line)
            self._print_line(line)

    def _count_line(self, line: _Line) -> None:
        self._ended += line.outcome in ("succeeded", "skipped", "failed", "timed_out", "dead")
        self._failed += line.outcome in ("failed", "timed_out")
        self._dead += line.outcome == "dead"

    def _print_line(self, line: _Line) -> None:
        took = "" if line.seconds is None else format_elapsed(line.seconds)
        word = paint(line.outcome.ljust(9), STATE_COLOURS.get(line.outcome))
        task = printable(line.type or self._find_type(line.id)).ljust(self._type_width)
        first = f" {took.rjust(7)}  {task}  {line.id}"
        detail = _describe_attempt(line)
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
        """Reads the type of a job from the database: the event of a job that was canceled before it ran has only its
        id."""
        with contextlib.suppress(WatchbillError):
            return self._app.client.run(job_operations.get(id)).type
        return ""

    def _print_summary(self) -> None:
        """Prints how many attempts have ended since the last summary. Prints nothing if there were none."""
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


def _describe_attempt(line: _Line) -> str:
    """Returns the number of the attempt and its error, on one line."""
    if line.error is None:
        return ""
    message = str(line.error.get("message", "")).partition("\n")[0]
    return printable(f"{line.attempt}{line.error.get('type', 'error')}: {message}")
