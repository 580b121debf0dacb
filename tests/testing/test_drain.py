"""drain(): what is ready runs here, as in a worker, and nothing else does."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from watchbill import (
    App,
    AsyncSteps,
    Batch,
    BatchFailed,
    Connection,
    Limit,
    Permanent,
    Retry,
    RetryAfter,
    Skip,
    Snooze,
    Task,
    Tasks,
    current_job,
)
from watchbill.testing import DrainFailed, NeverEnding, Watchbill

marker: ContextVar[str] = ContextVar("marker")


def outcomes(runs: list[Any]) -> list[tuple[str, str]]:
    return [(run.outcome, run.state) for run in runs]


def test_every_kind_of_task_runs_in_the_order_of_the_queue(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def plain(n: int) -> None:
        seen.append(n)

    @app.task
    async def asynchronous(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(n)

    @app.task(executor="process")
    def heavy(n: int) -> int:
        seen.append(n)
        return n * 2

    tasks: list[Task[[int], Any]] = [heavy, plain, asynchronous, heavy, plain]
    jobs = [task.enqueue(n) for n, task in enumerate(tasks)]
    runs = watchbill.drain()
    assert seen == [0, 1, 2, 3, 4]
    assert [run.id for run in runs] == [job.id for job in jobs]
    assert outcomes(runs) == [("succeeded", "succeeded")] * 5
    assert jobs[3].result(timeout=0) == 6


def test_drain_runs_jobs_that_handlers_enqueue(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def count_down(n: int) -> None:
        seen.append(n)
        if n:
            count_down.enqueue(n - 1)

    count_down.enqueue(3)
    assert len(watchbill.drain()) == 4
    assert seen == [3, 2, 1, 0]
    assert watchbill.drain() == []


def test_several_queues_priorities_and_apps_are_drained(watchbill: Watchbill) -> None:
    first, second, seen = App(), App(), []

    @first.task(queue="mail")
    def send(n: int) -> None:
        seen.append(n)

    @second.task(queue="reports")
    def report(n: int) -> None:
        seen.append(n)

    report.enqueue(1)
    send.using(queue="elsewhere").enqueue(2)
    send.enqueue(3)
    send.using(priority=5).enqueue(4)
    watchbill.drain()
    assert sorted(seen) == [1, 2, 3, 4]
    assert seen.index(4) < seen.index(3)


def test_drain_uses_the_newest_app_for_a_type(watchbill: Watchbill) -> None:
    """An App of an earlier test may not be collected yet."""
    seen = []
    apps = [App(), App()]
    for n, app in enumerate(apps):

        @app.task(type="same")
        def same(n: int = n) -> None:
            seen.append(n)

    apps[0].enqueue("same")
    watchbill.drain()
    assert seen == [1]


def test_tasks_of_a_library_and_old_names_run(watchbill: Watchbill) -> None:
    producer, app, library, seen = App(), App(), Tasks(), []

    @library.task(type="library.new", aliases=["library.old"])
    def work() -> None:
        seen.append(current_job().type)

    app.include(library)
    producer.enqueue("library.old")
    watchbill.drain()
    assert seen == ["library.old"]


def test_drain_leaves_unknown_and_paused_jobs(watchbill: Watchbill) -> None:
    app = App()

    @app.task(queue="quiet")
    def quiet() -> None: ...

    app.enqueue("of.another.service")
    quiet.enqueue()
    app.queues.pause("quiet")
    assert watchbill.drain() == []
    assert [job.state for job in watchbill.jobs()] == ["queued", "queued"]
    app.queues.resume("quiet")
    assert [run.type for run in watchbill.drain()] == [quiet.type]


# -- retries, delays and the clock


def test_drain_does_not_run_a_delayed_retry(watchbill: Watchbill) -> None:
    """However short its delay is: only the test moves the clock."""
    app = App()

    @app.task(retry=Retry(max_attempts=3, backoff="fixed", base=0.001, jitter=0))
    def fail() -> None:
        raise RuntimeError("no")

    fail.enqueue()
    runs = []
    for _ in range(3):
        [run] = watchbill.drain()
        assert watchbill.drain() == []
        runs.append(run)
        watchbill.advance(hours=1)
    assert outcomes(runs) == [("failed", "failed"), ("failed", "failed"), ("failed", "dead")]
    assert [run.attempt for run in runs] == [1, 2, 3]
    assert isinstance(runs[0].exception, RuntimeError)
    assert "RuntimeError: no" in (runs[0].error or {})["traceback"]


def test_drain_runs_a_delayed_job_after_advance(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def later() -> None: ...

    later.using(delay=3600).enqueue()
    later.using(run_at=watchbill.now()).enqueue()
    assert len(watchbill.drain()) == 1
    watchbill.advance(minutes=59)
    assert watchbill.drain() == []
    watchbill.advance(minutes=1)
    assert len(watchbill.drain()) == 1


def test_drain_reports_skip_snooze_retry_and_permanent(watchbill: Watchbill) -> None:
    app = App()
    asked: list[Exception] = [Skip("nothing to do"), Snooze(60), RetryAfter(60), Permanent("never")]

    @app.task
    def ask(n: int) -> None:
        raise asked[n]

    for n in range(4):
        ask.enqueue(n)
    assert outcomes(watchbill.drain()) == [
        ("skipped", "succeeded"),
        ("snoozed", "queued"),
        ("failed", "failed"),
        ("failed", "dead"),
    ]


def test_a_retry_without_a_delay_runs_at_once(watchbill: Watchbill) -> None:
    app = App()

    @app.task(retry=Retry(max_attempts=3, base=0))
    def fail() -> None:
        raise RuntimeError

    fail.enqueue()
    assert [run.state for run in watchbill.drain()] == ["failed", "failed", "dead"]


@pytest.mark.parametrize("on_loop", [False, True])
def test_drain_with_fast_retries_runs_a_job_to_its_end(watchbill: Watchbill, on_loop: bool) -> None:
    app = App()

    @app.task
    def fail() -> None:
        raise RuntimeError

    fail.enqueue()
    runs = asyncio.run(watchbill.adrain(fast_retries=True)) if on_loop else watchbill.drain(fast_retries=True)
    assert [run.state for run in runs] == ["failed"] * 9 + ["dead"]


# -- raising


def test_drain_raising_raises_the_error_of_the_handler(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def work(n: int) -> None:
        seen.append(n)
        if n == 1:
            raise LookupError("of the handler")

    for n in range(3):
        work.enqueue(n)
    with pytest.raises(LookupError, match="of the handler") as caught:
        watchbill.drain(raising=True)
    assert seen == [0, 1]
    assert caught.traceback[-1].name == "work"
    assert [job.state for job in watchbill.jobs()] == ["succeeded", "failed", "queued"]


def test_drain_raising_ignores_skip_snooze_and_retry_after(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def ask(n: int) -> None:
        raise (Skip(), Snooze(60), RetryAfter(60))[n]

    for n in range(3):
        ask.enqueue(n)
    assert len(watchbill.drain(raising=True)) == 3


def test_drain_raising_reports_a_timeout(watchbill: Watchbill) -> None:
    app = App()

    @app.task(timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    slow.enqueue()
    with pytest.raises(DrainFailed, match=r"slow has timed out and the job is failed: timed out after 0\.05 s"):
        watchbill.drain(raising=True)


def test_drain_raising_reports_an_invalid_payload(watchbill: Watchbill) -> None:
    producer, worker = App(), App()
    producer.enqueue("work", {"n": "many"})

    @worker.task(type="work")
    def work(n: int) -> None: ...

    with pytest.raises(DrainFailed, match=r"work has failed and the job is dead: .*n: input should be a valid integer"):
        watchbill.drain(raising=True)


def test_pytest_fail_in_a_handler_fails_the_test(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def work() -> None:
        pytest.fail("seen in the handler")

    work.enqueue()
    with pytest.raises(pytest.fail.Exception, match="seen in the handler"):
        watchbill.drain()


def test_an_exit_in_a_handler_is_a_failed_attempt_as_in_a_worker(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def leave() -> None:
        raise SystemExit(3)

    leave.enqueue()
    assert outcomes(watchbill.drain()) == [("failed", "failed")]


def test_drain_fails_if_jobs_enqueue_themselves_forever(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(NeverEnding, match=r"10 runs.*\n.*enqueue itself"):
        watchbill.drain(limit=10)


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Raises in the main thread, wherever that is, as Ctrl-C and the time-out of a test do."""

    def strike(*_: object) -> None:
        raise KeyboardInterrupt("struck")

    before = signal.signal(signal.SIGUSR1, strike)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_hangs_on_the_loop_can_be_interrupted(
    watchbill: Watchbill, interrupt: Callable[[], None]
) -> None:
    app, ended = App(), threading.Event()

    @app.task
    async def hang() -> None:
        interrupt()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    hang.enqueue()
    with pytest.raises(KeyboardInterrupt, match="struck"):
        watchbill.drain()
    assert ended.is_set()
    assert [job.state for job in watchbill.jobs()] == ["queued"]


