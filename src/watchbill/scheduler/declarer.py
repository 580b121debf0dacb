"""Sends the schedules, limits, queues and endpoints that a node's code declares to the database: when the node starts,
when the code declares more, and again when all nodes with a newer declaration are gone, so that after a rollback of a
deployment the older declaration is in force again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, NamedTuple

from watchbill.store.node_connection import Busy, NodeConnection, NodeLost

logger = logging.getLogger("watchbill.scheduler")

_MESSAGES = {
    "created": "%s %s was created",
    "updated": "%s %s was updated from the code",
    "superseded": "%s %s is declared differently by a newer node; keeping the newer declaration",
    "foreign": "%s %s belongs to another owner and stays as it is; give the declaration another name",
    "refused": "%s %s has jobs, so its fair_by cannot be changed and stays as it is. Let the queue run empty first",
}
CHECK_SECONDS = 600.0  # long, because the periodic survey of the node wakes the declarer earlier if needed
UNDECIDED_CHECK_SECONDS = 1.0  # pause while the database has not decided whether this node starts the cluster


class Declared(NamedTuple):
    """What a program's code declares, as JSON arrays of definitions. The definition of a schedule includes a hash."""

    schedules: bytes = b"[]"
    limits: bytes = b"[]"
    queues: bytes = b"[]"
    endpoints: bytes = b"[]"


class Declarer:
    """Writes the schedules, limits and queues of this node's code to the database. The event `wakeup` is set when a
    declaration may have to be written again."""

    def __init__(self, connection: NodeConnection, declared: Declared, wakeup: asyncio.Event) -> None:
        self._connection, self._declared, self._wakeup = connection, declared, wakeup
        self._epoch: int | None = None
        self._may_start_cluster = True  # False once the database has decided whether this node starts the cluster
        self._is_changed = False  # whether `_declared` was replaced since it was last written

    def replace(self, declared: Declared) -> None:
        """Replaces the declarations of this node. The next check writes the new ones to the database."""
        self._declared, self._is_changed = declared, True

    async def run(self) -> float:
        """Starts the cluster if this node is the first. Writes the declarations again if they have changed, or if a
        newer node had replaced them and is gone. Returns the seconds until the next check."""
        self._wakeup.clear()
        if self._epoch is None:
            return UNDECIDED_CHECK_SECONDS
        if self._may_start_cluster:
            ((decided,),) = await self._connection.execute("start_cluster", (self._epoch,))
            self._may_start_cluster = decided is None
        ((is_stale,),) = await self._connection.execute("has_stale_declaration", (self._epoch,))
        if is_stale or self._is_changed:
            with contextlib.suppress(NodeLost):  # a lost node registers again, and then writes its declarations anyway
                await self.declare(self._epoch)
        return UNDECIDED_CHECK_SECONDS if self._may_start_cluster else CHECK_SECONDS

    async def declare_or_retry_later(self, epoch: int) -> None:
        """Writes the declarations after a registration. If another session holds a lock that this needs, logs that and
        leaves it to the next check, so that the node can work meanwhile."""
        try:
            await self.declare(epoch)
        except Busy as error:
            self._epoch, self._is_changed = epoch, True
            message = "Could not write the schedules, limits and queues of this node's code; jobs run, will retry: %s"
            logger.warning(message, error)

    async def declare(self, epoch: int) -> None:
        """Writes the declarations of this node to the database: limits first, since jobs of schedules may use them."""
        declared = self._declared
        if declared.limits != b"[]":
            _log_outcomes("Limit", await self._connection.execute("declare_limits", (epoch, declared.limits.decode())))
        if declared.queues != b"[]":
            _log_outcomes("Queue", await self._connection.execute("declare_queues", (epoch, declared.queues.decode())))
        if declared.endpoints != b"[]":
            rows = await self._connection.execute("declare_endpoints", (epoch, declared.endpoints.decode()))
            _log_outcomes("Endpoint", rows)
        _log_outcomes(
            "Schedule", await self._connection.execute("declare_schedules", (epoch, declared.schedules.decode()))
        )
        self._epoch, self._is_changed = epoch, self._declared is not declared


def _log_outcomes(what: str, rows: list[tuple[Any, ...]]) -> None:
    for name, outcome in rows:
        if outcome in _MESSAGES:
            level = logging.WARNING if outcome in ("foreign", "refused") else logging.INFO
            logger.log(level, _MESSAGES[outcome], what, name)
