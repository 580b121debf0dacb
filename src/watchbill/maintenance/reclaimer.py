"""Finds nodes that have died, and gives their jobs to the living.

A node is taken for lost only when the database's clock says so *and* this process has itself seen the same beat for a
whole lease, on its own clock, while connected: a stepped clock, a fresh primary or an outage kills nobody.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from uuid import UUID

from watchbill.postgres.arrays import int8s
from watchbill.store.line import Line
from watchbill.telemetry.events import Events, tell_canceled

logger = logging.getLogger("watchbill.maintenance")


@dataclass(slots=True)
class _Sighting:
    beat: int
    since: float


class Reclaimer:
    def __init__(self, line: Line, events: Events, lease: float) -> None:
        self._line, self._events, self._lease = line, events, lease
        self._seen: dict[int, _Sighting] = {}
        self._connection = 0

    async def run(self) -> float:
        """Looks once; seconds until it should look again."""
        asked, stale, shortest = time.monotonic(), {}, self._lease  # our own: a node may appear while we sleep
        beats = await self._line.execute("beats")
        self._forget_if_reconnected()
        seen = time.monotonic()
        for epoch, beat, lease, age in beats:
            sighting = self._seen.get(epoch)
            if sighting is None or sighting.beat != beat:
                self._seen[epoch] = _Sighting(beat, seen)
            elif asked - sighting.since >= lease and age >= lease:
                stale[epoch] = beat
            shortest = min(shortest, lease)
        self._seen = {epoch: seen for epoch, seen in self._seen.items() if epoch in {row[0] for row in beats}}
        await self._reclaim(stale)
        return max(0.2, shortest / 3)

    def _forget_if_reconnected(self) -> None:
        """After a disconnection nothing that was seen before counts, whichever chore has noticed it."""
        if self._connection != self._line.connections:
            self._seen.clear()
            self._connection = self._line.connections

    async def _reclaim(self, stale: dict[int, int]) -> None:
        """Also without anyone stale: jobs that a handler's own transaction kept locked come back later."""
        rows = await self._line.execute("reclaim", (int8s(list(stale)), int8s(list(stale.values()))))
        for epoch in stale:
            logger.warning("Node with epoch %d is lost", epoch)
        for job_id, epoch, state in rows:
            job, level = UUID(bytes=job_id), logging.ERROR if state == "dead" else logging.WARNING
            logger.log(
                level, "Job %s was lost with node %d and is now %s", job, epoch, state, extra={"job_id": str(job)}
            )
            if state == "canceled":
                tell_canceled(self._events, job)
            else:
                self._events.tell("job_reclaimed", id=job, state=state)
