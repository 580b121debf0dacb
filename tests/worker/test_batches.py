"""Tasks in batches: one call of the handler runs many jobs, and each job ends as if it had run alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from tests.worker import child_tasks
from tests.worker.conftest import Workbench
from watchbill import (
    App,
    AsyncConnection,
    Batch,
    BatchFailed,
    Connection,
    Depends,
    Job,
    JobCanceled,
    JobFailed,
    Permanent,
    Retry,
    RetryAfter,
    Skip,
    Snooze,
    Task,
    current_job,
)
from watchbill.worker.batch_run import BatchDemand, BatchRun
from watchbill.worker.config import Capacity
from watchbill.worker.handlers import Handler
from watchbill.worker.processes import Processes
from watchbill.worker.run import Claimed, Run

ONE = Capacity({"async": 1, "thread": 1, "process": 1}, 1)


async def enqueue_all(bench: Workbench, task: Task[..., Any], items: list[Any]) -> list[Job[Any]]:
    return await bench.app.aenqueue_many([task.bind(item) for item in items])


async def states(bench: Workbench, jobs: list[Job[Any]]) -> list[tuple[str, int]]:
    records = [await job.aget() for job in jobs]
    return [(record.state, record.attempt) for record in records]


# -- how batches are made


async def test_one_call_runs_many_jobs_and_each_keeps_its_row(bench: Workbench) -> None:
    calls: list[list[int]] = []

    @bench.app.task(batch=Batch(size=200))
    def index(docs: list[int]) -> None:
        calls.append(docs)

    jobs = await enqueue_all(bench, index, list(range(50)))
    await bench.work_off()
    assert calls == [list(range(50))]
    assert await states(bench, jobs) == [("succeeded", 1)] * 50


async def test_batches_are_nearly_full_while_there_is_a_backlog(bench: Workbench) -> None:
    sizes: list[int] = []

    @bench.app.task(batch=Batch(size=100, wait="10ms"))
    def index(docs: list[int]) -> None:
        sizes.append(len(docs))

    await enqueue_all(bench, index, list(range(3000)))
    async with bench.working(capacity=ONE):
        await bench.until(lambda: sum(sizes) == 3000)
    assert max(sizes) == 100
    assert sum(sizes) / len(sizes) >= 90


async def test_slow_batches_are_nearly_full_too(bench: Workbench) -> None:
    """While its only handler slot is busy, a worker claims a few jobs ahead; these must not become a small batch."""
    sizes: list[int] = []

    @bench.app.task(batch=Batch(size=50, wait=0))
    async def index(docs: list[int]) -> None:
        sizes.append(len(docs))
        await asyncio.sleep(0.05)

    await enqueue_all(bench, index, list(range(1000)))
    async with bench.working(capacity=ONE):
        await bench.until(lambda: sum(sizes) == 1000)
    assert sum(sizes) / len(sizes) >= 45


async def test_a_single_job_starts_when_its_wait_is_over(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=200, wait="50ms"))
    async def index(docs: list[int]) -> int:
        return len(docs)

    async with bench.working():
        assert await (await index.aenqueue(7)).aresult(timeout=60) == 1


async def test_a_job_waits_for_others_of_its_type(bench: Workbench) -> None:
    calls: list[list[int]] = []

    @bench.app.task(batch=Batch(size=2, wait="60s"))
    async def index(docs: list[int]) -> None:
        calls.append(docs)

    @bench.app.task
    async def other() -> str:
        return "ran"

    async with bench.working(capacity=ONE) as node:
        await index.aenqueue(1)
        await bench.until(lambda: node._worker and node.worker.slots._collector.batches)
        assert await (await other.aenqueue()).aresult(timeout=60) == "ran"  # which needs the only handler slot
        assert calls == []
        await (await index.aenqueue(2)).aresult(timeout=60)
    assert calls == [[1, 2]]


async def test_jobs_that_wait_for_a_batch_are_released_when_the_node_stops(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=200, wait="60s"))
    async def index(docs: list[int]) -> None: ...

    job = await index.aenqueue(1)
    async with bench.working() as node:
        await bench.until(lambda: node._worker and node.worker.slots._collector.batches)
    assert (await job.aget()).state == "queued"
    assert bench.sql("SELECT fence, attempt FROM watchbill.jobs") == [(0, 0)]


async def test_a_batch_that_waits_for_a_slot_is_released_once(bench: Workbench) -> None:
    """Released twice, it would close the claim of a job that still runs, and nobody would find that job again."""
    go_on = asyncio.Event()

    @bench.app.task(priority=1)
    async def hold() -> None:
        await go_on.wait()

    @bench.app.task(batch=Batch(size=5, wait="10ms"))
    async def batch(items: list[int]) -> None: ...

    @bench.app.task
    def in_thread() -> None:
        """Its free slots let one claim take all jobs."""

    await bench.app.aenqueue_many([hold.bind(), batch.bind(1), batch.bind(2)])
    claims = "SELECT cardinality(job_ids) FROM watchbill.claims"
    async with bench.working(capacity=Capacity({"async": 1, "thread": 3, "process": 1}, 4)) as node:
        await bench.until(lambda: node._worker and node.worker.slots.runs and node.worker.slots.waiting == 1)
        assert bench.sql(claims) == [(3,)]
        node.drain()
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.jobs WHERE fence = 0") == [(2,)])
        assert bench.sql(claims) == [(3,)], "its first job still runs"
        go_on.set()


async def test_jobs_with_one_attempt_do_not_wait_on_their_node(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=200, wait="60s"), retry=1)
    async def index(docs: list[int]) -> int:
        return len(docs)

    async with bench.working():
        assert await (await index.aenqueue(7)).aresult(timeout=60) == 1


async def test_a_job_that_was_lost_before_is_a_batch_of_one(bench: Workbench) -> None:
    calls: list[list[int]] = []

    @bench.app.task(batch=Batch(size=10, wait="10ms"))
    async def index(docs: list[int]) -> None:
        calls.append(docs)

    jobs = await enqueue_all(bench, index, [1, 2, 3])
    await lose_claimed_jobs(bench)
    assert bench.sql("SELECT DISTINCT lost, attempt FROM watchbill.jobs") == [(1, 0)]  # a loss for each
    async with bench.working():
        for job in jobs:
            await job.aresult(timeout=60)
    assert sorted(calls) == [[1], [2], [3]]


async def lose_claimed_jobs(bench: Workbench) -> None:
    """Another node claims all jobs, and is lost."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("SET search_path = watchbill")
        ((epoch,),) = connection.execute("SELECT register('gone', '1s'::interval)").fetchall()
        assert connection.execute("SELECT * FROM claim(%s, max => 100)", (epoch,)).fetchall()
        longer_ago = "UPDATE beats SET at = at - interval '1 hour' WHERE epoch = %s RETURNING n"
        ((beats,),) = connection.execute(longer_ago, (epoch,)).fetchall()
        connection.execute("SELECT reclaim(ARRAY[%s::bigint], ARRAY[%s::bigint])", (epoch, beats))


