"""Configures logging in processes that Watchbill itself starts. In other programs Watchbill logs to `watchbill.*` and
configures nothing."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from watchbill.telemetry.context import current, log_fields
from watchbill.telemetry.printable import printable_lines

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FOR_CHILDREN = "_WATCHBILL_LOGS"


class WithJob(logging.Filter):
    """Adds the running job's id and attempt to every record that does not have them yet."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "job_id", None) is None:
            job = current.get()
            vars(record).update({"job_id": None, "attempt": None} if job is None else log_fields(job))
        return True


class PrintedOnce(logging.Filter):
    """Drops records that a logger of the program prints too, as Django's loggers do, so that no line appears twice."""

    def filter(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger is not logging.root:
            if any(_is_printed_by(handler, record) for handler in logger.handlers):
                return False
            logger = logger.parent
        return True


def _is_printed_by(handler: logging.Handler, record: logging.LogRecord) -> bool:
    is_console = isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout)
    return is_console and record.levelno >= handler.level and bool(handler.filter(record))


class Text(logging.Formatter):
    """Formats a record as one line of text. Further lines, such as a traceback, are indented, and control characters
    become visible escapes. So no text of a job, such as the message of an error, can look like another record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's own name)
        """Adds the id and attempt of the job at the end of the line, before a traceback. A line about a job that does
        not run here has no attempt, and may name the job itself."""
        line = super().formatMessage(record)
        job_id, attempt = getattr(record, "job_id", None), getattr(record, "attempt", None)
        if not job_id or (attempt is None and str(job_id) in line):
            return line
        return f"{line} [job {job_id}]" if attempt is None else f"{line} [job {job_id} attempt {attempt}]"

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record)).replace("\n", "\n  ")


class Json(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, job_id, attempt, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(level: str, form: str) -> None:
    """Configures logging for this process and its child processes, unless a framework has configured it before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(PrintedOnce())
    handler.addFilter(WithJob())
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    os.environ[_FOR_CHILDREN] = f"{level} {form}"


def configure_like_parent() -> None:
    """Configures logging in a child process as its parent did. Must precede the import of the application, which may
    configure logging itself."""
    if configured := os.environ.get(_FOR_CHILDREN):
        configure(*configured.split())
