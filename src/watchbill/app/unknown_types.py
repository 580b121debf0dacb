"""Warns about names that nothing seems to know, because they are probably misspelt: once about each type that an App
enqueues, and about queues and types that it pauses."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from watchbill.app.registry import calling_frame
from watchbill.errors import WatchbillError
from watchbill.model.job import NewJob

if TYPE_CHECKING:
    from watchbill.app.producer import JobProducer

logger = logging.getLogger("watchbill")

MAX_CHECKED_TYPES = 1000  # a type may be anything that a caller makes up


class UnknownTypes:
    """Asks the database once per type, after its first job is stored; later jobs of the type cost nothing."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        self._tasks = tasks
        self._checked: set[str] = set()

    def must_check(self, type: str, *, in_transaction: bool) -> bool:
        """Whether this type was not checked yet. An App without tasks only produces: it knows no type. A job of the
        caller's own transaction is not checked, because the App itself may have no connection."""
        if in_transaction or type in self._checked or not self._tasks or len(self._checked) >= MAX_CHECKED_TYPES:
            return False
        self._checked.add(type)
        return True

    def check(self, job: NewJob, producer: JobProducer) -> None:
        from psycopg import Error

        from watchbill.client import job_operations

        with suppress(WatchbillError, Error):  # the job is stored, and the check is only a service
            self._warn(job, producer.run_apart(job_operations.handled_types()))

    async def acheck(self, job: NewJob, producer: JobProducer) -> None:
        from psycopg import Error

        from watchbill.client import job_operations

        with suppress(WatchbillError, Error):
            self._warn(job, await producer.arun_apart(job_operations.handled_types()))

    def _warn(self, job: NewJob, handled: list[str]) -> None:
        if job.type in handled:
            return
        near = get_close_matches(job.type, {*self._tasks, *handled}, n=1)
        _tell(
            f"Enqueued a job of type {job.type} ({job.id}): this App has no such task, and no live node handles it. "
            f"The job waits for a node that does.{f' Did you mean {near[0]}?' if near else ''}"
        )


def warn_of_unused_pause(kind: str, name: str, used: Collection[str]) -> None:
    """Warns that a queue or type was paused that is not among those in use."""
    if name not in used:
        near = get_close_matches(name, used, n=1)
        _tell(
            f"Paused {kind} {name}, which no node, job, schedule or task uses."
            f"{f' Did you mean {near[0]}?' if near else ''}"
        )


def _tell(message: str) -> None:
    """Logs the message. If the program has not configured logging, writes it to stderr, with the line that calls. A
    Python warning could become an exception, but the change is stored."""
    if _is_logged():
        logger.warning("%s", message)
    elif logging.lastResort is not None:
        frame = calling_frame()
        place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}: "
        logging.lastResort.handle(logging.makeLogRecord({"msg": place + message, "levelno": logging.WARNING}))


def _is_logged() -> bool:
    place: logging.Logger | None = logger
    while place is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in place.handlers):
            return True
        place = place.parent if place.propagate else None
    return False
