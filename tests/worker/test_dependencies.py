"""Dependencies in a node: who makes them, how often, and in which order they are closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.worker.conftest import Workbench
from tests.worker.dependent_tasks import in_child
from watchbill import AsyncConnection, Connection, Depends, Retry, current_job

ONCE = Retry(max_attempts=1)


class Steps(list[str]):
    """What happened, in order."""

    def engine(self) -> Iterator[str]:
        self.append("engine opened")
        yield "engine"
        self.append("engine closed")


async def test_process_dependencies_are_made_once_and_closed_in_reverse_order(bench: Workbench) -> None:
    steps = Steps()

    def engine() -> Iterator[str]:
        yield from steps.engine()

    async def client(engine: str = Depends(engine)) -> AsyncIterator[str]:
        maker = asyncio.current_task()
        steps.append("client opened")
        yield f"client of {engine}"
        steps.append("client closed")
        assert asyncio.current_task() is maker  # as cancel scopes and task groups want it

    async def settings() -> dict[str, int]:
        steps.append("settings read")
        return {"size": 3}

    @bench.app.task
    async def on_loop(*, client: str = Depends(client), settings: dict[str, int] = Depends(settings)) -> str:
        return f"{client} {settings['size']}"

    @bench.app.task
    def in_thread(*, engine: str = Depends(engine)) -> str:
        return engine

    jobs = [await on_loop.aenqueue(), await on_loop.aenqueue()]
    await bench.work_off()
    assert [await job.aresult() for job in jobs] == ["client of engine 3"] * 2
    assert steps == ["engine opened", "client opened", "settings read", "client closed", "engine closed"]
    steps.clear()
    job = await in_thread.aenqueue()
    await bench.work_off()
    assert await job.aresult() == "engine"
    assert steps == ["engine opened", "engine closed"]


async def test_attempt_dependencies_are_made_and_closed_around_each_attempt(bench: Workbench) -> None:
    steps = Steps()

    def shared() -> Iterator[int]:
        steps.append(f"shared for attempt {current_job().attempt}")
        yield len(steps)
        steps.append("shared closed")

    async def first(shared: int = Depends(shared, per="attempt")) -> AsyncIterator[int]:
        steps.append("first")
        try:
            yield shared
        except ConnectionError:
            steps.append("first saw the error")
            raise
        steps.append("first closed")

    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def work(*, one: int = Depends(first, per="attempt"), two: int = Depends(shared, per="attempt")) -> bool:
        if current_job().attempt == 1:
            raise ConnectionError
        return one == two

    job = await work.aenqueue()
    await bench.work_off()
    assert await job.aresult()
    assert steps == [
        "shared for attempt 1", "first", "first saw the error",
        "shared for attempt 2", "first", "first closed", "shared closed",
    ]  # fmt: skip


async def test_threads_share_one_process_dependency(bench: Workbench) -> None:
    made: list[int] = []
    both = threading.Barrier(2)

    def client() -> object:
        made.append(1)
        return object()

    @bench.app.task
    def work(n: int, *, client: object = Depends(client)) -> int:
        both.wait(30)
        return id(client)

    jobs = await bench.app.aenqueue_many([work.bind(n) for n in range(2)])
    await bench.work_off()
    assert len({await job.aresult() for job in jobs}) == 1
    assert made == [1]


async def test_process_dependency_sees_no_job(bench: Workbench) -> None:
    def job_of_maker() -> str:
        try:
            return str(current_job().id)
        except LookupError:
            return "none"

    async def job_of_async_maker() -> str:
        return job_of_maker()

    @bench.app.task
    async def work(*, a: str = Depends(job_of_maker), b: str = Depends(job_of_async_maker)) -> list[str]:
        return [a, b]

    job = await work.aenqueue()
    await bench.work_off()
    assert await job.aresult() == ["none", "none"]


async def test_dependency_that_cannot_be_made_fails_the_attempt_and_is_made_anew(bench: Workbench) -> None:
    tries: list[str] = []

    async def flaky() -> AsyncIterator[str]:
        tries.append("flaky")
        if len(tries) == 1:
            raise ConnectionError("down")
        yield "up"

    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def work(*, client: str = Depends(flaky)) -> str:
        return client

    job = await work.aenqueue()
    await bench.work_off()
    assert await job.aresult() == "up"
    first, _ = await bench.app.jobs.aattempts(job.id)
    assert (first.error or {})["message"] == "down"


async def test_stopped_attempt_does_not_stop_the_making_for_others(bench: Workbench) -> None:
    go_on = asyncio.Event()

    async def slow() -> str:
        await go_on.wait()
        return "made"

    @bench.app.task(retry=ONCE)
    async def work(n: int, *, client: str = Depends(slow)) -> str:
        return client

    first = await work.using(timeout=0.05).aenqueue(1)
    second = await work.aenqueue(2)
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.job WHERE state = 'dead'"))
        go_on.set()
        assert await second.aresult(timeout=60) == "made"
    assert (await first.aget()).outcome == "timed_out"


@pytest.mark.parametrize("is_async", [True, False])
async def test_swallowed_exception_still_fails_the_attempt(bench: Workbench, is_async: bool) -> None:
    def swallows() -> Iterator[int]:
        with contextlib.suppress(ValueError):
            yield 1

    @bench.app.task(retry=ONCE)
    async def on_loop(*, it: int = Depends(swallows, per="attempt")) -> None:
        raise ValueError("lost?")

    @bench.app.task(retry=ONCE)
    def in_thread(*, it: int = Depends(swallows, per="attempt")) -> None:
        raise ValueError("lost?")

    job = await (on_loop if is_async else in_thread).aenqueue()
    await bench.work_off()
    assert (await job.aget()).state == "dead"


async def test_error_while_closing_fails_the_attempt(bench: Workbench) -> None:
    """As the commit of a session does."""

    def session() -> Iterator[int]:
        yield 1
        raise ConnectionError("commit failed")

    @bench.app.task(retry=ONCE)
    def work(*, session: int = Depends(session, per="attempt")) -> int:
        return session

    job = await work.aenqueue()
    await bench.work_off()
    assert ((await job.aget()).error or {})["message"] == "commit failed"


async def test_transactional_tasks_close_dependencies_before_the_commit(bench: Workbench) -> None:
    bench.sql("CREATE TABLE seen (word text)")

    def fails_at_the_end() -> Iterator[str]:
        yield "never"
        raise ConnectionError("not closed")

    def word() -> str:
        return "word"

    @bench.app.task
    def blocking(connection: Connection, n: int, *, word: str = Depends(word)) -> int:
        connection.execute("INSERT INTO seen VALUES (%s)", (word,))
        return n

    @bench.app.task(retry=ONCE)
    async def on_loop(connection: AsyncConnection, *, word: str = Depends(fails_at_the_end, per="attempt")) -> None:
        await connection.execute("INSERT INTO seen VALUES (%s)", (word,))

    good, bad = await blocking.aenqueue(7), await on_loop.aenqueue()
    await bench.work_off()
    assert await good.aresult() == 7
    assert (await bad.aget()).state == "dead"
    assert bench.sql("SELECT word FROM seen") == [("word",)]


async def test_child_process_keeps_its_dependencies_and_closes_them_when_it_ends(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tmp_path / "steps"
    monkeypatch.setenv("STEPS_OF_DEPENDENCIES", str(steps))
    bench.app.tasks[in_child.type] = in_child
    for n in range(2):
        job = await bench.app.aenqueue(in_child.type, {"n": n})
        assert job.created
    node = bench.node()
    running = asyncio.create_task(node.run())
    await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.job WHERE state = 'succeeded'") == [(2,)])
    node.drain()
    await running
    lines = steps.read_text().splitlines()
    assert lines.count("session opened") == lines.count("session closed") == 2
    assert lines[0] == "engine opened"
    assert lines[-1] == "engine closed"
    assert lines.count("engine opened") == lines.count("engine closed")  # one for each child


async def test_failure_while_closing_is_logged_and_the_others_are_closed(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps()

    def engine() -> Iterator[str]:
        yield from steps.engine()

    def bad(engine: str = Depends(engine)) -> Iterator[str]:
        yield engine
        raise RuntimeError("cannot close")

    async def worse(bad: str = Depends(bad)) -> AsyncIterator[str]:
        yield bad
        raise RuntimeError("cannot close either")

    @bench.app.task
    async def work(*, it: str = Depends(worse)) -> None: ...

    await work.aenqueue()
    await bench.work_off()
    assert steps == ["engine opened", "engine closed"]
    assert [record.args for record in caplog.records if "while it was being closed" in record.message] == [
        ("worse",),
        ("bad",),
    ]


async def test_lifespan_ends_after_the_dependencies(bench: Workbench) -> None:
    steps = Steps()

    @bench.app.lifespan
    async def state(app: object) -> AsyncGenerator[str, None]:
        yield "state"
        steps.append("lifespan ended")

    def from_state() -> Iterator[str]:
        yield bench.app.state
        steps.append(f"closed with {bench.app.state}")

    @bench.app.task
    async def work(*, it: str = Depends(from_state)) -> str:
        return it

    job = await work.aenqueue()
    await bench.work_off()
    assert await job.aresult() == "state"
    assert steps == ["closed with state", "lifespan ended"]
