"""Watchbill: what a test is given by the fixture of that name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from watchbill.app import staging
from watchbill.app.application import App
from watchbill.app.task import Task, refuse_on_loop
from watchbill.client import foreign
from watchbill.client.plans import Plan, Statement
from watchbill.errors import WatchbillError
from watchbill.model.job import JobRecord
from watchbill.scheduler.scheduler import tell
from watchbill.telemetry.context import current
from watchbill.testing import enqueued
from watchbill.testing.draining import drain_blocking, drain_on_loop
from watchbill.testing.runs import Book, Ran
from watchbill.testing.stage import DatabaseStage
from watchbill.testing.timetable import declare, pass_time

R = TypeVar("R")
LIMIT = 10_000
WAY_OUT = """To run them let the test commit: TransactionTestCase, or @pytest.mark.django_db(transaction=True).
To see that they were enqueued, assert_enqueued() is enough."""


class NotCommitted(WatchbillError):
    """Jobs to be run are in a transaction that the test has not committed."""


class Watchbill:
    """The queue of one test. Calls that only look or move the clock are short, and have no twin for asyncio."""

    def __init__(self, stage: DatabaseStage) -> None:
        self._stage = stage

    @property
    def database_url(self) -> str:
        """Where this test's jobs are."""
        return self._stage.database.url

    @property
    def schema(self) -> str:
        return self._stage.database.schema

    # -- run

    def drain(self, *, raising: bool = False, concurrency: int = 1, limit: int = LIMIT) -> list[Ran]:
        """Runs everything that is ready, until nothing is; each run with its outcome, in the order they ended.

        `raising`: stop at the first failure, and raise what the handler raised.
        """
        refuse_on_loop("drain()", "`await adrain()`")
        self._refuse_in_transaction()
        book = Book(limit, raising)
        drain_blocking(self._stage, book, concurrency)
        return book.conclude()

    async def adrain(self, *, raising: bool = False, concurrency: int = 1, limit: int = LIMIT) -> list[Ran]:
        """The same on the test's own event loop."""
        book = Book(limit, raising)
        await drain_on_loop(self._stage, book, concurrency)
        return book.conclude()

    @contextmanager
    def inline(self) -> Iterator[None]:
        """In this block each enqueue runs what is ready before it returns, and raises what a handler raised.

        The job has been stored and claimed as any other. One with a delay still waits for its time, and one in a
        transaction of the caller's for its commit. What a handler enqueues runs after it.
        """

        def run() -> None:
            if current.get(None) is None:
                self.drain(raising=True)

        async def arun() -> None:
            if current.get(None) is None:
                await self.adrain(raising=True)

        client, aclient = self._stage.client, self._stage.aclient
        before = client.on_sent, aclient.on_sent
        client.on_sent, aclient.on_sent = run, arun
        try:
            yield
        finally:
            client.on_sent, aclient.on_sent = before

    # -- look

    def jobs(self, task: Task[..., Any] | str | None = None, /, *, connection: Any = None) -> list[JobRecord]:
        """All jobs of this test, or of one task or type, finished or not, in the order they were enqueued.

        `connection`: as this connection or session sees them, with what its open transaction has enqueued.
        """
        return enqueued.of_type(self._see(connection, "jobs"), task)

    async def ajobs(self, task: Task[..., Any] | str | None = None, /, *, connection: Any) -> list[JobRecord]:
        """For an asynchronous connection; without one, `jobs` does."""
        return enqueued.of_type(await self._asee(connection, "jobs"), task)

    def assert_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any) -> JobRecord:
        """That a job of this task was enqueued, with these arguments among others; the first one that fits."""
        __tracebackhide__ = True
        return _first(task, payload, self._see(connection, "assert_enqueued"), own=connection is None)

    async def aassert_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any, **payload: Any) -> JobRecord:
        """For an asynchronous connection; without one, `assert_enqueued` does."""
        __tracebackhide__ = True
        return _first(task, payload, await self._asee(connection, "assert_enqueued"), own=False)

    def assert_not_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any) -> None:
        __tracebackhide__ = True
        _none(task, payload, self._see(connection, "assert_not_enqueued"))

    async def aassert_not_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any, **payload: Any) -> None:
        """For an asynchronous connection; without one, `assert_not_enqueued` does."""
        __tracebackhide__ = True
        _none(task, payload, await self._asee(connection, "assert_not_enqueued"))

    def _refuse_in_transaction(self) -> None:
        """Rather than to run nothing and say nothing."""
        if (connection := _in_transaction()) is None:
            return
        committed = {job.id for job in self._stage.client.run(enqueued.all_jobs())}
        unseen = [job for job in self._see(connection, "drain") if job.id not in committed]
        if unseen:
            raise NotCommitted(enqueued.uncommitted(unseen), hint=WAY_OUT)

    def _see(self, connection: Any, call: str) -> list[JobRecord]:
        client = self._stage.client
        if connection is None:
            connection = _in_transaction()
        if connection is None:
            return client.run(enqueued.all_jobs())
        return foreign.run(enqueued.all_jobs(), connection, client.queries, call=call)

    async def _asee(self, connection: Any, call: str) -> list[JobRecord]:
        return await foreign.arun(enqueued.all_jobs(), connection, self._stage.client.queries, call=call)

    # -- the clock

    def declare(self, app: App, /) -> list[str]:
        """Writes the schedules that the App's code declares, as a node does that starts; their names.

        Otherwise a test has none but those that it adds: moving its clock makes no job that it does not ask for.
        """
        return self._stage.client.run(declare(app.name, app.declared.as_json()))

    def now(self) -> datetime:
        """The database's clock, as this test has set it."""
        return self._stage.client.run(_moment("clock"))

    def advance(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        to: datetime | None = None,
    ) -> datetime:
        """Moves the database's clock, for every process and every session; what it shows then.

        Schedules fire on the way, each slot at its own time. Forward only: a job's id carries the time it was made, and
        the database refuses one from the future.
        """
        by = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if to is not None:
            if by:
                raise ValueError("give advance() a time to move to, or how far, not both")
            by = to - self.now()
        if by < timedelta(0):
            raise ValueError(f"the clock cannot go back, by {-by}")
        now = self._stage.client.run(pass_time(by, _tell))
        self._stage.client.run(_promote(now))  # drain() does not; a node that runs meanwhile would do so late
        return now


def _in_transaction() -> Any:
    """A connection whose open transaction an App enqueues in, without being told: that of a Django test."""
    return next((found for app in staging.apps() if (found := app.in_transaction) is not None), None)


def _first(task: Any, payload: dict[str, Any], jobs: list[JobRecord], *, own: bool) -> JobRecord:
    __tracebackhide__ = True
    found = enqueued.matching(jobs, task, payload)
    if not found:
        raise AssertionError(enqueued.missing(task, payload, jobs, own=own))
    return found[0]


def _none(task: Any, payload: dict[str, Any], jobs: list[JobRecord]) -> None:
    __tracebackhide__ = True
    found = enqueued.matching(jobs, task, payload)
    if found:
        raise AssertionError(enqueued.unwanted(task, payload, found))


def _moment(query: str, *params: Any) -> Plan[datetime]:
    ((value,),) = yield Statement(query, params)
    assert isinstance(value, datetime)
    return value


def _tell(said: str) -> None:
    """What schedules have to say, to the observers of every App."""
    for app in staging.apps():
        tell(app.events, said)


def _promote(at: datetime) -> Plan[None]:
    yield Statement("promote_all", (at,))
