"""Handlers that end their worker without killing it: their jobs are lost with it, and dead at the third loss."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.worker.conftest import Workbench
from watchbill.postgres.connect import AsyncConnection, _opened
from watchbill.worker.heartbeat import Heartbeat


def stop_loop() -> None:
    asyncio.get_running_loop().stop()


def exit_in_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit)


def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def cancel_all_other_tasks() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def cancel_one_part() -> None:
    for task in asyncio.all_tasks():
        if "watch_runs" in str(task.get_coro()):
            task.cancel()


@pytest.mark.parametrize(
    "end_worker", [stop_loop, exit_in_callback, cancel_all_tasks, cancel_all_other_tasks, cancel_one_part]
)
def test_a_job_that_ends_its_worker_is_dead_after_three_losses(
    bench: Workbench, end_worker: Callable[[], None]
) -> None:
    started = asyncio.Event()

    @bench.app.task
    async def culprit() -> None:
        if not bench.sql("SELECT 1 FROM watchbill.nodes WHERE state = 'lost'"):
            await started.wait()
        end_worker()
        await asyncio.sleep(1)

    @bench.app.task
    async def innocent() -> None:
        if not bench.sql("SELECT 1 FROM watchbill.nodes WHERE state = 'lost'"):
            started.set()
            await asyncio.Event().wait()

    job, other = culprit.enqueue(), innocent.enqueue()
    for _ in range(3):
        with pytest.raises((SystemExit, RuntimeError, asyncio.CancelledError)):
            asyncio.run(_work_until_ended(bench, [job.id, other.id]))
    asyncio.run(_work_until_ended(bench, [job.id, other.id]))
    columns = "SELECT state, lost, attempt, outcome FROM watchbill.finished_jobs WHERE id = %s"
    assert bench.sql(columns, job.id) == [("dead", 3, 0, "lost")]
    assert bench.sql(columns, other.id) == [("succeeded", 0, 1, None)]


async def _work_until_ended(bench: Workbench, ids: list[UUID]) -> None:
    node = bench.node(lease=1.0)
    running = asyncio.create_task(node.run())
    ended = "SELECT FROM watchbill.finished_jobs WHERE id = ANY (%s)"
    await bench.until(lambda: running.done() or len(bench.sql(ended, ids)) == len(ids))
    node.stop()
    await running


async def test_a_canceled_node_releases_its_jobs(bench: Workbench) -> None:
    """The program that it runs in may cancel it: then its jobs are not lost."""

    @bench.app.task
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    node = bench.node()
    running = asyncio.create_task(node.run())
    await bench.until(lambda: node._worker and node.worker.slots.runs)
    running.cancel()
    await asyncio.wait([running])
    assert bench.sql("SELECT fence, lost, attempt FROM watchbill.jobs WHERE id = %s", job.id) == [(0, 0, 0)]


async def test_a_node_that_is_canceled_while_it_ends_leaves_no_connection_open(bench: Workbench) -> None:
    """Whatever ends it, a stopped event loop or an impatient program: a connection that nothing closes is reported much
    later, when it is deleted. So is a heartbeat that goes on, with a connection of its own."""
    earlier: set[object] = {*threading.enumerate(), *_opened}  # of loops that were stopped before
    node = bench.node()
    running = asyncio.create_task(node.run())
    await bench.until(lambda: node._worker and node.worker.registered.is_set())
    before = {each for each in list(_opened) if isinstance(each, AsyncConnection) and each not in earlier}
    beating = [thread for thread in threading.enumerate() if isinstance(thread, Heartbeat) and thread not in earlier]
    assert before
    assert beating
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)
    assert [connection for connection in before if not connection.closed] == []
    for thread in beating:
        await asyncio.to_thread(thread.join, 30)
    assert [thread.name for thread in beating if thread.is_alive()] == []