@pytest.fixture
def stored(schema_database: str, tmp_path: Path) -> Iterator[Workbench]:
    workbench = Workbench(schema_database, payload_store=str(tmp_path), payload_store_above=100)
    yield workbench
    workbench.app.close()


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_large_payloads_reach_a_batch(bench: Workbench, stored: Workbench, tmp_path: Path, kind: str) -> None:
    bench = stored

    def measure(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    async def ameasure(texts: list[str]) -> list[int]:
        return measure(texts)

    task = bench.app.task(batch=Batch(size=10))(measure if kind == "thread" else ameasure)
    jobs = await enqueue_all(bench, task, ["a" * 10, "b" * 1000, "c" * 500])
    gone = (await jobs[2].aget()).meta or {}
    (tmp_path / gone["stored"]).unlink()
    await bench.work_off()
    assert await jobs[0].aresult(timeout=60) == 10
    assert await jobs[1].aresult(timeout=60) == 1000
    with pytest.raises(JobFailed, match="is gone"):
        await jobs[2].aresult(timeout=60)
    await stored.app.aclose()


# -- how the jobs of a batch end


async def test_a_list_of_results_gives_each_job_its_own(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10))
    async def double(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    jobs = await enqueue_all(bench, double, [1, 2, 3])
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == [2, 4, 6]


async def test_one_result_is_that_of_every_job(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10))
    def count(numbers: list[int]) -> int:
        return len(numbers)

    jobs = await enqueue_all(bench, count, [1, 2, 3])
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == [3, 3, 3]


