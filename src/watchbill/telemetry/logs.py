"""Logging for processes that Watchbill owns. As a library it only logs to `watchbill.*` and configures nothing."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from watchbill.telemetry.context import job_of_context

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FOR_CHILDREN = "_WATCHBILL_LOGS"


class WithJob(logging.Filter):
    """Puts the running job's id and attempt on every record; what we say about a job ourselves has them already."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "job_id", None) is None:
            record.job_id, record.attempt = job_of_context()
        return True


class Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's own name)
        """The job stands at the end of the line, before a traceback."""
        job_id = getattr(record, "job_id", None)
        of_job = f" [job {job_id} attempt {getattr(record, 'attempt', None)}]" if job_id else ""
        return super().formatMessage(record) + of_job


class Json(logging.Formatter):
    """One object per line: time, level, logger, message, job_id, attempt, and whatever `extra` had."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(level: str, form: str) -> None:
    """The same for the children that run handlers. What a framework has configured by its own settings stands."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(WithJob())
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    os.environ[_FOR_CHILDREN] = f"{level} {form}"


def configure_as_parent_did() -> None:
    """In a child, before the application is imported: what it configures itself stands."""
    if told := os.environ.get(_FOR_CHILDREN):
        configure(*told.split())
