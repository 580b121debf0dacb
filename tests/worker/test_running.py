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
from tests.worker.conftest import Workbench
from watchbill import JobCanceled, JobFailed, Permanent, Retry, RetryAfter, Skip, Snooze, current_job
from watchbill.store.refusals import Invalid
from watchbill.worker.notifications import Listener


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


async def test_failed_job_keeps_its_error_until_the_next_attempt(bench: Workbench) -> None:
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


async def test_job_is_dead_after_its_last_attempt_and_keeps_all_attempts(bench: Workbench) -> None:
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


async def test_permanent_error_ends_the_job_dead(bench: Workbench) -> None:
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


async def test_skip_ends_the_job_as_succeeded_with_the_reason(bench: Workbench) -> None:
    @bench.app.task
    async def nothing_to_do() -> None:
        raise Skip("no changes")

    job = await nothing_to_do.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.outcome) == ("succeeded", "skipped")
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (attempt.outcome, (attempt.error or {})["message"]) == ("skipped", "no changes")


async def test_skip_can_have_a_result_and_events_carry_it(bench: Workbench) -> None:
    heard: list[tuple[str, Any]] = []
    bench.app.on("job_completed")(lambda job, outcome, result: heard.append((outcome, result)))

    @bench.app.task
    async def unchanged() -> dict[str, int]:
        raise Skip("no changes", result={"rows": 0})

    job = await unchanged.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=0) == {"rows": 0}
    assert heard == [("skipped", {"rows": 0})]


async def test_skip_with_a_result_that_is_not_json_fails(bench: Workbench) -> None:
    @bench.app.task
    async def bad() -> Any:
        raise Skip("no changes", result=object())

    job = await bad.aenqueue()
    await bench.work_off()
    record = await job.aget()
    assert (record.state, record.result) == ("dead", None)


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
async def test_coroutine_is_canceled_at_its_timeout(bench: Workbench) -> None:
    @bench.app.task(timeout=0.05, retry=Retry(max_attempts=2, base=1000))
    async def forever() -> None:
        await asyncio.Event().wait()

    job = await forever.aenqueue()
    await bench.work_off()
    record = await job.aget()
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (record.state, record.attempt, attempt.outcome) == ("failed", 1, "timed_out")
    assert "0.05" in (record.error or {})["message"]


async def test_job_without_a_timeout_uses_the_timeout_of_its_task(bench: Workbench) -> None:
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


async def test_timeout_none_disables_the_timeout_of_the_task(bench: Workbench) -> None:
    @bench.app.task(timeout=0.01)
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "done"

    job = await slow.using(timeout=None).aenqueue()
    await bench.work_off()
    assert await job.aresult() == "done"


@pytest.mark.on_both_loops
async def test_a_coroutine_that_swallows_a_cancellation_is_canceled_again(bench: Workbench) -> None:
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

    @bench.app.task(timeout=0.05, retry=Retry(max_attempts=2, base=1000), executor="thread")
    def stuck() -> int:
        release.wait(20)
        seen.append(current_job().canceled)
        return 1

    job = await stuck.aenqueue()
    async with bench.working() as node:
        run = await bench.until(lambda: next(iter(node.worker.slots.runs), None) if node._worker else None)
        await bench.until(lambda: run.stopping)
        assert (await job.aget()).state == "running"
        release.set()
        await bench.until(lambda: not node.worker.slots.runs)
        await node.worker.settler.wait_until_idle()
    (attempt,) = await bench.app.jobs.aattempts(job.id)
    assert (attempt.outcome, seen) == ("timed_out", [True])


@pytest.mark.on_both_loops
async def test_a_handlers_own_timeout_does_not_affect_the_worker(bench: Workbench) -> None:
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
async def test_a_running_job_is_asked_to_stop_and_ends_canceled(bench: Workbench) -> None:
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


async def test_handler_that_succeeds_after_a_stop_request_counts_as_success(bench: Workbench) -> None:
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


@pytest.mark.parametrize("how", ["cancel by force", "release"])
async def test_handler_stops_when_its_job_is_taken_away_though_no_notification_comes(
    bench: Workbench, how: str
) -> None:
    """As behind a pooler, or when the LISTEN connection is lost in that moment."""
    started, stopped = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    job = await wait.aenqueue()
    async with bench.working() as node:
        await asyncio.wait_for(started.wait(), 60)
        await node.worker.notifications.close()
        if how == "release":
            bench.sql("SELECT watchbill.pause(queue => 'default')")
            bench.sql("SELECT watchbill.release(%s)", job.id)
        else:
            assert await bench.app.jobs.acancel(job.id, force=True) == "canceled"
        await asyncio.wait_for(stopped.wait(), 60)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])


