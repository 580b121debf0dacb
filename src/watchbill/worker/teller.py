"""Tells observers what became of runs, after commit, and the log of those that failed.

A failed attempt that will be followed by another is a warning; a job that is dead is an error, with the traceback: who
counts errors, as Sentry does, counts dead jobs.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from watchbill.telemetry.context import about
from watchbill.telemetry.events import Events, tell_canceled, tell_decided
from watchbill.worker.endings import Ending, Settled
from watchbill.worker.failures import theirs
from watchbill.worker.handlers import BadPayload, RemoteError
from watchbill.worker.run import Run

logger = logging.getLogger("watchbill.worker")
jobs_logger = logging.getLogger("watchbill.jobs")


class Teller:
    """Listens to the settler."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def settled(self, succeeded: list[Run], endings: list[Settled]) -> None:
        for run in succeeded:
            self._events.tell("job_completed", job=run, outcome="succeeded")
        for each in endings:
            if each.state is None:
                self.refused([each.ending.claimed.id])
            elif each.state == "canceled":
                tell_canceled(self._events, UUID(bytes=each.ending.claimed.id), each.ending.run)
            elif each.ending.run is not None:
                self._tell(each.ending.run, each.ending, each.state)

    def decided(self, decided: list[tuple[Any, ...]]) -> None:
        """Of jobs that waited for what has ended here."""
        tell_decided(self._events, decided)

    def refused(self, ids: list[bytes]) -> None:
        for job_id in ids:
            told = "Job %s was no longer ours when it ended; what it did is not recorded"
            logger.warning(told, UUID(bytes=job_id), extra={"job_id": str(UUID(bytes=job_id))})

    def _tell(self, run: Run, ending: Ending, state: str) -> None:
        tell, what = self._events.tell, {"job": run, "outcome": ending.outcome}
        if state == "succeeded":
            tell("job_completed", **what)
        elif ending.outcome in ("failed", "timed_out"):
            _log(run, ending.error or {}, dead=state == "dead")
            tell("job_failed", **what, error=ending.error, final=state == "dead")
            tell("job_died" if state == "dead" else "job_retry", **what, error=ending.error)
        elif ending.outcome in ("snoozed", "released"):
            tell(f"job_{ending.outcome}", **what)


def _log(run: Run, error: dict[str, Any], *, dead: bool) -> None:
    why = f"{error.get('type', 'error')}: {error.get('message', 'unknown')}"
    told = about(run) | {"type": run.type, "queue": run.queue}
    if not dead:
        count = (run.type, run.attempt, run.max_attempts)
        jobs_logger.warning("%s has failed, attempt %d of %d: %s", *count, why.splitlines()[0], extra=told)
    elif isinstance(run.raised, RemoteError):  # raised in a child process: its traceback is text
        jobs_logger.error("%s is dead: %s\n%s", run.type, why, error.get("traceback", ""), extra=told)
    elif run.raised is None or isinstance(run.raised, BadPayload):  # says all itself
        jobs_logger.error("%s is dead: %s", run.type, why, extra=told)
    else:
        where = (type(run.raised), run.raised, theirs(run.raised))
        jobs_logger.error("%s is dead: %s", run.type, why, exc_info=where, extra=told)
