"""Tells the database, when a node starts, which schedules its code declares; and again, when those have gone who
declared something newer: after a deployment was taken back, what the remaining nodes say is in force.
"""

from __future__ import annotations

import contextlib
import logging

from watchbill.store.line import Line, NodeLost

logger = logging.getLogger("watchbill.scheduler")

_SAID = {
    "created": "Schedule %s is new",
    "updated": "Schedule %s has changed with the code",
    "superseded": "Schedule %s: a newer node declares it otherwise, and that stands",
    "foreign": "Schedule %s belongs to somebody else and stays as it is; give the declaration another name",
}
PAUSE = 10.0
MOMENT = 1.0  # while something is to be decided


class Declarer:
    """`declared` is a JSON array of definitions, each with its hash."""

    def __init__(self, line: Line, declared: bytes) -> None:
        self._line, self._declared = line, declared.decode()
        self._epoch: int | None = None
        self._may_start = True  # the cluster: until it is known that it does or does not

    async def run(self) -> float:
        """What cannot be said at once: that the cluster starts, and that a newer word counts no more."""
        if self._epoch is None:
            return MOMENT
        if self._may_start:
            ((decided,),) = await self._line.execute("start_cluster", (self._epoch,))
            self._may_start = decided is None
        ((in_vain,),) = await self._line.execute("declares_in_vain", (self._epoch,))
        if in_vain:
            with contextlib.suppress(NodeLost):  # then it is said after the next registration
                await self.declare(self._epoch)
        return MOMENT if self._may_start else PAUSE

    async def declare(self, epoch: int) -> None:
        """After each registration."""
        rows = await self._line.execute("declare_schedules", (epoch, self._declared))
        self._epoch = epoch
        for name, outcome in rows:
            if outcome in _SAID:
                logger.log(logging.WARNING if outcome == "foreign" else logging.INFO, _SAID[outcome], name)
