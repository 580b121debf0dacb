"""Keeps the last lines that the code of a job logs.

A record factory sees each record that a logger makes, wherever it goes then. A handler of the root logger would not see
those of loggers that do not propagate, and would keep `logging.basicConfig()` of the program from doing anything."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from watchbill.telemetry.context import JobLike, current, may_log_secrets
from watchbill.telemetry.printable import printable

MAX_LINES = 200
MAX_BYTES = 64_000
MAX_LINE_CHARACTERS = 4_000
_TRACEBACKS = logging.Formatter()


class LogTail:
    """The last lines of a run. Safe to use from several threads."""

    __slots__ = ("_bytes", "_lines", "_lock", "added")

    def __init__(self) -> None:
        self._lines: deque[tuple[str, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.added = 0  # how many lines there were in all

    def add(self, lines: Sequence[str]) -> None:
        with self._lock:
            for line in lines:
                size = len(line.encode()) + 1
                self._lines.append((line, size))
                self._bytes += size
            self.added += len(lines)
            while len(self._lines) > MAX_LINES or self._bytes > MAX_BYTES:
                self._bytes -= self._lines.popleft()[1]

    def take(self) -> list[str]:
        """Returns the lines, and forgets them."""
        with self._lock:
            taken = [line for line, _ in self._lines]
            self._lines.clear()
            self._bytes = 0
            return taken

    def read(self) -> list[str]:
        with self._lock:
            return [line for line, _ in self._lines]


def format_record(record: logging.LogRecord) -> list[str]:
    """Returns the lines of a record, with visible escapes for control characters. Further lines are indented."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(" ", "milliseconds")[:-6]
    text = f"{at}Z {record.levelname:<7} {record.name}: {record.getMessage()}"
    # Not `Formatter.format`: it writes to the record, which the formatters of the program have yet to see.
    if record.exc_info:
        text += f"\n{_TRACEBACKS.formatException(record.exc_info)}"
    if record.stack_info:
        text += f"\n{record.stack_info}"
    first, *rest = text.split("\n")
    return [_shorten(printable(first)), *(_shorten(printable(f"  {line}")) for line in rest)]


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]} ..."


def keep_lines_of_jobs() -> None:
    """Has the runs of this process keep what they log, from now on. To call it again does nothing, unless the program
    has put back the factory of Python."""
    inner = logging.getLogRecordFactory()
    if inner is logging.LogRecord or not _installed:
        _installed.append(True)
        logging.setLogRecordFactory(_make_factory(inner))


_installed: list[bool] = []
_is_formatting = threading.local()


def _make_factory(inner: Any) -> Any:
    def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = inner(*args, **kwargs)
        run = current.get()
        if run is not None and not may_log_secrets.get():  # here no filter of the logger has seen the record yet
            _keep(run, record)
        return record

    return make_record


def _keep(run: JobLike, record: logging.LogRecord) -> None:
    """Never fails: a handler must not end because an argument of its log line cannot be formatted, which `logging`
    itself reports. An argument whose text logs a line itself would call this for ever."""
    if getattr(_is_formatting, "now", False):
        return
    _is_formatting.now = True
    try:
        with contextlib.suppress(Exception):
            run.add_lines(format_record(record))
    finally:
        _is_formatting.now = False
