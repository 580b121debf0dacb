"""Finds nodes that have died, and reclaims their jobs for the other nodes.

A node is declared lost only if the database's clock says so *and* this process has seen the same heartbeat for a whole
lease, on its own clock, while connected. So no node is declared lost because a clock was set, a new primary took over
or the database did not answer. A heartbeat of the future says only that the database's clock was set back, so then our
own clock decides. The survey (`survey.py`) reads the heartbeats."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from uuid import UUID

from watchbill.model.durations import show_duration
from watchbill.postgres.arrays import int8s
from watchbill.store.node_connection import NodeConnection
from watchbill.telemetry.events import Events, emit_canceled

logger = logging.getLogger("watchbill.maintenance")


_ENDINGS = {"failed": "queued again"}  # other states are said as they are
MOST_LOST_AT_ONCE = 100  # nodes in one statement, which has seconds; thousands may die with their machine room
PAUSE_SECONDS = 3600.0  # long, because the periodic survey (`survey.py`) wakes the reclaimer when a node may be lost


class Reclaimer:
    def __init__(self, connection: NodeConnection, events: Events) -> None:
        self._connection, self._events = connection, events
        self._seen: dict[int, tuple[int, float]] = {}  # epoch -> last heartbeat, and when we first saw that heartbeat
        self._connections = 0
        self._stale: dict[int, int] = {}  # epochs of dead nodes, and their last heartbeats
        self.wakeup = asyncio.Event()

    def note_beats(
        self, beats: Iterable[tuple[int, int, float, float]], *, asked: float, has_leftover_claim: bool
    ) -> None:
        """Decides which nodes are dead, from the heartbeats of all nodes, as (epoch, heartbeat, lease, age), that were
        read at the time `asked`. Wakes the reclaimer if a node has died, or if a dead node has a claim left, because a
        handler's transaction kept some rows locked when the node's other jobs were reclaimed."""
        if self._connections != self._connection.connections:
            self._seen.clear()  # a heartbeat seen before the connection was lost proves nothing
            self._connections = self._connection.connections
        now, seen = time.monotonic(), self._seen
        self._seen, self._stale = {}, {}
        for epoch, beat, lease, age in beats:
            seen_beat, since = seen.get(epoch, (None, now))
            self._seen[epoch] = (beat, since if seen_beat == beat else now)
            if seen_beat == beat and asked - since >= lease and (age >= lease or age < 0):
                self._stale[epoch] = beat
        if self._stale or has_leftover_claim:
            self.wakeup.set()

    async def run(self) -> float:
        """Reclaims the jobs of nodes that have died. Returns the seconds until the next run."""
        self.wakeup.clear()
        # Other nodes have seen the same. Only one of them declares a node lost; it may also send a heartbeat yet.
        stale = list(self._stale.items())
        for first in range(0, len(stale), MOST_LOST_AT_ONCE):
            epochs, beats = zip(*stale[first : first + MOST_LOST_AT_ONCE], strict=True)
            for name, host, pid, lease in await self._connection.execute("declare_lost", (int8s(epochs), int8s(beats))):
                message = "Node %s%s is lost: no heartbeat for %s; its jobs are reclaimed"
                logger.warning(message, name, _describe_place(host, pid), show_duration(lease))
        rows = await self._connection.execute("reclaim", (int8s([]), int8s([])))
        for job_id, node, state in rows:
            job, level = UUID(bytes=job_id), logging.ERROR if state == "dead" else logging.WARNING
            message = "Job %s was lost with node %s and is %s"
            logger.log(level, message, job, node, _ENDINGS.get(state, state), extra={"job_id": str(job)})
            if state == "canceled":
                emit_canceled(self._events, job)
            else:
                self._events.emit("job_reclaimed", id=job, state=state)
        return PAUSE_SECONDS


def _describe_place(host: str | None, pid: int | None) -> str:
    """Where a node ran, as far as it has told: a worker in another language may not."""
    process = None if pid is None else f"process {pid}"
    place = " on ".join(each for each in (process, host) if each)
    return f" ({place})" if place else ""
