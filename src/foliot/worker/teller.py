"""Tells observers what became of runs, after commit."""

from __future__ import annotations

import logging
from uuid import UUID

from foliot.telemetry.events import Events
from foliot.worker.run import Run
from foliot.worker.settler import Ending, Settled

logger = logging.getLogger("foliot.worker")


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
            elif each.ending.run is not None:
                self._tell(each.ending.run, each.ending, each.state)

    def refused(self, ids: list[bytes]) -> None:
        for job_id in ids:
            logger.warning("Job %s was no longer ours when it ended; what it did is not recorded", UUID(bytes=job_id))

    def _tell(self, run: Run, ending: Ending, state: str) -> None:
        tell, what = self._events.tell, {"job": run, "outcome": ending.outcome}
        if state == "succeeded":
            tell("job_completed", **what)
        elif state == "canceled":
            tell("job_canceled", **what)
        elif ending.outcome in ("failed", "timed_out"):
            tell("job_failed", **what, error=ending.error, final=state == "dead")
            tell("job_died" if state == "dead" else "job_retry", **what, error=ending.error)
        elif ending.outcome in ("snoozed", "released"):
            tell(f"job_{ending.outcome}", **what)
