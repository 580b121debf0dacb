"""Unexpected behaviour of handlers: their job ends, and the worker goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import Retry, RetryAfter, Skip, Snooze
from watchbill.worker import outcomes


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
async def test_invalid_exception_of_a_handler_still_ends_its_job(
    bench: Workbench, raised: Exception, state: str
) -> None:
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


async def test_sys_exit_in_an_upgrade_fails_only_its_own_job(bench: Workbench) -> None:
    @bench.app.task(version=2, retry=Retry(max_attempts=2, base=1000))
    def old() -> None: ...

    @old.upgrade(from_version=1)
    def leave(payload: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    bench.sql("SELECT watchbill.enqueue(%s)", old.type)
    await bench.work_off()
    assert bench.sql("SELECT state FROM watchbill.job") == [("failed",)]


async def test_failure_to_start_a_thread_spends_no_attempt(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def start_at_last(thread: threading.Thread) -> None:
        if thread.name.startswith("watchbill-handler") and len(refused) < 2:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    @bench.app.task(retry=Retry(max_attempts=1))
    def plain() -> str:
        return "ran"

    monkeypatch.setattr(threading.Thread, "start", start_at_last)
    monkeypatch.setattr(outcomes, "NOT_STARTED_DELAY_SECONDS", 0.01)
    async with bench.working():
        for _ in range(3):
            assert await (await plain.aenqueue()).aresult(timeout=60) == "ran"
    assert len(refused) == 2
