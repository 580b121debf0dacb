"""await_jobs, collect_jobs and unblock: no end of a job is missed by the job that waits for it in a step."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import Db, End, Session, refused
from tests.store.test_steps import claimed


def await_jobs(db: Session, job: Any, *others: UUID, step: str = "call", **more: Any) -> Any:
    return db.value("await_jobs", id=job.id, fence=job.fence, step=step, seq=1, jobs_to_await=list(others), **more)


def collect(db: Session, job: Any, step: str = "call") -> tuple[Any, Any]:
    (row,) = db.call("collect_jobs", id=job.id, fence=job.fence, step=step, seq=2)
    return row.state, row.result and [each["result"] or each["state"] for each in row.result]


def end(db: Db, epoch: int, other: UUID, outcome: str = "succeeded", **more: Any) -> None:
    (job,) = [row for row in db.claim(epoch, 10) if row.id == other]
    db.settle(epoch, End(job, outcome, **more))


def test_the_end_of_the_last_job_makes_the_job_ready(db: Db) -> None:
    epoch, job = claimed(db)
    first, last = db.enqueue(), db.enqueue()
    assert await_jobs(db, job, last, first) is True
    assert collect(db, job) == ("waiting", None)
    db.settle(epoch, End(job, "suspended"))
    rows = {row.id: row for row in db.claim(epoch, 10)}
    db.settle(epoch, End(rows[first], result=1))
    db.call("unblock")
    db.expect(job.id, state="suspended")
    db.settle(epoch, End(rows[last], "failed", error={"kind": "permanent"}))
    db.call("unblock")
    db.expect(job.id, state="queued", waits="ready")
    again = db.claim_one(epoch)
    assert collect(db, again) == ("done", ["dead", 1])
    assert collect(db, again) == ("done", ["dead", 1])  # it was sent again: the reply was lost
    assert collect(db, job) == (None, None)


def test_jobs_that_end_before_the_suspension_wake_the_job_at_once(db: Db) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    await_jobs(db, job, other)
    end(db, epoch, other)
    db.call("unblock")
    db.settle(epoch, End(job, "suspended"))
    db.expect(job.id, state="queued", waits="ready")


def test_a_check_waits_for_a_job_that_is_being_suspended(db: Db) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    await_jobs(db, job, other)
    worker = db.session()
    worker.begin()
    worker.call("settle", epoch=epoch, ids=[job.id], fences=[job.fence], outcomes=["suspended"], ages=[0.1])
    end(db, epoch, other)
    assert db.call("unblock") == []
    worker.commit()
    assert [row.id for row in db.call("unblock")] == [job.id]
    db.expect(job.id, state="queued", waits="ready")


def test_a_finished_or_locked_job_is_found_by_unblock(db: Db) -> None:
    epoch, job = claimed(db)
    finished = db.enqueue()
    end(db, epoch, finished)
    locked = db.enqueue()
    producer = db.session()
    producer.begin()
    producer.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", [locked])
    await_jobs(db, job, finished, locked)
    producer.commit()
    db.settle(epoch, End(job, "suspended"))
    while db.call("unblock"):
        pass
    db.expect(job.id, state="suspended")
    db.value("cancel", id=locked)
    while db.call("unblock"):
        pass
    db.expect(job.id, state="queued", waits="ready")


def test_a_step_is_stored_once_and_by_the_holder_of_the_fence(db: Db) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    assert await_jobs(db, job, other) is True
    assert await_jobs(db, job, other) is False
    db.value("release", id=job.id)
    with refused("WB007"):
        await_jobs(db, job, other, step="call#2")
    db.value("cancel", id=job.id)
    assert db.look(other).state == "canceled"
    assert epoch


def test_a_job_of_another_tenant_cannot_be_awaited(db: Db) -> None:
    _, job = claimed(db)
    other = db.enqueue(tenant="b")
    with refused("WB003", "unknown"):
        await_jobs(db, job, other)


@pytest.mark.parametrize("are_children", [True, False])
def test_only_children_are_canceled_with_the_job(db: Db, are_children: bool) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    await_jobs(db, job, other, are_children=are_children)
    db.settle(epoch, End(job, "suspended"))
    db.value("cancel", id=job.id)
    assert db.look(other).state == ("canceled" if are_children else "queued")


def test_waits_are_deleted_with_the_steps_of_the_job(db: Db) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    await_jobs(db, job, other, are_children=False)
    db.settle(epoch, End(job))
    db.change("DELETE FROM {schema}.finished_jobs")
    db.value("sweep_steps")
    assert (db.count("steps"), db.count("step_waits")) == (0, 0)


def test_jobs_of_a_running_job_are_canceled_when_it_ends_as_canceled(db: Db) -> None:
    epoch, job = claimed(db)
    child = db.enqueue()
    await_jobs(db, job, child)
    db.value("cancel", id=job.id)
    db.expect(child, state="queued")
    db.settle(epoch, End(job, "canceled"))
    assert db.states(job.id, child) == ["canceled", "canceled"]


def test_a_job_that_an_operator_retries_is_awaited_again(db: Db) -> None:
    epoch, job = claimed(db)
    first, last = db.enqueue(), db.enqueue()
    await_jobs(db, job, first, last)
    db.settle(epoch, End(job, "suspended"))
    rows = {row.id: row for row in db.claim(epoch, 10)}
    db.settle(epoch, End(rows[first], "failed", error={"kind": "permanent"}))
    assert db.value("reschedule", id=first) == "dead"
    db.settle(epoch, End(rows[last]))
    db.call("unblock")
    db.expect(job.id, state="suspended")
    end(db, epoch, first, result=1)
    db.call("unblock")
    again = db.claim_one(epoch)
    assert collect(db, again) == ("done", [1, "succeeded"])


@pytest.mark.parametrize("has_child", [False, True])
def test_a_retry_between_the_wake_up_and_the_next_run_is_awaited_too(db: Db, has_child: bool) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    if has_child:
        db.enqueue(depends_on=[other])
        db.call("unblock")
    await_jobs(db, job, other)
    db.settle(epoch, End(job, "suspended"))
    end(db, epoch, other, "failed", error={"kind": "permanent"})
    db.call("unblock")
    assert db.value("reschedule", id=other) == "dead"
    rows = {row.id: row for row in db.claim(epoch, 10)}
    assert collect(db, rows[job.id]) == ("waiting", None)
    db.settle(epoch, End(rows[job.id], "suspended"))
    db.expect(job.id, state="suspended")
    db.settle(epoch, End(rows[other], result=1))
    db.call("unblock")
    again = next(row for row in db.claim(epoch, 10) if row.id == job.id)
    assert collect(db, again) == ("done", [1])
