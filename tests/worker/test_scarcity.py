"""Jobs behind others for which there is no slot, and those others."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from watchbill import Retry
from watchbill.worker import scarcity
from watchbill.worker.engine import Capacity
from tests.worker.conftest import Workbench

FEW = Capacity({"async": 6, "thread": 2, "process": 1}, 8)


@pytest.mark.parametrize("attempts", [1, 5])
async def test_what_could_run_does_not_wait_for_those_that_cannot(bench: Workbench, attempts: int) -> None:
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
        await bench.until(lambda: not node.worker.engine._held)
        runs = bench.sql("SELECT sum(run) FROM watchbill.jobs")
        assert await (await quick.aenqueue()).aresult(timeout=60) == "ran"
        assert bench.sql("SELECT sum(run) FROM watchbill.jobs") == runs  # nor were they claimed again in vain
        go_on.set()
        await bench.until(lambda: len(ran) == 100)
        await bench.until(lambda: not node.worker.engine.scarcity.kinds)
    ((fences,),) = bench.sql("SELECT array_agg(fence ORDER BY id) FROM watchbill.finished_jobs WHERE payload ? 'n'")
    assert fences == sorted(fences)  # claimed in their order


async def test_slots_that_are_free_again_are_used_at_once(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the worker sleeps for long, since it finds nothing for the slots that it has."""
    monkeypatch.setattr(scarcity, "QUICK", 0.0)  # scarce for good
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
        await bench.until(lambda: node._worker and node.worker.engine.scarcity.kinds)
        await (await other.aenqueue()).aresult(timeout=60)
        for count in range(3, 21):
            turns.release()
            await bench.until(partial(_has, ran, count))
    assert sorted(ran) == list(range(20))


def _has(ran: list[int], count: int) -> bool:
    return len(ran) == count


def test_it_is_over_when_a_claim_finds_nothing_of_it() -> None:
    kinds = {"a": "async", "t": "thread", "p": "process"}
    handlers: Any = {name: SimpleNamespace(kind=kind) for name, kind in kinds.items()}
    a: Any = SimpleNamespace(type="a")
    t: Any = SimpleNamespace(type="t")
    free: dict[Any, int] = {"async": 5, "thread": 0, "process": 3}
    scarce = scarcity.Scarcity(handlers, free.__getitem__)
    scarce.kinds |= {"thread", "process"}
    assert (scarce.limit(100, 9), scarce.limit(2, 9), scarce.without()) == (3, 2, ["t"])
    scarce.saw([a, t], 2)
    assert scarce.kinds == {"thread"}
    scarce.saw([t], 2)
    assert (scarce.kinds, scarce.without()) == (set(), [])
