"""JobForge's runbook on Watchbill: each heading by its own names, in SQL, in Python and as a worker."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.compat.psql import Psql
from tests.compat.walk import Document, Statement, covers, find_seeds, shows
from tests.servers import Server
from tests.waiting import until
from watchbill import App
from watchbill.compat import jobforge
from watchbill.compat.jobforge import JobForgeClient, add_cleanup_task, make_worker, read_environment
from watchbill.errors import SchemaError, SettingsError, WatchbillError
from watchbill.node import Node
from watchbill.settings import Settings
from watchbill.store.roles import create_roles
from watchbill.worker.notifications import Listener

pytestmark = pytest.mark.every_server

RUNBOOK = Document.load("003")
ME = sys.modules[__name__]
TENANT = "3f0c8d5e-1111-4222-8333-444455556666"
VARIABLES = {
    "POLL_INTERVAL_MS", "MAX_POLL_INTERVAL_MS", "IDLE_BACKOFF_MULTIPLIER", "HEARTBEAT_INTERVAL_MS",
    "HEARTBEAT_MAX_INTERVAL_MS", "HEARTBEAT_BACKOFF_MULTIPLIER", "WORKER_ID", "SUPABASE_URL",
}  # fmt: skip


def enqueue(psql: Psql, type: str = "report", tenant: str = TENANT, **more: Any) -> str:
    names = "".join(f", {name} => %s" for name in more)
    job = psql.one(f"SELECT jobforge_enqueue_job(%s, %s, '{{}}'{names})", tenant, type, *more.values())
    return str(job["id"])


def claim(psql: Psql, worker: str = "w1", limit: int = 10) -> list[dict[str, Any]]:
    return list(psql.one("SELECT jobforge_claim_jobs(%s, %s)", worker, limit))


def end(psql: Psql, job: str, status: str = "succeeded", worker: str = "w1", message: str = "boom") -> None:
    error = None if status == "succeeded" else json.dumps({"message": message})
    psql("SELECT jobforge_complete_job(%s, %s, %s, %s)", job, worker, status, error)


def one_of_each(psql: Psql) -> dict[str, str]:
    """A job in each status."""
    jobs = {
        "succeeded": enqueue(psql),
        "failed": enqueue(psql, "connector.http.request"),
        "dead": enqueue(psql, p_max_attempts=1),
    }
    claim(psql)
    for status, job in jobs.items():
        end(psql, job, "succeeded" if status == "succeeded" else "failed")
    jobs["running"] = enqueue(psql)
    claim(psql)
    jobs["queued"], jobs["canceled"] = enqueue(psql), enqueue(psql)
    psql("SELECT jobforge_cancel_job(%s, %s)", jobs["canceled"], TENANT)
    return jobs


def claim_one(psql: Psql) -> str:
    """A job that w1 holds."""
    job = enqueue(psql)
    claim(psql)
    return job


def status_of(psql: Psql, job: str) -> str:
    return str(psql.one("SELECT status FROM jobforge_jobs WHERE id = %s", job))


@pytest.fixture
def client(psql: Psql) -> Iterator[JobForgeClient]:
    client = JobForgeClient(psql.url)
    yield client
    client.close()


# -- the walk


def test_the_runbook_runs_as_it_stands_twice_without_doubling_anything(
    psql: Psql, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = one_of_each(psql)
    ids = {"stuck-job-uuid": jobs["running"], "tenant-uuid": TENANT, "job-uuid": jobs["dead"]}

    def run(statement: Statement) -> object:
        if statement.language == "sql":
            text = statement.text.replace(":heartbeat_interval_seconds", "30")
            for placeholder, value in ids.items():
                text = text.replace(f"'{placeholder}'", f"'{value}'")
            return psql(text)
        exported = dict(re.findall(r"^(?:export )?([A-Z_]+)=(.*)$", statement.text, re.MULTILINE))
        assert exported, f"nothing to run: {statement}"
        if "DATABASE_URL" in exported:
            address = exported["DATABASE_URL"].replace("[PROJECT]", "project").replace("[PASSWORD]", "secret")
            monkeypatch.setenv("DATABASE_URL", address)
            assert Settings.load().database_url == address
            monkeypatch.delenv("DATABASE_URL")
        else:
            assert set(exported) <= VARIABLES
            assert read_environment(exported)
        return exported

    RUNBOOK.walk(run)
    everything = "SELECT id, status FROM jobforge_jobs ORDER BY id"
    first = psql(everything)
    assert [row.status for row in first].count("queued") == 4, "stuck, dead, failed and queued"
    RUNBOOK.walk(run)
    assert psql(everything) == first
    assert {str(row.id) for row in first} == set(jobs.values())


def test_every_heading_is_covered() -> None:
    RUNBOOK.check_headings(ME)


def test_every_parameter_has_an_effect(psql: Psql) -> None:
    found = psql(
        "SELECT p.proname, a.name FROM pg_proc p CROSS JOIN LATERAL unnest(p.proargnames, p.proargmodes) a(name, mode) "
        "WHERE obj_description(p.oid, 'pg_proc') LIKE %s AND p.proname NOT LIKE %s "
        "AND coalesce(a.mode, 'i') = 'i'",
        "%facade jobforge%",
        r"jobforge\_\_%",
    )
    methods = {
        f"JobForgeClient.{name}.{parameter}"
        for name, method in vars(JobForgeClient).items()
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")) and name == name.lower()
        for parameter in inspect.signature(method).parameters
        if parameter != "self"
    }
    parameters = {f"{row.proname}.{row.name}" for row in found} | methods | VARIABLES | {"--once", "--interval"}
    RUNBOOK.check_parameters(parameters, ME)


# -- Monitoring


@covers("Monitoring / Key Metrics")
def test_throughput_times_and_failure_rates_are_right(psql: Psql) -> None:
    """The original takes the start of the first attempt, which makes every duration wrong."""
    psql.pass_time("-2 hours")
    retried = enqueue(psql, "report")
    dead = enqueue(psql, "mail", p_max_attempts=1)
    waits = enqueue(psql, "mail")
    claim(psql)
    end(psql, retried, "failed")
    end(psql, dead, "failed")
    end(psql, waits, "failed")
    psql.pass_time("1 hour")
    claim(psql)
    end(psql, retried)

    throughput = psql(
        "SELECT status, count(*) FROM jobforge_jobs WHERE created_at > NOW() - INTERVAL '24 hours' GROUP BY 1"
    )
    assert {row.status: row.count for row in throughput} == {"succeeded": 1, "dead": 1, "running": 1}
    duration = "EXTRACT(EPOCH FROM (finished_at - started_at))"
    assert psql.one(f"SELECT {duration} FROM jobforge_jobs WHERE status = 'succeeded'") < 60
    end(psql, waits, "failed")
    rates = psql(
        "SELECT type, COUNT(*) FILTER (WHERE status = 'failed'), COUNT(*) FILTER (WHERE status = 'dead') AS dead "
        "FROM jobforge_jobs WHERE finished_at > NOW() - INTERVAL '1 day' GROUP BY type ORDER BY type"
    )
    assert [tuple(row) for row in rates] == [("mail", 1, 1), ("report", 0, 0)]


# -- Troubleshooting


@covers("Troubleshooting / Stuck Jobs")
def test_a_stuck_job_is_found_and_reset(psql: Psql) -> None:
    psql.pass_time("-2 hours")
    job = enqueue(psql)
    claim(psql)
    psql.pass_time("2 hours")
    stuck = (
        "SELECT id, locked_by FROM jobforge_jobs WHERE status = 'running' AND started_at < NOW() - INTERVAL '1 hour'"
    )
    assert [(str(row.id), row.locked_by) for row in psql(stuck)] == [(job, "w1")]

    psql(
        "UPDATE jobforge_jobs SET status = 'queued', locked_by = NULL, locked_at = NULL, run_at = NOW() WHERE id = %s",
        job,
    )
    assert psql(stuck) == []
    with pytest.raises(psycopg.Error) as late:
        end(psql, job)
    assert late.value.sqlstate == "WB007"
    assert psql.one("SELECT count(*) FROM watchbill.audit WHERE action = 'release'") == 1
    assert psql.one("SELECT jobforge_claim_jobs('w2', 1)")[0]["attempts"] == 1, "a reset costs no attempt"


def test_a_query_for_running_jobs_does_not_read_the_others(psql: Psql) -> None:
    psql('SELECT watchbill.enqueue_many((SELECT jsonb_agg(\'{"type": "x"}\'::jsonb) FROM generate_series(1, 5000)))')
    psql("ANALYZE watchbill.jobs")
    enqueue(psql)
    claim(psql)
    [(plan,)] = psql("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM jobforge_jobs WHERE status = 'running'")
    read = [int(rows) for rows in re.findall(r"'Actual Rows': (\d+)", str(plan))]
    assert max(read) < 100


@covers("Troubleshooting / Dead Letter Queue")
@shows(
    "jobforge_reschedule_job.p_job_id", "jobforge_reschedule_job.p_tenant_id", "jobforge_reschedule_job.p_run_at"
)  # fmt: skip
def test_dead_jobs_are_listed_grouped_and_rescheduled_with_all_their_attempts(psql: Psql) -> None:
    """In the original a rescheduled job keeps its attempts, and so dies at once."""
    jobs = [enqueue(psql, p_max_attempts=2) for _ in range(3)]
    for _ in range(2):
        claim(psql)
        for job in jobs:
            end(psql, job, "failed", message="no disk" if job == jobs[0] else "boom")
        psql.pass_time("10 seconds")
    groups = psql(
        "SELECT error->>'message', COUNT(*) FROM jobforge_jobs WHERE status = 'dead' GROUP BY 1 ORDER BY 2 DESC"
    )
    assert [tuple(row) for row in groups] == [("boom", 2), ("no disk", 1)]
    native = psql("SELECT message, count FROM watchbill.dead_groups() ORDER BY count DESC")
    assert [tuple(row) for row in native] == [tuple(row) for row in groups]

    psql("SELECT jobforge_reschedule_job(%s::uuid, %s::uuid, NOW())", jobs[0], TENANT)
    psql("SELECT jobforge_reschedule_job(%s::uuid, %s::text, NOW() + INTERVAL '1 hour')", jobs[1], TENANT)
    [again] = claim(psql)
    assert (again["id"], again["attempts"]) == (jobs[0], 1)
    end(psql, jobs[0], "failed")
    assert status_of(psql, jobs[0]) == "failed", "it has another attempt"
    for other, tenant, why in ((jobs[2], "other", "has no job"), (str(uuid4()), TENANT, "has no job")):
        with pytest.raises(psycopg.Error, match=why):
            psql("SELECT jobforge_reschedule_job(%s::uuid, %s, NOW())", other, tenant)
    done = enqueue(psql)
    claim(psql)
    end(psql, done)
    with pytest.raises(psycopg.Error, match="is succeeded and cannot be rescheduled"):
        psql("SELECT jobforge_reschedule_job(%s::uuid, %s, NOW())", done, TENANT)


@covers("Troubleshooting / Worker Health")
@shows("jobforge_heartbeat_job.p_job_id", "jobforge_heartbeat_job.p_worker_id")
def test_workers_and_their_heartbeats_are_shown(psql: Psql) -> None:
    job = enqueue(psql)
    enqueue(psql)
    claim(psql)
    activity = (
        "SELECT locked_by, COUNT(*), MAX(heartbeat_at) AS beat FROM jobforge_jobs WHERE status = 'running' GROUP BY 1"
    )
    [before] = psql(activity)
    assert (before.locked_by, before.count) == ("w1", 2)
    psql.pass_time("1 minute")
    psql("SELECT jobforge_heartbeat_job(%s::uuid, 'w1')", job)
    [after] = psql(activity)
    assert after.beat - before.beat >= timedelta(minutes=1)
    for wrong in ((str(uuid4()), "w1"), (job, "w2")):
        with pytest.raises(psycopg.Error) as refused:
            psql("SELECT jobforge_heartbeat_job(%s::uuid, %s)", *wrong)
        assert refused.value.sqlstate == "WB007"


@covers("Troubleshooting / Worker Health")
def test_heartbeat_budgets_and_crashed_workers_are_found(psql: Psql) -> None:
    """With one heartbeat for each job and 30 seconds, as the runbook counts."""
    for tenant, count in (("acme", 3), ("other", 1)):
        for _ in range(count):
            enqueue(psql, tenant=tenant)
    claim(psql, "w1", 2)
    claim(psql, "w2", 2)
    budget = "count(*) AS running_jobs, ROUND(count(*) * 60.0 / 30, 2) AS expected_heartbeats_per_min"
    alive = "FROM jobforge_jobs WHERE status = 'running' AND heartbeat_at > NOW() - INTERVAL '5 minutes'"
    by_tenant = psql(f"SELECT tenant_id, {budget} {alive} GROUP BY tenant_id ORDER BY 3 DESC")
    assert [tuple(row) for row in by_tenant] == [("acme", 3, 6), ("other", 1, 2)]
    assert psql(f"SELECT {budget} {alive}") == [(4, 8)]
    crashed = (
        "SELECT locked_by, COUNT(*) FROM jobforge_jobs "
        "WHERE status = 'running' AND heartbeat_at < NOW() - INTERVAL '5 minutes' GROUP BY locked_by"
    )
    assert psql(crashed) == []
    psql(
        "UPDATE watchbill.beats b SET at = at - interval '6 minutes' FROM watchbill.nodes n "
        "WHERE n.epoch = b.epoch AND n.name = 'w1@jobforge'"
    )
    assert psql(crashed) == [("w1", 2)]
    assert psql(f"SELECT {budget} {alive}") == [(2, 4)]


def test_the_jobs_of_a_crashed_worker_come_back_by_themselves(psql: Psql) -> None:
    """In the original nothing ever reclaims a stale job."""
    job = enqueue(psql)
    claim(psql)
    psql.pass_time("4 minutes")
    assert claim(psql, "w2") == []
    psql.pass_time("2 minutes")
    reclaimed = claim(psql, "w2")
    psql.pass_time("1 minute")  # a reclaimed job waits for up to a second
    [again] = reclaimed or claim(psql, "w2")
    assert (again["id"], again["locked_by"]) == (job, "w2")
    with pytest.raises(psycopg.Error, match="does not hold job"):
        end(psql, job)
    end(psql, job, worker="w2")
    assert status_of(psql, job) == "succeeded"


# -- Scaling


@covers("Scaling / Horizontal (Workers)", "Performance Tuning / Optimize Claim Query")
@shows("jobforge_claim_jobs.p_worker_id", "jobforge_claim_jobs.p_limit")
def test_workers_claim_different_jobs(psql: Psql) -> None:
    jobs = {enqueue(psql) for _ in range(5)}
    later = enqueue(psql, p_run_at=datetime.now(UTC) + timedelta(hours=1))
    claim(psql, "w2", 0)
    with psql.begin() as other:
        first = claim(other, "w1", 2)
        second = claim(psql, "w2", 2)
        assert (len(first), len(second)) == (2, 2)
        assert {job["id"] for job in first}.isdisjoint(job["id"] for job in second)
        assert {job["locked_by"] for job in second} == {"w2"}
    rest = claim(psql, "w2")
    assert {job["id"] for job in rest + second} == jobs
    assert status_of(psql, later) == "queued"


@covers("Scaling / Vertical (Database)")
def test_history_is_partitioned_by_date_and_can_be_read_in_a_read_only_session(psql: Psql) -> None:
    partitioned = "SELECT relkind FROM pg_class WHERE oid = %s::regclass"
    assert {psql.one(partitioned, f"watchbill.{name}") for name in ("finished_jobs", "attempts")} == {"p"}
    one_of_each(psql)
    psql("SET default_transaction_read_only = on")
    assert psql.one("SELECT count(*) FROM jobforge_jobs") == 6
    assert psql.one("SELECT count(*) FROM jobforge_job_attempts") == 3


# -- Cost Controls


@covers("Cost Controls / Idle Polling Backoff (Worker)")
@shows("POLL_INTERVAL_MS", "MAX_POLL_INTERVAL_MS", "IDLE_BACKOFF_MULTIPLIER")
@pytest.mark.parametrize(
    ("first", "longest", "multiplier", "measured"),
    [("1000", "20000", "3", [1, 3, 9, 20, 20]), ("2000", "10000", "2", [2, 4, 8, 10, 10])],
)
def test_an_idle_worker_behind_a_pooler_pauses_as_the_variables_say(
    psql: Psql, monkeypatch: pytest.MonkeyPatch, first: str, longest: str, multiplier: str, measured: list[float]
) -> None:
    """The runbook's own address leads to a pooler, through which no notification can arrive."""
    pauses: list[float] = []

    async def pause(listener: Listener, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(measured):
            node.drain()
        await asyncio.sleep(0)

    async def open_nothing(listener: Listener) -> None:
        listener.is_unavailable = True

    monkeypatch.setattr(Listener, "wait_for_jobs", pause)
    monkeypatch.setattr(Listener, "open", open_nothing)
    given = {"POLL_INTERVAL_MS": first, "MAX_POLL_INTERVAL_MS": longest, "IDLE_BACKOFF_MULTIPLIER": multiplier}
    app = App(psql.url, name="shop")
    node = make_worker(app, given)
    asyncio.run(node.run())
    app.close()
    assert pauses[: len(measured)] == measured
    with pytest.raises(SettingsError, match="POLL_INTERVAL_MS='soon' is invalid"):
        read_environment({"POLL_INTERVAL_MS": "soon"})


@shows("WORKER_ID")
def test_the_worker_has_the_name_of_its_variable_and_serves_the_queue(psql: Psql) -> None:
    app = App(psql.url, name="shop")
    config = make_worker(app, {"WORKER_ID": "one"}).config
    assert (config.name, config.queues[0]) == ("one", "jobforge")
    plain = make_worker(app, {}).config
    assert plain.name != "one"
    assert (plain.poll_interval, plain.poll_max_interval, plain.poll_multiplier) == (0.1, 5, 2)


@covers("Cost Controls / Heartbeat Backoff (Worker)")
@shows("HEARTBEAT_INTERVAL_MS")
def test_the_worker_sends_heartbeats_as_often_as_its_variable_says(psql: Psql) -> None:
    """Without it, there would be a heartbeat every 100 seconds: three in the five minutes after which it is stale."""
    app = App(psql.url, name="shop")
    assert make_worker(app, {}).config.lease == 300, "stale after five minutes"
    assert make_worker(app, {"HEARTBEAT_INTERVAL_MS": "30000"}).config.lease == 300
    assert make_worker(app, {"HEARTBEAT_INTERVAL_MS": "120000"}).config.lease == 360, "no sooner than three are missing"

    async def count_heartbeats(node: Node) -> None:
        running = asyncio.create_task(node.run())
        beats = "SELECT coalesce(max(n), 0) >= 5 FROM watchbill.beats"
        await asyncio.to_thread(until, lambda: bool(psql.one(beats)), 30)
        node.drain()
        await running

    asyncio.run(count_heartbeats(make_worker(app, {"HEARTBEAT_INTERVAL_MS": "20"})))
    app.close()


@shows("--once", "--interval")
def test_the_worker_command_runs_jobs_until_none_is_left(psql: Psql, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from watchbill import App\napp = App(name='shop')\n\n"
        "@app.task(type='greet', queue='jobforge')\ndef greet(name: str) -> str:\n    return 'hello ' + name\n"
    )
    job = JobForgeClient(psql.url).enqueue_job(tenant_id=TENANT, type="greet", payload={"name": "you"})
    command = [sys.executable, "-m", "watchbill.compat.jobforge", "shop:app", "--once", "--interval=50"]
    environment = {"DATABASE_URL": psql.url, "PATH": "/usr/bin:/bin", "WORKER_ID": "w7"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert psql.one("SELECT result FROM jobforge_job_results WHERE job_id = %s", job["id"]) == "hello you"
    assert psql.one("SELECT name FROM watchbill.nodes") == "w7"
    assert read_environment({"POLL_INTERVAL_MS": "2000"}, 50)["poll_interval"] == 0.05
    command[-3] = "shop:nothing"
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 4
    assert "There is no App at 'shop:nothing'" in refused.stderr


# -- Maintenance


@covers("Maintenance / Purge Old Jobs")
def test_old_jobs_are_deleted_and_unfinished_ones_are_not(psql: Psql) -> None:
    psql.pass_time("-100 days")
    jobs = one_of_each(psql)
    psql.pass_time("60 days")
    psql("DELETE FROM jobforge_jobs WHERE status = 'succeeded' AND finished_at < NOW() - INTERVAL '30 days'")
    psql("DELETE FROM jobforge_jobs WHERE status IN ('failed', 'dead') AND finished_at < NOW() - INTERVAL '90 days'")
    assert psql.notices == [f"job {jobs['failed']} has failed and has attempts left, so it is not deleted"]
    left = {str(row.id) for row in psql("SELECT id FROM jobforge_jobs")}
    assert set(jobs.values()) - left == {jobs["succeeded"], jobs["dead"]}
    assert psql.one("SELECT count(*) FROM jobforge_job_attempts") == 1
    for status in ("queued", "running"):
        with pytest.raises(psycopg.Error, match=f"is {status}: only finished jobs can be deleted"):
            psql("DELETE FROM jobforge_jobs WHERE status = %s", status)


def test_the_cleanup_job_of_the_runbook_deletes_old_jobs(psql: Psql) -> None:
    app = App(psql.url, name="shop")
    add_cleanup_task(app)
    add_cleanup_task(app)
    psql.pass_time("-20 days")
    old = {tenant: enqueue(psql, tenant=tenant) for tenant in ("acme", "other")}
    claim(psql)
    for job in old.values():
        end(psql, job)
    psql.pass_time("20 days")
    client = JobForgeClient(app=app)
    for tenant, left in (("acme", {old["other"]}), ("system", set())):
        given = {
            "tenant_id": tenant,
            "type": "system.cleanup.old_jobs",
            "payload": {"days_to_keep": 10},
            "idempotency_key": f"cleanup-{datetime.now(UTC).date()}",
        }
        first = client.enqueueJob(given)
        assert client.enqueueJob(given)["id"] == first["id"], "once a day"
        asyncio.run(make_worker(app, {}, once=True).run())
        assert {str(row.id) for row in psql("SELECT id FROM jobforge_jobs WHERE type = 'report'")} == left
    app.close()


@covers("Maintenance / Vacuum & Analyze")
def test_autovacuum_is_set_for_the_tables_behind_the_views(psql: Psql) -> None:
    options = psql.one("SELECT reloptions FROM pg_class WHERE oid = 'watchbill.jobs'::regclass")
    assert any(option.startswith("autovacuum_vacuum_scale_factor") for option in options)
    psql("VACUUM ANALYZE watchbill.jobs, watchbill.finished_jobs, watchbill.attempts")


# -- Backfills


@covers("Backfills / Reprocess Failed Jobs")
def test_failed_jobs_of_a_type_are_queued_again(psql: Psql) -> None:
    wanted, other = enqueue(psql, "connector.http.request"), enqueue(psql, "other")
    claim(psql)
    end(psql, wanted, "failed")
    end(psql, other, "failed")
    psql(
        "UPDATE jobforge_jobs SET status = 'queued', run_at = NOW(), locked_by = NULL, locked_at = NULL, attempts = 0 "
        "WHERE status = 'failed' AND type = 'connector.http.request' AND created_at > NOW() - INTERVAL '1 day'"
    )
    assert (status_of(psql, wanted), status_of(psql, other)) == ("queued", "failed")
    [again] = claim(psql)
    assert (again["id"], again["attempts"]) == (wanted, 1)


@covers("Backfills / Bulk Enqueue")
@shows("JobForgeClient.enqueue_jobs.jobs")
def test_many_jobs_are_enqueued_in_one_call_and_once(psql: Psql, client: JobForgeClient) -> None:
    items = [
        {
            "tenant_id": TENANT,
            "type": "backfill.process_item",
            "payload": {"item_id": n},
            "idempotency_key": f"backfill-{n}",
        }
        for n in range(20)
    ]
    first = client.enqueue_jobs(items)
    assert [job["payload"]["item_id"] for job in first] == list(range(20))
    assert client.enqueueJobs(items) == client.enqueueJobs({"jobs": items}) == first
    assert psql.one("SELECT count(*) FROM jobforge_jobs") == 20
    assert client.enqueue_jobs([]) == []


# -- Disaster Recovery


@covers("Disaster Recovery / Database Backup", "Disaster Recovery / Restore")
def test_the_facade_can_be_made_again_from_its_record(psql: Psql) -> None:
    """A dump of the engine's schema has the jobs, and the row that says which facades there were."""
    from watchbill.store.facades import refresh_facades

    job = enqueue(psql)
    psql("DROP VIEW jobforge_jobs, jobforge_job_results, jobforge_job_attempts")
    refresh_facades(psql.url, "watchbill")
    assert status_of(psql, job) == "queued"


def test_connector_configs_show_endpoints_and_a_request_runs(psql: Psql) -> None:
    psql(
        """SELECT watchbill.set_endpoint('crm', '{"base_url": "https://api.example.com", "max": 3,
      "auth": {"kind": "bearer", "secret": "env:WATCHBILL_SECRET_CRM"}}', %s)""",
        TENANT,
    )
    found = psql("SELECT tenant_id, name, connector_type, config->>'base_url', enabled FROM jobforge_connector_configs")
    assert found == [(TENANT, "crm", "http", "https://api.example.com", True)]
    for statement in ("UPDATE jobforge_connector_configs SET name = 'x'", "DELETE FROM jobforge_connector_configs"):
        with pytest.raises(psycopg.Error, match="jobforge_connector_configs cannot be changed"):
            psql(statement)
    job = enqueue(psql, "connector.http.request")
    assert psql.one("SELECT payload->>'receiver' FROM watchbill.jobs WHERE id = %s", job) == ""


@covers("Disaster Recovery / Database Backup")
def test_a_dump_of_the_relations_has_no_jobs_and_one_of_the_schemas_has(psql: Psql, server: Server) -> None:
    """The runbook's own command ends without an error, so a person learns of it only after a disaster."""
    job = enqueue(psql)

    def dump(*options: str) -> str:
        command = [str(server.binaries.directory / "pg_dump"), *options, psql.url]
        return str(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

    relations = ("jobs", "job_results", "job_attempts", "connector_configs")
    by_the_runbook = dump(*(word for name in relations for word in ("-t", f"jobforge_{name}")))
    assert "CREATE VIEW public.jobforge_jobs" in by_the_runbook
    assert "COPY" not in by_the_runbook
    assert job in dump("-n", "watchbill", "-n", "jcron")


# -- Performance Tuning


@covers("Performance Tuning / Connection Pooling")
@shows("JobForgeClient.__init__.database_url", "JobForgeClient.__init__.app")
def test_the_address_comes_from_the_argument_the_app_or_the_environment(
    psql: Psql, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"tenant_id": TENANT, "type": "a", "payload": {}}
    monkeypatch.setenv("DATABASE_URL", psql.url)
    app = App(psql.url, name="shop")
    for client in (JobForgeClient(), JobForgeClient(psql.url), JobForgeClient(app=app)):
        assert client.enqueue_job(**given)["status"] == "queued"
        client.close()
    with pytest.raises(SettingsError, match="not both"):
        JobForgeClient(psql.url, app=app)
    with pytest.raises(WatchbillError):
        JobForgeClient(psql.url + "_missing").enqueue_job(**given)


@covers("Performance Tuning / Payload Optimization")
def test_a_large_payload_is_refused_with_advice(client: JobForgeClient) -> None:
    with pytest.raises(WatchbillError, match="the limit is 100000: store it elsewhere and send a reference"):
        client.enqueue_job(tenant_id=TENANT, type="a", payload={"large_data": "x" * 150_000})
    assert client.enqueueJob(tenant_id=TENANT, type="a", payload={"data_ref": "s3://bucket/x"})["id"]


def test_a_client_without_the_facade_says_what_to_run(psql: Psql) -> None:
    from watchbill.store.facades import uninstall_facade

    uninstall_facade(psql.url, "watchbill", "jobforge")
    with pytest.raises(SchemaError, match="is not installed"):
        JobForgeClient(psql.url).list_jobs(TENANT)


# -- the functions of JobForge


@shows(
    "jobforge_enqueue_job.p_tenant_id", "jobforge_enqueue_job.p_type", "jobforge_enqueue_job.p_payload",
    "jobforge_enqueue_job.p_idempotency_key", "jobforge_enqueue_job.p_run_at", "jobforge_enqueue_job.p_max_attempts",
    "JobForgeClient.enqueue_job.tenant_id", "JobForgeClient.enqueue_job.type", "JobForgeClient.enqueue_job.payload",
    "JobForgeClient.enqueue_job.idempotency_key", "JobForgeClient.enqueue_job.run_at",
    "JobForgeClient.enqueue_job.max_attempts",
)  # fmt: skip
def test_enqueue_returns_the_job_and_a_repeated_key_returns_the_first(psql: Psql, client: JobForgeClient) -> None:
    """The original fails on every call: a deferrable constraint cannot arbitrate ON CONFLICT."""
    run_at = datetime.now(UTC) + timedelta(hours=1)
    given: dict[str, Any] = {"tenant_id": TENANT, "type": "a", "payload": {"n": 1}, "idempotency_key": "k"}
    job = client.enqueue_job(**given, run_at=run_at, max_attempts=2)
    assert (job["tenant_id"], job["type"], job["payload"], job["status"]) == (TENANT, "a", {"n": 1}, "queued")
    assert (job["max_attempts"], datetime.fromisoformat(job["run_at"])) == (2, run_at)
    assert client.enqueue_job(**given)["id"] == job["id"]
    assert client.enqueue_job(**{**given, "tenant_id": "system"})["id"] != job["id"]
    assert client.enqueue_job(**{**given, "type": "b"})["max_attempts"] == 5
    row = psql.one("SELECT to_jsonb(j) FROM jobforge_jobs j WHERE id = %s", job["id"])
    assert row == job
    by_sql = psql.one(
        "SELECT jobforge_enqueue_job(%s::uuid, 'c', '{\"n\": 2}', 'k2', NOW() + INTERVAL '1 hour', 3)", TENANT
    )
    assert (by_sql["payload"], by_sql["idempotency_key"], by_sql["max_attempts"]) == ({"n": 2}, "k2", 3)
    assert by_sql["run_at"] > by_sql["created_at"]
    inserted = psql(
        "INSERT INTO jobforge_jobs (tenant_id, type, payload) VALUES ('t', 'd', '{}') RETURNING id, status"
    )[0]
    assert status_of(psql, str(inserted.id)) == inserted.status == "queued"


def test_a_job_waits_one_two_four_seconds_and_never_overflows(psql: Psql) -> None:
    """The original computes power(2, attempts)::int, which overflows: then the job can never be failed."""
    job = enqueue(psql, p_max_attempts=60)
    waits = []
    for _ in range(40):
        claim(psql)
        end(psql, job, "failed")
        waits.append(psql.one("SELECT extract(epoch FROM run_at - finished_at) FROM jobforge_jobs"))
        psql.pass_time("1 hour")
        psql("SELECT watchbill.promote()")
    assert waits[:4] == [1, 2, 4, 8]
    assert set(waits[12:]) == {3600}
    assert psql.one("SELECT count(*) FROM jobforge_job_attempts") == 40


@shows(
    "jobforge_complete_job.p_job_id", "jobforge_complete_job.p_worker_id", "jobforge_complete_job.p_status",
    "jobforge_complete_job.p_error", "jobforge_complete_job.p_result", "jobforge_complete_job.p_artifact_ref",
    "JobForgeClient.complete_job.job_id", "JobForgeClient.complete_job.worker_id",
    "JobForgeClient.complete_job.status", "JobForgeClient.complete_job.error", "JobForgeClient.complete_job.result",
    "JobForgeClient.complete_job.artifact_ref", "JobForgeClient.claim_jobs.worker_id",
    "JobForgeClient.claim_jobs.limit", "JobForgeClient.heartbeat_job.job_id",
    "JobForgeClient.heartbeat_job.worker_id", "JobForgeClient.get_result.job_id",
    "JobForgeClient.get_result.tenant_id", "JobForgeClient.get_job.job_id", "JobForgeClient.get_job.tenant_id",
)  # fmt: skip
def test_a_worker_of_the_client_ends_jobs(psql: Psql, client: JobForgeClient) -> None:
    good, bad = (client.enqueue_job(tenant_id=TENANT, type="a", payload={})["id"] for _ in range(2))
    assert [job["id"] for job in client.claim_jobs("w1", 1)] == [good]
    assert [job["id"] for job in client.claim_jobs("w1")] == [bad]
    client.heartbeat_job(good, "w1")
    with pytest.raises(WatchbillError):
        client.heartbeat_job(good, "w2")
    client.complete_job(good, "w1", "succeeded", result={"rows": 3}, artifact_ref="s3://bucket/a.csv")
    client.complete_job(bad, "w1", "failed", error={"message": "no disk", "code": 7})
    with pytest.raises(WatchbillError, match="does not hold"):
        client.complete_job(good, "w1", "succeeded")
    with pytest.raises(WatchbillError, match="does not hold"):
        client.complete_job(bad, "w2", "failed")

    result = client.get_result(good, TENANT)
    assert result is not None
    assert (result["result"], result["artifact_ref"], result["job_id"]) == ({"rows": 3}, "s3://bucket/a.csv", good)
    assert client.get_result(bad, TENANT) is None
    assert client.get_result(good, "other") is None
    found = client.get_job(bad, TENANT)
    assert found is not None
    assert (found["status"], found["attempts"], found["error"]) == ("failed", 1, {"message": "no disk", "code": 7})
    assert client.get_job(bad, "other") is None
    assert client.getJob({"job_id": good, "tenant_id": TENANT})["result_id"] == good
    attempts = psql("SELECT attempt_no, error->>'code' AS code FROM jobforge_job_attempts ORDER BY code")
    assert [tuple(row) for row in attempts] == [(1, "7"), (1, None)]
    enqueue(psql)
    [running] = client.claim_jobs("w1")
    with pytest.raises(WatchbillError, match="Status 'done' is invalid"):
        client.complete_job(running["id"], "w1", "done")


@shows(
    "jobforge_cancel_job.p_job_id", "jobforge_cancel_job.p_tenant_id", "JobForgeClient.cancel_job.job_id",
    "JobForgeClient.cancel_job.tenant_id",
)  # fmt: skip
def test_a_canceled_job_stays_canceled(psql: Psql, client: JobForgeClient) -> None:
    """In the original, failing a canceled job queues it again."""
    running, queued = enqueue(psql), enqueue(psql)
    claim(psql, limit=1)
    with pytest.raises(psycopg.Error, match="has no job"):
        psql("SELECT jobforge_cancel_job(%s, 'other')", running)
    client.cancel_job(queued, TENANT)
    psql("SELECT jobforge_cancel_job(%s, %s::uuid)", running, TENANT)
    with pytest.raises(psycopg.Error, match="does not hold job"):
        end(psql, running, "failed")
    assert {status_of(psql, job) for job in (running, queued)} == {"canceled"}
    with pytest.raises(WatchbillError, match="is canceled and cannot be canceled"):
        client.cancel_job(queued, TENANT)
    assert claim(psql) == []


@shows(
    "jobforge_list_jobs.p_tenant_id", "jobforge_list_jobs.p_filters", "JobForgeClient.list_jobs.tenant_id",
    "JobForgeClient.list_jobs.filters", "JobForgeClient.reschedule_job.job_id",
    "JobForgeClient.reschedule_job.tenant_id", "JobForgeClient.reschedule_job.run_at",
)  # fmt: skip
def test_jobs_of_a_tenant_are_listed_with_filters(psql: Psql, client: JobForgeClient) -> None:
    jobs = one_of_each(psql)
    other = enqueue(psql, "mail", tenant="other")
    assert {job["id"] for job in client.list_jobs(TENANT)} == set(jobs.values())
    assert [job["id"] for job in client.list_jobs("other")] == [other]
    for status, job in jobs.items():
        assert [found["id"] for found in client.list_jobs(TENANT, {"status": status})] == [job]
    assert client.list_jobs(TENANT, {"type": "mail"}) == []
    with pytest.raises(WatchbillError, match="There is no filter 'state'"):
        client.list_jobs(TENANT, {"state": "queued"})
    newest = [job["id"] for job in client.list_jobs(TENANT)]
    assert [job["id"] for job in client.list_jobs(TENANT, {"limit": 2, "offset": 1})] == newest[1:3]
    assert len(psql.one("SELECT jobforge_list_jobs(%s::uuid, '{\"limit\": 1}')", TENANT)) == 1

    moment = datetime(2040, 1, 1, tzinfo=UTC)
    client.reschedule_job(jobs["dead"], TENANT, moment)
    rescheduled = client.get_job(jobs["dead"], TENANT)
    assert rescheduled is not None
    assert (rescheduled["status"], datetime.fromisoformat(rescheduled["run_at"])) == ("queued", moment)
    with pytest.raises(psycopg.errors.NoDataFound):
        client.reschedule_job(jobs["queued"], "other", moment)


def test_a_job_is_the_same_in_the_view_and_in_the_client(psql: Psql, client: JobForgeClient) -> None:
    for status, job in one_of_each(psql).items():
        row = psql.one("SELECT to_jsonb(j) FROM jobforge_jobs j WHERE id = %s", job)
        assert client.get_job(job, TENANT) == row
        assert row["status"] == status
    assert client.get_job(uuid4(), TENANT) is None


def test_a_producer_needs_only_the_right_to_call_the_functions(psql: Psql, server: Server) -> None:
    database = psql.connection.info.dbname
    create_roles(psql.url, "watchbill", "jcron", database)
    role = f"{database}_shop"
    psql(f"CREATE ROLE {role} LOGIN; GRANT {database}_producer TO {role}")
    psql(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
    try:
        with Psql(server.url(database, role)) as shop:
            enqueue_again = "SELECT jobforge_enqueue_job('acme', 'a', '{}', 'k')"
            job = shop.one(enqueue_again)
            assert shop.one(enqueue_again) == job
            assert shop.one("SELECT jobforge_list_jobs('acme')") == [job]
            shop("SELECT jobforge_cancel_job(%s::uuid, 'acme')", job["id"])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                shop("SELECT * FROM jobforge_jobs")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                shop("SELECT jobforge_claim_jobs('w')")
        assert status_of(psql, job["id"]) == "canceled"
    finally:
        kinds = ("worker", "producer", "operator", "reader", "owner")
        psql(f"REASSIGN OWNED BY {database}_owner TO postgres")
        for name in (role, *(f"{database}_{kind}" for kind in kinds)):
            psql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_updates_change_only_what_the_runbook_changes(psql: Psql) -> None:
    jobs = one_of_each(psql)
    for change in ("payload = '{\"x\": 1}'", "type = 'y'", "attempts = 3", "tenant_id = 'z'", "max_attempts = 9"):
        with pytest.raises(psycopg.Error, match="only status, run_at and attempts = 0 can be changed"):
            psql(f"UPDATE jobforge_jobs SET {change} WHERE id = %s", jobs["queued"])
    for status in ("succeeded", "running", "dead"):
        with pytest.raises(psycopg.Error, match="cannot change from queued"):
            psql("UPDATE jobforge_jobs SET status = %s WHERE id = %s", status, jobs["queued"])
    psql("UPDATE jobforge_jobs SET status = 'canceled' WHERE id = %s", jobs["running"])
    assert status_of(psql, jobs["running"]) == "canceled"
    result = "UPDATE jobforge_job_results SET artifact_ref = 'x'", "DELETE FROM jobforge_job_results"
    psql("SELECT jobforge_complete_job(%s, 'w1', 'succeeded', p_result => '{}')", claim_one(psql))
    for change in result:
        with pytest.raises(psycopg.Error, match="jobforge_job_results cannot be changed"):
            psql(change)
    with pytest.raises(psycopg.Error, match="a new job cannot be given"):
        psql("INSERT INTO jobforge_jobs (tenant_id, type, status) VALUES ('t', 'a', 'running')")


def test_a_session_with_a_tenant_sees_and_changes_no_other(psql: Psql) -> None:
    """In the original, row security shows everything to a session that has not set a tenant; here the owner's session
    sees everything, and one that has set a tenant sees that tenant alone."""
    mine, theirs = enqueue(psql, tenant="acme"), enqueue(psql, tenant="other")
    psql("SELECT set_config('watchbill.tenant', 'acme', false)")
    assert [str(row.id) for row in psql("SELECT id FROM jobforge_jobs")] == [mine]
    for statement in (
        "SELECT jobforge_list_jobs('other')",
        "SELECT jobforge_enqueue_job('other', 'a', '{}')",
        f"SELECT jobforge_cancel_job('{theirs}', 'other')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            psql(statement)
    psql("UPDATE jobforge_jobs SET status = 'canceled'")
    psql("RESET watchbill.tenant")
    assert (status_of(psql, mine), status_of(psql, theirs)) == ("canceled", "queued")


def test_the_aliases_are_the_methods(client: JobForgeClient) -> None:
    for name in ("enqueue_job", "enqueue_jobs", "claim_jobs", "heartbeat_job", "complete_job", "cancel_job",
                 "reschedule_job", "list_jobs", "get_job", "get_result"):  # fmt: skip
        camel = re.sub("_(.)", lambda match: match[1].upper(), name)
        assert getattr(JobForgeClient, camel).__doc__ == getattr(JobForgeClient, name).__doc__
    assert client.listJobs({"tenant_id": TENANT}) == client.listJobs(TENANT) == []
    assert jobforge.QUEUE == "jobforge"
    assert find_seeds() is None or RUNBOOK.statements


# -- Alerts


@covers("Alerts / Recommended Alerts")
def test_the_seven_alerts_are_there_from_the_start_with_its_values(psql: Psql) -> None:
    """tests/store/test_alert_rules.py makes each of them happen."""
    rows = psql(
        "SELECT rule, above, unit, extract(epoch FROM lasting)::int AS lasting FROM watchbill.alert_rule_list()"
    )
    found = {row.rule: (row.above, row.unit, row.lasting) for row in rows}
    assert found["failure_rate"][:2] == (10, "percent")
    assert found["backlog"] == (1000, "jobs", 300)
    assert found["node_down"][2] == 300
    assert found["dead_spike"][:2] == (100, "jobs")
    assert found["slow_job"][:2] == (3600, "seconds")
    assert found["heartbeat_budget"][1] == "beats per minute"
    psql("SELECT watchbill.set_tenant(%s, '{\"heartbeats\": 5}')", TENANT)
    psql("SELECT watchbill.set_alert_rule('heartbeat_budget', '(all)', above => 6000)")


_EXAMPLE_TEST = """
rule_files: [series.yml, example.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'watchbill_attempts_total{instance="a",queue="q",type="t",outcome="succeeded"}', values: "0+8x90"}
      - {series: 'watchbill_attempts_total{instance="a",queue="q",type="t",outcome="failed"}', values: "0+2x90"}
    alert_rule_test:
      - eval_time: 80m
        alertname: HighJobFailureRate
        exp_alerts: [{exp_annotations: {summary: "High job failure rate (0.2%)"}}]
    promql_expr_test:
      - expr: jobforge_jobs_total
        eval_time: 10m
        exp_samples: [{labels: 'jobforge_jobs_total{instance="a"}', value: 100}]
"""


@covers("Alerts / Example Alert (Prometheus)")
def test_its_own_rule_for_prometheus_fires_on_our_series(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is in Debian's package prometheus")
    (rule,) = [each for each in RUNBOOK.statements if each.heading == "Alerts / Example Alert (Prometheus)"]
    root = Path(__file__).parents[2]
    (tmp_path / "example.yml").write_text(rule.text)
    (tmp_path / "series.yml").write_text((root / "deploy" / "prometheus" / "jobforge.rules.yml").read_text())
    (tmp_path / "test.yml").write_text(_EXAMPLE_TEST)
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
