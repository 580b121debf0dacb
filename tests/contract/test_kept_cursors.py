"""A client keeps a cursor on each connection: it survives what fails, and lets go of what was large."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from watchbill import AsyncClient, Client
from watchbill.client import job_operations, operations
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id
from watchbill.model.job import JobFilter, NewJob


def jobs(count: int) -> list[NewJob]:
    return [NewJob(id=new_id(), type="t", payload=b"{}") for _ in range(count)]


def test_client_drops_its_cursor_after_a_large_result(schema_database: str) -> None:
    with Client(schema_database, pool_size=1) as client:
        client.run_in_transaction(operations.enqueue_many(jobs(150)))
        client.run(job_operations.stats())
        with client.connection() as connection:
            kept = connection.kept_cursor
        assert len(client.run(job_operations.find(JobFilter(limit=120)))) == 120
        with client.connection() as connection:
            assert connection.kept_cursor is not kept


def test_failed_statement_leaves_the_cursor_usable(schema_database: str) -> None:
    with Client(schema_database, pool_size=1) as client:
        client.run(job_operations.stats())
        with client.connection() as connection:
            kept = connection.kept_cursor
        with pytest.raises(WatchbillError):
            client.run(operations.enqueue(jobs(1)[0]._replace(type="")))
        assert client.run(operations.enqueue(jobs(1)[0])).created
        with client.connection() as connection:
            assert connection.kept_cursor is kept


def test_pool_rolls_back_a_transaction_left_open(schema_database: str) -> None:
    """A connection goes back to the pool as it was taken: no transaction is open on it, and none was committed."""
    with Client(schema_database, pool_size=1) as client:
        job = jobs(1)[0]
        with client.connection() as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT watchbill.enqueue('t', id => %s)", (job.id,))
        with client.connection() as connection:
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert connection.execute("SELECT FROM watchbill.jobs").fetchall() == []


def test_asyncio_tasks_share_connections_but_not_cursors(schema_database: str) -> None:
    async def run() -> int:
        async with AsyncClient(schema_database, pool_size=3) as client:
            await asyncio.gather(*(client.run(operations.enqueue(job)) for job in jobs(200)))
            return len(await client.run(job_operations.find(JobFilter(limit=300))))

    assert asyncio.run(run()) == 200
