"""Steps that enqueue other jobs and wait for them: `call`, `call_many`, `enqueue` and `result`."""

from __future__ import annotations

import pytest

from tests.worker.conftest import Workbench
from tests.worker.test_steps import SOON, STEPS, run_on
from watchbill import AsyncSteps, JobFailed, Permanent, StepFailed, Steps


async def test_a_job_waits_without_a_slot_for_the_jobs_that_it_calls(bench: Workbench) -> None:
    @bench.app.task
    async def render(page: int) -> str:
        return f"page {page}"

    @bench.app.task(retry=SOON)
    async def report(steps: AsyncSteps, pages: int) -> list[str]:
        found = await steps.call_many([render.bind(page) for page in range(pages)])
        return [*found, await steps.call(render.bind(99)), *await steps.call_many([])]

    job = await report.aenqueue(3)
    async with bench.working():
        assert await job.aresult(timeout=60) == ["page 0", "page 1", "page 2", "page 99"]
    assert bench.sql(STEPS) == [("call_many", "done"), ("call", "done")]
    assert bench.sql("SELECT count(*) FROM watchbill.job") == [(5,)]
    assert (await job.aget()).attempt == 1


async def test_a_def_calls_jobs_and_enqueues_others_once(bench: Workbench) -> None:
    fails = [True]

    @bench.app.task
    def mail(text: str) -> str:
        return text

    @bench.app.task(retry=SOON)
    def report(steps: Steps) -> list[str]:
        first = steps.enqueue(mail.bind("begun"))
        if fails:
            fails.clear()
            raise ConnectionError
        done = steps.call(mail.bind("done"))
        assert steps.using(name="again").enqueue(mail.bind("end")) != first
        return [done]

    job = await report.aenqueue()
    async with bench.working():
        assert await job.aresult(timeout=60) == ["done"]
    assert sorted(bench.sql("SELECT payload->>'text' FROM watchbill.job WHERE id <> %s", job.id)) == [
        ("begun",), ("done",), ("end",),
    ]  # fmt: skip


async def test_a_job_that_does_not_succeed_fails_the_step_once_and_for_all(bench: Workbench) -> None:
    @bench.app.task
    async def render() -> str:
        raise Permanent("no paper")

    @bench.app.task(retry=SOON)
    async def report(steps: AsyncSteps, catches: bool) -> str:
        try:
            return await steps.call(render.bind())
        except StepFailed as error:
            if catches:
                return str(error.error["message"]).partition(": ")[2]
            raise

    caught, left = await report.aenqueue(True), await report.aenqueue(False)
    async with bench.working():
        assert await caught.aresult(timeout=60) == "no paper"
        with pytest.raises(JobFailed, match="no paper"):
            await left.aresult(timeout=60)


async def test_a_job_waits_for_one_that_was_enqueued_before_or_has_ended(bench: Workbench) -> None:
    @bench.app.task
    async def render() -> str:
        return "page"

    ended, waiting = await render.aenqueue(), await render.using(delay=3600).aenqueue()
    await bench.work_off()

    @bench.app.task
    async def report(steps: AsyncSteps) -> list[str]:
        return [await steps.result(ended), await steps.result(waiting)]

    job = await report.aenqueue()
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.step WHERE name = 'result#2'"))
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.job WHERE state = 'suspended'"))
        (reason, *_) = await bench.app.jobs.awhy(job.id)
        assert f"it waits in step result#2 for 1 of 1 jobs: job {waiting.id}" in reason.reason
        await bench.app.jobs.aretry(waiting.id)
        assert await job.aresult(timeout=60) == ["page", "page"]


async def test_the_jobs_that_a_canceled_job_waits_for_are_canceled(bench: Workbench) -> None:
    @bench.app.task
    async def render() -> None: ...

    @bench.app.task
    async def report(steps: AsyncSteps) -> None:
        await steps.enqueue(render.using(delay=3600).bind())
        await steps.call_many([render.using(delay=3600).bind() for _ in range(2)])

    job = await report.aenqueue()
    await bench.work_off()
    await bench.app.jobs.acancel(job.id)
    states = sorted(bench.sql("SELECT state FROM watchbill.job WHERE type LIKE %s", "%render"))
    assert states == [("canceled",), ("canceled",), ("queued",)]


async def test_other_jobs_under_the_same_name_stop_the_job(bench: Workbench) -> None:
    page = 1

    @bench.app.task
    async def render(page: int) -> int:
        return page

    @bench.app.task
    async def report(steps: AsyncSteps) -> None:
        await steps.call(render.bind(page))
        await steps.sleep("1d")

    job = await report.aenqueue()
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.step WHERE kind = 'sleep'"))
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.job WHERE state = 'suspended'"))
    page = 2
    await run_on(bench)
    with pytest.raises(JobFailed, match="with other arguments"):
        await job.aresult(timeout=60)
