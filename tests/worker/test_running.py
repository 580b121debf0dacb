"""What becomes of a job: one test per way a handler can end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import watchbill
from watchbill import JobCanceled, JobFailed, Permanent, Retry, RetryAfter, Skip, Snooze, current_job
from watchbill.store.refusals import Invalid
from watchbill.worker.doorbell import Doorbell
from tests.worker.conftest import Workbench


@pytest.mark.on_both_loops
async def test_an_async_task_runs_and_returns_its_result(bench: Workbench) -> None:
    @bench.app.task
    async def add(a: int, b: int = 2) -> int:
        return a + b

    job = await add.aenqueue(1)
    await bench.work_off()
    assert await job.aresult(timeout=60) == 3
    record = await job.aget()
    assert (record.state, record.attempt, record.run) == ("succeeded", 1, 1)
    assert record.started_at is not None


@pytest.mark.on_both_loops
async def test_a_plain_function_runs_in_a_thread_of_its_own(bench: Workbench) -> None:
    @bench.app.task
    def where() -> str:
        return threading.current_thread().name

    job = await where.aenqueue()
    await bench.work_off()
    assert "watchbill-handler" in await job.aresult(timeout=60)


async def test_a_failed_attempt_waits_for_the_next_with_its_error(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(max_attempts=3, backoff="fixed", base=100, jitter=0))
    async def break_down() -> None:
        raise ValueError("no \0 luck")

    job = await break_down.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.wait, record.attempt) == ("failed", "delayed", 1)
    assert record.error is not None
    assert record.error["type"] == "ValueError"
    assert record.error["message"] == "no \\0 luck"
    assert "break_down" in record.error["traceback"]
    assert timedelta(seconds=95) < record.run_at - record.updated_at < timedelta(seconds=105)


async def test_a_job_dies_with_its_last_attempt_and_keeps_every_one(bench: Workbench) -> None:
    @bench.app.task(retry=Retry(max_attempts=3, base=0))
    async def break_down() -> None:
        raise RuntimeError(f"attempt {current_job().attempt}")

    job = await break_down.aenqueue()
    async with bench.working():
        with pytest.raises(JobFailed, match="attempt 3"):
            await job.aresult(timeout=60)
    attempts = await bench.app.jobs.aattempts(job.id)
    assert [(a.attempt, a.outcome, (a.error or {})["message"]) for a in attempts] == [
        (1, "failed", "attempt 1"),
        (2, "failed", "attempt 2"),
        (3, "failed", "attempt 3"),
    ]


async def test_a_permanent_error_is_the_end(bench: Workbench) -> None:
    @bench.app.task
    async def refuse() -> None:
        raise Permanent("never")

    job = await refuse.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.attempt) == ("dead", 1)


async def test_retry_after_overrules_the_policy(bench: Workbench) -> None:
    @bench.app.task
    async def later() -> None:
        raise RetryAfter(500)

    job = await later.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.attempt) == ("failed", 1)
    assert record.run_at - record.updated_at == timedelta(seconds=500)


async def test_a_snooze_spends_no_attempt(bench: Workbench) -> None:
    @bench.app.task
    async def doze() -> None:
        raise Snooze(timedelta(minutes=10))

    job = await doze.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.wait, record.attempt, record.run) == ("queued", "delayed", 0, 1)


async def test_a_skip_succeeds_and_says_why(bench: Workbench) -> None:
    @bench.app.task
    async def nothing_to_do() -> None:
        raise Skip("no changes")

    job = await nothing_to_do.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.outcome) == ("succeeded", "skipped")
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (attempt.outcome, (attempt.error or {})["message"]) == ("skipped", "no changes")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ExceptionGroup("g", [ValueError("x")])]
)
async def test_no_exception_of_a_handler_ends_the_worker(bench: Workbench, error: BaseException) -> None:
    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    async def suspended() -> None:
        await asyncio.sleep(0)
        raise error

    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    async def inline() -> None:
        raise error

    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    def threaded() -> None:
        raise error

    jobs = [await task.aenqueue() for task in (suspended, inline, threaded)]
    await bench.work_off()
    for job in jobs:
        record = await job.aget()
        assert (record.state, (record.error or {})["type"]) == ("failed", type(error).__name__)


@pytest.mark.on_both_loops
async def test_a_polite_coroutine_is_stopped_at_its_time_out(bench: Workbench) -> None:
    @bench.app.task(timeout=0.05, retry=Retry(max_attempts=2, base=1000))
    async def forever() -> None:
        await asyncio.Event().wait()

    job = await forever.aenqueue()
    await bench.work_off()
    record = await job.aget()
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (record.state, record.attempt, attempt.outcome) == ("failed", 1, "timed_out")
    assert "0.05" in (record.error or {})["message"]


async def test_a_job_that_was_enqueued_without_a_time_out_has_its_tasks(bench: Workbench) -> None:
    """From SQL, or by a producer without the code."""
    told = []

    @bench.app.task(type="forever", timeout=0.05, retry=Retry(max_attempts=2))
    async def forever() -> None:
        told.append((current_job().timeout, current_job().deadline is not None))
        await asyncio.Event().wait()

    ((job,),) = bench.sql("SELECT id FROM watchbill.enqueue('forever', max_attempts => 1)")
    other = await bench.app.aenqueue("forever", {}, retry=Retry(max_attempts=1), timeout=0.06)
    await bench.work_off()
    assert sorted(told) == [(0.05, True), (pytest.approx(0.06), True)]
    for each, limit in ((job, "0.05"), (other.id, "0.06")):
        (attempt,) = await bench.app.jobs.aattempts(each)
        assert (attempt.outcome, (attempt.error or {})["message"]) == ("timed_out", f"timed out after {limit} s")


async def test_a_job_may_be_enqueued_without_its_tasks_time_out(bench: Workbench) -> None:
    @bench.app.task(timeout=0.01)
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "done"

    job = await slow.using(timeout=None).aenqueue()
    await bench.work_off()
    assert await job.aresult() == "done"


@pytest.mark.on_both_loops
async def test_a_coroutine_that_swallows_cancellation_is_told_again(bench: Workbench) -> None:
    @bench.app.task(timeout=0.05, retry=Retry(max_attempts=2, base=1000))
    async def stubborn() -> None:
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    job = await stubborn.aenqueue()
    await bench.work_off()
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert attempt.outcome == "timed_out"


async def test_a_timed_out_thread_keeps_its_slot_until_it_returns(bench: Workbench) -> None:
    release, seen = threading.Event(), []

    @bench.app.task(timeout=0.05, retry=Retry(max_attempts=2, base=1000))
    def stuck() -> int:
        release.wait(20)
        seen.append(current_job().canceled)
        return 1

    job = await stuck.aenqueue()
    async with bench.working() as node:
        run = await bench.until(lambda: next(iter(node.worker.engine.runs), None) if node._worker else None)
        await bench.until(lambda: run.stopping)
        assert (await job.aget()).state == "running"
        release.set()
        await bench.until(lambda: not node.worker.engine.runs)
        await node.worker.settler.drained()
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (attempt.outcome, seen) == ("timed_out", [True])


@pytest.mark.on_both_loops
async def test_a_handlers_own_timeout_is_its_own(bench: Workbench) -> None:
    @bench.app.task
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            return "limited"
        return "not"

    jobs = [await limited.aenqueue() for _ in range(10)]
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == ["limited"] * 10


@pytest.mark.on_both_loops
async def test_context_variables_of_one_handler_do_not_reach_another(bench: Workbench) -> None:
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")

    @bench.app.task
    async def leave_a_mark(suspend: bool) -> str:
        before = mark.get()
        mark.set("dirty")
        if suspend:
            await asyncio.sleep(0)
        return before

    jobs = [await leave_a_mark.aenqueue(bool(n % 2)) for n in range(6)]
    await bench.work_off()
    assert {await job.aresult(timeout=60) for job in jobs} == {"clean"}


async def test_a_queued_job_is_canceled_at_once_and_never_runs(bench: Workbench) -> None:
    ran = []

    @bench.app.task
    async def remember() -> None:
        ran.append(1)

    job = await remember.aenqueue()
    assert await bench.app.jobs.acancel(job.id, reason="changed my mind") == "canceled"
    await bench.work_off()
    assert not ran
    with pytest.raises(JobCanceled, match="changed my mind"):
        await job.aresult(timeout=1)


@pytest.mark.on_both_loops
async def test_a_running_job_is_told_and_ends_canceled(bench: Workbench) -> None:
    started = asyncio.Event()

    @bench.app.task
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await wait.aenqueue()
    async with bench.working():
        await asyncio.wait_for(started.wait(), 60)
        assert await bench.app.jobs.acancel(job.id) == "running"
        with pytest.raises(JobCanceled):
            await job.aresult(timeout=60)
    assert bench.sql("SELECT count(*) FROM watchbill.cancels") == [(0,)]


async def test_a_handler_that_succeeds_after_the_request_has_succeeded(bench: Workbench) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def finish_anyway() -> str:
        started.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            return "done"
        return "not canceled"

    job = await finish_anyway.aenqueue()
    async with bench.working():
        await asyncio.wait_for(started.wait(), 60)
        await bench.app.jobs.acancel(job.id)
        assert await job.aresult(timeout=60) == "done"
    assert (await job.aget()).state == "succeeded"


async def test_a_forced_cancel_does_not_wait_for_the_handler(bench: Workbench) -> None:
    started, release = threading.Event(), threading.Event()

    @bench.app.task
    def deaf() -> None:
        started.set()
        release.wait(20)

    job = await deaf.aenqueue()
    async with bench.working():
        await asyncio.to_thread(started.wait, 20)
        assert await bench.app.jobs.acancel(job.id, force=True) == "canceled"
        assert (await job.aget()).state == "canceled"
        release.set()
    assert (await job.aget()).state == "canceled"


async def test_an_unknown_type_goes_back_unspent_and_waits_for_one_who_knows_it(bench: Workbench) -> None:
    @bench.app.task
    async def known() -> None: ...

    stranger = await bench.app.aenqueue("somebody.else", {"a": 1})
    newer = await bench.app.aenqueue("tests.newer")
    await bench.work_off()
    record = await bench.app.jobs.aget(stranger.id)
    assert (record.state, record.wait, record.attempt) == ("queued", "unsupported", 0)

    @bench.app.task(type="somebody.else")
    async def learnt(a: int) -> int:
        return a

    await bench.work_off()
    assert await stranger.aresult(timeout=60) == 1
    assert (await bench.app.jobs.aget(newer.id)).wait == "unsupported"


async def test_a_payload_that_does_not_fit_is_dead_at_once(bench: Workbench) -> None:
    bench.sql("SELECT watchbill.enqueue('t', '{\"a\": \"x\"}')")

    @bench.app.task(type="t")
    async def numeric(a: int) -> None: ...

    await bench.work_off()
    assert bench.sql("SELECT state, error_kind FROM watchbill.job") == [("dead", "permanent")]


async def test_an_older_payload_is_upgraded_step_by_step(bench: Workbench) -> None:
    bench.sql("SELECT watchbill.enqueue('t', '{\"name\": \"ann lee\"}', version => 1)")

    @bench.app.task(type="t", version=3)
    async def greet(first: str, last: str) -> str:
        return f"{last}, {first}"

    @greet.upgrade(from_version=1)
    def split(payload: dict[str, str]) -> dict[str, str]:
        first, last = payload["name"].split()
        return {"first": first, "last": last}

    @greet.upgrade(from_version=2)
    def capitals(payload: dict[str, str]) -> dict[str, str]:
        return {name: value.title() for name, value in payload.items()}

    await bench.work_off()
    assert bench.sql("SELECT state, result FROM watchbill.job") == [("succeeded", "Lee, Ann")]


async def test_jobs_run_by_priority_then_in_order(bench: Workbench) -> None:
    order: list[int] = []

    @bench.app.task
    async def note(n: int) -> None:
        order.append(n)

    for n, priority in enumerate([0, 5, -5, 5, 0]):
        await note.using(priority=priority).aenqueue(n)
    await bench.work_off()
    assert order == [1, 3, 0, 4, 2]


async def test_a_delayed_job_runs_when_it_is_due(bench: Workbench) -> None:
    @bench.app.task
    async def tick() -> float:
        return time.time()

    job = await tick.using(delay=0.3).aenqueue()
    async with bench.working():
        ran_at = await job.aresult(timeout=60)
    assert ran_at >= (await job.aget()).run_at.timestamp()


async def test_a_job_that_is_due_soon_is_heard_of_though_nobody_sleeps(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait until somebody looks for delayed jobs anyway."""
    monkeypatch.setattr("watchbill.maintenance.promoter.LONGEST_WAIT", 3600.0)
    go_on = threading.Event()

    @bench.app.task
    def busy() -> None:
        go_on.wait(60)

    @bench.app.task
    async def tick() -> str:
        return "ticked"

    async with bench.working() as node:
        job = await busy.aenqueue()
        await bench.until(lambda: node.worker.engine.runs)
        assert await (await tick.using(delay=0.3).aenqueue()).aresult(timeout=60) == "ticked"
        go_on.set()
        await job.aresult(timeout=60)


