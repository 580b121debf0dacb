"""What runs around handlers and enqueues, what travels with a job, and tasks that are declared elsewhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.servers import Server
from tests.store.conftest import template
from tests.worker.conftest import Workbench
from watchbill import App, Retry, Skip, Tasks, chain, current_job, group
from watchbill.app.middleware import NotSendable
from watchbill.app.task import NotIncluded
from watchbill.model.job import Enqueued, NewJob
from watchbill.store.refusals import PayloadDiffers
from watchbill.worker.run import Run

request_id: ContextVar[str] = ContextVar("request_id", default="none")


async def test_first_registered_around_run_is_the_outermost(bench: Workbench) -> None:
    seen: list[str] = []

    def note(name: str) -> Any:
        def around(job: Run) -> Generator[None, None, None]:
            seen.append(f"{name} before {job.attempt}")
            yield
            seen.append(f"{name} after")

        return around

    bench.app.around_run(note("outer"))
    bench.app.around_run(note("inner"))

    @bench.app.task
    async def on_loop() -> None:
        seen.append("handler")

    @bench.app.task
    def in_thread() -> None:
        seen.append("handler")

    expected = ["outer before 1", "inner before 1", "handler", "inner after", "outer after"]
    for task in (on_loop, in_thread):
        seen.clear()
        await task.aenqueue()
        await bench.work_off()
        assert seen == expected


async def test_around_run_may_replace_an_error(bench: Workbench) -> None:
    @bench.app.around_run
    def forgive(job: Run) -> Generator[None, None, None]:
        try:
            yield
        except ZeroDivisionError as error:
            raise Skip("forgiven") from error

    @bench.app.task(retry=Retry(max_attempts=1))
    async def divide() -> float:
        return 1 / 0

    job = await divide.aenqueue()
    await bench.work_off()
    assert (await job.aget()).outcome == "skipped"


async def test_around_enqueue_may_change_the_job_and_receives_the_answer(bench: Workbench) -> None:
    answers: list[Enqueued] = []

    @bench.app.around_enqueue
    def first_class(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        answers.append((yield job._replace(priority=job.priority + 7)))

    @bench.app.task(priority=1)
    async def t() -> None: ...

    job = await t.aenqueue()
    (bulk,) = await bench.app.aenqueue_many([t.bind()])
    assert [(await each.aget()).priority for each in (job, bulk)] == [8, 8]
    assert [answer.id for answer in answers] == [job.id, bulk.id]


async def test_context_variables_travel_with_the_job(bench: Workbench) -> None:
    bench.app = App(bench.url, propagate=[request_id])

    @bench.app.task
    async def on_loop() -> str:
        return request_id.get()

    @bench.app.task
    def in_thread() -> str:
        return request_id.get()

    request_id.set("r-17")
    jobs = [await on_loop.aenqueue(), await in_thread.aenqueue()]
    request_id.set("other")
    try:
        await bench.work_off()
        assert [await job.aresult(timeout=60) for job in jobs] == ["r-17", "r-17"]
        wrong: list[Any] = [object(), uuid4(), float("nan"), "a\0b", {"a": {1: 2}}]
        for value in wrong:
            request_id.set(value)
            with pytest.raises(NotSendable, match="request_id"):
                await on_loop.aenqueue()
    finally:
        request_id.set("none")


async def test_lifespan_surrounds_the_work_and_provides_app_state(bench: Workbench) -> None:
    seen: list[str] = []

    @bench.app.lifespan
    async def life(app: App) -> AsyncGenerator[dict[str, str], None]:
        seen.append("begin")
        yield {"model": "loaded"}
        seen.append("end")

    @bench.app.task
    async def use() -> str:
        seen.append("use")
        return str(bench.app.state["model"])

    job = await use.aenqueue()
    await bench.work_off()
    assert await job.aresult(timeout=60) == "loaded"
    assert seen == ["begin", "use", "end"]


async def test_app_runs_tasks_of_an_included_library(bench: Workbench) -> None:
    library = Tasks()

    @library.task(aliases=["old.name"])
    async def greet(name: str) -> str:
        return f"{current_job().type}: hello {name}"

    with pytest.raises(NotIncluded, match="test_around"):
        await greet.aenqueue("ann")
    bench.app.include(library)
    job = await greet.aenqueue("ann")
    bench.sql("SELECT watchbill.enqueue('old.name', '{\"name\": \"bob\"}')")
    await bench.work_off()
    assert (await job.aresult(timeout=60)).endswith("hello ann")
    assert bench.sql("SELECT result FROM watchbill.job WHERE type = 'old.name'") == [("old.name: hello bob",)]


async def test_two_apps_may_include_one_library_and_a_call_says_which_one_it_means(
    bench: Workbench, server: Server
) -> None:
    """Two installations, one set of tasks: each App declares its schedules in its own zone and runs its own jobs."""
    database = server.url(server.create_database(template(server)))
    library = Tasks()

    @library.schedule("0 3 * * *")
    @library.task
    async def greet(name: str = "you") -> str:
        return f"hello {name}"

    other = App(database, name="other", tz="Europe/Paris")
    bench.app.include(library)
    job = await greet.aenqueue("ann")
    other.include(library)
    with pytest.raises(NotIncluded, match="several Apps"):
        await greet.aenqueue("ann")
    with pytest.raises(NotIncluded, match="does not have the task"):
        greet.using(app=App("postgresql://x/y"))
    there = await greet.using(app=other).aenqueue("bob")
    flow = await chain(greet.using(app=other).bind("cid"), greet.using(app=other).bind("dot")).aenqueue()
    async with other.node():
        assert [await each.aresult(timeout=60) for each in (there, *flow)] == ["hello bob", "hello cid", "hello dot"]
        assert (await other.schedules.aget(greet.type)).tz == "Europe/Paris"
    await other.aclose()
    await bench.work_off()
    assert await job.aresult(timeout=60) == "hello ann"
    assert bench.sql("SELECT tz FROM watchbill.schedules WHERE name = %s", greet.type) == [("UTC",)]

    @library.task
    async def later() -> None: ...

    assert later.type in bench.app.tasks
    assert later.type in other.tasks


def test_duplicate_task_type_error_names_both_places() -> None:
    app = App("postgresql://x/y")

    @app.task(type="same")
    async def one() -> None: ...

    with pytest.raises(ValueError, match=r"one \(.*test_around.py:\d+\) and .*two \(.*test_around.py:\d+\)"):

        @app.task(type="same")
        async def two() -> None: ...


async def test_events_fire_in_order_and_a_broken_observer_does_no_harm(bench: Workbench) -> None:
    """Events about a run fire when its end is stored; the next run may begin before that."""
    heard: list[str] = []
    runs: dict[int, list[str]] = {1: [], 2: []}

    def hear(event: str, job: Any, **what: Any) -> None:
        heard.append(event)
        if event != "job_enqueued":
            runs[job.attempt].append(event)

    for event in ("job_enqueued", "job_started", "job_completed", "job_failed", "job_retry", "job_died"):
        bench.app.on(event)(partial(hear, event))

    @bench.app.on("job_completed")
    def broken(**what: Any) -> None:
        raise RuntimeError("an observer's own problem")

    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def fail() -> None:
        raise ValueError

    @bench.app.task
    async def work() -> None: ...

    await work.aenqueue()
    await bench.work_off()
    assert heard == ["job_enqueued", "job_started", "job_completed"]
    heard.clear()
    runs[1].clear()
    job = await fail.aenqueue()
    async with bench.working():
        await bench.until(lambda: "job_died" in heard)
    assert heard[0] == "job_enqueued"
    assert runs == {1: ["job_started", "job_failed", "job_retry"], 2: ["job_started", "job_failed", "job_died"]}
    assert (await job.aget()).state == "dead"


async def test_enqueue_many_emits_an_event_for_each_new_job(bench: Workbench) -> None:
    heard: list[Any] = []
    bench.app.on("job_enqueued")(lambda job: heard.append(job.id))

    @bench.app.task
    async def work() -> None: ...

    known = work.using(idempotency_key="known")
    first, second = await bench.app.aenqueue_many([work.bind(), known.bind()])
    (third, again) = await bench.app.aenqueue_many([work.bind(), known.bind()])
    flow = await chain(work.bind(), group(work.bind(), work.bind())).aenqueue()
    assert again.id == second.id
    assert heard == [first.id, second.id, third.id, *(job.id for job in flow)]


async def test_a_known_key_with_another_payload_is_reported_in_a_bulk_enqueue(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task
    async def pay(amount: int) -> None: ...

    once = pay.using(idempotency_key="once")
    await once.aenqueue(1)
    other, same = await bench.app.aenqueue_many([pay.bind(2), once.bind(2)])
    assert (other.payload_differs, same.payload_differs) == (False, True)
    assert f"Job {same.id} has this idempotency key but another payload" in caplog.text
    with pytest.raises(PayloadDiffers):
        await bench.app.aenqueue_many([pay.bind(3), once.using(strict=True).bind(2)])
    assert sorted(job.payload["amount"] for job in await bench.app.jobs.alist()) == [1, 2]  # all or none


def test_around_hooks_of_the_wrong_kind_are_refused() -> None:
    app = App("postgresql://x/y")

    def plain(job: Any) -> None: ...

    async def on_loop(job: Any) -> AsyncGenerator[None, None]:
        yield

    def blocking(app: Any) -> Generator[None, None, None]:
        yield

    for wrong in (plain, on_loop):
        with pytest.raises(TypeError, match=r"around_run takes a plain `def` that yields once, which .* is not"):
            app.around_run(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="around_enqueue takes a plain `def`"):
            app.around_enqueue(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"lifespan takes an `async def` that yields once, which .*blocking is not"):
        app.lifespan(blocking)  # type: ignore[arg-type]


async def test_error_after_the_yield_of_around_enqueue_is_logged(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    @bench.app.around_enqueue
    def outer(job: NewJob) -> Any:
        told.append((yield job).id)

    @bench.app.around_enqueue
    def twice(job: NewJob) -> Any:
        yield job
        yield job

    @bench.app.around_enqueue
    def broken(job: NewJob) -> Any:
        yield job
        raise RuntimeError("no more room in the log")

    first = await bench.app.aenqueue("anything")
    second, third = await bench.app.aenqueue_many([bench.app.task(type=f"t{n}")(_nothing).bind() for n in range(2)])
    assert told == [first.id, second.id, third.id], "the others hear of it as ever"
    assert {job.id for job in await bench.app.jobs.alist()} == set(told)
    assert caplog.text.count("RuntimeError: no more room in the log") == 3
    assert f"twice yields twice for job {first.id}" in caplog.text


async def _nothing() -> None: ...


async def test_error_before_the_yield_of_around_enqueue_refuses_the_job(bench: Workbench) -> None:
    outcomes: list[str] = []

    @bench.app.around_enqueue
    def outer(job: NewJob) -> Any:
        try:
            yield job
        except PermissionError as error:
            outcomes.append(str(error))
            raise

    @bench.app.around_enqueue
    def guard(job: NewJob) -> Any:
        raise PermissionError("not today")
        yield job

    with pytest.raises(PermissionError, match="not today"):
        await bench.app.aenqueue("anything")
    assert outcomes == ["not today"]
    assert await bench.app.jobs.alist() == []


def test_around_enqueue_that_yields_no_job_is_an_error() -> None:
    app = App("postgresql://x/y")

    @app.around_enqueue
    def forgets(job: NewJob) -> Any:
        yield

    with pytest.raises(TypeError, match="forgets yields None; it must yield the job"):
        app.enqueue("anything")


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match="job_died"):
        App("postgresql://x/y").on("job_dies")(lambda **_: None)


async def test_around_enqueue_receives_the_failure(bench: Workbench) -> None:
    seen: list[str] = []

    def note(name: str) -> Any:
        def around(job: NewJob) -> Generator[NewJob, Enqueued, None]:
            try:
                yield job
                seen.append(f"{name} sent")
            except Exception as error:
                seen.append(f"{name} {type(error).__name__}")
                if name == "inner":
                    raise LookupError("instead") from error
                raise

        return around

    bench.app.around_enqueue(note("outer"))
    bench.app.around_enqueue(note("inner"))

    @bench.app.task
    async def one(n: int) -> None: ...

    with pytest.raises(LookupError, match="instead"):
        await one.using(queue="q" * 101).aenqueue(1)
    assert seen == ["inner Invalid", "outer LookupError"]
    seen.clear()
    with pytest.raises(LookupError):
        await bench.app.aenqueue_many([one.bind(1), one.using(queue="q" * 101).bind(2)])
    assert seen[:2] == ["inner Invalid", "outer LookupError"]
    assert len(seen) == 4
    seen.clear()
    await bench.app.aenqueue_many([one.bind(1), one.bind(2)])
    assert seen == ["inner sent", "outer sent"] * 2


async def test_if_one_around_enqueue_fails_to_begin_the_others_receive_its_error(bench: Workbench) -> None:
    seen: list[str] = []

    @bench.app.around_enqueue
    def outer(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        try:
            yield job
        except ZeroDivisionError:
            seen.append("heard")
            raise

    @bench.app.around_enqueue
    def broken(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        yield job._replace(priority=1 // 0)

    with pytest.raises(ZeroDivisionError):
        await bench.app.aenqueue("t")
    assert seen == ["heard"]
