"""How many connections a worker has: counted on the server under a full load, and compared with what it states."""

from __future__ import annotations

import asyncio
import threading

from tests.worker.conftest import Workbench
from watchbill import AsyncConnection, Connection
from watchbill.settings import Settings
from watchbill.worker.config import make_capacity

DEFAULT_LIMIT = 97  # max_connections = 100 without those that are reserved for superusers


async def test_worker_never_has_more_connections_than_it_states(bench: Workbench) -> None:
    """With all four pools in use: more handlers want a connection than there are."""
    go_on, transactional, calling = threading.Event(), [], []

    async def wait_on_loop() -> None:
        while not go_on.is_set():  # noqa: ASYNC110  (the threads wait for the same event)
            await asyncio.sleep(0.005)

    @bench.app.task
    def write(connection: Connection, n: int) -> None:
        transactional.append(n)
        go_on.wait(60)

    @bench.app.task
    async def awrite(connection: AsyncConnection, n: int) -> None:
        transactional.append(n)
        await wait_on_loop()

    @bench.app.task
    def call(n: int) -> None:
        with bench.app.producer.runtime.client.connection():
            calling.append(n)
            go_on.wait(60)

    @bench.app.task
    async def acall(n: int) -> None:
        async with bench.app.producer.runtime.aclient.connection():
            calling.append(n)
            await wait_on_loop()

    @bench.app.task
    async def last() -> str:
        return "ran"

    settings = bench.app.settings
    await bench.app.aenqueue_many([task.bind(n) for n in range(30) for task in (write, awrite)])
    await bench.app.aenqueue_many([task.bind(n) for n in range(settings.pool_size) for task in (call, acall)])
    end = await last.using(priority=-1).aenqueue()
    await bench.app.aclose()
    bench.app.close()
    async with bench.working(capacity=make_capacity(None, cores=3)):
        await bench.until(lambda: len(transactional) >= 2 * settings.pool_size)
        await bench.until(lambda: len(calling) >= 2 * settings.pool_size)
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs WHERE id = %s", end.id))
        ((count,),) = bench.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        running = len(transactional)
        go_on.set()
        await bench.until(lambda: len(transactional) == 60)
    assert running == 2 * settings.pool_size
    # All but those of the scheduler, of upkeep and of a command outside of transactions, which may not be open yet.
    assert settings.worker_connections - 3 <= count <= settings.worker_connections


def test_three_workers_and_their_producers_fit_into_the_servers_default() -> None:
    assert 3 * Settings().worker_connections + 6 * Settings().pool_size <= DEFAULT_LIMIT
