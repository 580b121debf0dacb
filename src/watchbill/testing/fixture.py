"""The class Watchbill, which is the value of the fixture `watchbill`, and how its assertions find and list jobs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

import orjson

from watchbill.app.application import App, living_apps
from watchbill.app.job import NotCommitted
from watchbill.app.json_round_trip import shorten
from watchbill.app.producer import refuse_on_loop
from watchbill.app.task import Call, Task
from watchbill.client import caller_connection
from watchbill.client.operations import Operation, Statement
from watchbill.model.job import JobRecord
from watchbill.model.tenant import acting_for
from watchbill.scheduler.scheduler import emit_tick_events
from watchbill.telemetry.context import current
from watchbill.testing.draining import Ran, RunLog, drain_blocking, drain_on_loop
from watchbill.testing.resuming import try_crashes
from watchbill.testing.session import TestSession
from watchbill.testing.timetable import declare, pass_time, promote, read_clock
from watchbill.worker.handlers import BadPayload

AnyTask = Task[..., Any]
MAX_JOBS_SHOWN = 20


def read_all_jobs() -> Operation[list[JobRecord]]:
    """Returns all jobs, finished or not, in the order in which they were enqueued."""
    return [JobRecord(*row) for row in (yield Statement("all_jobs", (), JobRecord))]


def select_type(jobs: Sequence[JobRecord], task: AnyTask | str | None) -> list[JobRecord]:
    if task is None:
        return list(jobs)
    names = {task} if isinstance(task, str) else {task.type, *task.aliases}
    return [job for job in jobs if job.type in names]


def select_matching(jobs: Sequence[JobRecord], task: AnyTask | str, payload: Mapping[str, Any]) -> list[JobRecord]:
    """Returns the jobs of a task whose payload has these values. The payload may have others too."""
    if isinstance(task, Task):
        _refuse_unknown_arguments(task, payload)
    return [job for job in select_type(jobs, task) if _has_wanted_values(job, task, payload)]


def _refuse_unknown_arguments(task: AnyTask, payload: Mapping[str, Any]) -> None:
    """Refuses an argument that the task does not have. No job can have it, so `assert_not_enqueued` would always
    pass."""
    parameters = list(inspect.signature(task.function).parameters.values())[int(task.transactional) :]
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    unknown = [name for name in payload if name not in names]
    if unknown and len(names) == len(parameters):
        raise TypeError(f"task {task.type} has no parameter {', '.join(unknown)}; it has {', '.join(names) or 'none'}")


def _has_wanted_values(job: JobRecord, task: AnyTask | str, wanted: Mapping[str, Any]) -> bool:
    """Whether the job has the wanted values. Compares each with the stored JSON, and then with the decoded argument."""
    stored = job.payload if isinstance(task, str) else task.producer.read_payload(job)
    unlike = {name: value for name, value in wanted.items() if name not in stored or stored[name] != _to_json(value)}
    if not unlike or isinstance(task, str):
        return not unlike
    try:
        arguments = task.decode(orjson.dumps(stored), job.version)
    except BadPayload:
        return False
    return all(name in arguments and arguments[name] == value for name, value in unlike.items())


def _to_json(value: Any) -> Any:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return value


# -- messages of failed assertions


def describe_missing(task: AnyTask | str, payload: Mapping[str, Any], jobs: Sequence[JobRecord], *, own: bool) -> str:
    where = "" if own else " (as the given connection sees them)"
    lines = [f"No job {_format_call(task, payload)} was enqueued{where}."]
    lines += ["These were:", *_format_jobs(jobs)] if jobs else ["Nothing was."]
    if own:
        lines.append("To see what an open transaction has enqueued, give it as connection=.")
    return "\n".join(lines)


def describe_unwanted(task: AnyTask | str, payload: Mapping[str, Any], found: Sequence[JobRecord]) -> str:
    return "\n".join([f"Job {_format_call(task, payload)} was enqueued:", *_format_jobs(found)])


def describe_uncommitted(jobs: Sequence[JobRecord]) -> str:
    return "\n".join(
        ["The test's transaction is open, so no worker can see what it has enqueued:", *_format_jobs(jobs)]
    )


def _format_call(task: AnyTask | str, payload: Mapping[str, Any]) -> str:
    name = task if isinstance(task, str) else task.type
    return f"{name}({_format_arguments(payload)})" if payload else name


def _format_jobs(jobs: Sequence[JobRecord]) -> list[str]:
    lines = [f"  {job.type}({_format_arguments(job.payload)})  {job.state}" for job in jobs[:MAX_JOBS_SHOWN]]
    return lines + ([f"  and {len(jobs) - MAX_JOBS_SHOWN} more"] if len(jobs) > MAX_JOBS_SHOWN else [])


def _format_arguments(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shorten(value)}" for name, value in payload.items())


R = TypeVar("R")
MAX_RUNS = 10_000
COMMIT_HINT = """To run them, let the test commit: TransactionTestCase, or @pytest.mark.django_db(transaction=True).
To check that they were enqueued, assert_enqueued() is enough."""


class Watchbill:
    """The queue of one test. Calls that only read or move the clock are short, so an `async def` test may use the
    blocking ones, except in a Django project."""

    def __init__(self, session: TestSession) -> None:
        self._session = session

    @property
    def database_url(self) -> str:
        """The database of this test's jobs."""
        return self._session.database.url

    @property
    def schema(self) -> str:
        return self._session.database.schema

    def tenant(self, name: str) -> AbstractContextManager[None]:
        """Acts for a tenant in a block, whatever App the code under test uses: as `app.tenant(name)`."""
        return acting_for(name)

    # -- methods that run jobs

    def drain(
        self, *, raising: bool = False, fast_retries: bool = False, concurrency: int = 1, limit: int = MAX_RUNS
    ) -> list[Ran]:
        """Runs all jobs that are ready, until none is; returns each run with its outcome, in the order they ended.

        `raising`: stop at the first failure, and raise what the handler raised. `fast_retries`: try a failed job again
        at once, until it has ended; otherwise its next attempt waits for `advance`.
        """
        refuse_on_loop("drain()", "`await adrain()`")
        self._refuse_in_transaction()
        log = RunLog(limit, raising, fast_retries)
        drain_blocking(self._session, log, concurrency)
        return log.finish()

    async def adrain(
        self, *, raising: bool = False, fast_retries: bool = False, concurrency: int = 1, limit: int = MAX_RUNS
    ) -> list[Ran]:
        """Does what `drain` does, on the test's own event loop."""
        await self._arefuse_in_transaction()
        log = RunLog(limit, raising, fast_retries)
        await drain_on_loop(self._session, log, concurrency)
        return log.finish()

    def assert_resumes(
        self, call: Call[Any], /, *, signals: Mapping[str, Any] | None = None, same_result: bool = True
    ) -> int:
        """Runs a job with steps to its end, and then once for each write of a step with a crash before it and once with
        a crash after it. Fails if one of them ends otherwise: with another state, result, error or list of steps.
        Returns how many crashes were tried.

        The clock moves to each wake time. `signals` are sent when the job is enqueued. `same_result`: whether the
        result is compared; one that names the job or the time differs in any case.
        """
        refuse_on_loop("assert_resumes()", "`await aassert_resumes()`")
        self._refuse_in_transaction()
        program = try_crashes(call, signals or {}, _report_events, compares_result=same_result)
        answer: Any = None
        while True:
            try:
                request = program.send(answer)
            except StopIteration as stop:
                return int(stop.value)
            if isinstance(request, Call):
                answer = request.task.producer.send(request.new_job(), request.task.options, request.task)
            elif isinstance(request, RunLog):
                drain_blocking(self._session, request, 1)
                answer = request.finish()
            else:
                answer = self._run_operation(request)

    async def aassert_resumes(
        self, call: Call[Any], /, *, signals: Mapping[str, Any] | None = None, same_result: bool = True
    ) -> int:
        """Does what `assert_resumes` does, on the test's own event loop."""
        await self._arefuse_in_transaction()
        program = try_crashes(call, signals or {}, _report_events, compares_result=same_result)
        answer: Any = None
        while True:
            try:
                request = program.send(answer)
            except StopIteration as stop:
                return int(stop.value)
            if isinstance(request, Call):
                answer = await request.task.producer.asend(request.new_job(), request.task.options, request.task)
            elif isinstance(request, RunLog):
                await drain_on_loop(self._session, request, 1)
                answer = request.finish()
            else:
                answer = await self._arun_operation(request)

    @contextmanager
    def inline(self) -> Iterator[None]:
        """In this block each enqueue runs the jobs that are ready before it returns, and raises what a handler raised.

        Jobs are stored and claimed as usual. A job with a delay still waits for its time, and a job in a transaction of
        the caller still waits for the commit. Jobs that a handler enqueues run after that handler.
        """

        def run() -> None:
            if current.get(None) is None:
                self.drain(raising=True)

        async def arun() -> None:
            if current.get(None) is None:
                await self.adrain(raising=True)

        client, aclient = self._session.client, self._session.aclient
        before = client.after_enqueue, aclient.after_enqueue
        client.after_enqueue, aclient.after_enqueue = run, arun
        try:
            yield
        finally:
            client.after_enqueue, aclient.after_enqueue = before

    # -- methods that list jobs, and assert that they were enqueued

    def jobs(self, task: Task[..., Any] | str | None = None, /, *, connection: Any = None) -> list[JobRecord]:
        """All jobs of this test, or of one task or type, finished or not, in the order they were enqueued.

        With `connection`, the jobs that this connection or session sees, including those that its open transaction has
        enqueued.
        """
        return select_type(self._run_operation(read_all_jobs(), connection), task)

    async def ajobs(self, task: Task[..., Any] | str | None = None, /, *, connection: Any = None) -> list[JobRecord]:
        return select_type(await self._arun_operation(read_all_jobs(), connection), task)

    def assert_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any) -> JobRecord:
        """Fails unless a job of this task was enqueued with (at least) these arguments. Returns the first such job."""
        __tracebackhide__ = True
        return _get_first_matching(task, payload, self.jobs(connection=connection), own=connection is None)

    async def aassert_enqueued(
        self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any
    ) -> JobRecord:
        __tracebackhide__ = True
        return _get_first_matching(task, payload, await self.ajobs(connection=connection), own=connection is None)

    def assert_not_enqueued(self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any) -> None:
        """Fails if a job of this task was enqueued with these arguments."""
        __tracebackhide__ = True
        _refuse_matching(task, payload, self.jobs(connection=connection))

    async def aassert_not_enqueued(
        self, task: Task[..., Any] | str, /, *, connection: Any = None, **payload: Any
    ) -> None:
        __tracebackhide__ = True
        _refuse_matching(task, payload, await self.ajobs(connection=connection))

    # -- methods that declare schedules and move the database's clock

    def declare(self, app: App, /) -> list[str]:
        """Writes the schedules that the App's code declares, as a starting node does. Returns their names.

        Without this call a test has only the schedules that it adds itself.
        """
        return self._run_operation(declare(app.name, app.declared.as_json()))

    async def adeclare(self, app: App, /) -> list[str]:
        return await self._arun_operation(declare(app.name, app.declared.as_json()))

    def now(self) -> datetime:
        """The time of the database's clock, as this test has set it."""
        return self._run_operation(read_clock())

    async def anow(self) -> datetime:
        return await self._arun_operation(read_clock())

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
        """Moves the database's clock forward, for every process and every session. Returns the new time.

        Schedules fire on the way, each slot at its own time. The clock cannot be moved back: a job's id contains the
        time at which it was made, and the database refuses an id from the future. In a Django TestCase only the test's
        own transaction sees the new time.
        """
        by = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._run_operation(_advance_clock(by, to))

    async def aadvance(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        to: datetime | None = None,
    ) -> datetime:
        by = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return await self._arun_operation(_advance_clock(by, to))

    # -- operations in the transaction that a Django test has open

    def _run_operation(self, operation: Operation[R], connection: Any = None) -> R:
        """Runs an operation on the given connection, or else in the transaction that a Django test has open, or else on
        a connection of our own."""
        if connection is None:
            connection = find_open_connection()
        if connection is None:
            return self._session.client.run(operation)
        return caller_connection.run(operation, connection, self._session.client.queries)

    async def _arun_operation(self, operation: Operation[R], connection: Any = None) -> R:
        if connection is not None:
            return await caller_connection.arun(operation, connection, self._session.client.queries)
        if app := _find_joining_app():
            return await app.producer.arun(operation)
        return await self._session.aclient.run(operation)

    def _refuse_in_transaction(self) -> None:
        """Raises if the test has enqueued jobs and not committed them, because the drain would silently not run
        them."""
        if find_open_connection() is not None:
            _refuse_uncommitted(self.jobs(), self._session.client.run(read_all_jobs()))

    async def _arefuse_in_transaction(self) -> None:
        if _find_joining_app() is not None:
            _refuse_uncommitted(await self.ajobs(), await self._session.aclient.run(read_all_jobs()))