def test_a_handler_in_the_thread_of_the_test_can_be_interrupted(
    watchbill: Watchbill, interrupt: Callable[[], None]
) -> None:
    app = App()

    @app.task
    def hang() -> None:
        interrupt()
        threading.Event().wait()

    hang.enqueue()
    hang.enqueue()
    with pytest.raises(KeyboardInterrupt, match="struck"):
        watchbill.drain()
    assert [job.state for job in watchbill.jobs()] == ["failed", "queued"]


# -- where handlers run


def test_a_plain_handler_runs_in_the_thread_of_the_test(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def where() -> None:
        seen.append(threading.current_thread())

    where.enqueue()
    watchbill.drain()
    assert seen == [threading.current_thread()]


def test_drain_with_concurrency_runs_handlers_at_once(watchbill: Watchbill) -> None:
    app, both = App(), threading.Barrier(2, timeout=30)

    @app.task
    def meet() -> None:
        both.wait()

    meet.enqueue()
    meet.enqueue()
    assert outcomes(watchbill.drain(concurrency=2)) == [("succeeded", "succeeded")] * 2


def test_handlers_do_not_see_context_variables_of_the_test(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def look() -> None:
        seen.append(marker.get("none"))

    marker.set("of the test")
    look.enqueue()
    watchbill.drain()
    assert seen == ["none"]


def test_handlers_see_propagated_context_variables(watchbill: Watchbill) -> None:
    app, seen = App(propagate=[marker]), []

    @app.task
    def look() -> None:
        seen.append(marker.get("none"))

    marker.set("of the test")
    look.enqueue()
    watchbill.drain()
    assert seen == ["of the test"]


def test_drain_enters_and_leaves_the_lifespan(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.lifespan
    async def lifespan(app: App) -> AsyncGenerator[str, None]:
        seen.append("begin")
        yield "a connection"
        seen.append("end")

    @app.task
    def work() -> None:
        seen.append(app.state)

    work.enqueue()
    watchbill.drain()
    assert seen == ["begin", "a connection", "end"]


def test_drain_gives_a_transactional_task_its_connection(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def work(connection: Connection, n: int) -> int:
        row = connection.execute("SELECT %s::int", (n,)).fetchone()
        assert row is not None
        return int(row[0])

    job = work.enqueue(7)
    assert outcomes(watchbill.drain(raising=True)) == [("succeeded", "succeeded")]
    assert job.result(timeout=0) == 7


def test_drain_emits_events(watchbill: Watchbill) -> None:
    app, heard = App(), []

    @app.on("job_completed")
    def completed(job: Any, outcome: str, result: Any) -> None:
        heard.append((outcome, result))

    @app.task
    def work() -> list[int]:
        return [1]

    work.enqueue()
    watchbill.drain()
    assert heard == [("succeeded", [1])]


# -- on a loop


def test_blocking_drain_on_a_loop_names_adrain(watchbill: Watchbill) -> None:
    async def test() -> None:
        watchbill.drain()

    with pytest.raises(RuntimeError, match=r"await adrain\(\)"):
        asyncio.run(test())


@pytest.mark.asyncio
async def test_adrain_runs_handlers_on_the_loop_of_the_test(watchbill: Watchbill) -> None:
    app = App()
    seen: list[object] = []

    @app.task
    async def where() -> None:
        seen.append(asyncio.get_running_loop())

    @app.task
    def beside() -> str:
        seen.append(threading.current_thread())
        return "done"

    await where.aenqueue()
    job = await beside.aenqueue()
    assert outcomes(await watchbill.adrain()) == [("succeeded", "succeeded")] * 2
    assert seen[0] is asyncio.get_running_loop()
    assert seen[1] is not threading.current_thread()
    assert await job.aresult(timeout=0) == "done"


@pytest.mark.asyncio
async def test_adrain_raises_what_the_handler_raised(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    async def fail() -> None:
        raise LookupError("of the handler")

    await fail.aenqueue()
    with pytest.raises(LookupError, match="of the handler"):
        await watchbill.adrain(raising=True)


@pytest.mark.asyncio
async def test_canceled_adrain_releases_its_jobs(watchbill: Watchbill) -> None:
    app, started, ended = App(), asyncio.Event(), asyncio.Event()

    @app.task
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await hang.aenqueue()
    draining = asyncio.create_task(watchbill.adrain())
    await started.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    await ended.wait()
    assert [job.state for job in watchbill.jobs()] == ["queued"]


@pytest.mark.parametrize("n", range(3))
def test_adrain_works_on_one_loop_after_another(watchbill: Watchbill, n: int) -> None:
    app = App()

    @app.task
    async def work() -> int:
        return n

    async def test() -> int:
        jobs = await asyncio.gather(*(work.aenqueue() for _ in range(5)))
        await watchbill.adrain(concurrency=3)
        return sum(await asyncio.gather(*(job.aresult(timeout=0) for job in jobs)))

    assert asyncio.run(test()) == 5 * n
    assert asyncio.run(test()) == 5 * n


def test_drain_runs_batches_and_does_not_wait_for_more(watchbill: Watchbill) -> None:
    app, calls = App(), []

    @app.task(batch=Batch(size=3, wait="60s"))
    def index(docs: list[int]) -> None:
        calls.append(docs)

    @app.task
    def plain() -> None: ...

    for n in range(4):
        index.enqueue(n)
        plain.enqueue()
    runs = watchbill.drain()
    assert calls == [[0, 1, 2], [3]]
    assert outcomes(runs) == [("succeeded", "succeeded")] * 8


def test_drain_reports_each_job_of_a_batch(watchbill: Watchbill) -> None:
    app = App()

    @app.task(batch=Batch(size=3))
    def index(docs: list[int]) -> None:
        raise BatchFailed({1: ValueError("bad")})

    jobs = [index.enqueue(n) for n in range(3)]
    runs = watchbill.drain(raising=False)
    assert {run.id: run.outcome for run in runs} == dict(
        zip([job.id for job in jobs], ["succeeded", "failed", "succeeded"], strict=True)
    )


kept_app = App()


@kept_app.task(limits=[Limit(1, name="kept")])
def limited() -> None: ...


@pytest.mark.parametrize("number", [1, 2])
def test_the_limits_of_an_app_exist_in_each_test(watchbill: Watchbill, number: int) -> None:
    """The tables are empty again in the second test, while the App is the same."""
    limited.enqueue()
    assert outcomes(watchbill.drain()) == [("succeeded", "succeeded")]


def test_drain_runs_a_job_with_steps_through_its_sleep(watchbill: Watchbill) -> None:
    app = App()
    ran: list[str] = []

    @app.task(type="remind")
    async def remind(steps: AsyncSteps) -> str:
        await steps.run(ran.append, "asked")
        await steps.sleep("3d")
        await steps.run(ran.append, "reminded")
        return "done"

    job = remind.enqueue()
    watchbill.drain()
    assert (ran, job.get().state) == (["asked"], "suspended")
    watchbill.advance(days=3)
    watchbill.drain()
    assert (ran, job.result(timeout=0)) == (["asked", "reminded"], "done")
