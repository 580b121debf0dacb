"""An AsyncClient and event loops: one after the other, side by side, and many callers at once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.chaos.proxy import Proxy
from tests.waiting import until
from watchbill import AsyncClient, Client
from watchbill.client import job_operations


def sessions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


async def ask(client: AsyncClient, times: int = 1) -> None:
    await asyncio.gather(*(client.run(job_operations.stats()) for _ in range(times)))


def test_concurrent_callers_open_one_pool(schema_database: str) -> None:
    client = AsyncClient(schema_database, pool_size=2)

    async def run() -> int:
        await ask(client, 20)
        open_now = sessions(schema_database)
        await client.close()
        return open_now

    assert asyncio.run(run()) <= 2
    until(lambda: sessions(schema_database) == 0)


def test_one_caller_opens_one_connection(schema_database: str) -> None:
    async def run() -> None:
        async with AsyncClient(schema_database) as client:
            await ask(client)
            pool = await client._pools.get_for_running_loop()
            assert pool.get_stats()["connections_num"] == 1

    asyncio.run(run())
    with Client(schema_database) as client:
        client.run(job_operations.stats())
        assert client._open().get_stats()["connections_num"] == 1


def test_client_works_on_one_loop_after_another(schema_database: str) -> None:
    """As scripts do: `asyncio.run` here and there. What an ended loop had is closed by the next."""
    client = AsyncClient(schema_database, pool_size=1)
    for _ in range(3):
        asyncio.run(ask(client, 3))
        until(lambda: sessions(schema_database) == 1)
    asyncio.run(client.close())
    until(lambda: sessions(schema_database) == 0)


def test_client_works_on_two_loops_at_once(schema_database: str) -> None:
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


def test_loop_ends_while_its_pool_opens_a_connection(schema_database: str) -> None:
    """`asyncio.run` waits for the tasks of the pool, and one of them waits for a server that does not answer."""
    address = urlsplit(schema_database)
    with Proxy(Path(parse_qs(address.query)["host"][0], ".s.PGSQL.5432")) as proxy:
        client = AsyncClient(proxy.url(address.path.lstrip("/")), pool_size=1)
        ending = threading.Event()

        async def run() -> None:
            async with client.connection() as connection:
                proxy.swallow()
                await connection.close()
            await asyncio.to_thread(until, lambda: proxy.accepted == 3)  # the pool replaces what was closed
            ending.set()

        loop = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
        loop.start()
        loop.join(timeout=30)
        assert ending.is_set()
        assert not loop.is_alive()
