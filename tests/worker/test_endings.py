"""The end of a node, however it comes: nothing goes on that was given back, nothing runs twice that may run once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests.chaos.proxy import Proxy
from tests.worker.conftest import PATIENCE, Workbench
from watchbill import Retry, current_job
from watchbill.maintenance.chores import repeat
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries
from watchbill.worker import worker
from watchbill.worker.stale_name import expire_if_dead
from watchbill.worker.worker import cancel_all

ONCE = Retry(max_attempts=1)


@pytest.fixture
def proxy(bench: Workbench) -> Iterator[Proxy]:
    with Proxy(Path(parse_qs(urlsplit(bench.url).query)["host"][0], ".s.PGSQL.5432")) as proxy:
        yield proxy


@pytest.mark.parametrize("how", ["canceled", "its settler canceled"])
async def test_canceled_node_stops_its_handlers(bench: Workbench, how: str) -> None:
    told: list[str] = []

    @bench.app.task
    async def again() -> None:
        await _until_told("again")

    @bench.app.task(retry=ONCE)
    async def once() -> None:
        await _until_told("once")

    async def _until_told(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(name)

    jobs = [await again.aenqueue(), await once.aenqueue()]
    node = bench.node()
    running = asyncio.create_task(node.run())
    await bench.until(lambda: node._worker and len(node.worker.slots.runs) == 2)
    for task in asyncio.all_tasks():
        if task is running if how == "canceled" else "Settler.run" in str(task.get_coro()):
            task.cancel()
    await asyncio.wait([running], timeout=PATIENCE)
    assert running.done()
    assert sorted(told) == ["again", "once"]
    states = [(await job.aget()).state for job in jobs]
    assert states == (["queued", "dead"] if how == "canceled" else ["running", "running"])  # until its lease is over


async def test_one_attempt_job_with_an_unrecorded_ending_runs_only_once(bench: Workbench) -> None:
    """Somebody keeps its row locked until the node has gone."""
    runs: list[int] = []
    blocker = await psycopg.AsyncConnection.connect(bench.url)

    @bench.app.task(retry=ONCE)
    async def once() -> None:
        runs.append(1)
        if len(runs) == 1:
            await blocker.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (current_job().id,))

    await once.aenqueue()
    async with bench.working(drain_timeout=0.0, lease=1.0) as node:
        await bench.until(lambda: runs and node.worker.settler.unsettled)
    await blocker.close()
    async with bench.working(lease=1.0):
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs"))
    assert runs == [1]
    assert bench.sql("SELECT state, outcome FROM watchbill.finished_jobs") == [("dead", "lost")]


async def test_a_canceled_chore_ends_although_its_connection_breaks_meanwhile(bench: Workbench, proxy: Proxy) -> None:
    """psycopg asks the server to cancel the statement first; what breaks then would be raised instead."""
    url = proxy.url(urlsplit(bench.url).path.lstrip("/"))
    connection = NodeConnection(url, queries("watchbill"), purpose="test", timeout=60)

    async def chore() -> float:
        await connection.execute("server_time_and_nodes")
        return 0.0

    working = asyncio.create_task(repeat("read the time", chore, connection))
    await bench.until(lambda: connection.connections)
    proxy.swallow()
    await bench.until(connection._lock.locked)
    working.cancel()
    while not working.done():
        proxy.cut()
        await asyncio.wait([working], timeout=0.05)
        assert connection.connections == 1
    await connection.close()


async def test_a_task_that_swallows_a_cancellation_is_canceled_again(bench: Workbench) -> None:
    async def deaf_at_first() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    task = asyncio.create_task(deaf_at_first())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert task.cancelled()


async def test_a_thread_that_was_asked_to_stop_still_has_its_time_out(bench: Workbench) -> None:
    go_on = threading.Event()

    @bench.app.task(timeout=0.01, executor="thread")
    def deaf() -> None:
        go_on.wait(30)

    job = await deaf.using(timeout=0.5).aenqueue()
    node = bench.node(stuck_after=0.1, drain_timeout=0.1)
    running = asyncio.create_task(node.run())
    await bench.until(lambda: node._worker and node.worker.slots.runs)
    await bench.app.jobs.acancel(job.id)
    async with asyncio.timeout(PATIENCE):
        await running
    assert (node.exit_code, (await job.aget()).state) == (70, "canceled")
    go_on.set()


async def test_nodes_of_one_process_do_not_expire_each_other(
    bench: Workbench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second node tries again and again, but says so once."""
    tries: list[str] = []

    async def count_and_expire(connection: NodeConnection, name: str) -> None:
        await expire_if_dead(connection, name)
        tries.append(name)

    monkeypatch.setattr(worker, "expire_if_dead", count_and_expire)
    monkeypatch.setattr(worker, "LOG_AGAIN_SECONDS", 3600.0)
    async with bench.working(name="mine") as first:
        await first.wait_until_ready()
        async with bench.working(name="mine"):
            await bench.until(lambda: len(tries) > 2)
            assert caplog.text.count("Could not register") == 1
            assert bench.sql("SELECT state FROM watchbill.nodes") == [("active",)]