async def test_a_list_of_the_wrong_length_makes_every_job_dead(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10))
    async def double(numbers: list[int]) -> list[int]:
        return numbers[1:]

    jobs = await enqueue_all(bench, double, [1, 2, 3])
    await bench.work_off()
    for job in jobs:
        with pytest.raises(JobFailed, match="got 3 items and returned a list of 2 results"):
            await job.aresult(timeout=60)


async def test_a_result_that_cannot_be_stored_fails_its_own_job(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10))
    async def reply(numbers: list[int]) -> list[Any]:
        return [object() if number == 2 else number for number in numbers]

    jobs = await enqueue_all(bench, reply, [1, 2, 3])
    await bench.work_off()
    assert [state for state, _ in await states(bench, jobs)] == ["succeeded", "dead", "succeeded"]


async def test_batch_failed_ends_each_named_job_as_its_exception_says(bench: Workbench) -> None:
    errors: dict[int, BaseException] = {
        0: ValueError("later"),
        1: Permanent("never"),
        2: Skip("not needed", result=8),
        3: Snooze("1h"),
        4: RetryAfter("2h"),
    }

    @bench.app.task(batch=Batch(size=10), retry=Retry(base=100))
    async def work(numbers: list[int]) -> int:
        raise BatchFailed(errors, results=[number * 10 for number in numbers])

    jobs = await enqueue_all(bench, work, list(range(6)))
    await bench.work_off()
    assert await states(bench, jobs) == [
        ("failed", 1), ("dead", 1), ("succeeded", 1), ("queued", 0), ("failed", 1), ("succeeded", 1),
    ]  # fmt: skip
    assert await jobs[2].aresult(timeout=60) == 8
    assert await jobs[5].aresult(timeout=60) == 50
    record = await jobs[0].aget()
    assert record.error is not None
    assert (record.error["type"], record.error["message"]) == ("ValueError", "later")


async def test_batch_failed_with_an_unknown_index_fails_every_job(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int]) -> None:
        raise BatchFailed({5: ValueError("who?")})

    jobs = await enqueue_all(bench, work, [1, 2])
    await bench.work_off()
    for job in jobs:
        with pytest.raises(JobFailed, match="names the index 5, but the handler got 2 items"):
            await job.aresult(timeout=60)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("broken"), ("failed", 1)),
        (Permanent("broken"), ("dead", 1)),
        (Skip("nothing to do"), ("succeeded", 1)),
        (Snooze(3600), ("queued", 0)),
        (RetryAfter(3600), ("failed", 1)),
    ],
)
async def test_an_exception_of_the_handler_counts_for_every_job(
    bench: Workbench, error: Exception, expected: tuple[str, int]
) -> None:
    @bench.app.task(batch=Batch(size=10), retry=Retry(base=100))
    def work(numbers: list[int]) -> None:
        raise error

    jobs = await enqueue_all(bench, work, [1, 2, 3])
    await bench.work_off()
    assert await states(bench, jobs) == [expected] * 3


async def test_failed_jobs_are_tried_again_in_another_batch(bench: Workbench) -> None:
    calls: list[list[int]] = []

    @bench.app.task(batch=Batch(size=10, wait="10ms"), retry=Retry(base=0))
    async def work(numbers: list[int]) -> None:
        calls.append(numbers)
        if len(calls) == 1:
            raise BatchFailed({1: ValueError("again")})

    jobs = await enqueue_all(bench, work, [1, 2, 3])
    async with bench.working():
        for job in jobs:
            await job.aresult(timeout=60)
    assert calls == [[1, 2, 3], [2]]


async def test_a_payload_that_does_not_fit_fails_its_own_job(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10), type="work")
    async def work(numbers: list[int]) -> list[int]:
        return numbers

    first = await work.aenqueue(1)
    bench.sql("SELECT * FROM watchbill.enqueue('work', '{\"numbers\": \"seven\"}')")
    bench.sql("SELECT * FROM watchbill.enqueue('work', '{}')")
    last = await work.aenqueue(2)
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in (first, last)] == [1, 2]
    errors = bench.sql("SELECT error->>'message' FROM watchbill.finished_jobs WHERE state = 'dead' ORDER BY id")
    assert ["valid integer" in errors[0][0], "numbers is missing" in errors[1][0]] == [True, True]


