"""An enqueue whose reply is lost is sent again, and makes no second job, whatever became of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.chaos.proxy import Proxy
from tests.waiting import until
from watchbill import App, chain
from watchbill.app.job import Job, JobCanceled
from watchbill.client import client as clients
from watchbill.client.operations import MIN_JOBS_TO_COPY, Rows, Step
from watchbill.errors import NoDatabase
from watchbill.model.ids import new_id
from watchbill.model.job import Enqueued, NewJob
from watchbill.postgres.connect import Pool
from watchbill.store.refusals import Invalid


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database)
    yield app
    app.close()


def lose_replies(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """The statement is carried out and committed, but the answer never arrives."""
    original, lost = clients.execute, list[str]()

    def execute(connection: psycopg.Connection[object], step: Step, queries: object) -> Rows:
        rows = original(connection, step, queries)  # type: ignore[arg-type]
        if len(lost) < count and step.query in ("enqueue_plain", "enqueue", "enqueue_plain_many", "enqueue_many"):
            lost.append(step.query)
            connection.pgconn.exec_(b"COMMIT")
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    monkeypatch.setattr(clients, "execute", execute)
    return lost


def test_resend_after_a_lost_reply_makes_no_second_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lose_replies(monkeypatch, 2)
    job = app.enqueue("t")
    assert len(lost) == 2
    assert job.created
    assert [found.id for found in app.jobs.list()] == [job.id]


def test_resend_makes_no_second_job_if_the_first_has_finished(
    app: App, schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = clients.execute

    def execute(connection: psycopg.Connection[object], step: Step, queries: object) -> Rows:
        rows = original(connection, step, queries)  # type: ignore[arg-type]
        if step.query == "enqueue_plain" and not finished:
            finished.append(True)
            with psycopg.connect(schema_database, autocommit=True) as other:
                other.execute("SELECT watchbill.register('quick')")
                other.execute(
                    "SELECT watchbill.complete(c.id, c.fence) "
                    "FROM watchbill.claim((SELECT epoch FROM watchbill.nodes)) c"
                )
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    finished: list[bool] = []
    monkeypatch.setattr(clients, "execute", execute)
    job = app.enqueue("t")
    assert [(found.id, found.state) for found in app.jobs.list()] == [(job.id, "succeeded")]


def test_resend_of_a_bulk_enqueue_makes_no_second_jobs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(type="t")
    async def t(n: int) -> None: ...

    lose_replies(monkeypatch, 1)
    jobs = app.enqueue_many([t.bind(n) for n in range(10)])
    assert all(job.created for job in jobs)
    assert len(app.jobs.list()) == 10


def test_enqueue_fails_when_the_database_stays_unreachable(
    schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(schema_database, client_timeout=0.2)
    lose_replies(monkeypatch, 100)
    with pytest.raises(NoDatabase, match="closed the connection"):
        app.enqueue("t")


# -- an id is used once


def finish_all(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT watchbill.register('quick')")
        other.execute(
            "SELECT watchbill.complete(c.id, c.fence)"
            " FROM watchbill.claim((SELECT max(epoch) FROM watchbill.nodes), max => 100) c"
        )


def test_id_of_a_finished_job_is_not_used_again(app: App, schema_database: str) -> None:
    @app.task(type="t")
    async def t(n: int) -> None: ...

    @app.around_enqueue
    def reuse(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        yield job._replace(id=first.id) if job.type == "reused" else job

    first = t.using(id=new_id()).enqueue(1)
    finish_all(schema_database)
    again = t.using(id=first.id)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        answers = [
            again.enqueue(2),
            again.using(connection=connection).enqueue(3),
            *app.enqueue_many([again.bind(4)]),
            *app.enqueue_many([again.bind(5)], connection=connection),
        ]
        with pytest.raises(Invalid, match="is taken"):  # by a job of another type
            app.enqueue("reused")
    assert [(job.id, job.created) for job in answers] == [(first.id, False)] * 4
    assert [(found.id, found.state) for found in app.jobs.list()] == [(first.id, "succeeded")]


# -- connections that the server has closed

POOL_SIZE = 8  # more than the pauses between two tries


def close_connections(url: str) -> int:
    """The server closes all connections of Apps, as it does when it restarts."""
    with psycopg.connect(url, autocommit=True) as other:
        rows = other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'watchbill'"
        ).fetchall()
    return len(rows)


@pytest.fixture
def large_pool(schema_database: str) -> Iterator[App]:
    app = App(schema_database, pool_size=POOL_SIZE)

    @app.task(type="t")
    async def t(n: int) -> None: ...

    with ExitStack() as stack:
        for _ in range(POOL_SIZE):
            stack.enter_context(app.client.connection())
    yield app
    app.close()


def test_every_kind_of_enqueue_survives_a_pool_of_closed_connections(large_pool: App, schema_database: str) -> None:
    task = large_pool.tasks["t"]
    assert close_connections(schema_database) == POOL_SIZE
    [first, second] = large_pool.enqueue_many([task.bind(1), task.bind(2)])
    close_connections(schema_database)
    flow = chain(task.bind(3), task.bind(4)).enqueue()
    close_connections(schema_database)
    last = task.enqueue(5)
    jobs = [first, second, *flow, last]
    assert all(job.created for job in jobs)
    assert {job.id for job in large_pool.jobs.list()} == {job.id for job in jobs}


def test_async_enqueues_survive_closed_connections(large_pool: App, schema_database: str) -> None:
    task = large_pool.tasks["t"]

    async def enqueue() -> None:
        await task.aenqueue(0)
        await asyncio.to_thread(close_connections, schema_database)
        assert len(await large_pool.aenqueue_many([task.bind(1), task.bind(2)])) == 2
        await asyncio.to_thread(close_connections, schema_database)
        assert len(await chain(task.bind(3), task.bind(4)).aenqueue()) == 2
        assert len(await large_pool.jobs.alist()) == 5
        await large_pool.aclose()

    asyncio.run(enqueue())


def test_bulk_whose_commit_fails_is_sent_again_once(
    large_pool: App, schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, closed = clients.execute, list[int]()

    def execute(connection: psycopg.Connection[object], step: Step, queries: object) -> Rows:
        rows = original(connection, step, queries)  # type: ignore[arg-type]
        if step.query == "drop_incoming" and not closed:
            closed.append(close_connections(schema_database))
        return rows

    monkeypatch.setattr(clients, "execute", execute)
    by_priority = [large_pool.tasks["t"].using(priority=priority) for priority in range(2)]
    jobs = large_pool.enqueue_many([by_priority[n % 2].bind(n) for n in range(MIN_JOBS_TO_COPY)])
    assert closed
    assert {job.id for job in large_pool.jobs.list(limit=2 * len(jobs))} == {job.id for job in jobs}


# -- a server that does not answer


@pytest.fixture
def proxy(schema_database: str) -> Iterator[Proxy]:
    parts = conninfo_to_dict(schema_database)
    with Proxy(Path(str(parts["host"])) / f".s.PGSQL.{parts.get('port', 5432)}") as proxy:
        yield proxy


def test_first_calls_wait_until_the_server_is_there(
    proxy: Proxy, schema_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = App(schema_database)
    known = other.enqueue("t").id
    other.jobs.cancel(known)
    other.close()
    app = App(proxy.url(str(conninfo_to_dict(schema_database)["dbname"])))
    job: Job[Any] = Job(app.producer, None, known)
    server, proxy._socket = proxy._socket, Path("/nothing")
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(app.enqueue, "t"), threads.submit(job.result)]
        calls.append(threads.submit(asyncio.run, app.aenqueue("t")))
        until(lambda: proxy.accepted > 20)
        assert not any(call.done() for call in calls)
        proxy._socket = server
        assert calls[0].result(60).created
        assert calls[2].result(60).created
        with pytest.raises(JobCanceled):
            calls[1].result(60)
    app.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" (")[0] for line in warnings if "again" not in line] == ["The database does not answer"]


def test_first_call_fails_at_once_if_waiting_cannot_help(proxy: Proxy) -> None:
    with pytest.raises(NoDatabase, match="does not exist"):
        App(proxy.url("no_such_database")).enqueue("t")
    assert proxy.accepted == 1


def test_waiting_calls_return_soon_after_a_long_outage(
    app: App, schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool used to double its pauses: after an outage of 25 s, calls waited for up to 13 s more."""
    pauses: list[float] = []

    def run_at_once(pool: Pool, task: Any, delay: float) -> None:
        if type(task).__name__ == "AddConnection":
            pauses.append(delay)
            pool.run_task(task)

    monkeypatch.setattr(Pool, "schedule_task", run_at_once)
    app.enqueue("t")
    monkeypatch.setattr(clients.ClientConnection, "connect", fail_times(60, clients.ClientConnection.connect))
    close_connections(schema_database)
    assert app.enqueue("t").created
    assert len(pauses) == 60
    assert max(pauses) <= 1.0
    assert len({round(pause, 3) for pause in pauses[-20:]}) > 5  # so that not all processes try at the same moment


