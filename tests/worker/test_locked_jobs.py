"""A transaction that somebody leaves open keeps a job or a schedule locked: no handler of other jobs waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.worker.conftest import Workbench
from watchbill import AsyncConnection


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    """Its nodes have one connection for transactional handlers."""
    workbench = Workbench(schema_database, pool_size=1)
    yield workbench
    workbench.app.close()


@pytest.fixture
def other(bench: Workbench) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(bench.url) as connection:
        yield connection
        connection.rollback()


async def test_a_transactional_handler_does_not_wait_for_a_job_that_another_transaction_keeps_locked(
    bench: Workbench, other: psycopg.Connection[Any]
) -> None:
    has_started, go_on = asyncio.Event(), asyncio.Event()
    bench.sql("CREATE TABLE effects (name text)")

    @bench.app.task
    async def write(connection: AsyncConnection, name: str) -> str:
        await connection.execute("INSERT INTO effects VALUES (%s)", (name,))
        if name == "locked":
            has_started.set()
            await go_on.wait()
        return name

    locked = await write.aenqueue("locked")
    async with bench.working():
        await has_started.wait()
        other.execute("SELECT watchbill.cancel(%s)", (locked.id,))
        go_on.set()
        assert await (await write.aenqueue("free")).aresult(timeout=60) == "free"
        other.rollback()
        assert await locked.aresult(timeout=60) == "locked"
    assert sorted(bench.sql("SELECT name FROM effects")) == [("free",), ("locked",)]
    assert (await locked.aget()).attempt == 1


async def test_the_start_of_a_chain_does_not_wait_for_a_schedule_that_another_transaction_keeps_locked(
    bench: Workbench, other: psycopg.Connection[Any]
) -> None:
    @bench.app.task(type="step")
    async def step(connection: AsyncConnection) -> str:
        return "ran"

    bench.sql(
        """SELECT watchbill.add_schedule('chain', '@yearly', type => 'watchbill.flow',
             payload => '{"jobs": [{"type": "step", "payload": {}}], "ends": [0]}')"""
    )
    bench.sql("SELECT watchbill.run_schedule('chain')")
    other.execute("SELECT watchbill.disable_schedule('chain')")
    async with bench.working():
        claimed = "SELECT 1 FROM watchbill.jobs WHERE fence <> 0 AND type = 'watchbill.flow'"
        await bench.until(lambda: bench.sql(claimed))
        assert await (await step.aenqueue()).aresult(timeout=60) == "ran"
        other.rollback()
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.slots WHERE outcome = 'succeeded'"))
    flow = bench.sql("SELECT run > 1, attempt FROM watchbill.finished_jobs WHERE type = 'watchbill.flow'")
    assert flow == [(True, 1)]
