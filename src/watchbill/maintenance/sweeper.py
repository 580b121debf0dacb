"""Deletes payloads from the store that no job refers to: what a rollback, a crash, a purge or the retention left there.

Any node may sweep at any time, since to delete twice does no harm. To look through a whole store is expensive, so each
turn takes one day of it, chosen by chance. Young objects are left alone: the transaction of their job may be open.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

from watchbill.payloads import PayloadStore, StoreFailed
from watchbill.payloads.store import job_of
from watchbill.store.line import Line, Refused

logger = logging.getLogger("watchbill.maintenance")

EVERY = 3600.0
GRACE = timedelta(days=2)  # keys know the day alone, so that the youngest that are deleted are a day old
BATCH = 1000


class Sweeper:
    """One day of the store, each hour."""

    def __init__(self, line: Line, store: PayloadStore) -> None:
        self._line, self._store = line, store

    async def run(self) -> float:
        """Seconds until the next turn: nodes that started together drift apart."""
        try:
            if days := await self._ask(self._old_days):
                await self.sweep(random.choice(days))  # noqa: S311
        except (Refused, StoreFailed) as error:
            logger.warning("The payload store was not swept: %s", error)
        return EVERY * random.uniform(0.5, 1.5)  # noqa: S311

    def _old_days(self) -> list[str]:
        last = f"{datetime.now(UTC) - GRACE:%Y-%m-%d}"
        return [day for day in self._store.days() if day <= last]

    async def sweep(self, day: str) -> int:
        """How many objects of that day were deleted."""
        ((ours,),) = await self._line.execute("installation")
        keys, count = self._store.keys(day), 0
        while batch := await self._ask(lambda: list(islice(keys, BATCH))):
            jobs = {key: job for key in batch if (job := job_of(key, ours)) is not None}
            known = {UUID(bytes=row[0]) for row in await self._line.execute("known_jobs", (list(set(jobs.values())),))}
            orphans = [key for key, job in jobs.items() if job not in known]
            count += await asyncio.to_thread(self._delete, orphans)
        if count:
            logger.info("Deleted %d payloads of %s that no job refers to", count, day)
        return count

    async def _ask(self, question: Callable[[], list[str]]) -> list[str]:
        try:
            return await asyncio.to_thread(question)
        except Exception as error:
            raise StoreFailed(f"{self._store} cannot be listed: {error}") from error

    def _delete(self, keys: list[str]) -> int:
        failures: list[Exception] = []
        for key in keys:
            try:
                self._store.delete(key)
            except Exception as error:  # noqa: BLE001  (the store is the user's; the others may go)
                failures.append(error)
        if failures:
            logger.warning("%d payloads could not be deleted from %s: %s", len(failures), self._store, failures[-1])
        return len(keys) - len(failures)
