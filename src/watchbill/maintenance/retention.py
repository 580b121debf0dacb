"""Removes what is older than the settings keep: finished jobs, attempts, audit rows, nodes and expired keys.

The history is partitioned by day, and a day is dropped as a whole. Everything else is deleted in batches. Any node may
do this at any time: the database lets one at a time drop partitions, and deleting twice does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from watchbill.maintenance.archive import Archiver
from watchbill.store.node_connection import NodeConnection

if TYPE_CHECKING:
    from watchbill.settings import Settings

logger = logging.getLogger("watchbill.maintenance")

DAY_SECONDS = 86_400.0
INTERVAL_SECONDS = 3600.0
RETRY_LOCKED_SECONDS = 60.0  # the pause after a day could not be dropped, because a transaction still reads it
BATCH = 5000  # how many rows one statement deletes at most; the SQL functions have the same number


@dataclass(frozen=True)
class Keep:
    """How many seconds finished jobs, audit rows and slots are kept."""

    succeeded: float = 30 * DAY_SECONDS
    otherwise: float = 90 * DAY_SECONDS
    audit: float = 400 * DAY_SECONDS
    slots: float = 90 * DAY_SECONDS

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        return cls(settings.keep_succeeded, settings.keep_otherwise, settings.keep_audit, settings.slot_retention)

    @property
    def attempts(self) -> float:
        return max(self.succeeded, self.otherwise)

    @property
    def nodes(self) -> float:
        """How long rows of nodes are kept: longer than the slots, jobs and attempts that name a node. Slots are removed
        by whole months, jobs and attempts by whole days."""
        return max(self.slots + 31 * DAY_SECONDS, self.attempts + 2 * DAY_SECONDS)


class Retention:
    def __init__(
        self,
        connection: NodeConnection,
        keep: Keep,
        report: Callable[..., None] = logger.info,
        archiver: Archiver | None = None,
    ) -> None:
        """Says with `report` what was removed; `report` takes a message and its parameters, as a logger does. With an
        `archiver`, days are archived before they are dropped."""
        self._connection, self._keep, self._report, self._archiver = connection, keep, report, archiver

    async def run(self) -> float:
        """Removes rows and partitions that are too old. Returns the seconds until the next run."""
        keep = self._keep
        parents = {
            "finished_succeeded": keep.succeeded,
            "finished_otherwise": keep.otherwise,
            "attempts": keep.attempts,
            "job_logs": keep.attempts,
        }
        is_complete = True
        if await self._may_remove_days():
            is_complete = all([await self._prune_history(parent, seconds) for parent, seconds in parents.items()])
        await self._prune_rows("prune_audit", "audit rows", keep.audit)
        await self._prune_rows("prune_items", "items and rebalances of token groups", keep.audit)
        await self._prune_rows("prune_operations", "bulk operations")
        await self._prune_rows("prune_web", "chart marks and API keys")
        await self._prune_rows("prune_nodes", "nodes", keep.nodes)
        await self._prune_rows("prune_keys", "idempotency and unique keys that were over")
        ((months,),) = await self._connection.execute("prune_slots", (keep.slots,))
        if months:
            self._report("Retention has removed %d months of schedule history", months)
        if self._archiver is not None:  # last, because it may take long
            is_complete = await self._archiver.run() and is_complete
        return INTERVAL_SECONDS if is_complete else RETRY_LOCKED_SECONDS

    async def _may_remove_days(self) -> bool:
        """A node without a place for archives drops no day while other nodes archive: it would be lost."""
        if self._archiver is not None:
            return True
        ((is_archiving,),) = await self._connection.execute("is_archiving")
        if is_archiving:
            self._report("Retention drops no day here: other nodes archive days, and this one has no archive_to")
        return not is_archiving

    async def _prune_history(self, parent: str, seconds: float) -> bool:
        """Drops the daily partitions of `parent` that are too old, or detaches them for the archiver. Returns whether
        all of them could be dropped."""
        must_detach = self._archiver is not None
        while True:
            ((done, more, locked),) = await self._connection.execute("prune_history", (parent, seconds, must_detach))
            if done and not (must_detach and " " not in done):  # of a whole day, the archiver says so
                self._report("Retention has removed %s", done)
            if locked:
                message = "Retention stopped at %s, because a transaction reads it or removes history; retrying in %g s"
                self._report(message, locked, RETRY_LOCKED_SECONDS)
            if not more:
                return not locked

    async def _prune_rows(self, query: str, what: str, *params: float) -> None:
        total, deleted = 0, BATCH
        while deleted == BATCH:
            ((deleted,),) = await self._connection.execute(query, params)
            total += deleted
        if total:
            self._report("Retention has removed %d %s", total, what)
