"""Transactional tasks whose handlers leave their connection idle for longer than the lease."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tests.worker.conftest import Workbench
from watchbill import AsyncConnection, Connection, Retry

LEASE = 1.0
IDLE_SECONDS = 3 * LEASE
SHORT_PAUSE_SECONDS = 0.35 * LEASE  # two of them are shorter than the lease, and longer than its third
IDLE_SESSIONS = """
    SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'watchbill handler'
      AND state LIKE 'idle in transaction%%'
"""


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    workbench = Workbench(schema_database, lease=LEASE)
    workbench.sql("CREATE TABLE effects (name text)")
    yield workbench
    workbench.app.close()


def leave_idle(connection: Connection) -> None:
    connection.execute("INSERT INTO effects VALUES ('leave_idle')")
    time.sleep(IDLE_SECONDS)


def pause_in_copy(connection: Connection) -> None:
    with connection.cursor().copy("COPY effects FROM STDIN") as copy:
        time.sleep(IDLE_SECONDS)
        copy.write_row(["pause_in_copy"])


def pause_in_stream(connection: Connection) -> None:
    for (number,) in connection.cursor().stream("SELECT generate_series(1, 2)"):
        time.sleep(SHORT_PAUSE_SECONDS)
        assert number in (1, 2)
    connection.execute("INSERT INTO effects VALUES ('pause_in_stream')")


def pause_in_pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("INSERT INTO effects VALUES ('pause_in_pipeline')")
        time.sleep(2 * SHORT_PAUSE_SECONDS)


def be_busy(connection: Connection) -> None:
    """A short statement is under way at nearly every moment."""
    until = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < until:
        assert connection.execute("SELECT 7").fetchall() == [(7,)]
    connection.execute("INSERT INTO effects VALUES ('be_busy')")


async def test_transaction_stays_open_while_its_handler_runs(bench: Workbench) -> None:
    """All at the same time, each in a transaction of its own, since each takes longer than several leases."""

    @bench.app.task(type="await", retry=Retry(max_attempts=1))
    async def await_idle(connection: AsyncConnection) -> None:
        await connection.execute("INSERT INTO effects VALUES ('await')")
        await asyncio.sleep(IDLE_SECONDS)

    jobs = {"await": await await_idle.aenqueue()}
    for use in (leave_idle, pause_in_copy, pause_in_stream, pause_in_pipeline, be_busy):
        task = bench.app.task(type=use.__name__, retry=Retry(max_attempts=1))(use)
        jobs[use.__name__] = await task.aenqueue()
    await bench.work_off()
    assert {name: (await job.aget()).state for name, job in jobs.items()} == dict.fromkeys(jobs, "succeeded")
    assert sorted(bench.sql("SELECT name FROM effects")) == sorted((name,) for name in jobs)


async def test_transaction_of_a_handler_that_does_not_stop_is_ended(bench: Workbench) -> None:
    """Its locks must not stay for as long as its thread does."""
    go_on = threading.Event()

    @bench.app.task(retry=Retry(max_attempts=1), timeout=0.5, executor="thread")
    def work(connection: Connection) -> None:
        connection.execute("INSERT INTO effects VALUES ('work')")
        go_on.wait(60)

    job = await work.aenqueue()
    async with bench.working():
        await bench.until(lambda: bench.sql(IDLE_SESSIONS))
        await bench.until(lambda: not bench.sql(IDLE_SESSIONS))
        go_on.set()
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs WHERE id = %s", job.id))
    assert (await job.aget()).state == "dead"
    assert bench.sql("SELECT name FROM effects") == []


async def test_transaction_of_a_process_that_does_nothing_is_ended(bench: Workbench) -> None:
    """A frozen process must not keep its locks for longer than its lease."""

    @bench.app.task(retry=Retry(max_attempts=1))
    async def freeze(connection: AsyncConnection) -> None:
        await connection.execute("INSERT INTO effects VALUES ('work')")
        until = time.monotonic() + 60
        while bench.sql(IDLE_SESSIONS) and time.monotonic() < until:
            time.sleep(0.01)  # noqa: ASYNC251  (as if the process were frozen)

    job = await freeze.aenqueue()
    await bench.work_off()
    assert (await job.aget()).state == "dead"
    assert bench.sql("SELECT name FROM effects") == []