async def test_a_batch_has_the_shortest_time_out_of_its_jobs(bench: Workbench) -> None:
    @bench.app.task(batch=Batch(size=10), retry=1)
    async def work(numbers: list[int]) -> None:
        await asyncio.sleep(60)

    slow, quick = work.using(timeout=30), work.using(timeout=0.05)
    jobs = await bench.app.aenqueue_many([slow.bind(1), quick.bind(2)])
    await bench.work_off()
    for job in jobs:
        with pytest.raises(JobFailed, match="timed out"):
            await job.aresult(timeout=60)


async def test_canceling_one_job_lets_the_others_of_its_batch_end(bench: Workbench) -> None:
    began = asyncio.Event()
    seen: list[bool] = []

    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int]) -> None:
        began.set()
        while not any(job.canceled for job in current_job().batch):  # noqa: ASYNC110  (a handler polls it)
            await asyncio.sleep(0.01)
        seen.extend(job.canceled for job in current_job().batch)
        raise BatchFailed({0: asyncio.CancelledError()})

    jobs = await enqueue_all(bench, work, [1, 2, 3])
    async with bench.working():
        await began.wait()
        await bench.app.jobs.acancel(jobs[0].id, reason="not wanted")
        for job in jobs[1:]:
            await job.aresult(timeout=60)
        with pytest.raises(JobCanceled):
            await jobs[0].aresult(timeout=60)
    assert seen == [True, False, False]


async def test_canceling_every_job_stops_the_handler(bench: Workbench) -> None:
    began = asyncio.Event()

    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int]) -> None:
        began.set()
        await asyncio.sleep(600)

    jobs = await enqueue_all(bench, work, [1, 2])
    async with bench.working():
        await began.wait()
        for job in jobs:
            await bench.app.jobs.acancel(job.id)
        for job in jobs:
            with pytest.raises(JobCanceled):
                await job.aresult(timeout=60)


async def test_jobs_of_a_stopped_batch_are_released(bench: Workbench) -> None:
    began = asyncio.Event()

    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int]) -> None:
        began.set()
        await asyncio.sleep(600)

    jobs = await enqueue_all(bench, work, [1, 2])
    async with bench.working():
        await began.wait()
    assert await states(bench, jobs) == [("queued", 0)] * 2


async def test_events_and_progress_are_those_of_each_job(bench: Workbench) -> None:
    events: list[tuple[str, Any]] = []
    for name in ("job_started", "job_completed"):
        bench.app.on(name)(lambda job, name=name, **_: events.append((name, job.id)))

    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int]) -> None:
        current_job().progress({"done": 1})
        assert [job.last_progress for job in current_job().batch] == [{"done": 1}] * 2

    jobs = await enqueue_all(bench, work, [1, 2])
    await bench.work_off()
    assert sorted(events) == sorted((name, job.id) for name in ("job_started", "job_completed") for job in jobs)


async def test_a_batch_gets_its_dependencies_once(bench: Workbench) -> None:
    made: list[int] = []

    def get_client() -> str:
        made.append(1)
        return "client"

    @bench.app.task(batch=Batch(size=10))
    async def work(numbers: list[int], *, client: str = Depends(get_client, per="attempt")) -> list[str]:
        return [f"{client} {number}" for number in numbers]

    jobs = await enqueue_all(bench, work, [1, 2])
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == ["client 1", "client 2"]
    assert len(made) == 1


# -- transactions


@pytest.fixture
def ledger(bench: Workbench) -> Workbench:
    bench.sql("CREATE TABLE ledger (n int)")
    return bench


def entries(bench: Workbench) -> list[int]:
    return [n for (n,) in bench.sql("SELECT n FROM ledger ORDER BY n")]


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_the_transaction_of_a_batch_completes_all_its_jobs(ledger: Workbench, kind: str) -> None:
    def book(connection: Connection, numbers: list[int]) -> list[int]:
        for number in numbers:
            connection.execute("INSERT INTO ledger VALUES (%s)", (number,))
        return [number * 2 for number in numbers]

    async def abook(connection: AsyncConnection, numbers: list[int]) -> list[int]:
        for number in numbers:
            await connection.execute("INSERT INTO ledger VALUES (%s)", (number,))
        return [number * 2 for number in numbers]

    options = ledger.app.task(batch=Batch(size=10))
    task: Task[[int], int] = options(book) if kind == "thread" else options(abook)
    jobs = await enqueue_all(ledger, task, [1, 2, 3])
    await ledger.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == [2, 4, 6]
    assert entries(ledger) == [1, 2, 3]
    ((writers,),) = ledger.sql("SELECT count(DISTINCT xmin::text) FROM ledger")
    assert writers == 1


