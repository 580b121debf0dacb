"""The standby of the setting read_url, from which the dashboard reads while it answers."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import psycopg

from watchbill.client.figure_operations import data_age
from watchbill.dashboard.database import Database, run_on
from watchbill.errors import NoDatabase

CHECK_SECONDS = 2.0  # how long it is known that the standby answers, and how old its data is
RECHECK_SECONDS = 10.0  # after it gave no answer, so that few requests wait for the check
ANSWER_SECONDS = 2.0
OWN_CHANGES_SECONDS = 5.0  # after a change, pages are read from the primary, so that people see what they did


class Replica:
    """Whether the standby may be read now."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.age: timedelta | None = None  # of its data, at the last check
        self._answers = False
        self._checked_until = self._primary_until = 0.0

    def note_change(self) -> None:
        self._primary_until = time.monotonic() + OWN_CHANGES_SECONDS

    async def is_usable(self) -> bool:
        now = time.monotonic()
        if now < self._primary_until:
            return False
        if now >= self._checked_until:
            self._checked_until = now + RECHECK_SECONDS  # others do not wait for this check
            self._answers = await self._check()
            self._checked_until = time.monotonic() + (CHECK_SECONDS if self._answers else RECHECK_SECONDS)
        return self._answers

    async def _check(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self.database.connection() as connection:
                self.age = await run_on(connection, data_age(), self.database.queries)
        except (TimeoutError, NoDatabase, psycopg.Error):
            return False
        return True