@pytest.mark.parametrize("queue", ["stop", "stop it", "later", "schedules", "ready", " "])
async def test_any_name_of_a_queue_rings_the_bell(bench: Workbench, queue: str) -> None:
    @bench.app.task(queue=queue)
    async def tick() -> str:
        return "ticked"

    async with bench.working(queues=(queue,), poll_interval=60.0, poll_max_interval=60.0) as node:
        for _ in range(2):
            await bench.until(lambda: node._worker and node.worker.doorbell.holding)
            assert await (await tick.aenqueue()).aresult(timeout=60) == "ticked"


async def test_a_job_that_was_about_to_be_committed_is_found_without_a_ring(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer saw nobody asleep, and kept the worker from becoming the porter."""
    tried: list[bool] = []
    hold = Doorbell.hold

    async def counted(doorbell: Doorbell) -> bool:
        tried.append(await hold(doorbell))
        return tried[-1]

    @bench.app.task
    async def tick() -> str:
        return "ticked"

    monkeypatch.setattr(Doorbell, "hold", counted)
    with psycopg.connect(bench.url) as connection:
        job = await asyncio.to_thread(tick.using(connection=connection).enqueue)
        async with bench.working(poll_interval=1000.0, poll_max_interval=1000.0):
            await bench.until(lambda: len(tried) > 3)  # the bell rings once, when it begins to listen
            connection.commit()
            assert await job.aresult(timeout=60) == "ticked"
    assert tried[:4] == [False] * 4


async def test_a_result_that_cannot_be_stored_ends_the_job_dead(bench: Workbench) -> None:
    @bench.app.task
    async def unstorable() -> object:
        return float("nan")

    @bench.app.task
    async def fine() -> str:
        return "fine"

    bad, good = await unstorable.aenqueue(), await fine.aenqueue()
    await bench.work_off()
    assert (await bad.aget()).state == "dead"
    assert await good.aresult(timeout=60) == "fine"


@pytest.mark.on_both_loops
async def test_a_transactional_task_completes_with_its_writes(bench: Workbench) -> None:
    bench.sql("CREATE TABLE effects (n int)")

    @bench.app.task
    async def write(connection: watchbill.AsyncConnection, n: int) -> int:
        await connection.execute("INSERT INTO effects VALUES (%s)", (n,))
        return n

    @bench.app.task
    def write_in_thread(connection: watchbill.Connection, n: int) -> int:
        connection.execute("INSERT INTO effects VALUES (%s)", (n,))
        return n

    @bench.app.task(retry=Retry(max_attempts=2, base=1000))
    async def write_and_fail(connection: watchbill.AsyncConnection) -> None:
        await connection.execute("INSERT INTO effects VALUES (99)")
        raise ValueError("after the write")

    jobs = [await write.aenqueue(1), await write_in_thread.aenqueue(2)]
    failed = await write_and_fail.aenqueue()
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == [1, 2]
    assert (await failed.aget()).state == "failed"
    assert bench.sql("SELECT n FROM effects ORDER BY n") == [(1,), (2,)]


async def test_a_transactional_task_that_lost_its_job_writes_nothing(bench: Workbench) -> None:
    bench.sql("CREATE TABLE effects (n int)")
    started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def write(connection: watchbill.AsyncConnection) -> None:
        await connection.execute("INSERT INTO effects VALUES (1)")
        if not started.is_set():
            started.set()
            await go_on.wait()

    job = await write.aenqueue()
    async with bench.working():
        await asyncio.wait_for(started.wait(), 60)
        assert await bench.app.jobs.arelease(job.id)
        go_on.set()
        await job.aresult(timeout=60)
    assert bench.sql("SELECT count(*) FROM effects") == [(1,)]
    assert [a.outcome for a in await bench.app.jobs.aattempts(job.id)] == ["released", "succeeded"]


async def test_progress_and_start_are_seen_while_it_runs(bench: Workbench) -> None:
    halfway, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def long() -> None:
        current_job().progress({"done": 50})
        halfway.set()
        await go_on.wait()

    job = await long.aenqueue()
    async with bench.working(lease=1.0):
        await asyncio.wait_for(halfway.wait(), 60)
        record = await bench.until(
            lambda: bench.sql("SELECT progress, started_at FROM watchbill.job WHERE progress IS NOT NULL")
        )
        assert record[0][0] == {"done": 50}
        go_on.set()
        await job.aresult(timeout=60)


async def test_paused_queues_and_types_wait_until_resumed(bench: Workbench) -> None:
    @bench.app.task(queue="mail")
    async def send() -> str:
        return "sent"

    @bench.app.task
    async def bill() -> str:
        return "billed"

    await bench.app.queues.apause("mail")
    await bench.app.queues.apause(type=bill.type)
    jobs = [await send.aenqueue(), await bill.aenqueue()]
    await bench.work_off()
    assert {(await job.aget()).state for job in jobs} == {"queued"}
    async with bench.working():
        await bench.app.queues.aresume("mail")
        await bench.app.queues.aresume(type=bill.type)
        assert [await job.aresult(timeout=60) for job in jobs] == ["sent", "billed"]


@pytest.mark.on_both_loops
async def test_a_node_that_is_asked_to_drain_finishes_and_leaves(bench: Workbench) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "done"

    first = await work.aenqueue()
    node = bench.node(name="drained")
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(started.wait(), 60)
    assert await bench.app.cluster.adrain("drained")
    second = await work.aenqueue()
    go_on.set()
    await asyncio.wait_for(running, 60)
    assert await first.aresult(timeout=60) == "done"
    assert (await second.aget()).state == "queued"
    assert bench.sql("SELECT state FROM watchbill.nodes WHERE name = 'drained'") == [("left",)]


async def test_a_node_that_was_declared_lost_starts_again_and_goes_on(bench: Workbench) -> None:
    @bench.app.task
    async def work() -> str:
        return "done"

    async with bench.working(name="phoenix") as node:
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.nodes WHERE name = 'phoenix'"))
        first = node.worker.epoch
        bench.sql("UPDATE watchbill.beats SET at = at - interval '1 hour'")
        bench.sql(
            "SELECT * FROM watchbill.reclaim(ARRAY(SELECT epoch FROM watchbill.beats), ARRAY(SELECT n FROM watchbill.beats))"
        )
        job = await work.aenqueue()
        assert await job.aresult(timeout=60) == "done"
        assert node.worker.epoch > first
    assert bench.sql("SELECT state FROM watchbill.nodes ORDER BY epoch") == [("lost",), ("left",)]


async def test_what_is_no_id_is_refused_in_words(bench: Workbench) -> None:
    nonsense: Any = "zz"
    with pytest.raises(Invalid, match='An argument cannot be used: invalid input syntax for type uuid: "zz"'):
        await bench.app.jobs.aget(nonsense)
