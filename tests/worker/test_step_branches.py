"""steps.gather, steps.map, steps.publish and steps.restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from tests.worker.test_steps import SOON, run_on
from watchbill import AsyncSteps, JobFailed, Retry, StepFailed, Steps

NAMES = "SELECT name FROM watchbill.step ORDER BY seq"


async def test_branches_sleep_and_wait_side_by_side(bench: Workbench) -> None:
    calls: list[str] = []

    async def note(what: str) -> str:
        calls.append(what)
        return what

    async def remind(steps: AsyncSteps) -> str:
        await steps.run(note, "asked")
        await steps.sleep("1d")
        return await steps.run(note, "reminded")

    async def wait_for_payment(steps: AsyncSteps) -> Any:
        paid = await steps.receive("paid")
        return await steps.run(note, paid.payload)

    @bench.app.task
    async def order(steps: AsyncSteps) -> list[Any]:
        found = await steps.gather(remind(steps), wait_for_payment(steps))
        return [*found, *await steps.gather()]

    job = await order.aenqueue()
    await bench.work_off()
    assert (await job.aget()).state == "suspended"
    assert calls == ["asked"]
    assert await job.asignal("paid", "7 euro") == "woken"
    await bench.work_off()
    assert calls == ["asked", "7 euro"]
    assert (await job.aget()).state == "suspended"
    await run_on(bench)
    assert await job.aresult(timeout=60) == ["reminded", "7 euro"]
    assert calls == ["asked", "7 euro", "reminded"]
    assert sorted(name for (name,) in bench.sql(NAMES)) == [
        "gather[0]/note", "gather[0]/note#2", "gather[0]/sleep", "gather[1]/note", "gather[1]/receive",
    ]  # fmt: skip
    assert (await job.aget()).run == 3


async def test_branches_of_branches_leave_the_worker_once_all_wait(bench: Workbench) -> None:
    async def sleep(steps: AsyncSteps, hours: int) -> int:
        await steps.sleep(f"{hours}h")
        return hours

    async def two(steps: AsyncSteps) -> list[int]:
        return await steps.gather(sleep(steps, 1), sleep(steps, 2))

    @bench.app.task
    async def nap(steps: AsyncSteps) -> list[Any]:
        return await steps.gather(two(steps), sleep(steps, 3))

    job = await nap.aenqueue()
    for _ in range(4):
        await bench.work_off()
        await run_on(bench)
    assert await job.aresult(timeout=60) == [[1, 2], 3]
    assert [name for (name,) in bench.sql(NAMES)].count("gather[0]/gather[1]/sleep") == 1


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_failure_of_a_branch_ends_the_attempt_or_is_stored(bench: Workbench, goes_on: bool) -> None:
    calls: list[str] = []

    async def book() -> int:
        calls.append("book")
        if len(calls) == 1:
            raise ConnectionError("down")
        return 7

    async def booked(steps: AsyncSteps) -> int:
        return await steps.run(book)

    async def asleep(steps: AsyncSteps) -> str:
        await steps.sleep("1h")
        return "awake"

    async def apologize() -> str:
        return "sorry"

    @bench.app.task(retry=SOON)
    async def order(steps: AsyncSteps) -> list[Any]:
        try:
            return await steps.gather(asleep(steps), booked(steps))
        except StepFailed as error:
            if not goes_on:
                raise
            return [await steps.run(apologize), str(error)]

    job = await order.aenqueue()
    await bench.work_off()
    if goes_on:
        assert (await job.aresult(timeout=60))[0] == "sorry"
        assert calls == ["book"]
        return
    assert (await job.aget()).state == "suspended"
    await run_on(bench)
    assert await job.aresult(timeout=60) == ["awake", 7]
    assert calls == ["book", "book"]


async def test_each_run_raises_the_error_of_the_same_branch(bench: Workbench) -> None:
    """In the first run branch 0 waits when branch 1 has failed; in the second, branch 0 fails too."""

    async def wait_and_fail(steps: AsyncSteps) -> None:
        await steps.sleep("1h")
        raise RuntimeError("zero")

    async def fail() -> None:
        raise RuntimeError("one")

    async def failing(steps: AsyncSteps) -> None:
        await steps.using(retry=1).run(fail)

    @bench.app.task(retry=SOON)
    async def both(steps: AsyncSteps) -> list[str]:
        seen = ""
        try:
            await steps.gather(wait_and_fail(steps), failing(steps))
        except Exception as error:  # noqa: BLE001
            seen = str(error)
        await steps.sleep("2h")
        return [seen]

    job = await both.aenqueue()
    await bench.work_off()
    bench.sql("UPDATE watchbill.steps SET wake_at = now() - interval '1 hour'")
    await run_on(bench)
    (seen,) = await job.aresult(timeout=60)
    assert "one" in seen
    assert [name for (name,) in bench.sql(NAMES)].count("gather") == 1


async def test_a_def_gathers_functions_and_maps_items(bench: Workbench) -> None:
    calls: list[int] = []

    def double(number: int) -> int:
        calls.append(number)
        return number * 2

    @bench.app.task
    def work(steps: Steps) -> list[Any]:
        def asleep() -> int:
            steps.sleep("1h")
            return steps.run(double, 5)

        def approved() -> str:
            return str(steps.receive("approval").payload)

        assert steps.version == 1
        return [*steps.map(double, [1, 2, 1], key=str), *steps.gather(asleep, approved)]

    job = await work.aenqueue()
    await bench.work_off()
    assert await job.asignal("approval", "yes") == "woken"
    await bench.work_off()
    assert (await job.aget()).state == "suspended"
    await run_on(bench)
    assert await job.aresult(timeout=60) == [2, 4, 2, 10, "yes"]
    assert calls == [1, 2, 1, 5]
    assert {name for (name,) in bench.sql(NAMES)} == {
        "double[1]", "double[2]", "double[1]#2", "gather[0]/sleep", "gather[0]/double", "gather[1]/receive",
    }  # fmt: skip


async def test_a_map_runs_a_few_at_once_and_all_before_it_raises(bench: Workbench) -> None:
    running, most, calls = 0, 0, 0

    async def look_up(number: int) -> int:
        nonlocal running, most, calls
        calls += 1
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        if number == 3 and calls < 10:
            raise ConnectionError
        return number * 10

    @bench.app.task(retry=SOON)
    async def enrich(steps: AsyncSteps) -> list[int]:
        return await steps.map(look_up, range(8), key=str, at_once=3)

    job = await enrich.aenqueue()
    async with bench.working():
        assert await job.aresult(timeout=60) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert (most, calls) == (3, 10)


async def test_what_is_published_is_stored_before_the_next_step(bench: Workbench) -> None:
    async def ask() -> int:
        seen.append(bench.sql("SELECT result FROM watchbill.step WHERE kind = 'published'"))
        return 1

    seen: list[Any] = []

    @bench.app.task
    async def agent(steps: AsyncSteps) -> None:
        for turn in range(2):
            steps.publish(turn=turn)
            await steps.run(ask)
        with pytest.raises(TypeError, match="JSON"):
            steps.publish(turn=object())
        steps.publish(done=True)
        await steps.sleep("1h")

    job = await agent.aenqueue()
    await bench.work_off()
    assert seen == [[({"turn": 0},)], [({"turn": 1},)]]
    assert (await job.aget()).state == "suspended"
    assert [step.result for step in await bench.app.jobs.asteps(job.id) if step.kind == "published"] == [
        {"turn": 1, "done": True}
    ]


async def test_a_restart_begins_with_other_arguments_and_unread_signals(bench: Workbench) -> None:
    calls: list[int] = []
    tries: list[int] = []

    async def read(page: int) -> int:
        calls.append(page)
        return page

    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def follow(steps: AsyncSteps, page: int) -> int:
        await steps.run(read, page)
        tries.append(page)
        if tries.count(page) == 1 and page == 1:
            raise ConnectionError
        if page < 3:
            await steps.restart(page=page + 1)
        return int((await steps.receive("stop", timeout=0)).payload)

    job = await follow.aenqueue(0)
    await job.asignal("stop", 5)
    await bench.work_off()
    assert await job.aresult(timeout=60) == 5
    assert calls == [0, 1, 2, 3]
    record = await job.aget()
    assert (record.payload, record.attempt) == ({"page": 3}, 1)
    assert [name for (name,) in bench.sql(NAMES)] == ["read", "receive"]


async def test_a_restart_with_wrong_arguments_makes_the_job_fail(bench: Workbench) -> None:
    @bench.app.task(retry=1)
    def follow(steps: Steps, page: int) -> None:
        steps.restart(pages=1)

    job = await follow.aenqueue(0)
    await bench.work_off()
    with pytest.raises(JobFailed, match="page"):
        await job.aresult(timeout=60)
