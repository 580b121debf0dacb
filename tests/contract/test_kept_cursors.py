"""A client keeps a cursor on each connection: it survives what fails, and lets go of what was large."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from watchbill import AsyncClient, Client
from watchbill.client import plans
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id
from watchbill.model.job import JobFilter, NewJob


def jobs(count: int) -> list[NewJob]:
    return [NewJob(id=new_id(), type="t", payload=b"{}") for _ in range(count)]


def test_rows_of_a_large_answer_are_not_kept(schema_database: str) -> None:
    with Client(schema_database, pool_size=1) as client:
        client.run_together(plans.enqueue_many(jobs(150)))
        client.run(plans.stats())
        with client.connection() as connection:
            kept = connection.kept_cursor
        assert len(client.run(plans.find(JobFilter(limit=120)))) == 120
        with client.connection() as connection:
            assert connection.kept_cursor is not kept


def test_a_statement_that_fails_leaves_a_cursor_for_the_next(schema_database: str) -> None:
    with Client(schema_database, pool_size=1) as client:
        client.run(plans.stats())
        with client.connection() as connection:
            kept = connection.kept_cursor
        with pytest.raises(WatchbillError):
            client.run(plans.enqueue(jobs(1)[0]._replace(type="")))
        assert client.run(plans.enqueue(jobs(1)[0])).created
        with client.connection() as connection:
            assert connection.kept_cursor is kept


def test_what_a_caller_left_open_goes_back_without_effect(schema_database: str) -> None:
    """A connection goes back to the pool as it was taken: no transaction is open on it, and none was committed."""
    with Client(schema_database, pool_size=1) as client:
        job = jobs(1)[0]
        with client.connection() as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT watchbill.enqueue('t', id => %s)", (job.id,))
        with client.connection() as connection:
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert connection.execute("SELECT FROM watchbill.jobs").fetchall() == []


def test_tasks_of_one_loop_share_connections_and_no_cursor(schema_database: str) -> None:
    async def run() -> int:
        async with AsyncClient(schema_database, pool_size=3) as client:
            await asyncio.gather(*(client.run(plans.enqueue(job)) for job in jobs(200)))
            return len(await client.run(plans.find(JobFilter(limit=300))))

    assert asyncio.run(run()) == 200
