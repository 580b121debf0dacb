"""What a worker does when things go wrong around it: each test is something that once left it idle, or a job stuck."""

from __future__ import annotations

import asyncio
import io
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import psycopg.sql
import pytest

import watchbill
from tests.chaos.proxy import Proxy
from tests.pooler import Pooler, run_pooler
from tests.servers import Server
from tests.worker.conftest import Workbench
from watchbill import Retry, current_job
from watchbill.errors import NoDatabase
from watchbill.node import Node
from watchbill.store.node_connection import NameTaken
from watchbill.worker import claiming, heartbeat
from watchbill.worker import worker as worker_module
from watchbill.worker.config import Capacity

ONE_THREAD = Capacity({"async": 5, "thread": 1, "process": 1}, 5)


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    """With a short lease: most of what is tested here is what comes after its end."""
    workbench = Workbench(schema_database, lease=2)
    yield workbench
    workbench.app.close()


@pytest.fixture
def proxy(bench: Workbench) -> Iterator[Proxy]:
    parts = urlsplit(bench.url)
    with Proxy(Path(parse_qs(parts.query)["host"][0], ".s.PGSQL.5432")) as proxy:
        yield proxy


def _through(proxy: Proxy, bench: Workbench) -> dict[str, Any]:
    url = proxy.url(urlsplit(bench.url).path.lstrip("/"))
    return {"url": url, "listen_url": url}


async def _started(bench: Workbench, node: Node) -> None:
    await bench.until(lambda: node._worker is not None and node.worker.epoch)


# -- jobs that are to run alone


async def test_a_lost_job_of_an_unknown_type_does_not_stop_other_jobs(bench: Workbench) -> None:
    @bench.app.task
    async def known() -> str:
        return "ran"

    stranger = await bench.app.aenqueue("somebody.else")
    bench.sql("UPDATE watchbill.jobs SET class = 2, lost = 1 WHERE id = %s", stranger.id)
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.jobs WHERE wait = 'unsupported'"))
        assert await (await known.aenqueue()).aresult(timeout=60) == "ran"


