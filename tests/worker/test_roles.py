"""A worker process with the worker role and a producer with the producer role do everything that a superuser's do."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import watchbill
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.worker.conftest import Workbench
from watchbill.store.tenants import enable_tenants


@pytest.fixture
def logins(server: Server, schema_database: str) -> Iterator[Logins]:
    with make_logins(server, schema_database) as made:
        yield made


@pytest.fixture
def bench(logins: Logins) -> Iterator[Workbench]:
    """The worker's app; its connections have the worker role."""
    workbench = Workbench(logins.url("worker"), name="shop", lease=3)
    yield workbench
    workbench.app.close()


async def test_worker_runs_what_a_producer_enqueues(bench: Workbench, logins: Logins) -> None:
    producer = watchbill.App(logins.url("producer"))

    @producer.task(type="add")
    def declared(a: int, b: int) -> int:
        raise NotImplementedError

    @bench.app.task(type="add")
    async def add(a: int, b: int) -> int:
        return a + b

    jobs = [await declared.aenqueue(n, 1) for n in range(2)]
    jobs += await producer.aenqueue_many([declared.bind(n, 2) for n in range(2)])
    jobs += await watchbill.chain(declared.bind(1, 1), declared.bind(2, 2)).aenqueue()
    await bench.work_off()
    assert [await job.aresult(timeout=60) for job in jobs] == [1, 2, 2, 3, 2, 4]
    assert [attempt.outcome for attempt in await producer.jobs.aattempts(jobs[0].id)] == ["succeeded"]
    await producer.aclose()


async def test_worker_completes_in_the_transaction_of_its_handler(bench: Workbench, logins: Logins) -> None:
    with psycopg.connect(logins.owner_url) as connection:
        connection.execute("CREATE TABLE effects (n int)")
        connection.execute(f'GRANT ALL ON effects TO "{logins.database}_worker"'.encode())

    @bench.app.task
    async def write(connection: watchbill.AsyncConnection, n: int) -> None:
        await connection.execute("INSERT INTO effects VALUES (%s)", (n,))

    await write.aenqueue(7)
    await bench.work_off()
    assert bench.sql("SELECT n FROM effects") == [(7,)]


async def test_worker_declares_and_fires_schedules_and_runs_their_commands(bench: Workbench, logins: Logins) -> None:
    fired: list[str] = []

    @bench.app.task
    async def note() -> None:
        fired.append("note")

    bench.app.schedule(every=1)(note)
    with logins.connect("operator") as session:
        session.execute("SELECT watchbill.add_schedule('sql', every => '1 s', command => 'SELECT current_user')")
    answers = "SELECT result->'rows' FROM watchbill.job WHERE type = 'watchbill.sql' AND state = 'succeeded' LIMIT 1"
    async with bench.working():
        await bench.until(lambda: fired)
        assert await bench.until(lambda: bench.sql(answers)) == [([[f"{logins.database}_worker"]],)]


async def test_chores_of_a_node_run_with_the_worker_role(
    bench: Workbench, logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    """Partitions above all: they are made and dropped as the owner."""
    bench.sql("SELECT watchbill.make_partitions(days => 9)")
    bench.sql("SELECT watchbill.prune_slots('40 days'), watchbill.prune_keys(), watchbill.sweep_claims()")
    with psycopg.connect(logins.owner_url, autocommit=True) as owner:
        owner.execute("SELECT watchbill.make_partitions(days => 1, now => now() - interval '5 days')")
    ((dropped,),) = bench.sql("SELECT done FROM watchbill.prune_history('attempts', '1 hour')")
    assert dropped.startswith("attempts_2")
    owners = bench.sql(
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace"
    )
    assert owners == [(f"{logins.prefix}_owner",)]
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.node WHERE beats > 0"))
    assert [record.message for record in caplog.records if "denied" in record.getMessage()] == []


async def test_handler_enqueues_for_the_tenant_of_its_job(bench: Workbench, logins: Logins) -> None:
    enable_tenants(logins.owner_url, "watchbill")

    @bench.app.task
    async def follow() -> str:
        return watchbill.current_job().tenant

    @bench.app.task
    async def lead() -> None:
        await follow.aenqueue()
        await follow.using(tenant="other").aenqueue()

    await lead.using(tenant="acme").aenqueue()
    await bench.work_off()
    found = bench.sql("SELECT type, tenant, result FROM watchbill.job ORDER BY seq")
    assert [(tenant, result) for _, tenant, result in found] == [("acme", None), ("acme", "acme"), ("other", "other")]
