"""Results that are too large or no JSON: the job is dead at once, and says why; no attempt can change that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import current_job
from watchbill.worker.attempt import attempt
from watchbill.worker.run import Claimed, Run


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 1_000_000, r"the result has 1,000,002 bytes, the limit is 1,000,000 (max_result)"),
        (float("inf"), "the result cannot be stored as JSON"),
        (object(), "the result cannot be stored as JSON"),
    ],
    ids=["large", "infinite", "object"],
)
async def test_result_that_cannot_be_stored_ends_dead_with_the_reason(
    bench: Workbench, value: object, why: str
) -> None:
    @bench.app.task
    async def on_loop() -> Any:
        return value

    @bench.app.task
    def in_thread() -> Any:
        return value

    jobs = [await on_loop.aenqueue(), await in_thread.aenqueue()]
    await bench.work_off()
    for job in jobs:
        record = await job.aget()
        assert record.error is not None
        assert (record.state, record.attempt, record.error["type"]) == ("dead", 1, "BadResult")
        assert why in record.error["message"]


async def test_a_result_within_the_limit_is_kept(bench: Workbench) -> None:
    @bench.app.task
    async def long() -> str:
        return "x" * 999_998

    job = await long.aenqueue()
    await bench.work_off()
    assert len(await job.aresult(timeout=0)) == 999_998


async def test_a_result_of_a_child_process_that_cannot_be_stored_is_final_too(bench: Workbench) -> None:
    """There the attempt runs without a worker around it."""

    @bench.app.task
    def large() -> Any:
        return "x" * 1_000_000

    row = Claimed(bytes(16), 1, large.type, b"\x01{}", "default", "default", 0, 0, 1, 0, 5, 1, None, None, 0)
    run = Run(row, large.handler(), 0.0)
    attempt(run)
    assert run.outcome is not None
    assert (run.outcome.error or {})["kind"] == "permanent"


async def test_a_handler_records_where_its_artifact_is(bench: Workbench) -> None:
    @bench.app.task
    async def on_loop() -> None:
        await current_job().aartifact("s3://bucket/loop.pdf")

    @bench.app.task
    def in_thread() -> None:
        current_job().artifact("s3://bucket/first.pdf")
        current_job().artifact("s3://bucket/thread.pdf")

    jobs = [await on_loop.aenqueue(), await in_thread.aenqueue()]
    await bench.work_off()
    assert [(await job.aget()).artifact_ref for job in jobs] == ["s3://bucket/loop.pdf", "s3://bucket/thread.pdf"]
