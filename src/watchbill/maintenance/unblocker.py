"""Unblocks jobs whose parents have ended, if no worker did so when the parents ended: because that worker died, or
because an operator or a transaction ended the parents.

While the worker of this node sleeps, the end of a parent sends a notification, as a new job does
(`worker/notifications.py`), and the unblocker sleeps too. Otherwise the unblocker asks the database once a second, or
without notifications every `poll_max_interval`. After a lost notification the survey (`survey.py`) wakes the unblocker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from watchbill.store.node_connection import NodeConnection
from watchbill.telemetry.events import Events, emit_unblocked

PAUSE_SECONDS = 1.0
LONGEST_SLEEP_SECONDS = 120.0
FULL_READ_SECONDS = 60.0  # how often the unblocker reads all ended jobs, and not only those of RECENT_SECONDS
RECENT_SECONDS = 30.0


class UnblockerWakeups(Protocol):
    """The part of the node's wakeups that the unblocker uses."""

    dependents: asyncio.Event  # also set when the worker wakes up after it has slept for a second or longer

    @property
    def slept_seconds(self) -> float: ...


class Unblocker:
    """Finds ended jobs whose children still wait, and queues or cancels these children. It starts at ended jobs, so a
    blocked job whose parents still run costs nothing."""

    def __init__(
        self,
        connection: NodeConnection,
        events: Events,
        wakeups: UnblockerWakeups,
        *,
        is_listening: Callable[[], bool],
        poll_seconds: float,
    ) -> None:
        """Makes an unblocker that asks the database every `poll_seconds` while no notification can arrive."""
        self._connection, self._events, self._wakeups = connection, events, wakeups
        self._is_listening, self._poll_seconds = is_listening, poll_seconds
        self._next_full = 0.0

    async def run(self) -> float:
        """Queues or cancels all jobs whose parents have ended. Returns the seconds until the next run.

        Mostly it reads only jobs that ended in the last seconds, because the index may have many entries of earlier
        ones that vacuum cannot remove while an old snapshot is open. Once a minute it reads all.
        """
        is_full = time.monotonic() >= self._next_full
        was_woken = self._wakeups.dependents.is_set()
        self._wakeups.dependents.clear()
        was_asleep = self._wakeups.slept_seconds >= PAUSE_SECONDS
        since = 1e9 if is_full else RECENT_SECONDS
        while decided := await self._connection.execute("unblock_any", (since,)):
            emit_unblocked(self._events, decided)
        if is_full:
            self._next_full = time.monotonic() + FULL_READ_SECONDS
        if not self._is_listening():
            return self._poll_seconds
        # The statement above skips rows that are locked. So after a wakeup it is run once more, a second later.
        is_quiet = was_asleep and not was_woken and self._wakeups.slept_seconds >= PAUSE_SECONDS
        return LONGEST_SLEEP_SECONDS if is_quiet else PAUSE_SECONDS
