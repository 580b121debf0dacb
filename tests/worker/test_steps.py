"""Tasks with steps: what runs once, what runs again, and what each run sees."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import AsyncSteps, JobFailed, Retry, SignalTimeout, StepFailed, Steps, WatchbillError, current_step

SOON = Retry(max_attempts=5, base=0)
STEPS = "SELECT name, state FROM watchbill.step ORDER BY seq"


async def run_on(bench: Workbench) -> None:
    """Makes the jobs that sleep ready, and runs them."""
    for (job_id,) in bench.sql("SELECT id FROM watchbill.job WHERE state = 'suspended'"):
        bench.sql("SELECT watchbill.wake(%s)", job_id)
    await bench.work_off()


async def test_a_stored_step_does_not_run_again_after_a_failure(bench: Workbench) -> None:
    calls: list[str] = []

    async def charge(order: int) -> dict[str, int]:
        calls.append("charge")
        return {"order": order}

    def ship(order: int) -> tuple[int, str]:
        calls.append("ship")
        return order, "shipped"

    @bench.app.task(retry=SOON)
    async def fulfil(steps: AsyncSteps, order: int) -> list[Any]:
        payment = await steps.run(charge, order)
        shipped = await steps.run(ship, order)
        calls.append("end")
        if calls.count("end") == 1:
            raise ConnectionError
        return [payment, *shipped]

    job = await fulfil.aenqueue(7)
    await bench.work_off()
    assert await job.aresult(timeout=60) == [{"order": 7}, 7, "shipped"]
    assert calls == ["charge", "ship", "end", "end"]
    assert bench.sql(STEPS) == [("charge", "done"), ("ship", "done")]


async def test_a_def_has_the_same_steps(bench: Workbench) -> None:
    calls: list[str] = []

    def render(page: int) -> str:
        calls.append(current_step().key)
        return f"page {page}"

    @bench.app.task(retry=SOON)
    def report(steps: Steps, pages: int) -> list[str]:
        found = [steps.run(render, page) for page in range(pages)]
        assert steps.uuid() != steps.uuid()
        begun = steps.now()
        steps.sleep("1h")
        assert steps.now() >= begun
        return [*found, str(steps.now() == begun)]

    job = await report.aenqueue(3)
    await bench.work_off()
    assert (await job.aget()).state == "suspended"
    await run_on(bench)
    assert await job.aresult(timeout=60) == ["page 0", "page 1", "page 2", "False"]
    assert calls == [f"{job.id}:render", f"{job.id}:render#2", f"{job.id}:render#3"]
    record = await job.aget()
    assert (record.attempt, record.run) == (1, 2)


async def test_a_sleep_leaves_the_worker_and_keeps_its_wake_time(bench: Workbench) -> None:
    wake_at = datetime.now(UTC) + timedelta(days=30)

    @bench.app.task
    async def wait(steps: AsyncSteps) -> str:
        try:
            await steps.sleep_until(wake_at)
        except Exception:  # noqa: BLE001  (must not catch the suspension)
            return "swallowed"
        return "awake"

    job = await wait.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.waits, record.wait, record.run_at) == ("suspended", None, "delayed", wake_at)
    assert bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)]
    assert await bench.app.jobs.aattempts(job.id) == []
    await run_on(bench)
    assert await job.aresult(timeout=60) == "awake"
    assert bench.sql(STEPS) == [("sleep", "done")]


async def test_a_short_sleep_ends_without_help(bench: Workbench) -> None:
    @bench.app.task
    async def nap(steps: AsyncSteps) -> int:
        await steps.sleep(0)
        await steps.sleep(0.01)
        return 1

    job = await nap.aenqueue()
    async with bench.working():
        assert await job.aresult(timeout=60) == 1


async def test_parallel_steps_have_the_same_names_in_each_run(bench: Workbench) -> None:
    runs: list[int] = []

    async def look_up(number: int) -> int:
        runs.append(number)
        await asyncio.sleep(0.001 * (5 - number))
        return number * 10

    @bench.app.task(retry=SOON)
    async def gather(steps: AsyncSteps) -> list[int]:
        found = await asyncio.gather(*(steps.run(look_up, number) for number in range(5)))
        keyed = await asyncio.gather(
            *(steps.using(key=str(n)).run(look_up, n) for n in (range(5) if len(runs) < 10 else reversed(range(5))))
        )
        if len(runs) == 10:
            runs.append(-1)
            raise ConnectionError
        return [*found, *keyed]

    job = await gather.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=60) == [0, 10, 20, 30, 40, 40, 30, 20, 10, 0]
    names = {name for name, _ in bench.sql(STEPS)}
    assert names == {"look_up", *(f"look_up#{n}" for n in range(2, 6)), *(f"look_up[{n}]" for n in range(5))}
    assert sorted(runs) == sorted([-1, *range(5), *range(5)])


async def test_other_arguments_stop_the_job_before_anything_runs(bench: Workbench) -> None:
    ran: list[str] = []

    async def charge(order: str) -> str:
        ran.append(order)
        return order

    @bench.app.task(retry=SOON)
    async def fulfil(steps: AsyncSteps) -> str:
        first = await steps.run(charge, "b" if ran else "a")
        await steps.sleep("1d")
        return first

    job = await fulfil.aenqueue()
    await bench.work_off()
    await run_on(bench)
    with pytest.raises(JobFailed, match="Step charge was stored by an earlier run with other arguments"):
        await job.aresult(timeout=60)
    assert ran == ["a"]
    ran.clear()  # the mended code
    await bench.app.jobs.aretry(job.id)
    await bench.work_off()
    await run_on(bench)
    assert await job.aresult(timeout=60) == "a"
    assert ran == []


async def test_a_failure_that_leaves_the_handler_runs_the_step_again(bench: Workbench) -> None:
    tries: list[int] = []

    async def call_bank() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("busy")
        return "paid"

    @bench.app.task(retry=Retry(max_attempts=3, base=0))
    async def pay(steps: AsyncSteps) -> str:
        return await steps.run(call_bank)

    job = await pay.aenqueue()
    async with bench.working():
        assert await job.aresult(timeout=60) == "paid"
    assert len(tries) == 3
    attempts = await bench.app.jobs.aattempts(job.id)
    assert [(a.outcome, (a.error or {}).get("type")) for a in attempts[:2]] == [("failed", "ConnectionError")] * 2


async def test_a_failure_that_the_handler_catches_is_stored_before_the_next_step(bench: Workbench) -> None:
    calls: list[str] = []

    async def charge_card() -> str:
        calls.append("card")
        if calls == ["card"]:
            raise ConnectionError("declined")
        return "card"

    async def send_invoice() -> str:
        calls.append("invoice")
        return "invoice"

    @bench.app.task(retry=SOON)
    async def pay(steps: AsyncSteps) -> str:
        try:
            way = await steps.run(charge_card)
        except StepFailed as error:
            calls.append(error.error["type"])
            way = await steps.run(send_invoice)
        await steps.sleep("1d")
        return way

    job = await pay.aenqueue()
    await bench.work_off()
    await run_on(bench)
    assert await job.aresult(timeout=60) == "invoice"
    assert calls == ["card", "ConnectionError", "invoice", "ConnectionError"]
    assert bench.sql(STEPS) == [("charge_card", "failed"), ("send_invoice", "done"), ("sleep", "done")]


async def test_a_stored_failure_that_leaves_the_handler_makes_the_job_dead(bench: Workbench) -> None:
    async def fail() -> None:
        raise ValueError("no")

    @bench.app.task(retry=SOON)
    async def give_up(steps: AsyncSteps) -> None:
        try:
            await steps.run(fail)
        except StepFailed:
            await steps.sleep("1d")
            raise

    job = await give_up.aenqueue()
    await bench.work_off()
    await run_on(bench)
    with pytest.raises(JobFailed, match="Step fail has failed: ValueError: no"):
        await job.aresult(timeout=60)
    assert (await job.aget()).attempt == 1


async def test_a_swallowed_suspension_is_an_error(bench: Workbench) -> None:
    after: list[str] = []

    async def never() -> None:
        after.append("ran")

    @bench.app.task(retry=SOON)
    async def swallow(steps: AsyncSteps) -> str:
        with contextlib.suppress(BaseException):
            await steps.sleep("1d")
        try:
            await steps.run(never)
        finally:
            return "done"  # noqa: B012

    job = await swallow.aenqueue()
    await bench.work_off()
    with pytest.raises(JobFailed, match="SuspensionSwallowed"):
        await job.aresult(timeout=60)
    assert after == []


async def test_a_task_group_may_hold_the_sleep(bench: Workbench) -> None:
    async def work() -> int:
        return 1

    @bench.app.task
    async def group(steps: AsyncSteps) -> int:
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(steps.run(work))
            await steps.sleep("1d")
        return await one

    job = await group.aenqueue()
    await bench.work_off()
    assert (await job.aget()).state == "suspended"
    await run_on(bench)
    assert await job.aresult(timeout=60) == 1


async def test_a_sleep_in_a_task_of_its_own_is_refused(bench: Workbench) -> None:
    @bench.app.task(retry=SOON)
    async def stray(steps: AsyncSteps) -> None:
        await asyncio.create_task(steps.sleep("1d"))

    job = await stray.aenqueue()
    await bench.work_off()
    with pytest.raises(JobFailed, match="WaitOutsideBranch"):
        await job.aresult(timeout=60)


async def test_a_run_that_has_lost_its_job_stores_nothing_more(bench: Workbench) -> None:
    after: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "late"

    @bench.app.task
    async def lose(steps: AsyncSteps) -> None:
        try:
            await steps.run(slow)
        except Exception:  # noqa: BLE001
            after.append("compensated")

    job = await lose.aenqueue()
    async with bench.working():
        await begun.wait()
        bench.sql("UPDATE watchbill.jobs SET fence = fence + 1 WHERE id = %s", job.id)
        go_on.set()
        await bench.until(lambda: not bench.sql("SELECT 1 FROM watchbill.runs"))
    assert bench.sql(STEPS) == []
    assert after == []


async def test_a_result_that_cannot_be_stored_makes_the_job_dead(bench: Workbench) -> None:
    async def make() -> object:
        return object()

    async def make_nul() -> str:
        return "\0"

    @bench.app.task(retry=SOON)
    async def store(steps: AsyncSteps, nul: bool) -> None:
        await steps.run(make_nul if nul else make)

    plain, nul = await store.aenqueue(False), await store.aenqueue(True)
    await bench.work_off()
    for job in (plain, nul):
        with pytest.raises(JobFailed, match="StepNotStored"):
            await job.aresult(timeout=60)


def test_steps_are_refused_where_they_could_never_run(bench: Workbench) -> None:
    with pytest.raises(TypeError, match="annotated AsyncSteps"):

        @bench.app.task
        async def one(steps: Steps) -> None: ...

    with pytest.raises(TypeError, match="executor='process'"):

        @bench.app.task(executor="process")
        def two(steps: Steps) -> None: ...


async def test_a_job_waits_for_a_signal_and_continues_with_it(bench: Workbench) -> None:
    @bench.app.task
    async def expense(steps: AsyncSteps, claim: int) -> str:
        try:
            answer = await steps.receive("approval", ask={"claim": claim}, timeout="2d")
        except SignalTimeout:
            answer = await steps.receive("approval", "override", ask={"late": True})
        return f"{answer.payload['verdict']} by {answer.sent_by}, {answer.name}"

    early, late = await expense.aenqueue(1), await expense.aenqueue(2)
    assert await early.asignal("approval", {"verdict": "yes"}) == "stored"
    await bench.work_off()
    assert (await early.aresult(timeout=60)).startswith("yes by ")
    (waiting,) = await bench.app.jobs.awaiting_steps(signal="approval")
    assert (waiting.job_id, waiting.ask, waiting.until is not None) == (late.id, {"claim": 2}, True)
    bench.sql("UPDATE watchbill.steps SET wake_at = now() WHERE job_id = %s", late.id)
    bench.sql("UPDATE watchbill.jobs SET run_at = now() WHERE id = %s", late.id)
    await bench.work_off()
    assert bench.sql(STEPS) == [("receive", "done"), ("receive", "timed_out"), ("receive#2", "waiting")]
    record = await late.aget()
    assert (record.state, record.wait) == ("suspended", "waiting")
    assert await late.asignal("override", {"verdict": "no"}, key="a") == "woken"
    assert await late.asignal("override", {"verdict": "yes"}, key="a") == "duplicate"
    await bench.work_off()
    assert (await late.aresult(timeout=60)).startswith("no by ")
    assert await late.asignal("override") == "finished"


def test_a_def_receives_signals_by_the_key_of_its_job(bench: Workbench) -> None:
    @bench.app.task
    def order(steps: Steps) -> list[Any]:
        return [steps.receive("paid").payload, steps.receive("paid", timeout=0).payload]

    order.using(idempotency_key="order-7").enqueue()
    assert order.signal_by_key("order-7", "paid", 1) == "stored"
    job = order.using(idempotency_key="order-7").enqueue()
    asyncio.run(bench.work_off())
    assert job.get().state == "dead"
    assert "SignalTimeout" in str(job.get().error)
    with pytest.raises(WatchbillError, match="order-8"):
        order.signal_by_key("order-8", "paid")


async def test_a_step_that_has_read_another_signal_does_not_fit(bench: Workbench) -> None:
    name = "paid"

    @bench.app.task
    async def order(steps: AsyncSteps) -> None:
        await steps.receive(name)
        await steps.sleep("1d")

    job = await order.aenqueue()
    await job.asignal("paid")
    await bench.work_off()
    name = "canceled"
    await run_on(bench)
    with pytest.raises(JobFailed, match="it has read paid"):
        await job.aresult(timeout=60)
