"""Which failures are tried again, and how long a node waits before that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from tests.worker.retried_tasks import fails_in_child
from watchbill import Retry

REFUSED = "no (not retried: ValueError is in not_on of the task's Retry)"


async def end_of(bench: Workbench, job: Any) -> tuple[str, int, str, str]:
    await bench.work_off()
    record = await job.aget()
    error = record.error or {}
    return record.state, record.attempt, error["kind"], error["message"]


async def test_exception_that_is_not_retried_makes_the_job_dead_at_once(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(not_on=(ValueError,)))
    async def fails_on_loop() -> None:
        raise ValueError("no")

    @bench.app.task(retry=Retry(not_on=(ValueError,)))
    def fails_in_thread() -> None:
        raise ValueError("no")

    bench.app.tasks[fails_in_child.type] = fails_in_child
    assert await end_of(bench, await fails_on_loop.aenqueue()) == ("dead", 1, "permanent", REFUSED)
    assert await end_of(bench, await fails_in_thread.aenqueue()) == ("dead", 1, "permanent", REFUSED)
    assert await end_of(bench, await bench.app.aenqueue(fails_in_child.type)) == ("dead", 1, "permanent", REFUSED)


async def test_exception_that_is_retried_leaves_the_job_its_attempts(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(on=(ConnectionError,)))
    async def fails() -> None:
        raise ConnectionResetError("gone")

    assert await end_of(bench, await fails.aenqueue()) == ("failed", 1, "retryable", "gone")


@pytest.mark.parametrize(("on", "state"), [((TimeoutError,), "failed"), ((ConnectionError,), "dead")])
async def test_time_out_counts_as_timeout_error(
    bench: Workbench, on: tuple[type[BaseException], ...], state: str
) -> None:
    @bench.app.task(timeout=0.05, retry=Retry(on=on))
    async def forever() -> None:
        await asyncio.Event().wait()

    job = await forever.aenqueue()
    assert (await end_of(bench, job))[0] == state
    [attempt] = await bench.app.jobs.aattempts(job.id)
    assert attempt.outcome == "timed_out"


async def test_fast_retries_replace_the_waits_of_every_policy(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(max_attempts=3, base=86_400, cap=86_400))
    async def fails() -> None:
        raise ConnectionError

    node = bench.app.make_node(fast_retries=True)
    running = asyncio.create_task(node.run())
    job = await fails.aenqueue()
    await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.job WHERE state = 'dead'"))
    node.stop()
    await running
    assert len(await bench.app.jobs.aattempts(job.id)) == 3
