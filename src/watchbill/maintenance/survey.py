"""The survey: asks the database, in one statement, which chores have work, and wakes these chores.

So an idle node sends few statements, whatever the number of its chores. The survey also finds work that no notification
has announced: because the notification was lost, because the node that should have done the work has died, or because a
row was locked at that time. Such work is late by the interval of the survey: a third of the shortest lease, and at most
ten seconds.
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

LONGEST_PAUSE_SECONDS = 10.0  # the SQL function `_wake_promoters` relies on this number
LEAST_PAUSE_SECONDS = 0.2
RECENT_SECONDS = 300.0  # the survey looks at rows younger than this; the chores themselves find older ones now and then


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
    has_step: bool
    has_parked_job: bool
    has_quota: bool
    has_due_observation: bool
    groups: list[str] | None
    leaders: list[int | None] | None
    terms: list[int | None] | None
    leaders_expire_in: list[float | None] | None
    turns_in: list[float | None] | None
    has_operation: bool
    has_due_delivery: bool


class SurveyWakeups(Protocol):
    """The part of the node's wakeups that the survey sets."""

    jobs: asyncio.Event
    dependents: asyncio.Event
    declarations: asyncio.Event
    deliveries: asyncio.Event


class SurveyedWorker(Protocol):
    """The part of the worker that the survey uses."""

    @property
    def epoch(self) -> int: ...

    @property
    def queues(self) -> list[str]: ...

    @property
    def needs_job_look(self) -> bool:
        """Whether the survey should also look for ready jobs: the worker sleeps, and this look is cheap."""

    def note_claims(self, fences: list[int]) -> None:
        """Tells the worker the fences of the claims that the database has for this node."""


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
        """Makes a survey that looks for ready jobs at most every `poll_seconds`."""
        self._connection, self._worker, self._wakeups = connection, worker, wakeups
        self._promoter, self._reclaimer, self._periodic = promoter, reclaimer, periodic
        self._elector = elector
        self._lease, self._poll_seconds = lease, poll_seconds
        self._longest_pause = min(longest_pause, LONGEST_PAUSE_SECONDS)
        self._next_job_look = 0.0

    async def run(self) -> float:
        """Asks once what the chores have to do, and wakes them. Returns the seconds until the next survey."""
        asked = time.monotonic()
        looks_for_jobs = self._worker.needs_job_look and asked >= self._next_job_look
        params = (self._worker.epoch, self._worker.queues, RECENT_SECONDS, looks_for_jobs)
        try:
            (row,) = await self._connection.execute("survey", params)
        except Disconnected:
            self._wakeups.jobs.set()  # wakes the worker: while it sleeps it does not notice a lost connection
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
        if found.has_due_delivery:
            self._wakeups.deliveries.set()
        leases = found.leases or []
        beats = zip(found.epochs or [], found.beats or [], leases, found.ages or [], strict=True)
        self._reclaimer.note_beats(beats, asked=asked, has_leftover_claim=found.has_leftover_claim)
        self._elector.note_standings(_read_standings(found))
        self._periodic.note_findings({name for name, value in found._asdict().items() if value is True})
        shortest = min([*leases, self._lease])  # includes our own lease: a node with the same lease may start soon
        return max(LEAST_PAUSE_SECONDS, min(self._longest_pause, shortest / 3))


def _read_standings(found: Findings) -> list[Standing]:
    columns = (found.groups, found.leaders, found.terms, found.leaders_expire_in, found.turns_in)
    return [Standing(*row) for row in zip(*(each or [] for each in columns), strict=True)]