def fail_times(count: int, connect: Callable[..., Any]) -> Callable[..., Any]:
    left = iter(range(count))

    def fail(*args: Any, **more: Any) -> Any:
        if next(left, None) is not None:
            raise psycopg.OperationalError("connection refused")
        return connect(*args, **more)

    return fail


def test_client_timeout_ends_calls_that_get_no_answer(proxy: Proxy, schema_database: str) -> None:
    url = proxy.url(str(conninfo_to_dict(schema_database)["dbname"]))
    app = App(url, client_timeout=0.2)

    @app.task(type="t")
    async def t(n: int) -> None: ...

    calls: list[Callable[[], Any]] = [
        lambda: t.enqueue(1),
        lambda: app.enqueue_many([t.bind(1), t.bind(2)]),
        lambda: app.jobs.list(),
        lambda: app.queues.pause("default"),
    ]
    for call in calls:
        assert app.jobs.list() == []
        proxy.swallow()
        with pytest.raises(NoDatabase, match=r"No reply within 0\.2 s \(client_timeout\)|within 0\.2 s"):
            call()
        proxy.cut()  # so that what was swallowed is not delivered later
        proxy.behave()
        app.close()

    async def acall() -> None:
        await app.jobs.alist()
        proxy.swallow()
        with pytest.raises(NoDatabase, match="No reply within"):
            await t.aenqueue(1)
        with pytest.raises(NoDatabase, match="within"):
            await app.aenqueue_many([t.bind(1), t.bind(2)])
        proxy.cut()
        proxy.behave()
        await app.aclose()

    asyncio.run(acall())
