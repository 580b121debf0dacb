"""The README of seesaw-job-postgres on Watchbill: each heading by its own names, in Python."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.compat.psql import Psql
from tests.compat.walk import Document, covers, shows
from tests.role_logins import make_logins
from tests.servers import Server
from watchbill import StaleFence
from watchbill.compat.seesaw import ClaimedJob, FailureKind, JobSpec, PgJobStore, QueueStats
from watchbill.store.facades import Facade, install_facade
from watchbill.testing.database import make_schema

pytestmark = pytest.mark.asyncio

README = Document.load("004")
ME = sys.modules[__name__]
SEND = JobSpec("send")


@pytest.fixture
def psql(server: Server) -> Iterator[Psql]:
    """A session in a database with the facade, whose clock can be moved."""
    if "seesaw" not in server.templates:
        server.templates["seesaw"] = server.create_database()
        url = server.url(server.templates["seesaw"])
        make_schema(url, "watchbill")
        install_facade(url, Facade.choose("watchbill", "seesaw"))
    name = server.create_database(server.templates["seesaw"])
    with Psql(server.url(name)) as session:
        yield session
    server.drop_database(name)


@pytest_asyncio.fixture
async def store(psql: Psql) -> AsyncIterator[PgJobStore]:
    async with PgJobStore(psql.url) as store:
        yield store


async def claim_one(store: PgJobStore, worker: str = "w") -> ClaimedJob:
    (job,) = await store.claim_ready(worker, 1)
    return job


def row(psql: Psql, job: UUID) -> Any:
    (found,) = psql("SELECT * FROM seesaw.jobs WHERE id = %s", job)
    return found


# -- the walk


async def test_every_statement_of_the_readme_is_listed_with_a_reason() -> None:
    README.check_reasons()
    README.check_complete([])


async def test_every_heading_is_covered() -> None:
    README.check_headings(ME)


async def test_every_parameter_has_an_effect() -> None:
    found = {
        f"{name}.{parameter}"
        for name, function in inspect.getmembers(PgJobStore, callable)
        if not name.startswith("_")
        for parameter in inspect.signature(function).parameters
        if parameter not in ("self", "options")
    }
    found |= {f"PgJobStore.{name}" for name in inspect.signature(PgJobStore).parameters}
    found |= {f"JobSpec.{name}" for name in inspect.signature(JobSpec).parameters}
    README.check_parameters(found, ME)


# -- Features


@covers("Features")
@shows("enqueue.payload", "enqueue.spec", "JobSpec.job_type", "claim_ready.limit", "claim_ready.worker_id")
async def test_jobs_are_stored_claimed_in_batches_and_ended(store: PgJobStore, psql: Psql) -> None:
    ids = [await store.enqueue({"n": n}, JobSpec(f"type-{n}")) for n in range(3)]
    first = await store.claim_ready("one", 2)
    second = await store.claim_ready("two", 2)
    assert [(job.id, job.job_type, job.payload, job.version, job.attempt) for job in first + second] == [
        (ids[n], f"type-{n}", {"n": n}, 1, 1) for n in range(3)
    ]
    assert [row(psql, job).worker_id for job in ids] == ["one", "one", "two"]
    assert await store.claim_ready("two", 2) == []
    for job in first + second:
        await store.mark_succeeded(job.id)
    assert await store.stats() == QueueStats(0, 0, 3, 0, 0)


@covers("Features")
@pytest.mark.parametrize("payload", [{"value": 1}, [1, 2], "text", 7, None, True])
async def test_any_json_is_a_payload(store: PgJobStore, psql: Psql, payload: Any) -> None:
    job = await store.enqueue(payload, SEND)
    assert (await claim_one(store)).payload == payload
    assert row(psql, job).payload == payload


@covers("Features")
@shows("mark_failed.id", "mark_failed.error", "mark_failed.kind", "JobSpec.max_retries")
async def test_a_failed_job_is_tried_after_2_and_4_seconds_and_then_is_a_dead_letter(
    store: PgJobStore, psql: Psql
) -> None:
    job = await store.enqueue({}, SEND)
    for attempt, wait in ((1, 2), (2, 4)):
        claimed = await claim_one(store)
        assert claimed.attempt == attempt
        await store.mark_failed(job, "no route", FailureKind.RETRYABLE)
        found = row(psql, job)
        assert (found.status, found.attempt, found.max_retries) == ("pending", attempt + 1, 3)
        assert (found.error_message, found.error_kind) == ("no route", "retryable")
        assert found.run_at - found.updated_at == timedelta(seconds=wait)
        assert await store.claim_ready("w", 1) == []
        psql.pass_time(f"{wait} seconds")
    assert (await claim_one(store)).attempt == 3
    await store.mark_failed(job, "still no route", FailureKind.RETRYABLE)
    assert (row(psql, job).status, row(psql, job).attempt) == ("dead_letter", 3)
    once = await store.enqueue({}, JobSpec("send", max_retries=1))
    await claim_one(store)
    await store.mark_failed(once, "no")
    assert row(psql, once).status == "dead_letter"


@covers("Features")
async def test_the_wait_between_attempts_is_never_longer_than_an_hour(store: PgJobStore, psql: Psql) -> None:
    job = await store.enqueue({}, JobSpec("send", max_retries=100))
    for _ in range(14):
        await claim_one(store)
        await store.mark_failed(job, "no", FailureKind.RETRYABLE)
        psql.pass_time("1 hour")
    assert row(psql, job).run_at - row(psql, job).updated_at == timedelta(hours=1)


@covers("Features")
async def test_a_failure_that_cannot_be_retried_is_a_dead_letter_at_once(store: PgJobStore, psql: Psql) -> None:
    """In the original the statement for this failed on a type error, so the job was retried for ever."""
    job = await store.enqueue({}, SEND)
    await claim_one(store)
    await store.mark_failed(job, "no such card", FailureKind.NON_RETRYABLE)
    found = row(psql, job)
    assert (found.status, found.error_message, found.error_kind) == ("dead_letter", "no such card", "non_retryable")
    assert (await store.stats()).dead_letter == 1


@covers("Features")
@shows("heartbeat.id")
async def test_a_heartbeat_keeps_the_lease_of_a_long_job(store: PgJobStore, psql: Psql) -> None:
    job = await store.enqueue({}, SEND)
    await claim_one(store)
    for _ in range(3):
        psql.pass_time("50 seconds")
        await store.heartbeat(job)
        assert await store.reclaim_expired() == 0
    before = row(psql, job).lease_expires_at
    psql.pass_time("10 seconds")
    await store.heartbeat(job)
    assert row(psql, job).lease_expires_at - before >= timedelta(seconds=10)
    await store.mark_succeeded(job)


@covers("Features")
@shows("JobSpec.priority")
async def test_higher_priorities_are_claimed_first(store: PgJobStore) -> None:
    low, high = await store.enqueue({}, SEND), await store.enqueue({}, JobSpec("send", priority=5))
    assert [job.id for job in await store.claim_ready("w", 2)] == [high, low]


@shows("JobSpec.version")
async def test_the_version_of_a_payload_reaches_the_worker(store: PgJobStore) -> None:
    await store.enqueue({}, JobSpec("send", version=4))
    assert (await claim_one(store)).version == 4


@shows("JobSpec.idempotency_key")
async def test_a_job_with_the_same_key_is_stored_once(store: PgJobStore) -> None:
    keyed = JobSpec("send", idempotency_key="k")
    assert await store.enqueue({}, keyed) == await store.enqueue({}, keyed)
    assert (await store.stats()).pending == 1


@shows("schedule.payload", "schedule.spec", "schedule.run_at")
async def test_a_scheduled_job_is_claimed_when_its_time_has_come(store: PgJobStore, psql: Psql) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    job = await store.schedule({"n": 1}, JobSpec("later"), at)
    assert row(psql, job).run_at == at
    assert await store.claim_ready("w", 1) == []
    psql.pass_time("61 minutes")
    claimed = await claim_one(store)
    assert (claimed.id, claimed.job_type, claimed.payload) == (job, "later", {"n": 1})


# -- ends


@shows("mark_succeeded.id")
async def test_ends_that_are_awaited_together_are_each_stored_when_their_call_returns(
    store: PgJobStore, psql: Psql
) -> None:
    for _ in range(50):
        await store.enqueue({}, SEND)
    jobs = await store.claim_ready("one", 30) + await store.claim_ready("two", 30)
    await asyncio.gather(
        *(store.mark_succeeded(job.id) for job in jobs[:25]),
        *(store.mark_failed(job.id, "no", FailureKind.NON_RETRYABLE) for job in jobs[25:]),
    )
    assert await store.stats() == QueueStats(0, 0, 25, 0, 25)
    assert psql.one("SELECT count(*) FROM watchbill.claims") == 0


async def test_a_group_of_ends_takes_few_statements(store: PgJobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        await store.enqueue({}, SEND)
    jobs = await store.claim_ready("w", 100)
    statements = 0
    run, execute = store._run, store._execute

    async def count_run(operation: Any) -> Any:
        nonlocal statements
        statements += 1
        return await run(operation)

    async def count_execute(query: str, params: tuple[Any, ...]) -> Any:
        nonlocal statements
        statements += 1
        return await execute(query, params)

    monkeypatch.setattr(store, "_run", count_run)
    monkeypatch.setattr(store, "_execute", count_execute)
    await asyncio.gather(*(store.mark_succeeded(job.id) for job in jobs))
    assert statements <= 2


async def test_an_end_that_was_reported_twice_is_refused(store: PgJobStore) -> None:
    job = await store.enqueue({}, SEND)
    await claim_one(store)
    await store.mark_succeeded(job)
    with pytest.raises(StaleFence, match="does not hold"):
        await store.mark_succeeded(job)
    with pytest.raises(StaleFence, match="does not hold"):
        await store.mark_failed(uuid4(), "no")


async def test_a_caller_that_is_canceled_takes_no_other_end_along(store: PgJobStore) -> None:
    for _ in range(20):
        await store.enqueue({}, SEND)
    jobs = await store.claim_ready("w", 20)
    tasks = [asyncio.ensure_future(store.mark_succeeded(job.id)) for job in jobs]
    await asyncio.sleep(0)
    tasks[5].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in ended if each is not None] == [asyncio.CancelledError]
    assert (await store.stats()).succeeded >= 19


async def test_a_zombie_cannot_end_the_job_of_another_worker(store: PgJobStore, psql: Psql) -> None:
    """In the original a worker that had lost its lease could complete the job under the next one."""
    job = await store.enqueue({}, SEND)
    await claim_one(store, "zombie")
    psql.pass_time("61 seconds")
    async with PgJobStore(psql.url) as other:
        assert await other.reclaim_expired() == 1
        psql.pass_time("10 seconds")
        assert (await claim_one(other, "heir")).id == job
        with pytest.raises(StaleFence, match="was reclaimed"):
            await store.mark_succeeded(job)
        assert (row(psql, job).status, row(psql, job).worker_id) == ("running", "heir")
        await other.mark_succeeded(job)
    assert row(psql, job).status == "succeeded"


async def test_a_worker_that_was_lost_claims_again(store: PgJobStore, psql: Psql) -> None:
    lost = await store.enqueue({}, SEND)
    await claim_one(store)
    psql.pass_time("61 seconds")
    assert await store.reclaim_expired() == 1
    other = await store.enqueue({}, SEND)
    [claimed] = await store.claim_ready("w", 1)
    assert claimed.id in (lost, other)  # a lost job waits for a random moment, which may have passed


async def test_two_processes_may_have_the_same_worker_id(store: PgJobStore, psql: Psql) -> None:
    ids = [await store.enqueue({}, SEND) for _ in range(2)]
    await claim_one(store)
    async with PgJobStore(psql.url) as other:
        await claim_one(other)
        assert [row(psql, job).worker_id for job in ids] == ["w", "w"]


async def test_a_store_that_is_closed_returns_its_jobs_at_once(store: PgJobStore, psql: Psql) -> None:
    job = await store.enqueue({}, SEND)
    async with PgJobStore(psql.url) as other:
        await claim_one(other)
    assert (row(psql, job).status, row(psql, job).attempt) == ("pending", 1)


async def test_a_store_needs_the_role_of_a_worker_and_the_view_that_of_a_reader(server: Server, psql: Psql) -> None:
    psql("GRANT USAGE ON SCHEMA seesaw TO PUBLIC")
    psql("GRANT SELECT ON seesaw.jobs TO PUBLIC")
    with make_logins(server, psql.url) as logins:
        async with PgJobStore(logins.url("worker")) as store:
            job = await store.enqueue({}, SEND)
            await claim_one(store)
            await store.heartbeat(job)
            await store.mark_succeeded(job)
            assert await store.reclaim_expired() == 0
            assert (await store.stats()).succeeded == 1
        with Psql(logins.url("reader")) as reader:
            assert row(reader, job).status == "succeeded"


# -- Database Setup


@covers("Database Setup", "Installation")
async def test_the_view_has_the_columns_of_the_readme(psql: Psql) -> None:
    found = psql(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'seesaw' ORDER BY ordinal_position"
    )
    text, instant = "text", "timestamp with time zone"
    assert [tuple(each) for each in found] == [
        ("id", "uuid"), ("job_type", text), ("payload", "jsonb"), ("version", "integer"), ("status", text),
        ("attempt", "integer"), ("max_retries", "integer"), ("priority", "integer"), ("run_at", instant),
        ("worker_id", text), ("lease_expires_at", instant), ("error_message", text), ("error_kind", text),
        ("created_at", instant), ("updated_at", instant),
    ]  # fmt: skip


@covers("Database Setup")
async def test_a_new_job_has_the_defaults_of_the_readme(store: PgJobStore, psql: Psql) -> None:
    found = row(psql, await store.enqueue({}, SEND))
    assert (found.version, found.status, found.attempt, found.max_retries, found.priority) == (1, "pending", 1, 3, 0)
    assert (found.worker_id, found.lease_expires_at, found.error_message, found.error_kind) == (None,) * 4


@covers("Database Setup")
async def test_every_status_has_the_word_of_the_readme(store: PgJobStore, psql: Psql) -> None:
    pending, running, succeeded, dead, canceled = [await store.enqueue({}, JobSpec(name)) for name in "abcde"]
    psql("SELECT watchbill.cancel(%s)", canceled)
    psql("SELECT watchbill.reschedule(%s, %s)", pending, datetime.now(UTC) + timedelta(hours=1))
    await store.claim_ready("w", 10)
    await store.mark_succeeded(succeeded)
    await store.mark_failed(dead, "no", FailureKind.NON_RETRYABLE)
    assert [row(psql, job).status for job in (pending, running, succeeded, dead, canceled)] == [
        "pending", "running", "succeeded", "dead_letter", "failed",
    ]  # fmt: skip
    assert await store.stats() == QueueStats(pending=1, running=1, succeeded=1, failed=1, dead_letter=1)


# -- Usage, Custom Lease Timeout


@covers("Usage")
@shows("PgJobStore.pool", "PgJobStore.schema")
async def test_a_store_takes_an_address_or_a_pool(psql: Psql) -> None:
    async with AsyncConnectionPool(psql.url, min_size=1, max_size=2, kwargs={"row_factory": dict_row}) as pool:
        store = PgJobStore(pool)
        job = await store.enqueue({"n": 1}, SEND)
        (claimed,) = await store.claim_ready("w", 10)
        assert (claimed.id, claimed.payload) == (job, {"n": 1})
        await store.mark_succeeded(job)
        assert (await store.stats()).succeeded == 1
        await store.close()
    assert row(psql, job).status == "succeeded"
    with pytest.raises(Exception, match="elsewhere"):
        await PgJobStore(psql.url, schema="elsewhere").enqueue({}, SEND)


@shows("PgJobStore.queue")
async def test_a_store_sees_the_jobs_of_its_queue_only(store: PgJobStore, psql: Psql) -> None:
    async with PgJobStore(psql.url, queue="mail") as mail:
        job = await mail.enqueue({}, SEND)
        assert await store.claim_ready("w", 1) == []
        assert (await store.stats()).pending == 0
        assert (await claim_one(mail)).id == job


@covers("Custom Lease Timeout")
@shows("PgJobStore.lease_timeout_ms", "with_lease_timeout.pool", "with_lease_timeout.lease_timeout_ms")
async def test_the_lease_is_in_milliseconds(psql: Psql) -> None:
    async with PgJobStore.with_lease_timeout(psql.url, 300_000) as store:
        job = await store.enqueue({}, SEND)
        await claim_one(store)
        psql.pass_time("299 seconds")
        assert await store.reclaim_expired() == 0
        psql.pass_time("2 seconds")
        assert await store.reclaim_expired() == 1
        assert row(psql, job).status == "pending"
    assert PgJobStore(psql.url).lease_timeout_ms == 60_000


# -- Maintenance Tasks


@covers("Maintenance Tasks / Reclaim Abandoned Jobs")
async def test_each_loss_of_a_job_counts_so_that_one_that_kills_its_worker_ends(store: PgJobStore, psql: Psql) -> None:
    """In the original a reclaimed job kept its count, and a job that killed its worker came back for ever."""
    job = await store.enqueue({}, JobSpec("send", max_retries=10))
    for loss in range(3):
        psql.pass_time("10 seconds")
        assert (await claim_one(store, f"worker-{loss}")).id == job
        psql.pass_time("61 seconds")
        assert await store.reclaim_expired() == 1
    assert row(psql, job).status == "dead_letter"
    assert row(psql, job).error_message == "the node that ran it was lost"


@covers("Maintenance Tasks / Reclaim Abandoned Jobs")
async def test_a_job_that_was_reclaimed_is_held_alone(store: PgJobStore, psql: Psql) -> None:
    """If it kills its worker again, no other job is lost with it."""
    suspect = await store.enqueue({}, JobSpec("send", max_retries=10))
    await claim_one(store, "worker-1")
    psql.pass_time("61 seconds")
    assert await store.reclaim_expired() == 1
    psql.pass_time("10 seconds")
    others = {await store.enqueue({}, SEND) for _ in range(3)}
    assert [job.id for job in await store.claim_ready("worker-2", 10)] == [suspect]
    assert await store.claim_ready("worker-2", 10) == [], "nothing beside it"
    assert {job.id for job in await store.claim_ready("worker-3", 10)} == others
    await store.mark_succeeded(suspect)


@covers("Maintenance Tasks / Reclaim Abandoned Jobs")
async def test_only_workers_of_job_stores_are_reclaimed(store: PgJobStore, psql: Psql) -> None:
    psql("SELECT watchbill.register('native', '1 second')")
    psql.pass_time("1 minute")
    assert await store.reclaim_expired() == 0
    assert psql.one("SELECT state FROM watchbill.node WHERE name = 'native'") == "active"


@covers("Maintenance Tasks / Reclaim Abandoned Jobs")
async def test_a_job_that_a_watchbill_worker_does_not_know_waits_for_no_other_program(psql: Psql) -> None:
    """`unknown_type_grace` is 0 in the queue of the store, and only there."""
    async with PgJobStore(psql.url, queue="mail") as mail, PgJobStore(psql.url, queue="other") as other:
        mine, foreign = await mail.enqueue({}, SEND), await other.enqueue({}, SEND)
        epoch = psql.one("SELECT watchbill.register('native', types => '{\"another\": 1}')")
        psql(
            """SELECT watchbill.settle(%s, array_agg(c.id), array_agg(c.fence), array_agg('unsupported'::text))
            FROM watchbill.claim(%s, '{mail,other}', 2) c""",
            epoch,
            epoch,
        )
        assert await mail.reclaim_expired() == 0
        assert row(psql, mine).status == "dead_letter"
        assert row(psql, foreign).status == "pending"


@covers("Maintenance Tasks / Clean Up Old Jobs")
@shows("cleanup_succeeded.cutoff")
async def test_succeeded_jobs_that_are_older_than_the_cutoff_are_deleted(store: PgJobStore, psql: Psql) -> None:
    async with PgJobStore(psql.url, queue="mail") as mail:
        old, dead, other = await store.enqueue({}, SEND), await store.enqueue({}, SEND), await mail.enqueue({}, SEND)
        await store.claim_ready("w", 2)
        await claim_one(mail)
        await store.mark_failed(dead, "no", FailureKind.NON_RETRYABLE)
        await store.mark_succeeded(old)
        await mail.mark_succeeded(other)
        psql.pass_time("8 days")
        new = await store.enqueue({}, SEND)
        await claim_one(store)
        await store.mark_succeeded(new)
        cutoff = psql.one("SELECT watchbill.now()") - timedelta(days=7)
        assert await store.cleanup_succeeded(cutoff) == 1
        assert await store.cleanup_succeeded(cutoff) == 0
    assert {found.id for found in psql("SELECT id FROM seesaw.jobs")} == {dead, other, new}


@covers("Maintenance Tasks / Queue Statistics")
async def test_statistics_count_everything_that_is_stored(store: PgJobStore, psql: Psql) -> None:
    job = await store.enqueue({}, SEND)
    await claim_one(store)
    await store.mark_succeeded(job)
    psql.pass_time("20 days")
    await store.enqueue({}, SEND)
    stats = await store.stats()
    assert (stats.pending, stats.running, stats.succeeded, stats.dead_letter) == (1, 0, 1, 0)