async def test_a_forged_stop_notification_stops_no_handler(bench: Workbench) -> None:
    """Every role of a database may send a NOTIFY."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def wait() -> str:
        started.set()
        await go_on.wait()
        return "undisturbed"

    job = await wait.aenqueue()
    async with bench.working() as node:
        await asyncio.wait_for(started.wait(), 60)
        await bench.until(lambda: node.worker.notifications.is_listening)
        ((sent_at,),) = bench.sql(
            "SELECT clock_timestamp() FROM pg_notify(watchbill._wake_channel(), 'stop ' || %s::text)", job.id
        )
        asked = """SELECT pid FROM pg_stat_activity
            WHERE application_name = 'watchbill heartbeat' AND query LIKE '%%stop_requests%%' AND query_start > %s"""
        await bench.until(lambda: bench.sql(asked, sent_at))
        await asyncio.sleep(0.3)  # `watch_runs` looks every quarter of a second, and would stop the handler now
        go_on.set()
        assert await job.aresult(timeout=60) == "undisturbed"


async def test_a_job_of_an_unknown_type_is_released_and_waits_for_a_node_that_knows_it(bench: Workbench) -> None:
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


async def test_invalid_payload_ends_the_job_dead(bench: Workbench) -> None:
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


async def test_a_job_that_is_due_soon_is_promoted_in_time_while_no_worker_sleeps(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait until somebody looks for delayed jobs anyway."""
    monkeypatch.setattr("watchbill.maintenance.promoter.LONGEST_WAIT_SECONDS", 3600.0)
    go_on = threading.Event()

    @bench.app.task
    def busy() -> None:
        go_on.wait(60)

    @bench.app.task
    async def tick() -> str:
        return "ticked"

    async with bench.working() as node:
        job = await busy.aenqueue()
        await bench.until(lambda: node.worker.slots.runs)
        assert await (await tick.using(delay=0.3).aenqueue()).aresult(timeout=60) == "ticked"
        go_on.set()
        await job.aresult(timeout=60)


@pytest.mark.parametrize("queue", ["stop", "stop it", "later", "schedules", "ready", " "])
async def test_a_queue_may_have_any_name_and_still_wakes_its_worker(bench: Workbench, queue: str) -> None:
    @bench.app.task(queue=queue)
    async def tick() -> str:
        return "ticked"

    async with bench.working(queues=(queue,), poll_interval=60.0, poll_max_interval=60.0) as node:
        for _ in range(2):
            await bench.until(lambda: node._worker and node.worker.notifications.is_locked)
            assert await (await tick.aenqueue()).aresult(timeout=60) == "ticked"


async def test_a_job_that_was_about_to_be_committed_is_found_without_a_notification(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer saw no sleeping worker, and kept this worker from getting the lock for sleeping."""
    tried: list[bool] = []
    lock = Listener.lock_for_sleep

    async def counted(listener: Listener) -> bool:
        tried.append(await lock(listener))
        return tried[-1]

    @bench.app.task
    async def tick() -> str:
        return "ticked"

    monkeypatch.setattr(Listener, "lock_for_sleep", counted)
    with psycopg.connect(bench.url) as connection:
        job = await asyncio.to_thread(tick.using(connection=connection).enqueue)
        async with bench.working(poll_interval=1000.0, poll_max_interval=1000.0):
            await bench.until(lambda: len(tried) > 3)  # it is woken once, when it begins to listen
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


async def test_transactional_task_of_a_released_job_writes_nothing(bench: Workbench) -> None:
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


async def test_progress_and_start_time_are_visible_during_the_run(bench: Workbench) -> None:
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


async def test_lost_node_registers_again_and_continues(bench: Workbench) -> None:
    @bench.app.task
    async def work() -> str:
        return "done"

    async with bench.working(name="phoenix") as node:
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.nodes WHERE name = 'phoenix'"))
        first = node.worker.epoch
        bench.sql("UPDATE watchbill.beats SET at = at - interval '1 hour'")
        bench.sql(
            "SELECT * FROM watchbill.reclaim("
            "ARRAY(SELECT epoch FROM watchbill.beats), ARRAY(SELECT n FROM watchbill.beats))"
        )
        job = await work.aenqueue()
        assert await job.aresult(timeout=60) == "done"
        assert node.worker.epoch > first
    assert bench.sql("SELECT state FROM watchbill.nodes ORDER BY epoch") == [("lost",), ("left",)]


async def test_a_malformed_id_is_refused_with_a_message(bench: Workbench) -> None:
    nonsense: Any = "zz"
    with pytest.raises(Invalid, match="'zz' is not the id of a job"):
        await bench.app.jobs.aget(nonsense)
