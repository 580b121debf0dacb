"""Backfills: one job for each slot of the past, and one for each item of a list, whatever happens in between."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.store.harness import Db, End, Session, refused
from tests.store.test_operations import look, work_off
from tests.store.test_tick import add, at, finish_all, jobs, tick_at


def written(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds")


def arguments(first: datetime, last: datetime, **more: Any) -> dict[str, Any]:
    return {"schedule": "s", "from": written(first), "until": written(last)} | more


def backfill(db: Session, first: datetime, last: datetime, *, rate: float | None = None, **more: Any) -> int:
    started: int = db.value(
        "start_operation", kind="backfill_slots", conditions=[], arguments=arguments(first, last, **more), rate=rate
    )
    return started


def counts(db: Db, operation: int) -> tuple[str, int, int, dict[str, int]]:
    row = look(db, operation)
    return row.state, row.done, row.skipped, row.reasons


def backfilled(db: Db) -> list[datetime]:
    return [row.slot for row in db.rows("slots", "slot") if row.kind == "backfill"]


def test_each_slot_gets_one_job_with_its_own_time(db: Db) -> None:
    schedule = add(db, payload={"a": 1}, queue="q", priority=3, max_attempts=1, context={"x": 1}, overlap="allow")
    db.now = at(14)
    operation = backfill(db, at(10), at(13, 30))
    work_off(db)
    assert counts(db, operation) == ("done", 4, 0, {})
    assert backfilled(db) == [at(hour) for hour in (10, 11, 12, 13)]
    first, *_ = made = jobs(db)
    assert [job.slot for job in made] == backfilled(db)
    assert (first.schedule_id, first.run_at, first.payload, first.queue, first.priority, first.class_) == (
        schedule, at(14), {"a": 1}, "q", 3, 1,
    )  # fmt: skip
    assert first.meta == {"schedule": "s", "slot": "2031-03-14T10:00:00+00:00", "context": {"x": 1}}
    assert all(job.wait is None for job in made), "its jobs may overlap"
    timer = db.rows("timers")[0]
    assert (timer.runs, timer.slot_runs) == (4, 0), "max_runs does not count them"


def test_a_second_backfill_makes_no_second_job(db: Db) -> None:
    add(db)
    db.now = at(14)
    backfill(db, at(10), at(12))
    work_off(db)
    again = backfill(db, at(10), at(13))
    preview = db.row("preview_backfill", arguments=arguments(at(10), at(13)))
    said = {"a backfill has made its job already": 3}
    assert (preview.slots, preview.first, preview.last, preview.obstacles, preview.is_complete) == (
        1, at(13), at(13), said, True,
    )  # fmt: skip
    work_off(db)
    assert counts(db, again) == ("done", 1, 3, said)
    assert len(jobs(db)) == 4


def test_the_end_of_a_job_closes_the_slot_of_the_backfill_only(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    finish_all(db)
    db.now = at(10, 30)
    backfill(db, at(10), at(10))
    work_off(db)
    found = {row.kind: row.outcome for row in db.rows("slots", "kind")}
    assert found == {"clock": "succeeded", "backfill": None}
    finish_all(db)
    assert {row.kind: row.outcome for row in db.rows("slots", "kind")} == dict.fromkeys(found, "succeeded")


def test_only_missed_slots_leave_out_what_succeeded_or_runs(db: Db) -> None:
    add(db, missed="skip")
    tick_at(db, at(10))
    finish_all(db)
    tick_at(db, at(13))  # two slots are missed, the third has a job
    operation = backfill(db, at(10), at(13), only_missed=True)
    work_off(db)
    assert counts(db, operation) == ("done", 2, 2, {"its job has succeeded": 1, "its job has not ended": 1})
    assert backfilled(db) == [at(11), at(12)]


def test_jobs_of_a_schedule_without_overlap_wait_for_each_other(db: Db) -> None:
    add(db, overlap="skip")
    db.now = at(14)
    backfill(db, at(10), at(13), rate=2)
    for _ in range(3):
        db.value("run_operations")
        db.tick(1)
    assert [job.wait for job in jobs(db)] == [None, "blocked", "blocked", "blocked"]
    started, epoch = [], db.node()
    for _ in range(4):
        (taken,) = db.claim(epoch)
        started.append(taken.id)
        db.settle(epoch, End(taken))
        db.call("unblock")
    assert started == sorted(started)


def test_slots_of_the_present_do_not_wait_for_a_backfill(db: Db) -> None:
    add(db, overlap="cancel_previous")
    tick_at(db, at(10))
    finish_all(db)
    backfill(db, at(8), at(9))
    work_off(db)
    tick_at(db, at(11))
    assert sorted(job.wait or "" for job in jobs(db)) == ["", "", "blocked"]
    assert not any(job.canceling for job in jobs(db))


def test_step_that_does_not_commit_makes_its_jobs_again(db: Db) -> None:
    add(db)
    db.now = at(14)
    operation = backfill(db, at(10), at(13), rate=3)
    killed = db.session(db.url)
    killed.begin()
    killed.value("run_operations")
    db.execute("SELECT pg_terminate_backend(%s, 10000)", (killed.connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        killed.commit()
    assert (counts(db, operation)[1], jobs(db)) == (0, [])
    db.value("run_operations")
    assert backfilled(db) == [at(10), at(11), at(12)]


def test_a_full_quota_pauses_it_and_resume_goes_on_with_the_same_slot(db: Db) -> None:
    add(db)
    db.now = at(14)
    db.value("set_tenant", tenant="default", quotas={"unfinished": 2})
    operation = backfill(db, at(10), at(13))
    work_off(db)
    assert counts(db, operation)[:2] == ("paused", 2)
    assert "quota" in look(db, operation).error
    db.value("set_tenant", tenant="default", quotas={"unfinished": None})
    db.value("resume_operation", id=operation)
    work_off(db)
    assert (counts(db, operation)[:2], backfilled(db)) == (("done", 4), [at(hour) for hour in (10, 11, 12, 13)])


def test_a_changed_schedule_is_waited_for_and_a_removed_one_ends_it(db: Db) -> None:
    add(db)
    db.now = at(14)
    operation = backfill(db, at(10), at(13), rate=1)
    db.value("run_operations")
    db.tick(1)
    other = db.session()
    other.begin()
    other.execute("SELECT FROM watchbill.timers FOR UPDATE")
    other.call("update_schedule", name="s", changes={"queue": "later"})
    assert db.value("run_operations") == pytest.approx(1.0)
    assert counts(db, operation)[:2] == ("running", 1)
    other.commit()
    db.tick(1)
    db.value("run_operations")
    assert [job.queue for job in jobs(db)] == ["default", "later"]
    db.call("remove_schedule", name="s")
    db.tick(1)
    db.value("run_operations")
    assert (look(db, operation).state, look(db, operation).error) == (
        "failed", "the schedule is gone, or makes no jobs any more",
    )  # fmt: skip


@pytest.mark.parametrize(("given", "message"), [
    ({"schedule": "other"}, "there is no schedule 'other' that makes jobs"),
    ({"schedule": None}, "there is no schedule without a name"),
    ({"from": "yesterday"}, "argument from is invalid: yesterday"),
    ({"from": "2031-13-14T10:00:00+00:00"}, "argument from is invalid"),
    ({"until": None}, "argument until is invalid: it is missing"),
    ({"until": "2031-03-14T09:00:00+00:00"}, "arguments are invalid: from"),
    ({"until": "2032-03-14T09:00:00+00:00"}, "arguments are invalid: from"),
])  # fmt: skip
def test_senseless_backfills_are_refused(db: Db, given: dict[str, Any], message: str) -> None:
    add(db)
    db.now = at(14)
    wanted = {"schedule": "s", "from": written(at(10)), "until": written(at(13))} | given
    with refused("WB003", message):
        db.value("start_operation", kind="backfill_slots", conditions=[], arguments=(wanted))


# -- items


def start_enqueue(db: Session, *items: dict[str, Any], **more: Any) -> int:
    operation: int = db.value("start_operation", kind="enqueue", conditions=[], **more)
    db.value("add_operation_items", id=operation, items=(list(items)))
    return operation


def test_each_item_is_enqueued_once(db: Db) -> None:
    items = [{"type": "t", "payload": {"n": n}, "idempotency_key": f"k{n}"} for n in range(5)]
    operation = start_enqueue(db, *items[:3])
    assert work_off(db) == 1
    assert (look(db, operation).state, db.count("jobs")) == ("pending", 0)
    assert db.value("add_operation_items", id=operation, items=(items[3:])) == 5
    db.value("resume_operation", id=operation)
    with refused("WB003", "takes no items"):
        db.value("add_operation_items", id=operation, items=(items))
    work_off(db)
    assert counts(db, operation) == ("done", 5, 0, {})
    assert [job.payload["n"] for job in db.rows("jobs", "seq")] == [0, 1, 2, 3, 4]
    again = start_enqueue(db, *items, {"type": "t", "payload": {"n": 9}, "idempotency_key": "k0"})
    db.value("resume_operation", id=again)
    work_off(db)
    assert counts(db, again) == ("done", 0, 6, {"a job has its key": 5, "a job has its key and another payload": 1})
    assert (db.count("jobs"), db.count("bulk_items")) == (5, 0)


def test_an_item_that_is_refused_stops_no_other(db: Db) -> None:
    operation = start_enqueue(
        db, {"type": "t", "payload": {}}, {"type": "watchbill.sql", "payload": {}}, {"type": "t", "priority": 99999},
        {"type": "u", "payload": {}},
    )  # fmt: skip
    db.value("resume_operation", id=operation)
    work_off(db)
    found = look(db, operation)
    assert (found.state, found.done, found.failed) == ("done", 2, 2)
    assert {job.type for job in db.rows("jobs")} == {"t", "u"}


def test_items_belong_to_the_tenant_and_the_creator_of_the_operation(db: Db) -> None:
    db.configure(**{"watchbill.actor": "anna"})
    operation = start_enqueue(db, {"type": "t", "tenant": "other", "created_by": "ben"}, arguments=({"tenant": "acme"}))
    db.configure(**{"watchbill.actor": ""})
    db.value("resume_operation", id=operation)
    work_off(db)
    assert [(job.tenant, job.created_by) for job in db.rows("jobs")] == [("acme", "anna")]


def test_a_canceled_operation_and_one_that_never_began_leave_no_items(db: Db) -> None:
    canceled, left = (start_enqueue(db, {"type": "t"}) for _ in range(2))
    assert db.value("cancel_operation", id=canceled) == "canceled"
    assert db.count("bulk_items") == 1
    db.now += timedelta(days=91)
    assert db.value("prune_operations") == 2
    assert (db.count("bulk_items"), left > canceled) == (0, True)


@pytest.mark.parametrize("items", [{"type": "t"}, [1], None])
def test_items_that_are_no_list_of_objects_are_refused(db: Db, items: Any) -> None:
    operation = start_enqueue(db)
    with refused("WB003", "items are invalid"):
        db.value("add_operation_items", id=operation, items=(items))