async def test_batch_failed_commits_the_other_jobs_of_the_transaction(ledger: Workbench) -> None:
    @ledger.app.task(batch=Batch(size=10), retry=1)
    def book(connection: Connection, numbers: list[int]) -> None:
        failed: dict[int, BaseException] = {}
        for index, number in enumerate(numbers):
            try:
                with connection.transaction():
                    connection.execute("INSERT INTO ledger VALUES (6 / %s)", (number,))
            except psycopg.errors.DivisionByZero as error:
                failed[index] = error
        raise BatchFailed(failed)

    jobs = await enqueue_all(ledger, book, [1, 0, 3])
    await ledger.work_off()
    assert [state for state, _ in await states(ledger, jobs)] == ["succeeded", "dead", "succeeded"]
    assert entries(ledger) == [2, 6]


async def test_an_exception_rolls_the_transaction_of_the_batch_back(ledger: Workbench) -> None:
    @ledger.app.task(batch=Batch(size=10), retry=Retry(base=100))
    def book(connection: Connection, numbers: list[int]) -> None:
        connection.execute("INSERT INTO ledger VALUES (1)")
        raise ValueError("no")

    jobs = await enqueue_all(ledger, book, [1, 2])
    await ledger.work_off()
    assert await states(ledger, jobs) == [("failed", 1)] * 2
    assert entries(ledger) == []


async def test_a_job_that_was_taken_away_rolls_back_and_costs_the_others_no_attempt(ledger: Workbench) -> None:
    """Its effects are in the same transaction, so that nothing of it may commit; the others run again."""
    calls: list[list[int]] = []

    @ledger.app.task(batch=Batch(size=10, wait="10ms"))
    async def book(connection: AsyncConnection, numbers: list[int]) -> None:
        calls.append(numbers)
        for number in numbers:
            await connection.execute("INSERT INTO ledger VALUES (%s)", (number,))
        if len(calls) == 1:
            await asyncio.to_thread(ledger.sql, "SELECT watchbill.cancel(%s, force => true)", jobs[0].id)

    jobs = await enqueue_all(ledger, book, [1, 2, 3])
    async with ledger.working():
        for job in jobs[1:]:
            await job.aresult(timeout=60)
    assert entries(ledger) == [2, 3]
    assert await states(ledger, jobs) == [("canceled", 0), ("succeeded", 1), ("succeeded", 1)]


# -- child processes


def claimed(task: Task[..., Any], number: int, place: int) -> Claimed:
    raw = b"\x01" + orjson.dumps({"numbers": number})
    job_id = place.to_bytes(16)
    return Claimed(job_id, 1, task.type, raw, "default", "default", 0, 0, 1, 0, 5, 1, None, None, 0)


def batch_of(task: Task[..., Any], numbers: list[int]) -> BatchRun:
    handler: Handler = task.handler()
    return BatchRun([Run(claimed(task, n, place), handler, time.monotonic()) for place, n in enumerate(numbers)])


async def run_in_child(run: BatchRun, stop: int | None = None) -> list[tuple[Any, str]]:
    """The result and the error of each job; `stop` is the place of a job that is canceled meanwhile."""
    ended: asyncio.Event = asyncio.Event()
    processes = Processes(lambda run: ended.set(), {})
    processes.submit(run)
    if stop is not None:
        while run not in processes._busy or not processes._busy[run].has_begun:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        run.members[stop].stopping = "canceled"
        processes.stop_member(run, stop)
    async with asyncio.timeout(60):
        await ended.wait()
        await processes.close()
    return [(each.result, (each.outcome.error or {}).get("message", "") if each.outcome else "") for each in run.batch]


async def test_a_child_process_runs_a_batch(bench: Workbench) -> None:
    assert await run_in_child(batch_of(child_tasks.square_all, [2, 3])) == [(b"4", ""), (b"9", "")]


async def test_batch_failed_comes_back_from_a_child_process(bench: Workbench) -> None:
    answer = await run_in_child(batch_of(child_tasks.square_all, [2, -1, 3]))
    assert answer == [(b"4", ""), (None, "1 is bad"), (b"9", "")]


