"""An AsyncClient and event loops: one after the other, side by side, and many callers at once."""

from __future__ import annotations

import asyncio
import threading

import psycopg

from watchbill import AsyncClient
from watchbill.client import plans
from tests.waiting import until


def sessions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


async def ask(client: AsyncClient, times: int = 1) -> None:
    await asyncio.gather(*(client.run(plans.stats()) for _ in range(times)))


def test_callers_at_once_open_one_pool(schema_database: str) -> None:
    client = AsyncClient(schema_database, pool_size=2)

    async def run() -> int:
        await ask(client, 20)
        open_now = sessions(schema_database)
        await client.close()
        return open_now

    assert asyncio.run(run()) <= 2
    until(lambda: sessions(schema_database) == 0)


def test_one_loop_after_the_other(schema_database: str) -> None:
    """As scripts do: `asyncio.run` here and there. What an ended loop had is closed by the next."""
    client = AsyncClient(schema_database, pool_size=1)
    for _ in range(3):
        asyncio.run(ask(client, 3))
        until(lambda: sessions(schema_database) == 1)
    asyncio.run(client.close())
    until(lambda: sessions(schema_database) == 0)


def test_loops_side_by_side(schema_database: str) -> None:
    client = AsyncClient(schema_database, pool_size=1)
    both = threading.Barrier(2, timeout=30)
    failures: list[BaseException] = []

    async def run() -> None:
        for _ in range(20):
            await ask(client, 2)
        await asyncio.to_thread(both.wait)
        await client.close()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    until(lambda: sessions(schema_database) == 0)
