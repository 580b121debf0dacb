"""A session that acts for a tenant claims and ticks for that tenant only. A session without a tenant pays nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.flow import declare_limit, declare_queue, enqueue, waits
from tests.store.harness import Db, Session, refused
from tests.store.test_work import work

OTHERS_PER_CALL = 1000


def session_of(db: Db, tenant: str) -> Session:
    session = db.session()
    session.configure(**{"watchbill.tenant": tenant})
    return session


def fill(db: Db, tenant: str, number: int, **more: Any) -> None:
    db.call("enqueue_many", jobs=[{"type": "task", "tenant": tenant, **more} for _ in range(number)])
    db.tick(1)


def claimed(session: Session, epoch: int, max: int = 10, **more: Any) -> list[UUID]:
    return [row.id for row in session.claim(epoch, max, **more)]


def test_a_claim_takes_the_jobs_of_the_sessions_tenant_in_their_order(db: Db) -> None:
    epoch, session = db.node(), session_of(db, "b")
    jobs: dict[tuple[int, int], UUID] = {}
    for priority, max_attempts in ((0, 1), (0, 2), (5, 2), (5, 1)):
        for tenant in ("a", "b"):
            jobs[priority, max_attempts] = db.enqueue(tenant=tenant, priority=priority, max_attempts=max_attempts)
            db.tick(1)
    wanted = [jobs[5, 2], jobs[5, 1], jobs[0, 1], jobs[0, 2]]
    assert [claimed(session, epoch, 1)[0] for _ in range(3)] == wanted[:3]
    assert claimed(session, epoch) == wanted[3:]
    assert claimed(session, epoch) == []
    assert {row.tenant for row in db.rows("jobs") if row.fence == 0} == {"a"}
    assert len(db.claim(epoch)) == 4


@pytest.mark.parametrize("others", [1, 500], ids=["a few", "more than a claim reads of a class at first"])
def test_a_job_with_one_attempt_does_not_overtake_one_behind_jobs_of_others(db: Db, others: int) -> None:
    epoch, session = db.node(), session_of(db, "b")
    fill(db, "a", others)
    jobs = []
    for max_attempts in (2, 1):
        db.tick(1)
        jobs.append(db.enqueue(tenant="b", max_attempts=max_attempts))
    assert [claimed(session, epoch, 1)[0] for _ in jobs] == jobs


@pytest.mark.parametrize("lanes", ["share", "route"])
def test_a_claim_of_a_queue_with_lanes_takes_those_of_the_tenant(db: Db, lanes: str) -> None:
    epoch, session = db.node(), session_of(db, "b")
    declare_queue(db, "laned", lanes)
    db.change(
        """INSERT INTO {schema}.tokens (token_group, token, epoch, fence)
           SELECT 'cells', n - 1, CASE WHEN n %% 2 = 0 THEN %s ELSE 0 END, 1 FROM generate_series(1, 300) n""",
        epoch,
    )
    own = [
        enqueue(db, queue="laned", lane=lane, tenant=tenant)
        for lane in range(301)
        for tenant in ("a", "b")
        if lane % 30 == 0 or tenant == "a"
    ]
    rows = {row.id: row for row in db.rows("jobs")}
    wanted = {job for job in own if rows[job].tenant == "b" and (lanes == "share" or rows[job].lane % 2 == 0)}
    found: set[UUID] = set()
    for _ in range(12):
        found |= {*claimed(session, epoch, 4, queues=["laned"])}
    assert found == wanted


def test_a_claim_keeps_to_labels_limits_pauses_types_and_places_of_queues(db: Db) -> None:
    epoch, session = db.node(labels={"disk": "fast"}), session_of(db, "b")
    declare_limit(db, "crm", 1)
    declare_queue(db, "narrow", max=1)
    for tenant in ("a", "b"):
        db.enqueue(tenant=tenant, runs_on={"disk": "slow"})
    labelled = db.enqueue(tenant="b", runs_on={"disk": "fast"})
    limited = [enqueue(db, "key:crm:1", tenant=tenant) for tenant in ("b", "b", "a")]
    narrow = [db.enqueue(tenant="b", queue="narrow") for _ in range(2)]
    db.call("pause", type="paused")
    paused, excluded = db.enqueue("paused", tenant="b"), db.enqueue("excluded", tenant="b")
    found = claimed(session, epoch, 20, queues=["default", "narrow"], without=["excluded"])
    assert {*found} == {labelled, limited[0], narrow[0]}
    assert waits(db, limited[1], limited[2], paused, excluded) == [
        ("parked", "key:crm:1"), (None, None), ("paused", '["default", "paused"]'), (None, None),
    ]  # fmt: skip


def test_a_job_in_quarantine_is_taken_alone_by_its_tenant(db: Db) -> None:
    epoch, session = db.node(), session_of(db, "b")
    jobs = {tenant: db.enqueue(tenant=tenant) for tenant in ("a", "b")}
    db.change("UPDATE {schema}.jobs SET class = 2, lost = 1")
    assert claimed(session, epoch) == []
    assert claimed(session, epoch, 1, alone=True) == [jobs["b"]]
    assert claimed(session, epoch, 1, alone=True) == []


def test_jobs_that_another_node_does_not_support_are_taken_by_their_tenant(db: Db) -> None:
    epoch, session = db.node(types={"rare": 1}), session_of(db, "b")
    jobs = {tenant: db.enqueue("rare", tenant=tenant) for tenant in ("a", "b")}
    db.change(
        "UPDATE {schema}.jobs SET wait = 'unsupported', wait_key = {schema}._unsupported_key('default', 'rare', 1)"
    )
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('rare', 1, %s)", db.now)
    assert claimed(session, epoch) == [jobs["b"]]
    assert claimed(session, epoch) == []


def test_a_claim_reads_so_many_jobs_of_others_and_the_next_one_goes_on(db: Db) -> None:
    epoch, other, session = db.node(), db.node(), session_of(db, "b")
    shared: dict[str, Any] = {"queues": ["shared"]}  # without entries of other tests in the index
    fill(db, "a", 2600, queue="shared")
    last = db.enqueue(tenant="b", queue="shared")
    read = work(db, "claim", epoch=epoch, max=10, for_tenant="b", **shared)
    assert read.entries["jobs_ready"] <= OTHERS_PER_CALL + 10
    assert [last] in [claimed(session, epoch, **shared) for _ in range(5)]
    assert len(db.rows("tenant_scans")) <= 1
    # A call that has reached the end looks for jobs that have arrived at the top meanwhile.
    claimed(session, epoch, **shared), claimed(session, epoch, **shared)
    urgent = db.enqueue(tenant="b", queue="shared", priority=9)
    assert [urgent] in [claimed(session, epoch, **shared) for _ in range(4)]
    # Each node has its own place, until it leaves.
    claimed(session, other, **shared), claimed(session, epoch, **shared)
    assert {row.epoch for row in db.rows("tenant_scans")} == {epoch, other}
    db.call("leave", epoch=epoch)
    assert {row.epoch for row in db.rows("tenant_scans")} == {other}


def test_a_tenant_with_a_queue_of_its_own_reads_and_writes_no_more_than_others(db: Db) -> None:
    epoch, session = db.node(), session_of(db, "b")
    fill(db, "a", 2000)
    fill(db, "b", 2000, queue="of b")
    assert work(db, "claim", epoch=epoch, max=10, queues=["of b"], for_tenant="b").entries["jobs_ready"] < 40
    assert len(claimed(session, epoch, 10, queues=["of b"])) == 10
    assert db.rows("tenant_scans") == []


def test_a_claim_without_a_tenant_calls_nothing_but_its_steps(db: Db) -> None:
    epoch, session = db.node(), db.session()
    fill(db, "a", 100)
    claimed(session, epoch, now=None)
    session.configure(track_functions="all")
    session.execute("SELECT pg_stat_force_next_flush()")
    session.begin()
    claimed(session, epoch, now=None)
    calls = session.execute("""
        SELECT p.proname, pg_stat_get_xact_function_calls(p.oid) AS n FROM pg_proc p
        WHERE p.pronamespace = 'watchbill'::regnamespace AND pg_stat_get_xact_function_calls(p.oid) > 0""")
    session.commit()
    steps = ("claim", "_read_claim_rules", "_pick_in_rounds", "_pick_jobs", "_pick", "_lock_node_and_make_fence")
    assert {row.proname: row.n for row in calls} == dict.fromkeys(steps, 1)


def test_a_session_claims_for_no_other_tenant_than_its_own(db: Db) -> None:
    epoch, session = db.node(), session_of(db, "b")
    jobs = {tenant: db.enqueue(tenant=tenant) for tenant in ("a", "b")}
    with refused("WB013"):
        session.claim(epoch, for_tenant="a")
    assert claimed(db, epoch, for_tenant="a") == [jobs["a"]]


# -- ticks


def test_a_tick_fires_the_schedules_of_the_sessions_tenant(db: Db) -> None:
    session = session_of(db, "b")
    for tenant in ("a", "b"):
        db.call("add_schedule", name="hourly", pattern="0 * * * *", type="task", tenant=tenant, deadline="1 minute")
    db.now += timedelta(hours=1)
    row = session.row("tick")
    assert (row.fired, row.next_at.minute) == (1, 0)
    assert row.next_at > db.now
    assert [job.tenant for job in db.rows("jobs")] == ["b"]
    with refused("WB013"):
        session.row("tick", for_tenant="a")
    # What is overdue is told to its tenant.
    db.row("tick")
    db.now += timedelta(minutes=40)
    assert [event["tenant"] for event in session.row("tick").events] == ["b"]
    assert [event["tenant"] for event in db.row("tick").events] == ["a"]


def test_commands_of_other_tenants_neither_fire_nor_run(db: Db) -> None:
    session = session_of(db, "b")
    for tenant in ("a", "b"):
        db.call("add_schedule", name=f"of {tenant}", pattern="0 * * * *", command="SELECT 1", tenant=tenant)
    db.now += timedelta(hours=1)
    assert [row.schedule for row in session.call("execute_due")] == ["of b"]
    assert db.rows("jobs") == []
    with refused("WB013"):
        session.call("execute_due", tenant="a")
    assert [row.schedule for row in db.call("execute_due", tenant="a")] == ["of a"]


def test_schedules_of_other_tenants_do_not_run_when_the_cluster_starts(db: Db) -> None:
    session, epoch = session_of(db, "b"), db.node(app="shop")
    for tenant in ("a", "b"):
        db.call("add_schedule", name="first", pattern="@reboot", type="task", tenant=tenant)
    db.change("UPDATE {schema}.nodes SET declared_at = %s", db.now)
    db.change("INSERT INTO {schema}.declarations SELECT %s, id, 'hash' FROM {schema}.schedules", epoch)
    assert session.value("start_cluster", epoch=epoch)
    assert [job.tenant for job in db.rows("jobs")] == ["b"]