async def test_an_unknown_type_is_logged_once_with_the_type_that_was_meant(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task(type="mail.send")
    async def send() -> None: ...

    for kind in ("mail.sent", "mail.sent", "bill"):
        await bench.app.aenqueue(kind, {})
    bench.sql("SELECT watchbill.enqueue('mail.send', version => 7)")
    unsupported = "SELECT 1 FROM watchbill.jobs WHERE wait = 'unsupported'"
    async with bench.working():
        await bench.until(lambda: len(bench.sql(unsupported)) == 4)
        await bench.app.aenqueue("mail.sent", {})
        await bench.until(lambda: len(bench.sql(unsupported)) == 5)
    told = [record.getMessage() for record in caplog.records if "Cannot run jobs of type" in record.getMessage()]
    assert len(told) == 3
    assert any("type mail.sent, version 1" in line and line.endswith("Did you mean mail.send?") for line in told)
    assert any("type bill, version 1" in line and "no such task" in line for line in told)
    assert any("type mail.send, version 7" in line and "knows version 1 of it" in line for line in told)


async def test_a_line_break_in_an_unknown_type_starts_no_second_line_in_the_log(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.sql("SELECT watchbill.enqueue(E'a\\n12:00:00 ERROR watchbill: forged')")
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.jobs WHERE wait = 'unsupported'"))
    (told,) = [record.getMessage() for record in caplog.records if "Cannot run jobs of type" in record.getMessage()]
    assert "a\\n12:00:00 ERROR watchbill: forged" in told
    assert "\n" not in told


# -- rows that no enqueue would store


async def test_a_row_with_values_that_enqueue_refuses_fails_only_its_own_job(bench: Workbench) -> None:
    @bench.app.task(type="suspended")
    async def suspended(n: int) -> str:
        await asyncio.sleep(0.001)  # so that the event loop waits with the job's timer
        return "ran"

    @bench.app.task(type="threaded")
    def threaded(n: int) -> str:
        return "ran"

    @bench.app.task(type="batched", batch=watchbill.Batch(size=2, wait=0))
    async def batched(n: list[int]) -> str:
        await asyncio.sleep(0)
        return "ran"

    timeouts = [f"timeout = '{value}'" for value in ("NaN", "Infinity", "-Infinity", "-1e9", "1e30")]
    others = ["version = -5", "max_attempts = -5", "meta = '[1]'", "run_at = '-infinity'", "payload = '[1]'"]
    for name in ("suspended", "threaded", "batched"):
        for change in (*timeouts, *others):
            ((job_id,),) = bench.sql("SELECT id FROM watchbill.enqueue(%s, '{\"n\": 1}')", name)
            bench.sql(f"UPDATE watchbill.jobs SET {change} WHERE id = %s", job_id)
    async with bench.working():
        await bench.until(lambda: not bench.sql("SELECT 1 FROM watchbill.jobs"))
        jobs = [await task.aenqueue(1) for task in (suspended, threaded)]
        assert [await job.aresult(timeout=60) for job in jobs] == ["ran", "ran"]
    refused = bench.sql("SELECT state FROM watchbill.finished_jobs WHERE error->>'type' = 'BadTimeout'")
    assert refused == [("dead",)] * 15


async def test_a_lost_job_whose_payload_does_not_fit_does_not_stop_other_jobs(bench: Workbench) -> None:
    @bench.app.task(type="t")
    async def numeric(a: int) -> int:
        return a

    bench.sql("SELECT watchbill.enqueue('t', '{\"a\": \"x\"}')")
    bench.sql("UPDATE watchbill.jobs SET class = 2, lost = 1")
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.finished_jobs WHERE state = 'dead'"))
        assert await (await numeric.aenqueue(5)).aresult(timeout=60) == 5


async def test_a_lost_job_that_found_no_slot_does_not_stop_other_jobs(bench: Workbench) -> None:
    go_on = threading.Event()

    @bench.app.task
    def busy() -> None:
        go_on.wait(30)

    @bench.app.task
    async def other() -> str:
        return "ran"

    first = await busy.aenqueue()
    async with bench.working(capacity=ONE_THREAD) as node:
        await bench.until(lambda: node._worker and node.worker.slots.runs)
        second = await busy.aenqueue()
        bench.sql("UPDATE watchbill.jobs SET class = 2, lost = 1 WHERE id = %s", second.id)
        await bench.until(lambda: bench.sql("SELECT run FROM watchbill.jobs WHERE id = %s", second.id)[0][0] >= 1)
        for _ in range(3):
            assert await (await other.aenqueue()).aresult(timeout=60) == "ran"
        go_on.set()
        await first.aresult(timeout=60)
        await second.aresult(timeout=60)


async def test_backlog_does_not_starve_a_quarantined_job(bench: Workbench) -> None:
    order: list[int] = []

    @bench.app.task
    def work(n: int) -> None:
        order.append(n)
        time.sleep(0.005)

    await bench.app.aenqueue_many([work.bind(n) for n in range(1000)])
    bench.sql("UPDATE watchbill.jobs SET class = 2, lost = 1 WHERE payload->>'n' = '999'")
    async with bench.working(capacity=ONE_THREAD):
        await bench.until(lambda: 999 in order)
    assert len(order) < 1000


async def test_worker_does_not_hold_one_attempt_jobs_without_a_free_slot(bench: Workbench) -> None:
    """If this process died, it would be dead without ever having run."""
    go_on = threading.Event()

    @bench.app.task(retry=Retry(max_attempts=1))
    def once() -> None:
        go_on.wait(30)

    @bench.app.task
    async def other() -> None: ...

    jobs = [await once.aenqueue() for _ in range(3)]
    async with bench.working(capacity=ONE_THREAD, lease=60.0) as node:
        await bench.until(lambda: node._worker and node.worker.slots.runs)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.jobs WHERE fence = 0") == [(2,)])
        await (await other.aenqueue()).aresult(timeout=60)
        go_on.set()
        for job in jobs:
            await job.aresult(timeout=60)


async def test_quarantined_jobs_run_alone_one_after_another(bench: Workbench) -> None:
    beside: list[int] = []

    @bench.app.task
    async def work(lost: bool) -> None:
        engine = node.worker.slots
        if lost:
            beside.append(len(engine.runs))
            await asyncio.sleep(0)
            beside.append(len(engine.runs))

    await bench.app.aenqueue_many([work.bind(n % 2 == 0) for n in range(200)])
    bench.sql("UPDATE watchbill.jobs SET class = 2, lost = 1 WHERE payload->>'lost' = 'true'")
    async with bench.working() as node:
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(200,)])
    assert set(beside) == {1}


