"""Tells the database, when a node starts, which schedules its code declares."""

from __future__ import annotations

import logging

from foliot.store.line import Line

logger = logging.getLogger("foliot.scheduler")

_SAID = {
    "created": "Schedule %s is new",
    "updated": "Schedule %s has changed with the code",
    "superseded": "Schedule %s: a newer node declares it otherwise, and that stands",
    "foreign": "Schedule %s belongs to somebody else and stays as it is; give the declaration another name",
}


class Declarer:
    """`declared` is a JSON array of definitions, each with its hash."""

    def __init__(self, line: Line, declared: bytes) -> None:
        self._line, self._declared = line, declared.decode()
        self._started = False

    async def declare(self, epoch: int) -> None:
        """After each registration; only the first of a process can be the start of the cluster."""
        rows = await self._line.execute("declare_schedules", (epoch, self._declared, not self._started))
        self._started = True
        for name, outcome in rows:
            if outcome in _SAID:
                logger.log(logging.WARNING if outcome == "foreign" else logging.INFO, _SAID[outcome], name)
