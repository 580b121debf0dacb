"""Idle workers sleep, and wake up for everything that concerns them, even if no notification announces it."""

from __future__ import annotations

import asyncio
from functools import partial

import psycopg
import pytest

from tests.worker.conftest import Workbench
from watchbill.node import Node
from watchbill.worker.config import make_capacity

ONLY_NOTIFIED = {"poll_interval": 1000.0, "poll_max_interval": 1000.0}
OFTEN_SURVEYED = {"lease": 1.5, "poll_interval": 0.05, "poll_max_interval": 0.05}
TAKE_LOCK = "SELECT pg_advisory_lock(1466004579, watchbill._wake_lock_key())"


def _sleeps(node: Node) -> bool:
    return node._worker is not None and node.worker._wakeups.slept_seconds >= 0


def _holds_lock(node: Node) -> bool:
    return _sleeps(node) and node.worker.notifications.is_locked


async def test_a_sleeping_worker_finds_a_job_that_no_notification_announced(bench: Workbench) -> None:
    """As one that was locked when the worker looked, or whose notification was lost."""

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(**OFTEN_SURVEYED) as node:
        await bench.until(partial(_holds_lock, node))
        job = await task.using(delay=3600).aenqueue()
        bench.sql("UPDATE watchbill.jobs SET wait = NULL, run_at = clock_timestamp()")
        assert await job.aresult(timeout=60) == "ran"


async def test_a_survey_includes_the_queue_of_a_task_that_was_declared_later(bench: Workbench) -> None:
    @bench.app.task
    async def first() -> None: ...

    async with bench.working(**OFTEN_SURVEYED) as node:
        await bench.until(partial(_holds_lock, node))

        @bench.app.task(queue="later")
        async def task() -> str:
            return "ran"

        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
        await bench.until(partial(_holds_lock, node))
        job = await task.using(delay=3600).aenqueue()
        bench.sql("UPDATE watchbill.jobs SET wait = NULL, run_at = clock_timestamp()")
        assert await job.aresult(timeout=60) == "ran"


async def test_a_sleeping_promoter_finds_a_job_that_no_notification_announced(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(**OFTEN_SURVEYED) as node:
        await bench.until(partial(_holds_lock, node))
        job = await task.using(delay=3600).aenqueue()
        bench.sql("UPDATE watchbill.jobs SET run_at = clock_timestamp() + interval '0.1 s'")
        assert await job.aresult(timeout=60) == "ran"


async def test_a_sleeping_unblocker_finds_an_end_that_no_notification_announced(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.worker.notifications.Wakeups.handle_note", lambda *_: None)

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(**OFTEN_SURVEYED):
        parent = await task.using(delay=3600).aenqueue()
        child = await task.using(depends_on=[parent.id], run_if="all_finished").aenqueue()
        await bench.until(lambda: not bench.sql("SELECT FROM watchbill.dependency_checks"))
        bench.sql("SELECT watchbill.cancel(%s)", parent.id)
        assert await child.aresult(timeout=60) == "ran"


async def test_another_worker_takes_the_wakeup_lock_when_its_holder_has_no_room(bench: Workbench) -> None:
    """They look for jobs once in a thousand seconds, so nothing but the holder's notification can tell the other."""
    go_on = asyncio.Event()

    @bench.app.task(queue="a")
    async def occupy() -> None:
        await go_on.wait()

    @bench.app.task(queue="b")
    async def task() -> str:
        return "ran"

    async with bench.working(name="a", queues=("a",), capacity=make_capacity(1, cores=1), **ONLY_NOTIFIED) as holder:
        await bench.until(partial(_holds_lock, holder))
        async with bench.working(name="b", queues=("b",), **ONLY_NOTIFIED) as other:
            await bench.until(partial(_sleeps, other))
            assert not other.worker.notifications.is_locked
            await occupy.aenqueue()
            await bench.until(partial(_holds_lock, other))
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            go_on.set()


async def test_another_worker_takes_the_wakeup_lock_when_its_holder_leaves(bench: Workbench) -> None:
    async with bench.working(name="a", **ONLY_NOTIFIED) as holder:
        await bench.until(partial(_holds_lock, holder))
        other = bench.node(name="b", **ONLY_NOTIFIED)
        running = asyncio.create_task(other.run())
        await bench.until(partial(_sleeps, other))
    await bench.until(partial(_holds_lock, other))
    other.stop()
    await running


async def test_another_worker_takes_the_wakeup_lock_when_its_holder_is_killed(bench: Workbench) -> None:
    with psycopg.connect(bench.url) as killed:
        killed.execute(TAKE_LOCK)
        async with bench.working(**OFTEN_SURVEYED) as node:
            await bench.until(partial(_sleeps, node))
            killed.close()
            await bench.until(partial(_holds_lock, node))