# -- jobs that were taken away


async def test_released_job_may_run_beside_its_old_handler(bench: Workbench) -> None:
    go_on, began = threading.Event(), []

    @bench.app.task
    def slow() -> int:
        began.append(current_job().fence)
        go_on.wait(30)
        return len(began)

    job = await slow.aenqueue()
    async with bench.working() as node:
        await bench.until(lambda: len(began) == 1)
        assert await bench.app.jobs.arelease(job.id)
        await bench.until(lambda: len(began) == 2)
        assert len(node.worker.slots.runs) == 2
        go_on.set()
        await job.aresult(timeout=60)
        await bench.until(lambda: not node.worker.slots.runs)
        assert set(node.worker.slots._busy.values()) == {0}
    (record,) = bench.sql("SELECT fence, attempt, run FROM watchbill.finished_jobs")
    assert record == (max(began), 1, 2)


async def test_waiting_jobs_are_released_when_the_lease_is_in_doubt(bench: Workbench) -> None:
    go_on = threading.Event()

    @bench.app.task
    def slow() -> None:
        go_on.wait(30)

    @bench.app.task
    async def other() -> None:
        """So that there are slots which threads cannot use."""

    jobs = [await slow.aenqueue() for _ in range(3)]
    async with bench.working(capacity=ONE_THREAD) as node:
        await bench.until(lambda: node._worker and node.worker.slots.waiting == 2)
        node.worker.release_all_jobs(node.worker.epoch)
        assert node.worker.slots.waiting == 0
        go_on.set()
        for job in jobs:
            await job.aresult(timeout=60)


