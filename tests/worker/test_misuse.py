"""What handlers do that nobody expects of them: whatever it is, their job ends, and the worker goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foliot import Retry, RetryAfter, Skip, Snooze
from tests.worker.conftest import Workbench


class _Bare(Snooze):
    """Without what its base would have made of its arguments."""

    def __init__(self) -> None: ...


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def _absurd(signal: Any) -> Any:
    signal.delay = 1e300
    return signal


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (Skip(ValueError("an exception for a reason")), "succeeded"),  # type: ignore[arg-type]
        (_Bare(), "failed"),
        (_absurd(Snooze(1)), "failed"),
        (_absurd(RetryAfter(1)), "failed"),
        (_Unspeakable(), "failed"),
    ],
)
async def test_an_end_that_cannot_be_understood_is_an_end(bench: Workbench, raised: Exception, state: str) -> None:
    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    async def inline() -> None:
        raise raised

    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    async def suspended() -> None:
        await asyncio.sleep(0)
        raise raised

    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    def threaded() -> None:
        raise raised

    jobs = [await task.aenqueue() for task in (inline, suspended, threaded)]
    await bench.work_off()
    assert [(await job.aget()).state for job in jobs] == [state] * 3


async def test_an_upgrade_that_exits_ends_its_own_job_only(bench: Workbench) -> None:
    @bench.app.task(version=2, retry=Retry(max_attempts=2, base=1000))
    def old() -> None: ...

    @old.upgrade(from_version=1)
    def leave(payload: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    bench.sql("SELECT foliot.enqueue(%s)", old.type)
    await bench.work_off()
    assert bench.sql("SELECT state FROM foliot.job") == [("failed",)]
