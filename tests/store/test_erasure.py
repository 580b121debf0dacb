"""Erasure of a tenant: everything of it goes and nothing of others, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.role_logins import make_logins
from tests.servers import Server
from tests.store.harness import Db, End, refused
from tests.waiting import until
from watchbill.store.roles import grant_role
from watchbill.store.tenants import enable_tenants

TABLES = ("jobs", "finished_jobs", "attempts", "schedules", "idempotency", "uniques", "audit", "tenants", "quota_usage",
          "quota_changes", "quota_seconds", "erasures")  # fmt: skip
OPEN_TRANSACTIONS = "transactions that were open when the erasure began"


@pytest.fixture
def db(db: Db) -> Iterator[Db]:
    """The filter of quotas is part of a function, which the wipe before each test leaves alone."""
    yield db
    db.execute("DELETE FROM watchbill.tenants")
    db.execute("DELETE FROM watchbill.erasures")
    db.execute("SELECT watchbill._write_quota_filter()")


def fill(db: Db, tenant: str) -> int:
    """A job in every state, a schedule with a slot, keys, audit rows and quotas. Returns the epoch of a node."""
    node = db.node()
    key = {"idempotency_key": "k", "unique_by": "x"}
    stored = db.enqueue(tenant=tenant, meta={"stored": "2031-03-14/nothing"})
    db.change(
        """UPDATE {schema}.jobs SET meta = jsonb_build_object('stored', '2031-03-14/' || id || '-0-0') WHERE id = %s""",
        stored,
    )
    db.run(node, "succeeded")
    db.enqueue(tenant=tenant, max_attempts=1)
    db.run(node, "failed")
    db.enqueue(tenant=tenant)
    db.run(node, "failed", delay=timedelta(hours=1))
    parent = db.enqueue(tenant=tenant, delay=timedelta(hours=1), **key)
    db.enqueue(tenant=tenant, depends_on=[parent])
    db.call("add_schedule", name="s", pattern="@daily", type="task", tenant=tenant)
    db.call("run_schedule", name="s", tenant=tenant)
    db.run(node, "succeeded")
    db.call("cancel", id=db.enqueue(tenant=tenant))
    return node


def left(db: Db, tenant: str = "acme") -> dict[str, int]:
    counts = {}
    for table in TABLES:
        query = f"SELECT count(*) FROM watchbill.{table} x WHERE x.tenant = %s"
        counts[table] = db.execute(query, (tenant,))[0].count
    return {table: count for table, count in counts.items() if count}


def erase(db: Db, tenant: str = "acme", **more: Any) -> tuple[int, list[str]]:
    """Calls until it is done. Returns the number of calls, and the keys of stored payloads.

    It may wait for transactions of the whole server, such as those of autovacuum.
    """
    calls, stored = 0, list[str]()

    def call() -> bool:
        nonlocal calls
        calls += 1
        answer = db.row("erase_tenant", tenant=tenant, **more)
        stored.extend(answer.stored or [])
        assert answer.waiting in (None, OPEN_TRANSACTIONS)
        return bool(answer.is_done)

    until(call)
    return calls, stored


def test_everything_of_the_tenant_goes_and_nothing_of_others(db: Db) -> None:
    fill(db, "acme")
    fill(db, "other")
    db.call("set_tenant", tenant="acme", quotas={"running": 5, "unfinished": 100})
    before = left(db, "other")
    preview = {row.what: row.row_count for row in db.call("preview_erasure", tenant="acme")}
    assert sorted(preview) == [
        "attempts", "audit", "finished_jobs", "idempotency", "jobs", "quotas", "schedules", "slots", "uniques",
    ]  # fmt: skip
    _, stored = erase(db)
    assert left(db) == {}
    assert left(db, "other") == before
    assert [row.what for row in db.call("preview_erasure", tenant="acme")] == []
    assert {slot.schedule_id for slot in db.rows("slots")} == {schedule.id for schedule in db.rows("schedules")}
    assert [schedule.enabled for schedule in db.rows("schedules")] == [True]
    assert len(stored) == 1
    assert db.count("limits") == db.count("holds") == 0


def test_the_audit_keeps_who_erased_what(db: Db) -> None:
    fill(db, "acme")
    erase(db)
    started, ended = [row for row in db.rows("audit", "id") if row.action == "erase_tenant"]
    assert (started.subject, started.tenant, ended.tenant) == ("tenant acme", None, None)
    assert ended.detail["deleted"]["finished_jobs"] == 7


def test_it_continues_where_it_stopped(db: Db) -> None:
    """Each call is a transaction, and small: one that is rolled back has changed nothing."""
    fill(db, "acme")
    for _ in range(4):
        db.call("erase_tenant", tenant="acme", max=1)
        session = db.session()
        session.begin()
        session.call("erase_tenant", tenant="acme", max=1)
        session.rollback()
    calls, _ = erase(db, max=1)
    assert calls > 5
    assert left(db) == {}


def test_enqueues_are_refused_meanwhile_and_accepted_afterwards(db: Db) -> None:
    db.enqueue(tenant="acme")
    db.call("erase_tenant", tenant="acme")
    with refused("WB008", "tenant 'acme' is being erased"):
        db.enqueue(tenant="acme")
    with refused("WB008"):
        db.call("enqueue_many", jobs=[{"type": "task", "tenant": "acme"}])
    db.enqueue(tenant="other")
    erase(db)
    db.enqueue(tenant="acme")
    assert left(db) == {"jobs": 1}


def test_it_waits_for_a_transaction_that_has_not_noticed(db: Db) -> None:
    late = db.session()
    late.begin()
    late.enqueue(tenant="acme")
    answers = [db.row("erase_tenant", tenant="acme") for _ in range(4)]
    assert answers[-1].waiting == OPEN_TRANSACTIONS
    late.commit()
    erase(db)
    assert left(db) == {}


def test_running_jobs_are_asked_to_stop_and_waited_for(db: Db) -> None:
    node = db.node()
    db.enqueue(tenant="acme")
    db.enqueue(tenant="acme")
    jobs = db.claim(node)
    answers = [db.row("erase_tenant", tenant="acme") for _ in range(4)]
    assert answers[-1].waiting == "2 jobs that were asked to stop"
    assert len(db.rows("cancels")) == 2
    assert db.settle(node, End(jobs[0], "canceled"), End(jobs[1])) == {jobs[0].id: "canceled"}
    erase(db)
    assert left(db) == {}


def test_progress_and_stop_request_of_another_tenants_job_with_the_same_id_stay(db: Db) -> None:
    """With row security, a producer can give a job the id of a finished job of another tenant."""
    node = db.node()
    db.enqueue(tenant="acme")
    db.run(node, "succeeded")
    taken = db.enqueue(tenant="other")
    (job,) = db.claim(node)
    db.call("heartbeat", epoch=node, running=[{"id": str(taken), "fence": job.fence, "progress": {"done": 5}}])
    db.call("cancel", id=taken)
    db.change("UPDATE {schema}.finished_jobs SET id = %s", taken)
    erase(db)
    assert left(db) == {}
    assert [run.progress for run in db.rows("runs")] == [{"done": 5}]
    assert [request.job_id for request in db.rows("cancels")] == [taken]


def test_force_ends_running_jobs_and_their_results_are_rejected(db: Db) -> None:
    node = db.node()
    db.enqueue(tenant="acme")
    (job,) = db.claim(node)
    erase(db, force=True)
    assert left(db) == {}
    assert db.settle(node, End(job)) == {job.id: None}


def test_a_key_of_another_jobs_payload_is_not_returned(db: Db) -> None:
    """A producer writes what it likes into meta; the payload of another job must not be deleted for it."""
    foreign = db.enqueue(tenant="other")
    db.enqueue(tenant="acme", meta={"stored": f"2031-03-14/{foreign}-0-0"})
    assert erase(db)[1] == []


def test_an_unknown_tenant_has_nothing_to_erase(db: Db) -> None:
    assert db.call("preview_erasure", tenant="nobody") == []
    erase(db, "nobody")
    with refused("WB003", "tenant '' is invalid"):
        db.call("erase_tenant", tenant="")


def test_the_slots_of_a_removed_schedule_go_with_their_jobs(db: Db) -> None:
    node = db.node()
    db.call("add_schedule", name="s", pattern="@daily", type="task", tenant="acme")
    db.call("run_schedule", name="s", tenant="acme")
    db.run(node, "succeeded")
    db.call("remove_schedule", name="s", tenant="acme")
    assert db.count("slots") == 1
    erase(db)
    assert db.count("slots") == 0


@pytest.mark.parametrize("row_security", [False, True], ids=["open", "protected"])
def test_operators_may_set_and_erase_and_bound_roles_may_not(
    server: Server, schema_database: str, row_security: bool
) -> None:
    with make_logins(server, schema_database) as logins:
        for name, kind in (("bound", "operator"), ("bound_producer", "producer")):
            logins.add(name, kind)
            grant_role(logins.owner_url, "watchbill", f"{logins.database}_{name}", None, ["acme"])
        if row_security:
            enable_tenants(schema_database, "watchbill")
        with logins.connect("operator") as operator:
            operator.execute("""SELECT watchbill.set_tenant('acme', '{"unfinished": 1, "running": 1}')""")
            operator.execute("""SELECT watchbill.set_tenant('other', '{"running": 1}')""")
        with logins.connect("bound_producer") as producer:
            producer.execute("SELECT watchbill.enqueue('task', tenant => 'acme')")
            with pytest.raises(psycopg.Error) as caught:
                producer.execute("SELECT watchbill.enqueue('task', tenant => 'acme')")
            assert caught.value.sqlstate == "WB015"
            for attack in (
                """SELECT watchbill.set_tenant('acme', '{"unfinished": null}')""",
                "SELECT * FROM watchbill.tenant_list()",
                "SELECT * FROM watchbill.tenants",
                "DELETE FROM watchbill.quota_changes",
                "SELECT watchbill.set_limit('tenant:acme', max => 9)",
                "SELECT * FROM watchbill.erase_tenant('acme')",
                "SELECT watchbill._write_quota_filter()",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    producer.execute(attack)
        with logins.connect("bound") as bound:
            for attack in (
                """SELECT watchbill.set_tenant('acme', '{"unfinished": null}')""",
                "SELECT watchbill.set_limit('tenant:acme', max => 9)",
                "SELECT watchbill.clear_limit('tenant:acme')",
                "SELECT * FROM watchbill.erase_tenant('acme')",
                "SELECT * FROM watchbill.preview_erasure('acme')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not act for all tenants"):
                    bound.execute(attack)
            seen = bound.execute("SELECT tenant, max_running FROM watchbill.tenant_list()").fetchall()
            limits = bound.execute("SELECT name FROM watchbill.limit_list()").fetchall()
            if row_security:
                assert seen == [("acme", 1)]
                assert limits == [("tenant:acme",)]
        with logins.connect("operator") as operator:
            part = "SELECT is_done FROM watchbill.erase_tenant('acme')"
            until(lambda: operator.execute(part).fetchall() == [(True,)])
        with psycopg.connect(logins.owner_url) as owner:
            assert owner.execute("SELECT count(*) FROM watchbill.job").fetchall() == [(0,)]
            assert owner.execute("SELECT tenant FROM watchbill.tenants").fetchall() == [("other",)]
            bindings = owner.execute("SELECT count(*) FROM watchbill.tenant_roles WHERE tenant = 'acme'").fetchall()
            assert bindings == [(2,)]