async def test_lost_node_keeps_the_claim_of_a_job_that_still_runs(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's own transaction keeps its job from being taken back; if the process died now, only its claim would
    tell of it."""
    on_loop, go_on, registers = asyncio.Event(), threading.Event(), asyncio.Event()

    @bench.app.task
    async def stopped() -> None:
        await on_loop.wait()

    @bench.app.task
    def goes_on() -> None:
        go_on.wait(30)

    async def register(self: Any, *deadline: float) -> bool:
        if not deadline:  # it registers again
            await registers.wait()
        return await registered(self, *deadline)

    registered = worker_module.Worker._register_with_retries
    monkeypatch.setattr(worker_module.Worker, "_register_with_retries", register)
    await bench.app.aenqueue_many([stopped.bind(), goes_on.bind()])
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and len(node.worker.slots.runs) == 2)
        with psycopg.connect(bench.url) as handler:
            handler.execute("SELECT watchbill.guard(id, fence) FROM watchbill.jobs WHERE type LIKE '%goes_on'")
            epoch = node.worker.epoch
            bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats WHERE epoch = %s", epoch)
            bench.sql("SELECT watchbill.reclaim()")
            node.worker.lose_epoch(epoch)
            await bench.until(lambda: len(node.worker.slots.runs) == 1)
            await node.worker.settler.wait_until_idle()
            held = "SELECT count(*) FROM watchbill.jobs JOIN watchbill.claims USING (fence) WHERE type LIKE '%goes_on'"
            assert bench.sql(held.replace("%", "%%")) == [(1,)]
            go_on.set()
        registers.set()
        on_loop.set()
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(2,)])
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])


async def test_a_loss_of_an_earlier_epoch_is_ignored(bench: Workbench) -> None:
    async with bench.working() as node:
        await _started(bench, node)
        epoch = node.worker.epoch
        node.worker.lose_epoch(epoch - 1)
        assert not node.worker._is_lost
        bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
        node.worker.lose_epoch(epoch)
        await bench.until(lambda: node.worker.epoch != epoch)


async def test_a_claim_that_arrives_late_is_found_and_released(bench: Workbench) -> None:
    @bench.app.task(queue="other")
    async def task() -> str:
        return "ran"

    job = await task.aenqueue()
    async with bench.working(queues=("default",), lease=1.0) as node:
        await _started(bench, node)
        bench.sql("SELECT watchbill.claim(%s, '{other}')", node.worker.epoch)  # as if delayed by the network
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.jobs WHERE fence = 0 AND run = 1"))
    await bench.work_off()
    assert await job.aresult(timeout=60) == "ran"


# -- settling


async def test_worker_claims_while_thousands_of_endings_wait(bench: Workbench) -> None:
    """The locked one is not set aside within this test, however long the others take."""
    bench.sql("ALTER FUNCTION watchbill.settle SET lock_timeout = '5min'")
    locked = asyncio.Event()
    blocker = await psycopg.AsyncConnection.connect(bench.url)

    @bench.app.task
    async def lock_myself() -> None:
        await blocker.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (current_job().id,))
        locked.set()

    @bench.app.task
    async def nothing() -> None: ...

    await lock_myself.aenqueue()
    async with bench.working() as node:
        await asyncio.wait_for(locked.wait(), 60)
        await bench.app.aenqueue_many([nothing.bind() for _ in range(8000)])
        await bench.until(lambda: node.worker.settler.waiting > 4000)
        assert set(node.worker.settler._under_way.fences) <= set(node.worker.settler.known_fences)
        await blocker.commit()
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(8001,)])
    await blocker.close()


async def test_worker_ends_when_its_settler_fails(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    @bench.app.task
    async def task() -> None: ...

    async def broken(self: object, batch: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("watchbill.worker.settling.Settler._settle_batch", broken)
    await task.aenqueue()
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(bench.node().run(), 60)
    held = (
        "SELECT n.state FROM watchbill.jobs j JOIN watchbill.claims USING (fence) JOIN watchbill.nodes n USING (epoch)"
    )
    assert bench.sql(held) == [("active",)], "other nodes reclaim it when the lease is over, as if the process had died"


# -- handlers


async def test_a_handler_that_cancels_its_own_task_cancels_no_other(bench: Workbench) -> None:
    @bench.app.task
    async def cancel_myself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    @bench.app.task
    async def suspend() -> str:
        await asyncio.sleep(0)
        return "done"

    jobs = [await task.aenqueue() for task in (cancel_myself, suspend, cancel_myself, suspend)]
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == ["done"] * 4


class _Shy:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("progress", [{1: "a number for a key"}, {"nul": "\0"}, {"half": "\ud800"}, object(), _Shy()])
async def test_no_progress_of_a_handler_stops_the_heartbeat(bench: Workbench, progress: object) -> None:
    go_on = asyncio.Event()

    @bench.app.task
    async def talk() -> None:
        current_job().progress(progress)
        await go_on.wait()

    job = await talk.aenqueue()
    async with bench.working(lease=1.0) as node:
        await _started(bench, node)
        beats = "SELECT n FROM watchbill.beats WHERE epoch = %s"
        await bench.until(lambda: bench.sql(beats, node.worker.epoch)[0][0] >= 3)
        go_on.set()
        await job.aresult(timeout=60)


async def test_a_node_reports_how_many_runs_have_ended_on_it(bench: Workbench) -> None:
    @bench.app.task
    async def work() -> None: ...

    for _ in range(3):
        await work.aenqueue()
    async with bench.working(lease=1.0):
        await bench.until(lambda: bench.sql("SELECT processed FROM watchbill.beats") == [(3,)])


async def test_runs_that_cannot_be_recorded_do_not_stop_the_heartbeat(bench: Workbench) -> None:
    bench.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$")
    bench.sql("CREATE TRIGGER refuse BEFORE INSERT ON watchbill.runs FOR EACH ROW EXECUTE FUNCTION refuse()")
    await test_no_progress_of_a_handler_stops_the_heartbeat(bench, "halfway")


async def test_the_watchdog_goes_on_when_it_cannot_write_the_stacks(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have put something else in the place of stderr, or nothing."""
    monkeypatch.setattr(heartbeat, "STANDSTILL_SECONDS", 0.1)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    @bench.app.task
    async def block(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    async with bench.working(lease=1.0):
        await (await block.aenqueue(1)).aresult(timeout=60)
        assert "watchbill-watch" in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("age", "timeout", "still", "ends"),
    [
        pytest.param(400, 3600, 6, False, id="long awake, a moment still"),
        pytest.param(400, None, 6, False, id="the same without a time-out"),
        pytest.param(20, 1, 6, True, id="after its time-out"),
        pytest.param(400, 3600, 301, True, id="still for too long"),
    ],
)
def test_blocking_handler_may_hold_the_loop_until_its_limit(
    age: int, timeout: int | None, still: int, ends: bool
) -> None:
    nothing: Any = None
    config: Any = SimpleNamespace(url="", lease=30, heartbeat_interval=math.inf, stuck_after=300)

    async def make() -> heartbeat.Heartbeat:
        return heartbeat.Heartbeat(config, nothing, 1, nothing, nothing, nothing, nothing)

    watch = asyncio.run(make())
    run: Any = SimpleNamespace(age=age, timeout=timeout)
    watch._standstill = still
    assert watch._is_blocked_for_too_long(run) is ends


async def test_closed_pooled_connection_costs_no_attempt(bench: Workbench) -> None:
    @bench.app.task
    async def write(connection: watchbill.AsyncConnection) -> None:
        await connection.execute("SELECT 1")

    @bench.app.task
    def write_in_thread(connection: watchbill.Connection) -> None:
        connection.execute("SELECT 1")

    async with bench.working():
        for task in (write, write_in_thread):
            await (await task.aenqueue()).aresult(timeout=60)
            bench.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchbill handler'"
            )
            again = await task.aenqueue()
            await again.aresult(timeout=60)
            assert (await again.aget()).attempt == 1


