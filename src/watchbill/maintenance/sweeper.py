"""Deletes payloads from the payload store that no job refers to, after a rollback, a crash or a purge.

Any node may sweep at any time, because deleting twice does no harm. To list a whole store is expensive, so each run
takes one day of it at random. Young payloads are left alone: the transaction that enqueues their job may still be open.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

from watchbill.payloads import PayloadStore, StoreFailed, read_job_id
from watchbill.store.node_connection import NodeConnection, Refused

logger = logging.getLogger("watchbill.maintenance")

INTERVAL_SECONDS = 3600.0
# Days younger than this are not swept. A key names only its day, so each deleted payload is at least one day old.
GRACE = timedelta(days=2)
BATCH = 1000  # how many payloads are checked with one statement


class Sweeper:
    def __init__(self, connection: NodeConnection, store: PayloadStore) -> None:
        self._connection, self._store = connection, store

    async def run(self) -> float:
        """Sweeps one day of the store. Returns the seconds until the next run: a random time, so that nodes do not
        sweep all at once."""
        try:
            if days := await self._call_in_thread(self._list_old_days):
                await self.sweep(random.choice(days))  # noqa: S311
        except (Refused, StoreFailed) as error:
            logger.warning("Could not sweep the payload store; retrying in about an hour: %s", error)
        return INTERVAL_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311

    def _list_old_days(self) -> list[str]:
        last = f"{datetime.now(UTC) - GRACE:%Y-%m-%d}"
        return [day for day in self._store.days() if day <= last]

    async def sweep(self, day: str) -> int:
        """Deletes the payloads of that day that no job refers to. Returns how many were deleted."""
        ((installation,),) = await self._connection.execute("installation")
        keys, count = self._store.keys(day), 0
        while batch := await self._call_in_thread(lambda: list(islice(keys, BATCH))):
            jobs = {key: job for key in batch if (job := read_job_id(key, installation)) is not None}
            rows = await self._connection.execute("known_jobs", (list(set(jobs.values())),))
            known = {UUID(bytes=row[0]) for row in rows}
            orphans = [key for key, job in jobs.items() if job not in known]
            count += await asyncio.to_thread(self._delete_payloads, orphans)
        if count:
            logger.info("Deleted %d payloads of %s that no job refers to", count, day)
        return count

    async def _call_in_thread(self, question: Callable[[], list[str]]) -> list[str]:
        try:
            return await asyncio.to_thread(question)
        except Exception as error:
            raise StoreFailed(f"{self._store} cannot be listed: {error}") from error

    def _delete_payloads(self, keys: list[str]) -> int:
        failures: list[Exception] = []
        for key in keys:
            try:
                self._store.delete(key)
            except Exception as error:  # noqa: BLE001  (a user's store may raise anything; go on with the other keys)
                failures.append(error)
        if failures:
            count = len(failures)
            logger.warning(
                "Could not delete %d payloads from %s; a later sweep tries again: %s", count, self._store, failures[-1]
            )
        return len(keys) - len(failures)