async def test_a_child_that_dies_fails_every_job_of_its_batch(bench: Workbench) -> None:
    ((_, error),) = await run_in_child(batch_of(child_tasks.square_all, [0]))
    assert "killed by SIGKILL" in error


async def test_a_child_process_learns_which_job_of_its_batch_was_canceled(bench: Workbench) -> None:
    answer = await run_in_child(batch_of(child_tasks.wait_for_cancels, [1, 2, 3]), stop=1)
    assert [result for result, _ in answer] == [b"false", b"true", b"false"]


# -- max_per_node


async def test_max_per_node_limits_a_task_and_no_other(bench: Workbench) -> None:
    lock, running, most = threading.Lock(), 0, 0
    go_on = threading.Event()

    @bench.app.task(max_per_node=2)
    def scarce(n: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go_on.wait(60)
        with lock:
            running -= 1

    @bench.app.task
    async def other() -> str:
        return "ran"

    jobs = await enqueue_all(bench, scarce, list(range(30)))
    async with bench.working(capacity=Capacity({"async": 4, "thread": 8, "process": 1}, 12)) as node:
        await bench.until(lambda: running == 2)
        for _ in range(3):
            assert await (await other.aenqueue()).aresult(timeout=60) == "ran"
        await bench.until(
            lambda: not node.worker.slots._collector.held.get(scarce.type)
        )  # what was claimed beyond is released
        ((runs,),) = bench.sql("SELECT sum(run) FROM watchbill.jobs")
        assert await (await other.aenqueue()).aresult(timeout=60) == "ran"
        assert bench.sql("SELECT sum(run) FROM watchbill.jobs") == [(runs,)]  # and its type is left in the queue
        go_on.set()
        for job in jobs:
            await job.aresult(timeout=60)
    assert most == 2


async def test_max_per_node_counts_batches(bench: Workbench) -> None:
    running, most, done = 0, 0, 0

    @bench.app.task(max_per_node=1, batch=Batch(size=10, wait="5ms"))
    async def work(numbers: list[int]) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        done += len(numbers)

    await enqueue_all(bench, work, list(range(200)))
    async with bench.working():
        await bench.until(lambda: done == 200)
    assert most == 1


# -- declarations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number from 1 to 10,000"),
        ({"size": True}, "size must be a whole number"),
        ({"size": 5, "wait": "soon"}, "'soon' is not a duration"),
        ({"size": 5, "wait": "2m"}, "wait must be between 0 and 60 s"),
    ],
)
def test_a_wrong_batch_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batch(**options)


def test_a_batch_task_takes_one_list() -> None:
    app = App()

    def two(a: list[int], b: list[int]) -> None: ...
    def single(a: int) -> None: ...
    def default(a: list[int] = []) -> None: ...  # noqa: B006

    for function, message in (
        (two, "takes one parameter"), (single, "must be annotated as a list"), (default, "has no default"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            app.task(batch=Batch(size=5))(function)  # type: ignore[arg-type]


def test_wrong_options_of_a_task_are_refused() -> None:
    app = App()
    with pytest.raises(TypeError, match=r"give a Batch, such as Batch\(size=100\)"):
        app.task(batch=5)(lambda items: None)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="give a whole number from 1"):
        app.task(max_per_node=0)(lambda: None)
    with pytest.raises(TypeError, match="give an exception for each index"):
        BatchFailed({0: "why"})  # type: ignore[dict-item]


def test_demand_follows_what_the_last_two_claims_brought() -> None:
    demand = BatchDemand()
    make = partial(claimed, child_tasks.square_all, 1)
    demand.add_handlers({child_tasks.square_all.type: child_tasks.square_all.handler()})
    plain = make(0)._replace(type="other")
    assert demand.count_jobs(3, 0) == 3
    demand.note_answer([make(0)], 1)
    assert demand.count_jobs(3, 0) == 3  # one claim may be chance
    demand.note_answer([make(0)], 1)
    assert demand.count_jobs(3, 5) == 25  # three batches of ten; five jobs are there
    demand.note_answer([make(0), plain], 3)
    assert demand.count_jobs(11, 0) == 20  # half of the jobs take a whole handler slot
    assert not demand.has_backlog
