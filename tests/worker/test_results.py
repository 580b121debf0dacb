"""Results that are too large or no JSON: the job is dead at once, and says why; no attempt can change that."""

from __future__ import annotations

from typing import Any

import pytest

from watchbill.worker.child import _description
from watchbill.worker.handlers import BadResult
from tests.worker.conftest import Workbench


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 1_000_000, r"the result has 1,000,002 bytes, the limit is 1,000,000 (max_result)"),
        (float("inf"), "the result cannot be stored as JSON"),
        (object(), "the result cannot be stored as JSON"),
    ],
    ids=["large", "infinite", "object"],
)
async def test_a_result_that_cannot_be_stored_says_so(bench: Workbench, value: object, why: str) -> None:
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


def test_of_a_child_process_it_is_final_too() -> None:
    assert _description(BadResult("too large"))["kind"] == "permanent"
