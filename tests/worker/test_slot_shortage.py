"""Jobs for which there is no free slot, and the jobs behind them."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import Retry
from watchbill.store.node_connection import NodeConnection
from watchbill.worker import slot_shortage, slots
from watchbill.worker.config import Capacity

FEW = Capacity({"async": 6, "thread": 2, "process": 1}, 8)


@pytest.mark.parametrize("attempts", [1, 5])
async def test_jobs_with_a_free_slot_do_not_wait_for_jobs_without_one(bench: Workbench, attempts: int) -> None:
    go_on, ran = threading.Event(), []

    @bench.app.task(retry=Retry(max_attempts=attempts))
    def slow(n: int) -> None:
        go_on.wait(60)
        ran.append(n)

    @bench.app.task(retry=Retry(max_attempts=attempts))
    async def quick() -> str:
        return "ran"

    await bench.app.aenqueue_many([slow.bind(n) for n in range(100)])
    first = await quick.aenqueue()
    async with bench.working(capacity=FEW) as node:
        assert await first.aresult(timeout=60) == "ran"
        for _ in range(3):
            assert await (await quick.aenqueue()).aresult(timeout=60) == "ran"
        await bench.until(lambda: not node.worker.slots.waiting)
        runs = bench.sql("SELECT sum(run) FROM watchbill.jobs")
        assert await (await quick.aenqueue()).aresult(timeout=60) == "ran"
        assert bench.sql("SELECT sum(run) FROM watchbill.jobs") == runs  # nor were they claimed again without being run
        go_on.set()
        await bench.until(lambda: len(ran) == 100)
        await bench.until(lambda: not node.worker._claimer._claiming.shortage.kinds)
    ((fences,),) = bench.sql("SELECT array_agg(fence ORDER BY id) FROM watchbill.finished_jobs WHERE payload ? 'n'")
    assert fences == sorted(fences)  # claimed in their order


async def test_worker_uses_a_freed_slot_at_once_during_slot_shortage(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the worker sleeps for long, since it finds nothing for the slots that it has."""
    monkeypatch.setattr(slot_shortage, "QUICK_RUN_SECONDS", 0.0)  # scarce for good
    turns = threading.Semaphore(2)
    ran: list[int] = []

    @bench.app.task
    def slow(n: int) -> None:
        turns.acquire()
        ran.append(n)

    @bench.app.task
    async def other() -> None: ...

    await bench.app.aenqueue_many([slow.bind(n) for n in range(20)])
    async with bench.working(capacity=FEW, poll_interval=1000.0, poll_max_interval=1000.0) as node:
        await bench.until(lambda: len(ran) == 2)
        await bench.until(lambda: node._worker and node.worker._claimer._claiming.shortage.kinds)
        await (await other.aenqueue()).aresult(timeout=60)
        for count in range(3, 21):
            turns.release()
            await bench.until(partial(_has, ran, count))
    assert sorted(ran) == list(range(20))


def _has(ran: list[int], count: int) -> bool:
    return len(ran) == count


async def test_released_jobs_are_not_overtaken(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More jobs are claimed than have a thread, and those that wait are released all the time, however slowly."""
    execute = NodeConnection.execute
    monkeypatch.setattr(slots, "WATCH_INTERVAL_SECONDS", 0.01)

    async def settle_slowly(connection: NodeConnection, query: str, params: Any = ()) -> Any:
        if query == "settle":
            await asyncio.sleep(0.05)
        return await execute(connection, query, params)

    @bench.app.task(retry=Retry(max_attempts=1))
    def work(n: int) -> None:
        time.sleep(0.02)

    @bench.app.task
    async def other() -> None: ...

    monkeypatch.setattr(NodeConnection, "execute", settle_slowly)
    await bench.app.aenqueue_many([work.bind(n) for n in range(50)])
    await bench.work_off(capacity=FEW)
    ((fences,),) = bench.sql("SELECT array_agg(fence ORDER BY id) FROM watchbill.finished_jobs")
    assert len(fences) == 50
    assert fences == sorted(fences)


async def test_one_attempt_jobs_keep_their_place_in_a_backlog(bench: Workbench) -> None:
    """They are never claimed ahead, and jobs behind them are not claimed ahead of them."""
    started: list[str] = []

    @bench.app.task
    async def ordinary() -> None:
        started.append("ordinary")

    @bench.app.task(retry=Retry(max_attempts=1), priority=5)
    async def once() -> None:
        started.append("once")

    await bench.app.aenqueue_many([ordinary.bind() for _ in range(3000)])
    await bench.app.aenqueue_many([once.bind() for _ in range(300)])
    await bench.work_off(capacity=FEW)
    assert len(started) == 3300
    assert started[:300] == ["once"] * 300
