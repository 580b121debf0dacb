"""Facades for a login that is a worker and nothing else, with row security on: it needs no rights of the owner, and a
session that acts for a tenant claims and ticks for that tenant only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.role_logins import make_logins
from tests.servers import Server
from watchbill.store.facades import Facade, install_facade
from watchbill.store.install import install
from watchbill.store.tenants import enable_tenants

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def url(server: Server) -> Iterator[str]:
    """Of a worker. One facade is installed before the roles are made, the others afterwards."""
    made = server.url(server.create_database())
    install(made)
    install_facade(made, Facade.choose("watchbill", "jobforge"))
    with make_logins(server, made) as logins:
        for name in ("jcron", "seesaw"):
            install_facade(logins.url("owner"), Facade.choose("watchbill", name))
        enable_tenants(made, "watchbill")
        yield logins.url("worker")


@pytest.fixture
def worker(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def act_for(connection: Connection, tenant: str) -> None:
    connection.execute("SELECT set_config('watchbill.tenant', %s, false)", (tenant,))


def ask(connection: Connection, statement: str, *values: Any) -> Any:
    row = connection.execute(statement.encode(), values).fetchone()
    return None if row is None else row[0]


def test_a_worker_of_jobforge_claims_and_ends_jobs_of_its_tenant_only(worker: Connection) -> None:
    for tenant in ("t1", "t2"):
        for _ in range(3):
            ask(worker, "SELECT jobforge_enqueue_job(%s, 'report', '{}')", tenant)
    act_for(worker, "t2")
    jobs = ask(worker, "SELECT jobforge_claim_jobs('w9', 5)")
    assert [job["tenant_id"] for job in jobs] == ["t2"] * 3
    for job, status in zip(jobs, ("succeeded", "failed"), strict=False):
        ask(worker, "SELECT jobforge_heartbeat_job(%s, 'w9')", job["id"])
        ask(worker, "SELECT jobforge_complete_job(%s, 'w9', %s)", job["id"], status)
    assert ask(worker, "SELECT count(*) FROM jobforge_jobs WHERE type = 'report' AND status = 'succeeded'") == 1
    assert ask(worker, "SELECT jobforge_claim_jobs('w9', 5)") == []
    act_for(worker, "t1")
    with pytest.raises(psycopg.Error, match="does not hold job"):
        ask(worker, "SELECT jobforge_complete_job(%s, 'w9', 'succeeded')", jobs[2]["id"])
    act_for(worker, "")
    assert [job["tenant_id"] for job in ask(worker, "SELECT jobforge_claim_jobs('w9', 5)")] == ["t1"] * 3


def test_a_worker_of_jcron_fires_claims_and_ends_jobs_of_its_tenant_only(worker: Connection) -> None:
    for tenant in ("", "t1", "t2"):
        act_for(worker, tenant)
        ask(
            worker,
            "SELECT watchbill.add_schedule("
            "'first', at => now() - '1 s'::interval, type => 'jcron.job', queue => 'jcron')",
        )
    fired = {}
    for tenant in ("t2", "", "t1"):
        act_for(worker, tenant)
        fired[tenant] = ask(worker, "SELECT enqueue_due_jobs()")
    assert fired == {"t2": 1, "": 1, "t1": 1}
    act_for(worker, "t1")
    first = ask(worker, "SELECT queue_id FROM claim_next_job('w1')")
    act_for(worker, "t2")
    second = ask(worker, "SELECT queue_id FROM claim_next_job('w1')")
    assert ask(worker, "SELECT queue_id FROM claim_next_job('w1')") is None
    assert not ask(worker, "SELECT complete_job(%s, 'w1', 'done')", first)
    assert ask(worker, "SELECT complete_job(%s, 'w1', 'done')", second)
    act_for(worker, "t1")
    assert ask(worker, "SELECT fail_job(%s, 'w1', 'no')", first)
    act_for(worker, "")
    ask(worker, "SELECT update_heartbeat('w1')")
    assert ask(worker, "SELECT cleanup_dead_workers() + reassign_orphaned_jobs()") == 0
    assert ask(worker, "SELECT count(*) FROM job_queue") == 1


def test_a_worker_reads_every_view_of_its_facades(worker: Connection) -> None:
    views = worker.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v'"
        " AND obj_description(oid) LIKE 'Watchbill''s facade%'"
    ).fetchall()
    assert len(views) > 5
    for (view,) in views:
        worker.execute(f"SELECT * FROM {view}".encode())
