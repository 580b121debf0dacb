"""Asks the database, in one statement, what the chores have to do, and wakes those that have something to do.

So an idle node sends few statements, whatever the number of its chores. The survey also finds what no notification has
announced: because one was lost, because the node that would have looked has died, or because a row was locked when
somebody looked. That is late by the interval of the survey at most: a third of the shortest lease, ten seconds at most.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol

from watchbill.cluster.elector import Elector, Standing
from watchbill.maintenance.chores import PeriodicChores
from watchbill.maintenance.promoter import Promoter
from watchbill.maintenance.reclaimer import Reclaimer
from watchbill.store.node_connection import Disconnected, NodeConnection

LONGEST_PAUSE_SECONDS = 10.0  # `_wake_promoters` in SQL relies on it
LEAST_PAUSE_SECONDS = 0.2
RECENT_SECONDS = 300.0  # what is older is found by the chores themselves, from time to time


class Findings(NamedTuple):
    """A row of the SQL function `_survey`, which explains the columns."""

    epochs: list[int] | None
    beats: list[int] | None
    leases: list[float] | None
    ages: list[float] | None
    fences: list[int]
    has_leftover_claim: bool
    next_delayed_in: float | None
    has_dependency_check: bool
    has_ready_job: bool | None
    has_sleeping_worker: bool | None
    has_stale_declaration: bool
    has_unpaused_job: bool
    has_freed_schedule: bool
    has_unsupported_job: bool
    has_claim: bool
    has_dependency: bool
    has_parked_job: bool
    has_quota: bool
    groups: list[str] | None
    leaders: list[int | None] | None
    terms: list[int | None] | None
    leaders_expire_in: list[float | None] | None
    turns_in: list[float | None] | None


class SurveyWakeups(Protocol):
    """The part of the node's wakeups that the survey sets."""

    jobs: asyncio.Event
    dependents: asyncio.Event
    declarations: asyncio.Event


class SurveyedWorker(Protocol):
    """The part of the worker that the survey asks."""

    @property
    def epoch(self) -> int: ...

    @property
    def queues(self) -> list[str]: ...

    @property
    def needs_job_look(self) -> bool:
        """Whether the worker sleeps, and a look for ready jobs is cheap."""

    def note_claims(self, fences: list[int]) -> None:
        """Takes the claims that this node has in the database."""


class Survey:
    def __init__(
        self,
        connection: NodeConnection,
        worker: SurveyedWorker,
        wakeups: SurveyWakeups,
        promoter: Promoter,
        reclaimer: Reclaimer,
        periodic: PeriodicChores,
        elector: Elector,
        *,
        lease: float,
        poll_seconds: float,
        longest_pause: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """`poll_seconds`: it looks for ready jobs no more often than this."""
        self._connection, self._worker, self._wakeups = connection, worker, wakeups
        self._promoter, self._reclaimer, self._periodic = promoter, reclaimer, periodic
        self._elector = elector
        self._lease, self._poll_seconds = lease, poll_seconds
        self._longest_pause = min(longest_pause, LONGEST_PAUSE_SECONDS)
        self._next_job_look = 0.0

    async def run(self) -> float:
        """Returns the seconds until the next survey."""
        asked = time.monotonic()
        looks_for_jobs = self._worker.needs_job_look and asked >= self._next_job_look
        params = (self._worker.epoch, self._worker.queues, RECENT_SECONDS, looks_for_jobs)
        try:
            (row,) = await self._connection.execute("survey", params)
        except Disconnected:
            self._wakeups.jobs.set()  # a worker that sleeps does not notice that its connections are lost too
            raise
        found = Findings._make(row)
        self._worker.note_claims(found.fences)
        if looks_for_jobs:
            self._next_job_look = asked + self._poll_seconds
            if found.has_ready_job or not found.has_sleeping_worker:
                self._wakeups.jobs.set()
        if found.next_delayed_in is not None:
            self._promoter.expect_due_job(found.next_delayed_in)
        if found.has_dependency_check:
            self._wakeups.dependents.set()
        if found.has_stale_declaration:
            self._wakeups.declarations.set()
        leases = found.leases or []
        beats = zip(found.epochs or [], found.beats or [], leases, found.ages or [], strict=True)
        self._reclaimer.note_beats(beats, asked=asked, has_leftover_claim=found.has_leftover_claim)
        self._elector.note_standings(_read_standings(found))
        self._periodic.note_findings({name for name, value in found._asdict().items() if value is True})
        shortest = min([*leases, self._lease])  # a node with our lease may start meanwhile
        return max(LEAST_PAUSE_SECONDS, min(self._longest_pause, shortest / 3))


def _read_standings(found: Findings) -> list[Standing]:
    columns = (found.groups, found.leaders, found.terms, found.leaders_expire_in, found.turns_in)
    return [Standing(*row) for row in zip(*(each or [] for each in columns), strict=True)]
