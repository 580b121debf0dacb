"""Large payloads by reference: transparent to every kind of task, honest when the store is not, and cleaned up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.worker import stored_tasks as tasks
from tests.worker.conftest import Workbench
from tests.worker.stored_tasks import Order
from watchbill import App, JobFailed, Retry, Task
from watchbill.app.payload import InvalidPayload
from watchbill.maintenance import sweeper
from watchbill.maintenance.sweeper import Sweeper
from watchbill.payloads import FileStore, StoreFailed
from watchbill.settings import Settings
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries

LARGE = Order(number=7, lines=["a line of an order"] * 5000)
SMALL = Order(number=7, lines=["one"])
EVERY_KIND: list[Task[..., int]] = [
    tasks.on_loop, tasks.in_thread, tasks.in_process, tasks.in_transaction, tasks.in_async_transaction,
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "payloads")


@pytest.fixture
def bench(schema_database: str, files: FileStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    """Settings come from the environment, as a child process has them."""
    for name, value in {"DATABASE_URL": schema_database, "PAYLOAD_STORE": str(files.root)}.items():
        monkeypatch.setenv(f"WATCHBILL_{name}", value)
    workbench = Workbench(schema_database)
    workbench.app = tasks.app
    tasks.app.producer.replace_runtime(None)
    tasks.app.use(Settings.load(drain_timeout=5, poll_interval=0.01, poll_max_interval=0.05))
    yield workbench
    tasks.app.close()


@asynccontextmanager
async def sweeping(bench: Workbench, store: FileStore) -> AsyncIterator[Sweeper]:
    connection = NodeConnection(bench.url, queries("watchbill"), purpose="test", timeout=60)
    yield Sweeper(connection, store)
    await connection.close()


def keys(store: FileStore) -> list[str]:
    return [key for day in store.days() for key in store.keys(day)]


def age(store: FileStore) -> str:
    """Moves everything to a day long ago; that day."""
    [day] = store.days()
    (store.root / day).rename(store.root / "2026-01-01")
    return "2026-01-01"


@pytest.mark.parametrize("task", EVERY_KIND, ids=lambda task: task.type.rpartition(".")[2])
async def test_every_kind_of_task_gets_its_stored_arguments(bench: Workbench, files: FileStore, task: Any) -> None:
    job = await task.aenqueue(LARGE)
    assert len(keys(files)) == 1
    [(size,)] = bench.sql("SELECT pg_column_size(payload) FROM watchbill.jobs")
    assert size < 200, "only a reference is in the database"
    await bench.work_off()
    assert await job.aresult(timeout=0) == 5007
    assert len(keys(files)) == 1, "it is kept as long as the job, which may be rescheduled"


async def test_small_payload_stays_in_the_database(bench: Workbench, files: FileStore) -> None:
    job = await tasks.on_loop.aenqueue(SMALL)
    assert keys(files) == []
    await bench.work_off()
    assert await job.aresult(timeout=0) == 8


async def test_bulk_by_name_and_retried_jobs_get_stored_payloads(bench: Workbench, files: FileStore) -> None:
    calls = [tasks.on_loop.bind(order) for order in (LARGE, SMALL, LARGE)]
    jobs = [
        *await bench.app.aenqueue_many(calls),
        await bench.app.aenqueue("somebody.elses", {"order": LARGE.model_dump()}),
        await bench.app.aenqueue(tasks.on_loop.type, {"order": LARGE.model_dump()}),
    ]
    assert len(keys(files)) == 4
    await bench.work_off()
    assert [await job.aresult(timeout=0) for job in (*jobs[:3], jobs[4])] == [5007, 8, 5007, 5007]
    await bench.app.jobs.aretry(jobs[0].id)
    await bench.work_off()
    assert await jobs[0].aresult(timeout=0) == 5007


def test_blocking_enqueue_stores_large_payloads(bench: Workbench, files: FileStore) -> None:
    tasks.on_loop.enqueue(LARGE)
    bench.app.enqueue_many([tasks.on_loop.bind(LARGE), tasks.on_loop.bind(SMALL)])
    tasks.on_loop.using(idempotency_key="k").enqueue(LARGE)
    again = tasks.on_loop.using(idempotency_key="k").enqueue(LARGE)
    assert (again.created, again.payload_differs) == (False, False)
    assert len(keys(files)) == 3


async def test_stored_payload_of_an_old_version_is_upgraded(bench: Workbench) -> None:
    job = await tasks.renamed.aenqueue(LARGE)
    key = bench.sql("SELECT meta->>'stored' FROM watchbill.jobs")[0][0]
    old = tasks.renamed.using().new_job(b'{"bestellung":' + LARGE.model_dump_json().encode() + b"}")
    [kept] = bench.app.producer.runtime.large_payloads.store_all([old._replace(id=job.id)], lambda: "fedcba98")
    assert kept.meta is not None
    assert key not in kept.meta.decode()
    bench.sql(
        "UPDATE watchbill.jobs SET version = 1, payload = %s, meta = %s", kept.payload.decode(), kept.meta.decode()
    )
    await bench.work_off()
    assert await job.aresult(timeout=0) == 7


async def test_duplicate_stores_no_object_and_reports_another_payload(bench: Workbench, files: FileStore) -> None:
    task = tasks.on_loop.using(idempotency_key="k")
    first = await task.aenqueue(LARGE)
    same = await task.aenqueue(LARGE)
    assert (same.id, same.created, same.payload_differs) == (first.id, False, False)
    other = await task.aenqueue(LARGE.model_copy(update={"number": 8}))
    assert (other.id, other.created, other.payload_differs) == (first.id, False, True)
    assert len(keys(files)) == 1
    await bench.work_off()
    assert await first.aresult(timeout=0) == 5007


async def test_key_order_does_not_change_a_stored_payload(bench: Workbench) -> None:
    lines, task = LARGE.lines, {"idempotency_key": "k"}
    first = await bench.app.aenqueue("elsewhere", {"lines": lines, "number": 1}, **task)  # type: ignore[arg-type]
    again = await bench.app.aenqueue("elsewhere", {"number": 1, "lines": lines}, **task)  # type: ignore[arg-type]
    assert (first.id, again.payload_differs) == (again.id, False)


async def test_enqueue_with_a_used_id_does_not_overwrite_the_payload(bench: Workbench) -> None:
    first = await tasks.on_loop.aenqueue(LARGE)
    again = await tasks.on_loop.using(id=first.id).aenqueue(LARGE.model_copy(update={"number": 100}))
    assert again.id == first.id
    await bench.work_off()
    assert await first.aresult(timeout=0) == 5007


# -- when the store is not what it should be


async def dead(bench: Workbench, job: Any) -> dict[str, Any]:
    await bench.work_off()
    with pytest.raises(JobFailed) as caught:
        await job.aresult(timeout=0)
    return caught.value.error


@pytest.mark.parametrize("task", EVERY_KIND[:3], ids=lambda task: task.type.rpartition(".")[2])
async def test_missing_stored_payload_ends_the_job_dead(bench: Workbench, files: FileStore, task: Any) -> None:
    job = await task.using(retry=Retry(max_attempts=5)).aenqueue(LARGE)
    [key] = keys(files)
    (files.root / key).unlink()
    error = await dead(bench, job)
    assert (error["kind"], error["type"]) == ("permanent", "PayloadGone")
    assert f"has no {key}" in error["message"]
    assert "another place than the producer's" in error["message"]


async def test_changed_stored_payload_ends_the_job_dead(bench: Workbench, files: FileStore) -> None:
    job = await tasks.on_loop.aenqueue(LARGE)
    [key] = keys(files)
    (files.root / key).write_bytes(b'{"order": {"number": 1, "lines": []}}')
    assert "has changed since it was stored" in (await dead(bench, job))["message"]


async def test_reference_outside_the_store_is_refused(bench: Workbench, files: FileStore) -> None:
    job = await tasks.on_loop.aenqueue(LARGE)
    bench.sql("""UPDATE watchbill.jobs SET meta = '{"stored": "../../etc/passwd"}'""")
    assert "'../../etc/passwd' is not a key" in (await dead(bench, job))["message"]


async def test_unavailable_store_costs_one_attempt(bench: Workbench, files: FileStore) -> None:
    job = await tasks.on_loop.using(retry=Retry(max_attempts=2, backoff="fixed", base=100, jitter=0)).aenqueue(LARGE)
    files.root.rename(files.root.with_name("away"))
    await bench.work_off()
    record = await job.aget()
    assert record.state == "failed"
    assert record.error is not None
    assert "is not a directory here" in record.error["message"]
    files.root.with_name("away").rename(files.root)
    bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL")
    await bench.work_off()
    assert await job.aresult(timeout=0) == 5007


async def test_worker_without_a_store_names_the_missing_setting(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await tasks.on_loop.aenqueue(LARGE)
    monkeypatch.delenv("WATCHBILL_PAYLOAD_STORE")
    bench.app.use(Settings.load(poll_interval=0.01))
    error = await dead(bench, job)
    assert error["kind"] == "retryable"
    assert "Give it the setting payload_store" in error["message"]


async def test_payload_limit_error_without_a_store_suggests_one(schema_database: str, bench: Workbench) -> None:
    app = App(schema_database)
    app.use(Settings.load(payload_store_above=1000, environ={}))
    with pytest.raises(InvalidPayload, match=r"(?s)the limit is 100,000.*Name a payload_store"):
        await app.aenqueue("large", {"text": "x" * 100_000})


async def test_failing_store_enqueues_nothing(bench: Workbench, files: FileStore) -> None:
    files.root.write_text("a file where a directory should be")
    with pytest.raises(StoreFailed, match=r"(?s)could not be stored in FileStore.*Nothing was enqueued"):
        await tasks.on_loop.aenqueue(LARGE)
    assert bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]


async def test_a_payload_that_looks_like_a_reference_is_refused(bench: Workbench) -> None:
    with pytest.raises(InvalidPayload, match="cannot begin with \\$stored"):
        await bench.app.aenqueue("elsewhere", {"$stored": "0123"})


# -- what is left behind


async def test_sweeper_deletes_objects_that_no_job_refers_to(bench: Workbench, files: FileStore) -> None:
    waiting = await tasks.on_loop.using(delay=3600).aenqueue(LARGE)
    finished = await tasks.on_loop.aenqueue(LARGE)
    await bench.work_off()
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        await tasks.on_loop.using(connection=connection).aenqueue(LARGE)
        await connection.rollback()
    purged = await tasks.on_loop.aenqueue(LARGE)
    bench.sql("DELETE FROM watchbill.jobs WHERE id = %s", purged.id)
    (files.root / files.days()[0] / "not ours").write_text("keep me")
    assert len(keys(files)) == 5
    day = age(files)
    async with sweeping(bench, files) as sweep:
        assert await sweep.sweep(day) == 2
        left = {key.partition("/")[2][:36] for key in keys(files)}
        assert left == {str(waiting.id), str(finished.id), "not ours"}
        bench.sql("DELETE FROM watchbill.jobs")
        bench.sql("DELETE FROM watchbill.finished_jobs")
        assert await sweep.sweep(day) == 2
    assert keys(files) == [f"{day}/not ours"]


async def test_sweeper_keeps_objects_of_other_installations(bench: Workbench, files: FileStore) -> None:
    """Two installations may share a store; the jobs of one are unknown to the other."""
    await tasks.on_loop.aenqueue(LARGE)
    bench.sql("UPDATE watchbill.installation SET id = gen_random_uuid()")
    bench.sql("DELETE FROM watchbill.jobs")
    async with sweeping(bench, files) as sweep:
        assert await sweep.sweep(age(files)) == 0
    assert len(keys(files)) == 1


async def test_sweeper_keeps_young_objects(bench: Workbench, files: FileStore) -> None:
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        await tasks.on_loop.using(connection=connection).aenqueue(LARGE)
        async with sweeping(bench, files) as sweep:
            await sweep.run()
            assert len(keys(files)) == 1
            age(files)
            await sweep.run()
            assert keys(files) == [], "older than any transaction should be"


async def test_sweeper_continues_after_a_failed_delete(
    bench: Workbench, files: FileStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        job = await tasks.on_loop.aenqueue(LARGE)
    bench.sql("DELETE FROM watchbill.jobs")
    day, delete = age(files), files.delete
    monkeypatch.setattr(sweeper, "BATCH", 2)

    def refuse(key: str) -> None:
        if str(job.id) in key:
            raise PermissionError("not yours")
        delete(key)

    monkeypatch.setattr(files, "delete", refuse)
    async with sweeping(bench, files) as sweep:
        assert await sweep.sweep(day) == 2
    assert "Could not delete 1 payloads" in caplog.text
    assert [str(job.id) in key for key in keys(files)] == [True]


async def test_node_runs_the_sweeper_for_the_store_of_its_app(bench: Workbench, files: FileStore) -> None:
    await tasks.on_loop.aenqueue(LARGE)
    bench.sql("DELETE FROM watchbill.jobs")
    age(files)
    async with bench.working():
        await bench.until(lambda: not keys(files))