def _find_joining_app() -> App | None:
    """Returns Django's App, if there is one: its calls are part of the transaction that Django has open."""
    return next((app for app in living_apps() if app.producer.joins_transactions), None)


def find_open_connection() -> Any:
    """Returns the connection of a Django test that has a transaction open, in which jobs are stored by default.

    Django has a connection per thread, and runs an `async def` test in a thread of its own, where the test's
    transaction would not be found.
    """
    app = _find_joining_app()
    if app is None:
        return None
    refuse_on_loop("This call", "its twin with an `a` before the name, as in `await self.watchbill.ajobs()`,")
    return app.producer.current_connection


def _refuse_uncommitted(seen: list[JobRecord], committed: list[JobRecord]) -> None:
    known = {job.id for job in committed}
    if unseen := [job for job in seen if job.id not in known]:
        raise NotCommitted(describe_uncommitted(unseen), hint=COMMIT_HINT)


def _get_first_matching(task: Any, payload: dict[str, Any], jobs: list[JobRecord], *, own: bool) -> JobRecord:
    __tracebackhide__ = True
    found = select_matching(jobs, task, payload)
    if not found:
        raise AssertionError(describe_missing(task, payload, jobs, own=own))
    return found[0]


def _refuse_matching(task: Any, payload: dict[str, Any], jobs: list[JobRecord]) -> None:
    __tracebackhide__ = True
    found = select_matching(jobs, task, payload)
    if found:
        raise AssertionError(describe_unwanted(task, payload, found))


def _advance_clock(by: timedelta, to: datetime | None) -> Operation[datetime]:
    if to is not None:
        if by:
            raise ValueError("give advance() a time to move to, or how far, not both")
        by = to - (yield from read_clock())
    if by < timedelta(0):
        raise ValueError(f"the clock cannot be moved back by {-by}; it moves forward only")
    now = yield from pass_time(by, _report_events)
    yield from promote(now)  # makes delayed jobs ready: drain() does not, and a running node would do so later
    return now


def _report_events(events: str) -> None:
    """Reports the events of schedules to the observers of every App."""
    for app in living_apps():
        emit_tick_events(app.events, events)
