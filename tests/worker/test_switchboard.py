"""Several workers that hear through one connection: what each must notice, and what one must not do to the others.

They poll once in a thousand seconds, so that only the bell can have woken them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

import watchbill.worker.worker as worker_module
from watchbill.node import Node
from watchbill.worker.switchboard import Switchboard
from tests.worker.conftest import Workbench

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'watchbill listener' AND datname = current_database()"
)


@pytest.fixture
def switchboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Switchboard]:
    monkeypatch.setattr(worker_module, "LONGEST_DOZE", 1000.0)
    switchboard = Switchboard()
    yield switchboard
    switchboard.close()


@asynccontextmanager
async def plugged(bench: Workbench, switchboard: Switchboard, **changes: Any) -> AsyncIterator[Node]:
    node = bench.node(poll_interval=1000.0, poll_max_interval=1000.0, **changes)
    node.plug = switchboard.plug()
    running = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        node.stop()
        async with asyncio.timeout(60):
            await running


def _sleeps(node: Node) -> bool:
    return node._worker is not None and node.worker.doorbell.holding


def _is_another(bench: Workbench, lost: list[tuple[Any, ...]]) -> bool:
    return bench.sql(LISTENERS) not in ([], lost)


async def asleep(bench: Workbench, *nodes: Node) -> None:
    for node in nodes:
        await bench.until(partial(_sleeps, node))


async def test_several_hear_through_one_connection(bench: Workbench, switchboard: Switchboard) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(plugged(bench, switchboard, name=f"n{number}", queues=(f"q{number}",)))
            for number in range(3)
        ]
        for _ in range(2):
            for number in range(3):
                await asleep(bench, *nodes)
                job = await task.using(queue=f"q{number}").aenqueue()
                assert await job.aresult(timeout=60) == "ran"
        assert len(bench.sql(LISTENERS)) == 1


async def test_one_that_leaves_does_not_wake_the_porter(bench: Workbench, switchboard: Switchboard) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with plugged(bench, switchboard, name="stays") as stays:
        async with plugged(bench, switchboard, name="leaves", queues=("other",)) as leaves:
            await asleep(bench, stays, leaves)
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_the_lock_is_let_go_with_the_last_sleeper(bench: Workbench, switchboard: Switchboard) -> None:
    async with plugged(bench, switchboard) as node:
        await asleep(bench, node)
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = ANY (%s)"
        listeners = [pid for (pid,) in bench.sql(LISTENERS)]
        assert bench.sql(held, listeners) == [(1,)]
    await bench.until(lambda: bench.sql(held, listeners) == [(0,)])


async def test_the_connection_is_lost_and_found(bench: Workbench, switchboard: Switchboard) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with plugged(bench, switchboard, name="a") as a, plugged(bench, switchboard, name="b") as b:
        for _ in range(2):
            await asleep(bench, a, b)
            lost = bench.sql(LISTENERS)
            bench.sql(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) x")
            await bench.until(partial(_is_another, bench, lost))
            await asleep(bench, a, b)
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_a_switchboard_that_dies_leaves_workers_that_poll(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    switchboard = Switchboard()
    node = bench.node(poll_interval=0.01, poll_max_interval=0.05)
    node.plug = switchboard.plug()
    running = asyncio.create_task(node.run())
    await asleep(bench, node)
    await asyncio.to_thread(switchboard.close)
    assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
    node.stop()
    await running


async def test_a_stop_request_reaches_the_one_that_runs_it(bench: Workbench, switchboard: Switchboard) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def long() -> None:
        started.set()
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.set()

    async with plugged(bench, switchboard, lease=600.0) as node:
        await asleep(bench, node)
        job = await long.aenqueue()
        await asyncio.wait_for(started.wait(), 60)
        bench.sql("SELECT watchbill.cancel(%s)", job.id)
        await asyncio.wait_for(stopped.wait(), 60)


async def test_a_note_that_nobody_understands_makes_nobody_deaf(bench: Workbench, switchboard: Switchboard) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with plugged(bench, switchboard) as node:
        await asleep(bench, node)
        bench.sql("SELECT pg_notify(watchbill.wake_channel(), 'stop nonsense')")
        for _ in range(2):
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            await asleep(bench, node)
