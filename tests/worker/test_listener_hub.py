"""Several workers that share one LISTEN connection: what each must notice, and what one must not do to the others.

They poll once in a thousand seconds, so that only a notification can have woken them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill.node import Node
from watchbill.worker import claiming
from watchbill.worker.listener_hub import ListenerHub

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'watchbill listener' AND datname = current_database()"
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListenerHub]:
    monkeypatch.setattr(claiming, "LONGEST_SLEEP_SECONDS", 1000.0)
    hub = ListenerHub()
    yield hub
    hub.close()


@asynccontextmanager
async def connected(bench: Workbench, hub: ListenerHub, **changes: Any) -> AsyncIterator[Node]:
    node = bench.node(poll_interval=1000.0, poll_max_interval=1000.0, **changes)
    node.hub_socket = hub.connect_child()
    running = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        node.stop()
        async with asyncio.timeout(60):
            await running


def _sleeps(node: Node) -> bool:
    return node._worker is not None and node.worker.notifications.is_locked


def _is_another(bench: Workbench, lost: list[tuple[Any, ...]]) -> bool:
    return bench.sql(LISTENERS) not in ([], lost)


async def asleep(bench: Workbench, *nodes: Node) -> None:
    for node in nodes:
        await bench.until(partial(_sleeps, node))


async def test_workers_share_one_listen_connection(bench: Workbench, hub: ListenerHub) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(connected(bench, hub, name=f"n{number}", queues=(f"q{number}",)))
            for number in range(3)
        ]
        for _ in range(2):
            for number in range(3):
                await asleep(bench, *nodes)
                job = await task.using(queue=f"q{number}").aenqueue()
                assert await job.aresult(timeout=60) == "ran"
        assert len(bench.sql(LISTENERS)) == 1


async def test_a_worker_that_leaves_keeps_the_lock_of_the_sleeping_one(bench: Workbench, hub: ListenerHub) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with connected(bench, hub, name="stays") as stays:
        async with connected(bench, hub, name="leaves", queues=("other",)) as leaves:
            await asleep(bench, stays, leaves)
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_sleep_lock_is_released_with_the_last_worker(bench: Workbench, hub: ListenerHub) -> None:
    async with connected(bench, hub) as node:
        await asleep(bench, node)
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = ANY (%s)"
        listeners = [pid for (pid,) in bench.sql(LISTENERS)]
        assert bench.sql(held, listeners) == [(1,)]
    await bench.until(lambda: bench.sql(held, listeners) == [(0,)])


async def test_listener_hub_reconnects_after_a_lost_connection(bench: Workbench, hub: ListenerHub) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with connected(bench, hub, name="a") as a, connected(bench, hub, name="b") as b:
        for _ in range(2):
            await asleep(bench, a, b)
            lost = bench.sql(LISTENERS)
            bench.sql(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) x")
            await bench.until(partial(_is_another, bench, lost))
            await asleep(bench, a, b)
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_a_hub_that_dies_leaves_workers_that_poll(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    hub = ListenerHub()
    node = bench.node(poll_interval=0.01, poll_max_interval=0.05)
    node.hub_socket = hub.connect_child()
    running = asyncio.create_task(node.run())
    await asleep(bench, node)
    await asyncio.to_thread(hub.close)
    assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
    node.stop()
    await running


async def test_stop_request_reaches_the_worker_through_the_listener_hub(bench: Workbench, hub: ListenerHub) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def long() -> None:
        started.set()
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.set()

    async with connected(bench, hub, lease=600.0) as node:
        await asleep(bench, node)
        job = await long.aenqueue()
        await asyncio.wait_for(started.wait(), 60)
        bench.sql("SELECT watchbill.cancel(%s)", job.id)
        await asyncio.wait_for(stopped.wait(), 60)


async def test_an_unknown_note_does_not_stop_listening(bench: Workbench, hub: ListenerHub) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with connected(bench, hub) as node:
        await asleep(bench, node)
        bench.sql("SELECT pg_notify(watchbill._wake_channel(), 'stop nonsense')")
        for _ in range(2):
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            await asleep(bench, node)
