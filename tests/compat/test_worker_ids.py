"""A worker id of one facade is free in the others: `w1` of jcron, of JobForge, of seesaw, and a node of that name."""

from __future__ import annotations

import asyncio

import pytest

from tests.compat.psql import Psql
from watchbill.compat.seesaw import JobSpec, PgJobStore
from watchbill.store.facades import Facade, install_facade

pytestmark = pytest.mark.every_server


def test_each_facade_has_a_worker_of_the_same_name(psql: Psql) -> None:
    install_facade(psql.url, Facade.choose("watchbill", "seesaw"))
    psql("SELECT watchbill.register('w1')")  # a node of Watchbill, or a Job of JobSync
    psql("SELECT add_job('nightly', '0 3 * * *')")
    psql("SELECT watchbill.run_schedule('nightly')")
    report = psql.one("SELECT jobforge_enqueue_job('default', 'report', '{}')")["id"]

    async def claim_from_seesaw() -> None:
        async with PgJobStore(psql.url, queue="orders") as store:
            await store.enqueue({}, JobSpec("charge"))
            [charge] = await store.claim_ready("w1", 10)
            shown = "SELECT worker_id FROM seesaw.jobs WHERE status = 'running' AND job_type = 'charge'"
            assert psql.one(shown) == "w1"
            await store.mark_succeeded(charge.id)

    [nightly] = psql("SELECT queue_id FROM claim_next_job('w1')")
    [claimed] = psql.one("SELECT jobforge_claim_jobs('w1')")
    asyncio.run(claim_from_seesaw())
    assert (claimed["id"], claimed["locked_by"]) == (report, "w1")
    assert psql.one("SELECT locked_by FROM jobforge_jobs WHERE id = %s", report) == "w1"
    assert psql.one("SELECT worker_id FROM job_queue WHERE status = 'running'") == "w1"
    psql("SELECT update_heartbeat('w1')")
    psql("SELECT jobforge_heartbeat_job(%s, 'w1')", report)
    psql("SELECT jobforge_complete_job(%s, 'w1', 'succeeded')", report)
    assert psql.one("SELECT complete_job(%s, 'w1')", nightly.queue_id)
    assert psql.one("SELECT executed_by FROM job_execution_history") == "w1"
    shown = psql("SELECT worker_id, jobs_processed FROM worker_heartbeat WHERE worker_id = 'w1'")
    assert shown == [("w1", 1)], "once, as the worker of jcron"
