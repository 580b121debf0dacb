"""Nodes store the log lines of failed runs, and show those of a run that somebody watches, with its progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import Batch, BatchFailed, Connection, Job, Retry, current_job

logger = logging.getLogger("shop")
once = Retry(max_attempts=1)


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    workbench = Workbench(schema_database, redact_text=["abc[0-9]+"])
    yield workbench
    workbench.app.close()


def look(bench: Workbench, job: Job[Any]) -> object:
    """Looks at a job, and returns its progress once its node shows it."""
    bench.sql("SELECT watchbill.watch(%s)", job.id)
    return bench.sql("SELECT progress FROM watchbill.runs WHERE job_id = %s AND lines IS NOT NULL", job.id)


async def messages(bench: Workbench, job: Job[Any]) -> list[list[str]]:
    """The messages of each run."""
    return [[line.partition("shop: ")[2] for line in each.lines] for each in await bench.app.jobs.alogs(job.id)]


async def test_lines_of_failed_runs_are_stored_and_those_of_others_are_not(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def fail() -> None:
        logger.warning("attempt %d with token abc123", current_job().attempt)
        raise ValueError("no")

    @bench.app.task(retry=once)
    def fail_in_thread() -> None:
        logger.warning("in a thread")
        raise ValueError("no")

    @bench.app.task
    async def succeed() -> int:
        logger.warning("all is well")
        return 7

    @bench.app.task(logs="all")
    async def succeed_with_lines() -> int:
        logger.warning("all is well")
        return 7

    @bench.app.task(logs="all")
    def succeed_in_a_transaction(connection: Connection) -> int:
        logger.warning("all is well")
        return 7

    @bench.app.task(retry=once, logs="none")
    async def fail_in_silence() -> None:
        logger.warning("not stored")
        raise ValueError("no")

    jobs = [await task.aenqueue() for task in (fail, fail_in_thread, succeed, succeed_with_lines)]
    jobs += [await succeed_in_a_transaction.aenqueue(), await fail_in_silence.aenqueue()]
    await bench.work_off()
    assert (await jobs[0].aget()).state == "dead"
    assert [await messages(bench, job) for job in jobs] == [
        [["attempt 1 with token [hidden]"], ["attempt 2 with token [hidden]"]],
        [["in a thread"]],
        [],
        [["all is well"]],
        [["all is well"]],
        [],
    ]
    assert [(await job.aget()).result for job in jobs[2:5]] == [7, 7, 7]


async def test_setting_stores_the_lines_of_all_runs(bench: Workbench) -> None:
    @bench.app.task
    def succeed() -> None:
        logger.warning("all is well")

    job = await succeed.aenqueue()
    await bench.work_off(job_logs="all")
    assert await messages(bench, job) == [["all is well"]]


async def test_each_failed_job_of_a_batch_has_the_lines_of_the_call(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=2, wait=1), retry=once)
    async def add(numbers: list[int]) -> None:
        logger.warning("adding %d", len(numbers))
        raise BatchFailed({numbers.index(1): ValueError("no")})

    jobs = [await add.aenqueue(number) for number in range(2)]
    await bench.work_off()
    assert [await messages(bench, job) for job in jobs] == [[], [["adding 2"]]]


async def test_watched_run_shows_progress_and_lines_and_stores_them_when_it_succeeds(bench: Workbench) -> None:
    ends = asyncio.Event()

    @bench.app.task
    async def work() -> int:
        logger.warning("it begins, token abc1")
        current_job().progress({"done": 1})
        await ends.wait()
        return 7

    watched, other = await work.aenqueue(), await work.aenqueue()
    jobs = bench.app.jobs
    async with bench.working(lease=600):  # no heartbeat comes while the test runs
        await bench.until(lambda: look(bench, watched))
        assert (await jobs.aget(watched.id)).progress == {"done": 1}
        ((run,),) = [await bench.app.jobs.alogs(watched.id)]
        assert (run.run, run.ended_at) == (1, None)
        assert await messages(bench, watched) == [["it begins, token [hidden]"]]
        assert bench.sql("SELECT job_id FROM watchbill.runs") == [(watched.id,)]
        ends.set()
        await bench.until(lambda: not bench.sql("SELECT FROM watchbill.jobs"))
    assert await messages(bench, watched) == [["it begins, token [hidden]"]]
    assert (await messages(bench, other), (await watched.aget()).result) == ([], 7)
    assert not await jobs.awatch(watched.id)


async def test_no_statement_follows_while_nobody_looks(bench: Workbench) -> None:
    began, ends = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def work() -> None:
        logger.warning("it begins")
        current_job().progress(1)
        began.set()
        await ends.wait()

    await work.aenqueue()
    async with bench.working(lease=600) as node:
        await bench.until(began.is_set)
        assert node._worker is not None
        heartbeat = node._worker._heartbeat
        assert heartbeat is not None
        heartbeat._ask_for_stop_requests()
        assert bench.sql("SELECT FROM watchbill.runs") == []
        ends.set()
