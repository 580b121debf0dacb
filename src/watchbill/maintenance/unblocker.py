"""Unblocks jobs whose parents have ended, where the worker that ended the parents did not do it: because it died, or
because an operator or a transaction ended them.

While the worker of this node sleeps, such an end sends a notification, as a new job does
(`worker/notifications.py`), and the unblocker sleeps too. Otherwise it looks once a second. Without notifications it
looks every `poll_max_interval`. The survey finds what a lost notification has announced (`survey.py`).
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
FULL_LOOK_SECONDS = 60.0
RECENT_SECONDS = 30.0


class UnblockerWakeups(Protocol):
    """The part of the node's wakeups that the unblocker uses."""

    dependents: asyncio.Event  # also set when the worker has slept for a second or longer, and wakes up

    @property
    def slept_seconds(self) -> float: ...


class Unblocker:
    """Looks for ended jobs whose children were not decided yet, so a job that merely waits costs no statement."""

    def __init__(
        self,
        connection: NodeConnection,
        events: Events,
        wakeups: UnblockerWakeups,
        *,
        is_listening: Callable[[], bool],
        poll_seconds: float,
    ) -> None:
        """`poll_seconds`: the pause while no notification can arrive."""
        self._connection, self._events, self._wakeups = connection, events, wakeups
        self._is_listening, self._poll_seconds = is_listening, poll_seconds
        self._next_full = 0.0

    async def run(self) -> float:
        """Looks until nothing is left to decide; returns the seconds until the next look.

        Mostly it reads only the ends of the last seconds, because an old snapshot may keep many earlier index entries.
        """
        is_full = time.monotonic() >= self._next_full
        was_woken = self._wakeups.dependents.is_set()
        self._wakeups.dependents.clear()
        was_asleep = self._wakeups.slept_seconds >= PAUSE_SECONDS
        since = 1e9 if is_full else RECENT_SECONDS
        while decided := await self._connection.execute("unblock_any", (since,)):
            emit_unblocked(self._events, decided)
        if is_full:
            self._next_full = time.monotonic() + FULL_LOOK_SECONDS
        if not self._is_listening():
            return self._poll_seconds
        # This look may have skipped rows that were locked. So after a wakeup there is one more look, a second later.
        is_quiet = was_asleep and not was_woken and self._wakeups.slept_seconds >= PAUSE_SECONDS
        return LONGEST_SLEEP_SECONDS if is_quiet else PAUSE_SECONDS
