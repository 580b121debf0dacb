"""Endings that the server refuses, here by a user's trigger: the others are settled, and no job loses its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import Retry
from watchbill.app.task import Task
from watchbill.store.node_connection import Disconnected, NodeConnection
from watchbill.worker import settling

UNFOUND = """
    SELECT j.id FROM watchbill.jobs j WHERE j.fence <> 0
      AND NOT EXISTS (SELECT FROM watchbill.claims c WHERE c.fence = j.fence AND j.id = ANY (c.job_ids))
"""
"""Jobs that would not be found if their node died."""
FUNCTION = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION USING MESSAGE = format('no %%s for you', TG_OP); END $$
"""
TRIGGER = """
    CREATE TRIGGER refuse BEFORE {when} FOR EACH ROW WHEN ({row}.payload->>'n' = '3' {also}) EXECUTE FUNCTION refuse()
"""


@pytest.fixture(autouse=True)
def _nothing_is_unfound(bench: Workbench) -> Iterator[None]:
    yield
    assert bench.sql(UNFOUND) == []


def refuse(bench: Workbench, when: str, also: str = "") -> None:
    row = "NEW" if when.startswith("INSERT") else "OLD"
    bench.sql(FUNCTION)
    bench.sql(TRIGGER.format(when=when, row=row, also=also))


async def five_at_once(
    bench: Workbench, fails: Callable[[int], bool] = lambda n: False, attempts: int = 1
) -> tuple[list[Any], Task[..., Any]]:
    """Jobs that end together, in one batch, and the task for more."""
    gathered = asyncio.Barrier(5)

    @bench.app.task(retry=Retry(max_attempts=attempts))
    async def work(n: int) -> int:
        if n < 5:
            await gathered.wait()
        if fails(n):
            raise ValueError(n)
        return n

    return await bench.app.aenqueue_many([work.bind(n) for n in range(5)]), work


async def test_success_that_the_server_refuses_ends_dead_with_the_reason(bench: Workbench) -> None:
    refuse(bench, "INSERT ON watchbill.finished_jobs", "AND NEW.state = 'succeeded'")
    told: list[Any] = []
    bench.app.on("job_completed")(lambda job, **_: told.append(job.id))
    bench.app.on("job_died")(lambda job, outcome, error: told.append(error["type"]))
    jobs, _ = await five_at_once(bench)
    await bench.work_off()
    records = [await job.aget() for job in jobs]
    assert [record.state for record in records] == ["succeeded"] * 3 + ["dead", "succeeded"]
    assert "no INSERT for you" in (records[3].error or {})["message"]
    assert sorted(map(str, told)) == sorted([*(str(job.id) for job in jobs if job != jobs[3]), "EndingRefused"])
    assert bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)]


@pytest.mark.parametrize("what", ["INSERT ON watchbill.finished_jobs", "DELETE ON watchbill.jobs"])
@pytest.mark.parametrize("fails", [lambda n: False, lambda n: n == 3, lambda n: n % 2 == 0, lambda n: True])
async def test_ending_that_the_server_refuses_is_kept_and_retried(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, what: str, fails: Callable[[int], bool]
) -> None:
    """And recorded as what it was, once whatever stands against it is gone."""
    monkeypatch.setattr(settling, "REFUSED_RETRY_SECONDS", 0.05)
    refuse(bench, what)
    jobs, work = await five_at_once(bench, fails)
    states = ["dead" if fails(n) else "succeeded" for n in range(5)]
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and node.worker.settler._refused)
        for n, job in enumerate(jobs):
            if n != 3:
                await bench.until(partial(bench.sql, "SELECT 1 FROM watchbill.finished_jobs WHERE id = %s", job.id))
        await work.aenqueue(7)
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs WHERE payload->>'n' = '7'"))
        assert (await jobs[3].aget()).state == "running"
        assert bench.sql(UNFOUND) == []
        await bench.until(lambda: node.worker.settler._refused)  # not between its end and the failure recorded instead
        bench.sql(f"DROP TRIGGER refuse ON {what.split(' ON ')[1]}")
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs WHERE payload->>'n' = '3'"))
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])
    assert [(await job.aget()).state for job in jobs] == states


@pytest.mark.parametrize(("attempts", "state", "claims"), [(2, "queued", 0), (1, "running", 1)])
async def test_a_refused_ending_is_released_when_the_node_leaves_unless_the_job_has_one_attempt(
    bench: Workbench, caplog: pytest.LogCaptureFixture, attempts: int, state: str, claims: int
) -> None:
    refuse(bench, "INSERT ON watchbill.finished_jobs")
    jobs, _ = await five_at_once(bench, attempts=attempts)
    await bench.work_off()
    record = await jobs[3].aget()
    assert (record.state, record.attempt) == (state, 0)
    assert f"The server refused to record job {record.id} as failed" in caplog.text
    assert bench.sql("SELECT count(*) FROM watchbill.claims") == [(claims,)]


async def test_start_time_of_a_run_is_correct_after_an_outage(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts back from when it hears of the end."""
    execute, down = NodeConnection.execute, asyncio.Event()
    tries: list[str] = []

    async def cut_off(connection: NodeConnection, query: str, params: Any = ()) -> Any:
        if query == "settle_succeeded" and down.is_set():
            tries.append(query)
            raise Disconnected("for a while")
        return await execute(connection, query, params)

    @bench.app.task
    async def task() -> None: ...

    monkeypatch.setattr(NodeConnection, "execute", cut_off)
    async with bench.working():
        await (await task.aenqueue()).aresult(timeout=60)  # now its connection is there
        down.set()
        job = await task.aenqueue()
        await bench.until(lambda: len(tries) > 10)
        before = bench.sql("SELECT clock_timestamp()")
        down.clear()
        await job.aresult(timeout=60)
    assert bench.sql("SELECT started_at FROM watchbill.finished_jobs WHERE id = %s", job.id) < before
