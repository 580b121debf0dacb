"""Jobs that wait for others: chains, groups, any graph; results, alternatives, and what operators do to them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.worker.conftest import Workbench
from watchbill import AsyncConnection, Call, Job, JobCanceled, Retry, chain, current_job, group
from watchbill.store.refusals import Invalid
from watchbill.worker.run import NoResult


class Recorder:
    """Tasks that note when they run; `fail` names those that shall not succeed."""

    def __init__(self, bench: Workbench) -> None:
        self.ran: list[str] = []
        self.fail: set[str] = set()

        @bench.app.task(retry=Retry(max_attempts=1))
        async def step(name: str) -> str:
            self.ran.append(name)
            if name in self.fail:
                raise RuntimeError(name)
            return name.upper()

        self.step = step

    def call(self, name: str, **options: Any) -> Call[str]:
        return self.step.using(**options).bind(name) if options else self.step.bind(name)


@pytest.fixture
def recorder(bench: Workbench) -> Recorder:
    return Recorder(bench)


async def states(bench: Workbench, jobs: list[Job[Any]]) -> list[str]:
    return [(await bench.app.jobs.aget(job.id)).state for job in jobs]


async def test_a_chain_runs_one_after_the_other(bench: Workbench, recorder: Recorder) -> None:
    jobs = await chain(recorder.call("a"), recorder.call("b"), recorder.call("c")).aenqueue()
    assert await states(bench, jobs) == ["queued", "blocked", "blocked"]
    await bench.work_off()
    assert recorder.ran == ["a", "b", "c"]
    assert await jobs[-1].aresult(timeout=60) == "C"


async def test_step_after_a_group_waits_for_the_whole_group(bench: Workbench, recorder: Recorder) -> None:
    flow = chain(
        recorder.call("a"), group(recorder.call("b"), chain(recorder.call("c"), recorder.call("d"))), recorder.call("e")
    )
    jobs = await flow.aenqueue()
    await bench.work_off()
    assert recorder.ran[0] == "a"
    assert recorder.ran[-1] == "e"
    assert recorder.ran.index("c") < recorder.ran.index("d")
    assert await states(bench, jobs) == ["succeeded"] * 5


async def test_any_graph_is_enqueued_in_one_call(bench: Workbench, recorder: Recorder) -> None:
    a, b = recorder.call("a"), recorder.call("b")
    c = recorder.call("c", depends_on=[a, b])
    d = recorder.call("d", depends_on=[b])
    e = recorder.call("e", depends_on=[c, d])
    await bench.app.aenqueue_many([e, d, c, b, a])  # in any order
    await bench.work_off()
    assert sorted(recorder.ran[:2]) == ["a", "b"]
    assert recorder.ran[-1] == "e"


async def test_a_job_waits_for_jobs_that_were_enqueued_before(bench: Workbench, recorder: Recorder) -> None:
    first = await recorder.step.aenqueue("a")
    second = await recorder.step.using(depends_on=first).aenqueue("b")
    third = await bench.app.aenqueue(recorder.step.type, {"name": "c"}, depends_on=[first.id, second])
    assert await states(bench, [first, second, third]) == ["queued", "blocked", "blocked"]
    async with bench.working():
        assert await third.aresult(timeout=60) == "C"
    assert recorder.ran == ["a", "b", "c"]


async def test_a_job_that_depends_on_a_succeeded_one_is_ready_at_once(bench: Workbench, recorder: Recorder) -> None:
    first = await recorder.step.aenqueue("a")
    await bench.work_off()
    second = await recorder.step.using(depends_on=first).aenqueue("b")
    assert await states(bench, [second]) == ["queued"]


async def test_a_failed_step_cancels_the_rest_and_runs_the_alternative(bench: Workbench, recorder: Recorder) -> None:
    recorder.fail = {"b"}
    flow = chain(recorder.call("a"), recorder.call("b"), recorder.call("c"), recorder.call("d"))
    jobs = await flow.on_failure(chain(recorder.call("x"), recorder.call("y"))).aenqueue()
    async with bench.working():
        assert await jobs[-1].aresult(timeout=60) == "Y"
    assert recorder.ran == ["a", "b", "x", "y"]
    assert await states(bench, jobs) == ["succeeded", "dead", "canceled", "canceled", "succeeded", "succeeded"]
    with pytest.raises(JobCanceled, match=f"job {jobs[1].id}, which it waits for, did not succeed"):
        await jobs[2].aresult(timeout=60)


async def test_unneeded_alternative_is_skipped_as_a_whole(bench: Workbench, recorder: Recorder) -> None:
    unneeded = chain(recorder.call("x"), recorder.call("y")).on_failure(recorder.call("z"))
    jobs = await chain(recorder.call("a"), recorder.call("b")).on_failure(unneeded).aenqueue()
    async with bench.working():
        with pytest.raises(JobCanceled):
            await jobs[-1].aresult(timeout=60)
    assert recorder.ran == ["a", "b"]
    assert await states(bench, jobs) == ["succeeded", "succeeded", "canceled", "canceled", "canceled"]
    kinds = [((await bench.app.jobs.aget(job.id)).error or {})["kind"] for job in jobs[2:]]
    assert kinds == ["skipped"] * 3


async def test_a_step_may_run_whether_or_not_its_parents_succeeded(bench: Workbench, recorder: Recorder) -> None:
    recorder.fail = {"a"}
    jobs = await chain(recorder.call("a"), recorder.call("b"), recorder.call("c", run_if="all_finished")).aenqueue()
    async with bench.working():
        assert await jobs[-1].aresult(timeout=60) == "C"
    assert recorder.ran == ["a", "c"]


async def test_job_can_read_the_results_of_its_ancestors(bench: Workbench) -> None:
    @bench.app.task
    async def count(number: int) -> int:
        return number

    @bench.app.task
    async def double() -> int:
        return 2 * sum(await current_job().aresults_of(count))

    @bench.app.task
    def report() -> list[int]:
        job = current_job()
        assert [parent.state for parent in job.parents()] == ["succeeded"]
        return [job.result_of(double), *job.results_of(count)]

    flow = chain(group(*(count.bind(n) for n in (5, 3, 9))), double.bind(), report.bind())
    jobs = await flow.aenqueue()
    await bench.work_off()
    assert await jobs[-1].aresult(timeout=60) == [34, 5, 3, 9]


async def test_missing_ancestor_result_error_says_why(bench: Workbench, recorder: Recorder) -> None:
    said: list[str] = []

    @bench.app.task
    async def ask() -> None:
        with pytest.raises(NoResult) as caught:
            await current_job().aresult_of(recorder.step)
        said.append(caught.value.message)

    recorder.fail = {"b"}
    await bench.app.aenqueue_many([ask.bind()])
    await chain(recorder.call("b"), ask.using(run_if="all_finished").bind()).aenqueue()
    await chain(group(recorder.call("c"), recorder.call("d")), ask.bind()).aenqueue()
    await bench.work_off()
    assert sorted(said) == sorted(
        [
            f"This job has no result of {recorder.step.type}: it waits for no such job, or that job is no longer kept.",
            f"This job has no result of {recorder.step.type}: it is dead.",
            f"This job waits for 2 jobs of {recorder.step.type}, so there is no single result.",
        ]
    )


async def test_retry_of_a_parent_blocks_its_canceled_children_again(bench: Workbench, recorder: Recorder) -> None:
    recorder.fail = {"a"}
    jobs = await chain(recorder.call("a"), recorder.call("b"), recorder.call("c")).aenqueue()
    await bench.work_off()
    assert await states(bench, jobs) == ["dead", "canceled", "canceled"]
    recorder.fail = set()
    await bench.app.jobs.aretry(jobs[0].id)
    assert await states(bench, jobs) == ["queued", "blocked", "blocked"]
    await bench.work_off()
    assert await states(bench, jobs) == ["succeeded"] * 3


async def test_a_flow_belongs_to_the_callers_transaction(bench: Workbench, recorder: Recorder) -> None:
    flow = chain(recorder.call("a"), recorder.call("b"))
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        await flow.aenqueue(connection=connection)
        await connection.rollback()
    assert bench.sql("SELECT count(*) FROM watchbill.dependencies") == [(0,)]
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        jobs = await flow.aenqueue(connection=connection)
    assert await states(bench, jobs) == ["queued", "blocked"]


async def test_wide_flow_is_enqueued_by_copy(bench: Workbench, recorder: Recorder) -> None:
    flow = chain(group(*(recorder.call(str(n)) for n in range(600))), recorder.call("end"))
    jobs = await flow.aenqueue()
    async with bench.working():
        assert await jobs[-1].aresult(timeout=30) == "END"
    assert len(recorder.ran) == 601


async def test_flow_with_idempotency_keys_can_be_enqueued_twice(bench: Workbench, recorder: Recorder) -> None:
    flow = chain(recorder.call("a", idempotency_key="a"), recorder.call("b", idempotency_key="b"))
    jobs, again = await flow.aenqueue(), await flow.aenqueue()
    assert [job.id for job in again] == [job.id for job in jobs]
    assert bench.sql("SELECT count(*) FROM watchbill.dependencies") == [(1,)]
    more = await chain(recorder.call("a", idempotency_key="a"), recorder.call("c")).aenqueue()
    await bench.work_off()
    assert recorder.ran == ["a", "b", "c"]
    assert await states(bench, more) == ["succeeded", "succeeded"]


async def test_wrong_graphs_are_refused_with_a_message(bench: Workbench, recorder: Recorder) -> None:
    unsent = recorder.call("a")
    with pytest.raises(ValueError, match="which has not been enqueued; enqueue both together"):
        await recorder.step.using(depends_on=unsent).aenqueue("b")
    with pytest.raises(ValueError, match="has not been enqueued"):
        await bench.app.aenqueue_many([recorder.call("b", depends_on=unsent)])
    with pytest.raises(TypeError, match="depends_on takes jobs"):
        recorder.step.using(depends_on=["a"])  # type: ignore[list-item]
    with pytest.raises(Invalid, match="which is unknown: never enqueued, not committed yet, no longer kept, or"):
        await recorder.step.using(depends_on=UUID(int=7)).aenqueue("b")
    with pytest.raises(Invalid, match="run_if must be all_succeeded, all_finished or any_failed, not 'x'"):
        await bench.app.aenqueue_many([unsent, recorder.call("b", depends_on=unsent, run_if="x")])
    with pytest.raises(TypeError, match=r"chain\(\) and group\(\) take calls"):
        chain(recorder.step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"group\(\) needs at least one call"):
        group()
    assert bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]


async def test_a_definition_makes_new_jobs_each_time(bench: Workbench, recorder: Recorder) -> None:
    import orjson

    definition = orjson.dumps(chain(recorder.call("a"), recorder.call("b", priority=3)).definition()).decode()
    for _ in range(2):
        bench.sql("SELECT * FROM watchbill.enqueue_many(%s::jsonb)", definition)
    await bench.work_off()
    assert sorted(recorder.ran) == ["a", "a", "b", "b"]


def test_blocking_enqueue_and_dependency_graph_work(bench: Workbench, recorder: Recorder) -> None:
    jobs = chain(recorder.call("a"), recorder.call("b")).enqueue()
    later = recorder.step.using(depends_on=jobs).enqueue("c")
    asyncio.run(bench.work_off())
    assert later.result(timeout=60) == "C"
    family = bench.app.jobs.family(later.id)
    assert [job.id for job in family.jobs] == [*(job.id for job in jobs), later.id]
    assert len(family.dependencies) == 3
    assert family.complete


async def test_unblocked_jobs_fire_an_event(bench: Workbench, recorder: Recorder) -> None:
    heard: list[UUID] = []
    bench.app.on("job_unblocked")(lambda **what: heard.append(what["id"]))
    jobs = await chain(recorder.call("a"), recorder.call("b")).aenqueue()
    await bench.work_off()
    assert heard == [jobs[1].id]


async def test_step_after_a_transactional_task_runs_at_once(bench: Workbench, recorder: Recorder) -> None:
    """Its end is stored by its own transaction, not by the settler."""

    @bench.app.task
    async def write(connection: AsyncConnection) -> str:
        await connection.execute("SELECT 1")
        return "written"

    jobs = await chain(write.bind(), recorder.call("b")).aenqueue()
    await bench.work_off()
    assert await states(bench, jobs) == ["succeeded", "succeeded"]


async def test_chain_works_with_thread_tasks_and_retries(bench: Workbench, recorder: Recorder) -> None:
    @bench.app.task(retry=Retry(max_attempts=2, base=0, jitter=0))
    def stumble() -> int:
        if current_job().attempt == 1:
            raise ValueError("not yet")
        return current_job().attempt

    @bench.app.task
    def look_back() -> int:
        return current_job().result_of(stumble)

    jobs = await chain(stumble.bind(), look_back.bind()).aenqueue()
    async with bench.working():
        assert await jobs[-1].aresult(timeout=60) == 2
