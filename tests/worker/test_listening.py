"""Several workers of one database that listen: what each must notice, and what one must not do to the others.

They poll once in a thousand seconds, so that only a notification can have woken them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill.node import Node
from watchbill.worker import claiming

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'watchbill listener' AND datname = current_database()"
)


@pytest.fixture(autouse=True)
def long_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "LONGEST_SLEEP_SECONDS", 1000.0)


@asynccontextmanager
async def listening(bench: Workbench, **changes: Any) -> AsyncIterator[Node]:
    async with bench.working(poll_interval=1000.0, poll_max_interval=1000.0, **changes) as node:
        yield node


def is_listening(node: Node) -> bool:
    return node._worker is not None and node.worker.notifications.is_listening


def _sleeps(node: Node) -> bool:
    """Whether this worker sleeps and listens. If another holds the wakeup lock, it hears the notifications too."""
    return is_listening(node) and node.worker._wakeups.slept_seconds >= 0


async def asleep(bench: Workbench, *nodes: Node) -> None:
    for node in nodes:
        await bench.until(partial(_sleeps, node))


def _list_listeners(bench: Workbench) -> set[int]:
    return {pid for (pid,) in bench.sql(LISTENERS)}


def _have_reconnected(bench: Workbench, lost: set[int]) -> bool:
    now = _list_listeners(bench)
    return len(now) == len(lost) and not now & lost


async def test_a_notification_wakes_the_worker_that_serves_the_queue(bench: Workbench) -> None:
    """Whichever of them holds the wakeup lock."""

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(listening(bench, name=f"n{number}", queues=(f"q{number}",)))
            for number in range(3)
        ]
        for _ in range(2):
            for number in range(3):
                await asleep(bench, *nodes)
                job = await task.using(queue=f"q{number}").aenqueue()
                assert await job.aresult(timeout=60) == "ran"


async def test_a_worker_that_leaves_keeps_the_others_reachable(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with listening(bench, name="stays") as stays:
        async with listening(bench, name="leaves", queues=("other",)) as leaves:
            await asleep(bench, stays, leaves)
        await asleep(bench, stays)
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_wakeup_lock_is_released_with_the_last_worker(bench: Workbench) -> None:
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = ANY (%s)"
    async with listening(bench) as node:
        await bench.until(lambda: is_listening(node) and node.worker.notifications.is_locked)
        listeners = list(_list_listeners(bench))
        assert bench.sql(held, listeners) == [(1,)]
    await bench.until(lambda: bench.sql(held, listeners) == [(0,)])


async def test_workers_listen_again_after_a_lost_connection(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with listening(bench, name="a") as a, listening(bench, name="b") as b:
        for _ in range(2):
            await asleep(bench, a, b)
            lost = _list_listeners(bench)
            bench.sql(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) x")
            await bench.until(partial(_have_reconnected, bench, lost))
            await asleep(bench, a, b)
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_stop_request_reaches_a_worker_that_beats_rarely(bench: Workbench) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def long() -> None:
        started.set()
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.set()

    async with listening(bench, lease=600.0) as node:
        await asleep(bench, node)
        job = await long.aenqueue()
        await asyncio.wait_for(started.wait(), 60)
        bench.sql("SELECT watchbill.cancel(%s)", job.id)
        await asyncio.wait_for(stopped.wait(), 60)


async def test_an_unknown_note_does_not_stop_listening(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with listening(bench) as node:
        await asleep(bench, node)
        bench.sql("SELECT pg_notify(watchbill._wake_channel(), 'stop nonsense')")
        for _ in range(2):
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            await asleep(bench, node)