# -- the connection


async def test_notifications_arrive_again_after_their_connection_was_lost(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "LONGEST_SLEEP_SECONDS", 1000.0)

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(poll_interval=1000.0, poll_max_interval=1000.0) as node:
        await bench.until(lambda: node._worker and node.worker.notifications.is_locked)
        for _ in range(3):
            bench.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchbill listener'"
            )
            await bench.until(lambda: not node.worker.notifications.is_locked)
            await bench.until(lambda: node.worker.notifications.is_locked)
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            await bench.until(lambda: node.worker.notifications.is_locked)


async def test_worker_notices_a_network_that_drops_everything(bench: Workbench, proxy: Proxy) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(lease=1.0, **_through(proxy, bench)) as node:
        await (await task.aenqueue()).aresult(timeout=60)
        before = (node.worker._connection.connections, node.worker.epoch)
        proxy.swallow()
        heartbeat = node.worker._heartbeat
        assert heartbeat is not None
        await bench.until(lambda: heartbeat._is_fenced)
        await bench.until(lambda: node.worker._connection._failures)
        proxy.behave()
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
        assert node.worker._connection.connections > before[0]


async def test_an_outage_of_the_database_is_two_lines_of_the_log(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    """Claims, endings, heartbeats, chores and the listener fail many times meanwhile."""
    caplog.set_level(logging.DEBUG, "watchbill.database")

    @bench.app.task
    async def task() -> str:
        return "ran"

    def failures() -> int:
        return sum("does not answer; retrying" in record.getMessage() for record in caplog.records)

    def warnings() -> list[str]:
        ours = [record for record in caplog.records if record.name.startswith("watchbill")]
        return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]

    name = urlsplit(bench.url).path.lstrip("/")
    elsewhere = bench.url.replace(f"/{name}?", "/postgres?")
    async with bench.working(lease=60.0):
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
        with psycopg.connect(elsewhere, autocommit=True) as other:
            allow = psycopg.sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            other.execute(allow.format(psycopg.sql.Identifier(name), psycopg.sql.SQL("false")))
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            await bench.until(lambda: failures() >= 10)
            other.execute(allow.format(psycopg.sql.Identifier(name), psycopg.sql.SQL("true")))
        await bench.until(lambda: any("answers again" in line for line in warnings()))
        assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
    first, last = warnings()
    assert first.startswith("The database does not answer (")
    assert "; meanwhile running handlers go on" in first
    assert last.startswith("The database answers again, after ")
    pools = [record for record in caplog.records if record.name == "psycopg.pool"]
    assert [record.levelname for record in pools if record.levelno >= logging.WARNING] == []


async def test_a_worker_survives_the_loss_of_every_connection(bench: Workbench) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working() as node:
        await _started(bench, node)
        for _ in range(5):
            bench.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'watchbill %%'"
            )
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


# -- registration


async def test_worker_waits_until_the_name_of_a_dead_node_is_free(bench: Workbench) -> None:
    bench.sql("SELECT watchbill.register('mine', '1 second')")
    async with bench.working(name="mine", lease=1.0) as node:
        await _started(bench, node)
    assert bench.sql("SELECT state FROM watchbill.nodes WHERE name = 'mine' ORDER BY epoch") == [("lost",), ("left",)]


