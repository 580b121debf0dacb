"""Repeats the chores of a node, and lists those that are a single statement, with their intervals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol
from uuid import UUID

from watchbill.store.node_connection import Busy, Disconnected, NodeConnection, Refused

logger = logging.getLogger("watchbill.maintenance")

HOUR = 3600.0
OPERATIONS_SECONDS = 5.0  # how long the chore of bulk operations goes on at once
RETRY_SECONDS = 10.0  # a periodic chore that has failed runs again after this time
PAUSE_AFTER_ERROR_SECONDS = 5.0
# A chore that notifications wake runs no more often than this, because any role of the database may send very many.
LEAST_PERIOD_SECONDS = 0.02
LEAST_OBSERVATION_PAUSE_SECONDS = 0.05


class ChoreMeter(Protocol):
    """Measures the runs of chores."""

    def note_chore(self, name: str, seconds: float, *, has_failed: bool) -> None: ...


async def repeat(
    name: str,
    chore: Callable[[], Awaitable[float]],
    connection: NodeConnection,
    wakeup: asyncio.Event | None = None,
    meter: ChoreMeter | None = None,
) -> None:
    """Runs a chore for ever. The chore returns how many seconds to wait before its next run. Its `wakeup` event ends
    the wait early, and the chore itself clears that event. Log lines call the chore `name`."""
    while True:
        began, has_failed = time.monotonic(), False
        try:
            pause = await chore()
        except Disconnected as error:
            has_failed = True
            # The worker logs an outage of the database. This warning is for a server that answers, but lacks resources
            # for this one statement.
            level = logging.WARNING if error.by_statement else logging.DEBUG
            logger.log(level, "The chore %s could not run; retrying soon: %s", name, error)
            await connection.wait_to_retry()
            continue
        except Busy as error:
            pause, has_failed = PAUSE_AFTER_ERROR_SECONDS, True
            message = "The chore %s needs a lock that another transaction holds; retrying in %g s: %s"
            logger.warning(message, name, pause, error)
        except Exception:  # no error may end this loop, because no other code would start it again
            pause, has_failed = PAUSE_AFTER_ERROR_SECONDS, True
            logger.exception("The periodic chore %s failed; retrying in %g s", name, pause)
        finally:
            if meter is not None:
                meter.note_chore(name, time.monotonic() - began, has_failed=has_failed)
        if wakeup is None:
            await asyncio.sleep(pause)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wakeup.wait()
                    await asyncio.sleep(began + LEAST_PERIOD_SECONDS - time.monotonic())


class Chore(NamedTuple):
    """A statement that a node runs periodically, if the survey (`survey.py`) has found work for it."""

    interval: float  # seconds between two runs
    query: str
    params: tuple[object, ...] = ()
    needed_if: str | None = None  # the field of the survey's `Findings` that must be true; None means always


class PeriodicChores:
    """Runs the chores that are one statement each. In its first run, before any survey, all chores count as needed."""

    def __init__(self, connection: NodeConnection, *, unknown_type_grace: float) -> None:
        self._connection = connection
        self._swept_until: dict[str, UUID | None] = {"sweep_dependencies": None, "sweep_steps": None}
        self._swept_key = ""
        expiry = min(60.0, max(1.0, unknown_type_grace / 4))
        self._chores = [
            Chore(HOUR, "make_partitions", ("finished_succeeded",)),
            Chore(HOUR, "make_partitions", ("finished_otherwise",)),
            Chore(HOUR, "make_partitions", ("attempts",)),
            Chore(HOUR, "make_partitions", ("job_logs",)),
            Chore(expiry, "expire_unsupported", (unknown_type_grace,), needed_if="has_unsupported_job"),
            Chore(10.0, "unpark_paused", needed_if="has_unpaused_job"),
            Chore(60.0, "sweep_claims", needed_if="has_claim"),
            Chore(60.0, "sweep_dependencies", needed_if="has_dependency"),
            Chore(60.0, "sweep_steps", needed_if="has_step"),
            Chore(10.0, "sweep_limits", needed_if="has_parked_job"),
            Chore(5.0, "refresh_quotas", needed_if="has_quota"),
            Chore(1.0, "run_operations", needed_if="has_operation"),
            Chore(10.0, "release_orphans", needed_if="has_freed_schedule"),
            Chore(10.0, "observe", needed_if="has_due_observation"),
            Chore(HOUR, "make_slot_partitions"),
            Chore(HOUR, "prune_locks"),
        ]
        self._due = [0.0] * len(self._chores)
        self._findings: Collection[str] = {chore.needed_if for chore in self._chores if chore.needed_if is not None}
        self.wakeup = asyncio.Event()

    def note_findings(self, findings: Collection[str]) -> None:
        """Stores which fields of the survey's `Findings` were true, and wakes this loop if a needed chore is due."""
        self._findings = findings
        if self._next_due() <= time.monotonic():
            self.wakeup.set()

    def _is_needed(self, chore: Chore) -> bool:
        return chore.needed_if is None or chore.needed_if in self._findings

    def _next_due(self) -> float:
        return min(due for chore, due in zip(self._chores, self._due, strict=True) if self._is_needed(chore))

    async def run(self) -> float:
        """Runs the chores that are due. Returns the seconds until the next chore is due.

        The next time of a chore is set before the chore runs. So a chore that breaks its connection each time, because
        the server lacks a resource, does not keep the other chores from running.
        """
        self.wakeup.clear()
        for index, chore in enumerate(self._chores):
            interval, query = chore.interval, chore.query
            if time.monotonic() >= self._due[index] and self._is_needed(chore):
                self._due[index] = time.monotonic() + min(interval, RETRY_SECONDS)
                try:
                    interval = await self._run_query(query, chore.params) or interval
                except Refused as error:  # for example because another transaction held a lock for too long
                    logger.warning("The server refused the chore %s; retrying in %g s: %s", query, interval, error)
                self._due[index] = time.monotonic() + interval
        return max(0.1, self._next_due() - time.monotonic())

    async def _run_query(self, query: str, params: tuple[object, ...]) -> float | None:
        """Returns in how many seconds the chore wants to run again, if it knows."""
        if query in self._swept_until:  # each call sweeps a part of the table, from where the last call ended
            ((last,),) = await self._connection.execute(query, (self._swept_until[query],))
            self._swept_until[query] = None if last is None else UUID(bytes=last)
        elif query == "sweep_limits":  # each call sweeps a part of the keys, from where the last call ended
            ((key,),) = await self._connection.execute(query, (self._swept_key,))
            self._swept_key = key or ""
        elif query == "refresh_quotas":
            while await self._connection.execute(query) == [(True,)]:
                continue  # True means that some jobs still lack the limit key of their tenant
        elif query == "observe":
            ((pause,),) = await self._connection.execute(query)
            return None if pause is None else max(pause, LEAST_OBSERVATION_PAUSE_SECONDS)
        elif query == "run_operations":
            await self._run_operations()
        else:
            await self._connection.execute(query, params)
        return None

    async def _run_operations(self) -> None:
        """Does steps of bulk operations as long as there are any, but so that other chores get their turn."""
        until = time.monotonic() + OPERATIONS_SECONDS
        while time.monotonic() < until and await self._connection.execute("run_operations") == [(0.0,)]:
            continue
