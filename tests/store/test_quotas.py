"""Quotas of tenants: what is counted, what is refused, and what tenants without a quota never notice.

Quotas use the clock of the server and not that of the test, because a caller of enqueue() may give any `now`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.store.harness import Db, End, Session, refused
from tests.waiting import until

FULL = "WB015"


@pytest.fixture
def db(db: Db) -> Iterator[Db]:
    """The filter of quotas is part of a function, which the wipe before each test leaves alone."""
    yield db
    for table in ("tenants", "quota_usage", "quota_changes", "quota_seconds", "erasures"):
        db.execute(f"DELETE FROM watchbill.{table}")
    db.execute("SELECT watchbill._write_quota_filter()")


def set_quotas(db: Db, tenant: str = "acme", **quotas: int | None) -> bool:
    changed: bool = db.value("set_tenant", tenant=tenant, quotas=quotas)
    return changed


def enqueue(session: Session, tenant: str = "acme", **more: Any) -> Any:
    return session.enqueue(tenant=tenant, **more)


def refresh(db: Db, *, at_once: bool = True) -> None:
    """On the clock of the database, as enqueue counts, whatever time `db` gives."""
    db.execute("SELECT watchbill.refresh_quotas(at_once => %s)", (at_once,))


def refresh_until_all_have_keys(db: Db) -> None:
    """Nodes look for jobs without keys until all transactions from before have ended, also those of autovacuum."""

    def look() -> bool:
        refresh(db)
        return not any(tenant.may_lack_keys for tenant in db.rows("tenants"))

    until(look)


def usage(db: Db, tenant: str = "acme") -> Any:
    return db.row("_read_quota_usage", tenant=tenant, t=db.execute("SELECT watchbill._clock() AS t")[0].t)


@contextmanager
def full(quota: str, *, used: int | None = None) -> Iterator[dict[str, Any]]:
    """The call is refused by this quota. Yields what the error tells programs."""
    found: dict[str, Any] = {}
    with pytest.raises(psycopg.Error, match=f"the quota {quota} of tenant 'acme' is full") as caught:
        yield found
    assert caught.value.sqlstate == FULL
    found |= json.loads(caught.value.diag.message_detail or "") | {"hint": caught.value.diag.message_hint}
    assert found["quota"] == quota
    assert used is None or found["used"] == used


# -- what is refused


def test_a_full_quota_of_unfinished_jobs_refuses_the_next_one_until_a_job_has_ended(db: Db) -> None:
    set_quotas(db, unfinished=2)
    node = db.node()
    enqueue(db)
    enqueue(db)
    with full("unfinished", used=2) as error:
        enqueue(db)
    assert "when jobs of this tenant have ended" in error["hint"]
    assert db.run(node, "succeeded") == "succeeded"
    refresh(db)
    enqueue(db)
    with full("unfinished", used=2):
        enqueue(db)


def test_the_quota_of_payload_bytes_counts_the_payloads_of_unfinished_jobs(db: Db) -> None:
    set_quotas(db, payload_bytes=1000)
    enqueue(db, payload={"text": "x" * 600})
    with full("payload_bytes"):
        enqueue(db, payload={"text": "x" * 600})
    enqueue(db, payload={"text": "x" * 100})
    refresh(db)
    assert 700 < usage(db).payload_bytes < 1000
    with full("payload_bytes"):
        enqueue(db, payload={"text": "x" * 600})


def test_the_quota_of_payload_bytes_counts_meta_too(db: Db) -> None:
    set_quotas(db, payload_bytes=1000)
    enqueue(db, meta={"text": "x" * 600})
    with full("payload_bytes"):
        enqueue(db, meta={"text": "x" * 600})
    refresh(db)
    assert 600 < usage(db).payload_bytes < 1000
    with full("payload_bytes"):
        db.call("enqueue_many", jobs=[{"type": "t", "tenant": "acme", "meta": {"text": "x" * 600}}])


def test_a_job_that_replaces_another_counts_by_the_growth_of_its_payload(db: Db) -> None:
    set_quotas(db, unfinished=1, payload_bytes=1000)
    unique = {"unique_by": "all", "on_duplicate": "replace"}
    first = enqueue(db, payload={"text": "x" * 100}, **unique)
    assert enqueue(db, payload={"text": "x" * 700}, **unique) == first
    with full("payload_bytes"):
        enqueue(db, payload={"text": "x" * 1500}, **unique)
    enqueue(db, payload={"text": "x" * 10}, **unique)
    refresh(db)
    assert usage(db).unfinished == 1


@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "new"])
def test_a_clock_that_is_set_back_does_not_stop_the_quota_per_minute(db: Db, is_counted: bool) -> None:
    """Nodes count every few seconds; the count forgets the enqueues of the future."""
    set_quotas(db, per_minute=1)
    enqueue(db)
    if is_counted:
        refresh(db)
    db.change("UPDATE {schema}.quota_seconds SET second = second + interval '1 day'")
    db.change("UPDATE {schema}.quota_changes SET at = at + interval '1 day'")
    with full("per_minute"):
        enqueue(db)
    refresh(db)
    enqueue(db)
    assert db.count("quota_seconds") == 0


def test_the_quota_per_minute_says_when_it_has_room_again(db: Db) -> None:
    set_quotas(db, per_minute=3)
    db.call("enqueue_many", jobs=[{"type": "task", "tenant": "acme"}] * 2)
    enqueue(db)
    with full("per_minute", used=3) as error:
        enqueue(db)
    now = db.execute("SELECT watchbill._clock() AS t")[0].t
    assert timedelta(0) < datetime.fromisoformat(error["frees_at"]) - now <= timedelta(seconds=61)
    refresh(db)
    assert db.count("quota_changes") == 0
    with full("per_minute", used=3) as later:
        enqueue(db)
    assert later["frees_at"] >= error["frees_at"]
    db.change("UPDATE {schema}.quota_seconds SET second = second - interval '61 seconds'")
    enqueue(db)


def test_a_call_that_never_fits_says_so(db: Db) -> None:
    set_quotas(db, per_minute=3)
    with full("per_minute") as error:
        db.call("enqueue_many", jobs=[{"type": "task", "tenant": "acme"}] * 4)
    assert error["frees_at"] is None
    assert "enqueue fewer" in error["hint"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": timedelta(hours=1)},
        {"idempotency_key": "k"},
        {"unique_by": "x"},
        {"max_attempts": 1},
        {"priority": 3, "retry": {"delays": [1]}},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_every_kind_of_job_is_refused(db: Db, options: dict[str, Any]) -> None:
    set_quotas(db, unfinished=0)
    with full("unfinished"):
        enqueue(db, **options)
    assert db.count("jobs") == db.count("idempotency") == db.count("uniques") == 0


def test_a_job_that_waits_for_another_counts(db: Db) -> None:
    set_quotas(db, unfinished=2)
    parent = enqueue(db)
    enqueue(db, depends_on=[parent])
    with full("unfinished", used=2):
        enqueue(db, depends_on=[parent])


def test_a_bulk_with_given_ids_is_refused(db: Db) -> None:
    set_quotas(db, unfinished=1)
    ids = [str(row.id) for row in db.execute("SELECT watchbill.uuid7() AS id FROM generate_series(1, 2)")]
    with full("unfinished"):
        db.call("enqueue_many", jobs=[{"type": "task", "tenant": "acme", "id": job} for job in ids])
    assert db.count("jobs") == 0


def test_a_bulk_with_several_tenants_is_refused_as_a_whole(db: Db) -> None:
    set_quotas(db, unfinished=1)
    jobs = [{"type": "task", "tenant": tenant} for tenant in ("other", "acme", "acme")]
    with full("unfinished"):
        db.call("enqueue_many", jobs=jobs)
    with full("unfinished"):
        db.call("enqueue_many", jobs=[job | {"idempotency_key": str(n)} for n, job in enumerate(jobs)])
    assert db.count("jobs") == 0
    db.call("enqueue_many", jobs=jobs[:2])


def test_copied_jobs_are_refused(db: Db) -> None:
    set_quotas(db, unfinished=1)
    db.begin()
    db.execute("CREATE TEMP TABLE fresh OF watchbill.new_job ON COMMIT DROP")
    db.execute("INSERT INTO fresh (type, tenant) VALUES ('task', 'acme'), ('task', 'acme')")
    with full("unfinished"):
        db.execute("SELECT * FROM watchbill.enqueue_from('fresh')")
    db.rollback()


def test_the_short_ways_of_python_clients_are_refused(db: Db) -> None:
    set_quotas(db, unfinished=1)
    plain = "'task', '{}', 'default', 0::smallint, 'acme', 10::smallint, NULL::real, 1"
    many = "'task', 'default', 0::smallint, 'acme', 10::smallint, NULL::real, 1, NULL::text, NULL::jsonb"
    with full("unfinished"):
        db.execute(
            f"SELECT watchbill._enqueue_plain_many({many}, ARRAY[watchbill.uuid7(), watchbill.uuid7()],"
            " ARRAY['{}', '{}']::jsonb[])"
        )
    db.execute(f"SELECT watchbill._enqueue_plain({plain}, watchbill.uuid7(), NULL, NULL)")
    with full("unfinished"):
        db.execute(f"SELECT watchbill._enqueue_plain({plain}, watchbill.uuid7(), NULL, NULL)")


def test_a_duplicate_makes_no_job_and_is_not_refused(db: Db) -> None:
    set_quotas(db, unfinished=1)
    first = enqueue(db, idempotency_key="k")
    assert enqueue(db, idempotency_key="k") == first
    again = db.row("enqueue", type="task", tenant="acme", id=first, resend=True)
    assert (again.id, again.created) == (first, True)


# -- what is counted


def test_a_transaction_sees_what_it_has_enqueued_itself(db: Db) -> None:
    set_quotas(db, unfinished=300)
    refresh(db)
    db.begin()
    for _ in range(300):
        enqueue(db)
    with full("unfinished", used=300):
        enqueue(db)
    db.rollback()
    assert usage(db).unfinished == 0


def test_a_transaction_counts_its_own_bytes_and_enqueues_too(db: Db) -> None:
    set_quotas(db, payload_bytes=1000, per_minute=2)
    db.begin()
    enqueue(db, payload={"text": "x" * 600})
    with full("payload_bytes"):
        enqueue(db, payload={"text": "x" * 600})
    db.rollback()
    db.begin()
    enqueue(db)
    enqueue(db)
    with full("per_minute", used=2):
        enqueue(db)
    db.rollback()


def test_a_rolled_back_enqueue_uses_nothing(db: Db) -> None:
    set_quotas(db, unfinished=2, per_minute=2)
    db.begin()
    enqueue(db)
    db.execute("SAVEPOINT a")
    enqueue(db)
    db.execute("ROLLBACK TO a")
    enqueue(db)
    db.execute("SAVEPOINT b")
    with full("unfinished", used=2):
        enqueue(db)
    db.execute("ROLLBACK TO b")
    db.rollback()
    assert (usage(db).unfinished, usage(db).enqueued) == (0, 0)
    enqueue(db)


def test_two_transactions_at_the_edge_do_not_wait_for_each_other(db: Db) -> None:
    """Neither sees the job of the other, so both are accepted: the price of not locking. The next one is refused."""
    set_quotas(db, unfinished=1)
    first, second = db.session(), db.session()
    first.begin()
    second.begin()
    enqueue(first)
    enqueue(second)
    first.commit()
    second.commit()
    assert db.count("jobs") == 2
    with full("unfinished", used=2):
        enqueue(db)


def test_a_count_does_not_lose_an_enqueue_that_is_under_way(db: Db) -> None:
    set_quotas(db, unfinished=10)
    late = db.session()
    late.begin()
    enqueue(late)
    refresh(db)
    assert usage(db).unfinished == 0
    late.commit()
    assert usage(db).unfinished == 1
    refresh(db)
    assert (usage(db).unfinished, db.count("quota_changes")) == (1, 0)


def test_an_old_snapshot_counts_what_it_sees_and_its_own_jobs(db: Db) -> None:
    set_quotas(db, unfinished=3)
    old = db.session()
    old.begin("REPEATABLE READ")
    old.execute("SELECT 1 FROM watchbill.jobs")
    enqueue(db)
    enqueue(db)
    refresh(db)
    for _ in range(3):
        enqueue(old)
    with full("unfinished", used=3):
        enqueue(old)
    old.rollback()


def test_without_a_node_all_changes_are_read(db: Db) -> None:
    """With a recent count, an enqueue reads 200 changes of others at most."""
    set_quotas(db, unfinished=1000)
    refresh(db)
    for _ in range(205):
        enqueue(db)
    db.change("UPDATE {schema}.quota_usage SET counted_at = counted_at + interval '1 hour'")  # recent for sure
    assert usage(db).unfinished == 200
    db.change("UPDATE {schema}.quota_usage SET counted_at = counted_at - interval '2 hours'")
    assert usage(db).unfinished == 205


def test_a_quota_below_the_usage_stops_no_job_and_refuses_new_ones(db: Db) -> None:
    node = db.node()
    for _ in range(5):
        enqueue(db)
    set_quotas(db, unfinished=2, running=1)
    with full("unfinished", used=5):
        enqueue(db)
    refresh(db)
    for _ in range(4):
        (job,) = db.claim(node)
        db.settle(node, End(job))
    refresh(db)
    enqueue(db)


def test_counting_is_not_repeated_at_once_by_the_next_node(db: Db) -> None:
    set_quotas(db, unfinished=5)
    refresh(db)
    db.change("UPDATE {schema}.quota_refresh SET took = '1 minute'")  # so the next count is due in 20 minutes
    enqueue(db)
    refresh(db, at_once=False)
    assert db.count("quota_changes") == 1
    db.change("UPDATE {schema}.quota_refresh SET counted_at = counted_at - interval '1 hour'")
    holder = db.session()
    holder.begin()
    holder.execute("SELECT 1 FROM watchbill.quota_refresh FOR UPDATE")
    refresh(db, at_once=False)  # does not wait for a node that counts
    assert db.count("quota_changes") == 1
    holder.rollback()
    refresh(db, at_once=False)
    assert db.count("quota_changes") == 0


def test_a_clock_that_was_set_back_does_not_stop_the_counting(db: Db) -> None:
    set_quotas(db, unfinished=5)
    db.change("UPDATE {schema}.quota_refresh SET counted_at = counted_at + interval '1 day', took = '1 minute'")
    enqueue(db)
    refresh(db, at_once=False)
    assert db.count("quota_changes") == 0


def test_enqueues_of_one_second_are_added_up_by_two_counts(db: Db) -> None:
    set_quotas(db, per_minute=5)
    enqueue(db)
    refresh(db)
    enqueue(db)
    db.change("UPDATE {schema}.quota_changes SET at = (SELECT max(second) FROM {schema}.quota_seconds)")
    refresh(db)
    assert (usage(db).enqueued, db.count("quota_seconds")) == (2, 1)


def test_a_tenant_without_a_quota_is_no_longer_counted(db: Db) -> None:
    set_quotas(db, unfinished=5)
    assert db.count("quota_usage") == 1
    set_quotas(db, unfinished=None)
    refresh(db)
    assert db.count("quota_usage") == 0


# -- running jobs


def test_the_quota_of_running_jobs_is_exact(db: Db) -> None:
    set_quotas(db, running=2)
    node = db.node()
    for _ in range(5):
        enqueue(db)
    enqueue(db, tenant="other")
    jobs = db.claim(node)
    assert [(job.limit_keys or []) for job in jobs].count(["tenant:acme"]) == 2
    assert len(jobs) == 3
    db.settle(node, End(next(job for job in jobs if job.limit_keys)))
    assert len(db.claim(node)) == 1


def test_jobs_from_before_the_quota_get_the_key_and_running_ones_hold_it(db: Db) -> None:
    node = db.node()
    for _ in range(4):
        enqueue(db)
    running = db.claim(node, 1)
    set_quotas(db, running=2)
    refresh(db)
    assert {tuple(job.limit_keys) for job in db.rows("jobs")} == {("tenant:acme",)}
    assert [hold.job_id for hold in db.rows("holds")] == [running[0].id]
    assert len(db.claim(node)) == 1
    refresh_until_all_have_keys(db)


def test_a_job_of_a_transaction_that_was_open_when_the_quota_was_set_gets_the_key_later(db: Db) -> None:
    late = db.session()
    late.begin()
    enqueue(late)
    set_quotas(db, running=1)
    refresh(db)
    refresh(db)
    assert [tenant.may_lack_keys for tenant in db.rows("tenants")] == [True]
    late.commit()
    refresh(db)
    assert [job.limit_keys for job in db.rows("jobs")] == [["tenant:acme"]]
    refresh_until_all_have_keys(db)


def test_without_the_quota_its_waiting_jobs_run(db: Db) -> None:
    set_quotas(db, running=1)
    node = db.node()
    for _ in range(3):
        enqueue(db)
    assert len(db.claim(node)) == 1
    assert set_quotas(db, running=None)
    assert len(db.claim(node)) == 2
    assert db.count("tenants") == db.count("limits") == 0


def test_a_finished_job_that_runs_again_gets_the_key(db: Db) -> None:
    node = db.node()
    job = enqueue(db)
    db.run(node, "succeeded")
    set_quotas(db, running=1)
    db.call("reschedule", id=job)
    assert [row.limit_keys for row in db.rows("jobs")] == [["tenant:acme"]]


def test_a_run_by_hand_gets_the_key(db: Db) -> None:
    set_quotas(db, running=1)
    db.call("add_schedule", name="n", pattern="@daily", type="task", tenant="acme")
    db.call("run_schedule", name="n", tenant="acme")
    assert [row.limit_keys for row in db.rows("jobs")] == [["tenant:acme"]]


def test_another_quota_than_that_of_running_jobs_gives_no_key(db: Db) -> None:
    set_quotas(db, unfinished=5)
    enqueue(db)
    assert [row.limit_keys for row in db.rows("jobs")] == [None]


def test_a_job_cannot_name_the_limit_of_another_tenant(db: Db) -> None:
    set_quotas(db, running=1)
    with refused("WB003", "limit_keys may name tenant:other, and no other tenant"):
        enqueue(db, tenant="other", limit_keys=["tenant:acme"])
    enqueue(db, limit_keys=["tenant:{tenant}"])
    assert [row.limit_keys for row in db.rows("jobs")] == [["tenant:acme"]]


# -- tenants without a quota


def test_while_no_tenant_has_a_quota_enqueue_does_not_look(db: Db) -> None:
    body = "SELECT pg_get_function_sqlbody('watchbill._may_have_quota'::regproc) AS body"
    assert db.execute(body)[0].body == "RETURN false"
    set_quotas(db, unfinished=5)
    assert "get_bit" in db.execute(body)[0].body
    set_quotas(db, unfinished=None)
    assert db.execute(body)[0].body == "RETURN false"


def test_the_filter_knows_every_tenant_with_a_quota_and_few_others(db: Db) -> None:
    db.change(
        "INSERT INTO {schema}.tenants (tenant, max_unfinished) SELECT 'tenant ' || n, 9 FROM generate_series(1, 500) n"
    )
    db.execute("SELECT watchbill._write_quota_filter()")
    (row,) = db.execute("""
        SELECT count(*) FILTER (WHERE watchbill._may_have_quota('tenant ' || n)) AS known,
          count(*) FILTER (WHERE watchbill._may_have_quota('stranger ' || n)) AS mistaken
        FROM generate_series(1, 500) n""")
    assert row.known == 500
    assert row.mistaken < 100


def test_an_open_session_notices_a_new_quota(db: Db) -> None:
    other = db.session()
    for _ in range(10):  # enough for a generic plan
        enqueue(other)
    set_quotas(db, unfinished=0)
    with full("unfinished"):
        enqueue(other)
    set_quotas(db, unfinished=None)
    enqueue(other)


def test_a_restored_filter_that_misses_a_tenant_is_written_again(db: Db) -> None:
    set_quotas(db, unfinished=0)
    db.execute("CREATE OR REPLACE FUNCTION watchbill._may_have_quota(tenant text) RETURNS boolean"
               " LANGUAGE sql STABLE RETURN false")  # fmt: skip
    enqueue(db)
    refresh(db)
    with full("unfinished"):
        enqueue(db)


# -- schedules


def test_a_slot_over_the_quota_is_skipped_with_the_reason_and_the_next_one_fires(db: Db) -> None:
    set_quotas(db, unfinished=1)
    db.call("add_schedule", name="hourly", pattern="0 * * * *", type="task", tenant="acme", overlap="allow")
    db.call("add_schedule", name="other", pattern="0 * * * *", type="task", tenant="other", overlap="allow")
    enqueue(db)
    db.now += timedelta(hours=1)
    answer = db.row("tick")
    assert (answer.fired, answer.skipped) == (1, 1)
    (slot,) = db.call("slot_list", name="hourly", tenant="acme")
    assert (slot.outcome, slot.reason) == (
        "skipped", "the quota unfinished of tenant 'acme' is full: 1 of 1 are used, and this needs 1 more",
    )  # fmt: skip
    set_quotas(db, unfinished=5, running=1)
    db.now += timedelta(hours=1)
    assert db.row("tick").fired == 2
    assert [job.limit_keys for job in db.rows("jobs") if job.schedule_id and job.tenant == "acme"] == [["tenant:acme"]]


def test_slots_after_a_refused_one_of_the_tick_use_nothing(db: Db) -> None:
    set_quotas(db, payload_bytes=500)
    for name, text in (("large", "x" * 600), ("small", "")):
        db.call(
            "add_schedule", name=name, pattern="0 * * * *", type="task", tenant="acme", overlap="allow",
            payload={"text": text},
        )  # fmt: skip
    db.now += timedelta(hours=1)
    answer = db.row("tick")
    assert (answer.fired, answer.skipped) == (0, 2)
    assert usage(db).payload_bytes == 0


def test_no_job_of_a_tick_waits_for_one_that_the_quota_refused(db: Db) -> None:
    set_quotas(db, unfinished=2)
    db.call(
        "add_schedule", name="often", pattern="* * * * *", type="task", tenant="acme", overlap="queue",
        missed="catch_up", grace=timedelta(hours=1),
    )  # fmt: skip
    db.now += timedelta(minutes=5)
    answer = db.row("tick")
    assert answer.fired == 2
    assert answer.skipped >= 2
    assert db.count("dependencies") == 1


def test_a_run_by_hand_is_refused_and_a_run_on_start_is_recorded_as_skipped(db: Db) -> None:
    set_quotas(db, unfinished=0)
    schedule = db.value("add_schedule", name="n", pattern="@daily", type="task", tenant="acme")
    with full("unfinished"):
        db.call("run_schedule", name="n", tenant="acme")
    db.execute(
        "SELECT watchbill._run_schedule_outside_slots(watchbill._lock_schedule_to_run(%s, %s), 'start', NULL, %s)",
        (schedule, db.now, db.now),
    )
    (slot,) = db.rows("slots")
    assert (slot.kind, slot.outcome, slot.job_id) == ("start", "skipped", None)
    assert "is full" in slot.reason
    assert db.rows("timers")[0].runs == 0


# -- lists and settings


def test_the_list_shows_usage_and_quotas(db: Db) -> None:
    set_quotas(db, running=1, unfinished=10, payload_bytes=1000, per_minute=60, heartbeats=3)
    node = db.node()
    enqueue(db, payload={"a": 1})
    enqueue(db)
    enqueue(db, tenant="other")
    db.claim(node)
    acme, other = db.call("tenant_list")
    assert (acme.tenant, acme.running, acme.max_running) == ("acme", 1, 1)
    assert (acme.unfinished, acme.max_unfinished, acme.max_payload_bytes) == (2, 10, 1000)
    assert (acme.enqueued, acme.max_per_minute) == (2, 60)
    assert (acme.expected_heartbeats, acme.heartbeat_budget, acme.over_budget) == (6, 3, True)
    assert (other.tenant, other.running, other.max_running, other.enqueued, other.over_budget) == (
        "other", 1, None, None, False,
    )  # fmt: skip
    assert [row.tenant for row in db.call("tenant_list", name="acme")] == ["acme"]
    assert db.call("tenant_list", name="nobody") == []


def test_the_heartbeat_load_follows_the_formula_of_the_runbook(db: Db) -> None:
    """running jobs * 60 / interval, per tenant and for all; a node that was silent for five minutes does not count."""
    silent = db.node()
    enqueue(db, tenant="silent")
    db.claim(silent)
    db.now += timedelta(minutes=6)
    node = db.node(lease=timedelta(seconds=45))
    for tenant in ("acme", "acme", "acme", "other"):
        enqueue(db, tenant=tenant)
    assert len(db.claim(node)) == 4
    given = {row.tenant: row for row in db.call("heartbeat_load", heartbeat_interval=timedelta(seconds=30))}
    assert {name: (row.running, row.expected_per_minute) for name, row in given.items()} == {
        "acme": (3, 6), "other": (1, 2), None: (4, 8),
    }  # fmt: skip
    own = {row.tenant: (row.expected_per_minute, row.nodes_per_minute) for row in db.call("heartbeat_load")}
    assert own == {"acme": (12, 4), "other": (4, 4), None: (16, 4)}


def test_invalid_quotas_are_refused(db: Db) -> None:
    with refused("WB003", "quota 'jobs' is invalid: 5"):
        set_quotas(db, jobs=5)
    with refused("WB003", "quota 'running' is invalid: -1"):
        set_quotas(db, running=-1)
    with refused("WB003", r"quota 'unfinished' is invalid: 1\.5"):
        db.call("set_tenant", tenant="acme", quotas={"unfinished": 1.5})
    with refused("WB003", "quotas are invalid"):
        set_quotas(db)
    with refused("WB003", "tenant '' is invalid"):
        set_quotas(db, tenant="", running=1)
    assert db.count("tenants") == 0


def test_a_change_is_audited_and_no_change_is_not(db: Db) -> None:
    assert set_quotas(db, unfinished=5) is True
    assert set_quotas(db, unfinished=5) is False
    assert set_quotas(db, per_minute=None) is False
    assert set_quotas(db, running=2) is True
    assert set_quotas(db, running=3) is True
    actions = [(row.action, row.tenant, row.detail) for row in db.rows("audit", "id")]
    assert actions[0] == ("set_tenant", "acme", {"unfinished": 5})
    assert [action for action, _, _ in actions] == ["set_tenant", *["set_tenant", "set_limit"] * 2]


# -- fair shares


def test_tenants_take_turns_in_a_queue_that_is_fair_by_tenant(db: Db) -> None:
    """A tenant with one job waits for one job of each other tenant, or for three of one whose share is 3."""
    queue = {"name": "reports", "fair_by": "{tenant}", "shares": {"acme": 3}}
    db.execute("SELECT watchbill.ensure_limits('app', '[]', %s::jsonb)", (json.dumps([queue]),))
    node = db.node()
    for tenant in ("acme", "big"):
        db.call("enqueue_many", jobs=[{"type": "task", "tenant": tenant, "queue": "reports"}] * 40)
    enqueue(db, tenant="small", queue="reports")
    set_quotas(db, tenant="big", running=1)
    for _ in range(2):
        jobs = {job.id for job in db.claim(node, 6, queues=["reports"])}
        tenants = [job.tenant for job in db.rows("jobs") if job.id in jobs]
        if "small" in tenants:
            break
    assert "small" in tenants
    assert tenants.count("big") <= 2


@pytest.mark.parametrize("change", ["set_tenant", "erase_tenant"])
def test_a_change_of_quotas_and_a_count_do_not_wait_for_each_other(db: Db, change: str) -> None:
    """The change is stopped in its middle by a lock on the limit of the tenant, and the count begins."""
    for tenant in ("acme", "other"):  # the count looks for jobs of both that lack the key of their tenant
        set_quotas(db, tenant, running=1)
    if change == "erase_tenant":
        until(lambda: db.row("erase_tenant", tenant="acme") and db.rows("erasures")[0].step == "keys")
    holder, changing, counting = db.session(), db.session(), db.session()
    holder.begin()
    holder.execute("SELECT FROM watchbill.limits WHERE name = 'tenant:acme' FOR UPDATE")
    arguments = {"quotas": {"running": 2, "unfinished": 10}} if change == "set_tenant" else {}
    changed = changing.start(change, tenant="acme", **arguments).blocked()
    counted = counting.start("refresh_quotas", at_once=True).stopped()
    holder.commit()
    assert changed.row()[-1] is True
    counted.value()