async def test_a_node_whose_name_was_taken_over_ends_with_an_error(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.node(name="mine", lease=1.0)
    running = asyncio.create_task(first.run())
    await _started(bench, first)
    old = first.worker.epoch
    monkeypatch.setattr(worker_module, "NAME_PATIENCE_SECONDS", -10.0)  # it gives up at once
    async with bench.working(name="mine", lease=1.0, takes_over=True) as second:
        await _started(bench, second)
        with pytest.raises(
            NameTaken, match=rf"a node named 'mine' is alive \(epoch {second.worker.epoch}, host "
        ) as caught:
            await running
        assert "--take-over" in str(caught.value)
        assert bench.sql("SELECT epoch, state FROM watchbill.nodes ORDER BY epoch") == [
            (old, "lost"), (second.worker.epoch, "active"),
        ]  # fmt: skip


async def test_worker_that_finds_no_database_ends_as_one_that_cannot_start(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code tells a supervisor that another try would fail too."""
    monkeypatch.setattr(worker_module, "NAME_PATIENCE_SECONDS", -10.0)  # it gives up at once
    with Proxy(tmp_path / "no server") as proxy:
        node = bench.node(url=proxy.url("postgres"), lease=1.0)
        with pytest.raises(NoDatabase, match="The database does not answer") as caught:
            await node.run()
    assert caught.value.exit_code == 3


async def test_resent_registration_returns_the_same_epoch(bench: Workbench) -> None:
    register = "SELECT watchbill.register('mine', instance => '00000000-0000-0000-0000-000000000001')"
    assert bench.sql(register) == bench.sql(register)
    with pytest.raises(psycopg.DatabaseError, match="alive"):
        bench.sql("SELECT watchbill.register('mine')")


# -- transactions that somebody left open


@pytest.mark.parametrize("ends", ["succeeds", "fails"])
async def test_open_transaction_delays_only_the_ending_of_its_own_job(bench: Workbench, ends: str) -> None:
    """An operator types BEGIN, cancels a job that runs, and goes to lunch."""
    told: list[Any] = []
    bench.app.on("job_completed")(lambda job, **_: told.append(job.id))
    go_on = asyncio.Event()

    @bench.app.task
    async def held() -> None:
        await go_on.wait()
        if ends == "fails":
            raise ValueError

    @bench.app.task
    async def other() -> str:
        return "ran"

    job = await held.aenqueue()
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and node.worker.slots.runs)
        with psycopg.connect(bench.url) as operator:
            operator.execute("SELECT watchbill.cancel(%s)", (job.id,))
            others = [await other.aenqueue() for _ in range(3)]
            go_on.set()
            assert [await each.aresult(timeout=60) for each in others] == ["ran"] * 3
            assert bench.sql("SELECT state FROM watchbill.job WHERE id = %s", job.id) == [("running",)]
            operator.rollback()
        state = "succeeded" if ends == "succeeds" else "failed"
        await bench.until(lambda: bench.sql("SELECT state FROM watchbill.job WHERE id = %s", job.id) == [(state,)])
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])
    assert sorted(told) == sorted([each.id for each in others] + [job.id] * (ends == "succeeds"))


@pytest.mark.parametrize("ends", ["while it waits", "once it is set aside"])
async def test_claim_is_kept_while_one_of_its_jobs_is_locked(bench: Workbench, ends: str) -> None:
    """If the node died now, that job would not be found without its claim."""
    go_on = {"locked": asyncio.Event(), "other": asyncio.Event()}

    @bench.app.task
    async def wait(name: str) -> None:
        await go_on[name].wait()

    locked, other = await bench.app.aenqueue_many([wait.bind("locked"), wait.bind("other")])
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and len(node.worker.slots.runs) == 2)
        settler = node.worker.settler
        with psycopg.connect(bench.url) as operator:
            operator.execute("SELECT watchbill.cancel(%s)", (locked.id,))
            go_on["locked"].set()
            await bench.until(lambda: len(settler._under_way if ends == "while it waits" else settler._locked))
            go_on["other"].set()
            await other.aresult(timeout=60)
            await bench.until(lambda: len(settler._locked))
            held = "SELECT count(*) FROM watchbill.jobs JOIN watchbill.claims USING (fence) WHERE id = %s"
            assert bench.sql(held, locked.id) == [(1,)]
            operator.rollback()
        await locked.aresult(timeout=60)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])


async def test_worker_continues_after_its_node_row_was_locked(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    claimers = """SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'watchbill claims' AND datname = current_database()"""
    async with bench.working(name="locked") as node:
        await _started(bench, node)
        with psycopg.connect(bench.url) as operator:
            operator.execute("SELECT watchbill.drain('locked')")
            job = await task.aenqueue()
            node.worker._claimer._has_unknown_claim = True  # to release it, the worker locks its row
            await bench.until(lambda: "lock timeout" in caplog.text)
            await bench.until(lambda: bench.sql(claimers) == [(1,)])
            operator.rollback()
        assert await job.aresult(timeout=60) == "ran"


# -- claims from a floor


async def test_once_mode_makes_a_full_scan_before_it_ends(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--once` ended after the first jobs of many queues, when to look from the top had become expensive."""
    monkeypatch.setattr(claiming, "CHEAP_SCAN_ENTRIES", -1e9)
    tasks = []
    for name in ("a", "b", "c"):

        @bench.app.task(type=name, queue=name)
        async def task() -> None: ...

        tasks.append(task)
    for task in tasks:
        await task.aenqueue()
    await bench.work_off(capacity=Capacity({"async": 1, "thread": 1, "process": 1}, 1))
    assert bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]


async def test_sleeping_worker_finds_a_job_before_its_scan_position(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps no longer than until its look from the top is due."""
    monkeypatch.setattr(claiming, "CHEAP_SCAN_ENTRIES", -1e9)
    monkeypatch.setattr(claiming, "IDLE_SCAN_PAUSE", 300)  # so that it is not due before it sleeps
    monkeypatch.setattr(claiming, "LONGEST_SLEEP_SECONDS", 1e6)

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with bench.working(poll_max_interval=1e6):
        for _ in range(2):  # the first makes floors matter
            await (await task.aenqueue()).aresult(timeout=60)
        behind = await task.using(run_at=datetime(2020, 1, 1, tzinfo=UTC)).aenqueue()
        assert await behind.aresult(timeout=60) == "ran"


# -- behind a pooler


@pytest.fixture
def pooler(server: Server) -> Iterator[Pooler]:
    with run_pooler(server) as pooler:
        yield pooler


async def test_locked_job_behind_a_pooler_delays_no_other_job(bench: Workbench, pooler: Pooler) -> None:
    """There no session can be told how long to wait for a lock."""
    go_on = asyncio.Event()

    @bench.app.task
    async def held() -> None:
        await go_on.wait()

    @bench.app.task
    async def other() -> str:
        return "ran"

    job = await held.aenqueue()
    async with bench.working(url=pooler.url(urlsplit(bench.url).path.lstrip("/")), listen_url=None) as node:
        await bench.until(lambda: node._worker is not None and node.worker.slots.runs)
        with psycopg.connect(bench.url) as operator:
            operator.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (job.id,))
            go_on.set()
            await bench.until(lambda: len(node.worker.settler._under_way))
            assert await (await other.aenqueue()).aresult(timeout=60) == "ran"
            assert bench.sql("SELECT state FROM watchbill.job WHERE id = %s", job.id) == [("running",)]
            operator.rollback()
        await job.aresult(timeout=60)


async def test_node_works_behind_a_transaction_mode_pooler(
    bench: Workbench, pooler: Pooler, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is prepared, nothing listens, no session keeps a lock: heartbeats and handlers' transactions included."""

    @bench.app.task
    async def write(connection: watchbill.AsyncConnection) -> int:
        for _ in range(8):
            rows = await connection.execute("SELECT %s::int", (5,))
        row = await rows.fetchone()
        assert row is not None
        return int(row[0])

    async with bench.working(url=pooler.url(urlsplit(bench.url).path.lstrip("/")), listen_url=None) as node:
        await _started(bench, node)
        jobs = [await write.aenqueue() for _ in range(10)]
        assert [await job.aresult(timeout=60) for job in jobs] == [5] * 10
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.beats WHERE n >= 8"))
        assert node.worker.notifications.is_unavailable
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND classid = %s"
        assert bench.sql(locks, 1466004579) == [(0,)]
    said = [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    # The line of an outage that an earlier test has ended comes two seconds later.
    assert [line for line in said if not line.startswith("The database answers again")] == [
        "LISTEN does not work through this pooler; polling instead. Set listen_url to a direct address"
    ]
