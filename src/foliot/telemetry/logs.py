"""Logging for processes that Foliot owns. As a library it only logs to `foliot.*` and configures nothing."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson

from foliot.telemetry.context import job_of_context

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class WithJob(logging.Filter):
    """Puts the running job's id and attempt on every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.job_id, record.attempt = job_of_context()
        return True


class Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s%(of_job)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        job_id = getattr(record, "job_id", None)
        record.of_job = f" [job {job_id} attempt {getattr(record, 'attempt', None)}]" if job_id else ""
        return super().format(record)


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str).decode()


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(WithJob())
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
