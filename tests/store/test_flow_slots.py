"""Slots that start several jobs: overlap means all of them, also while the job that starts them has not run yet."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import Db, End, Session, refused
from tests.store.test_tick import add, at, jobs, tick_at, unblock

FLOW = {"jobs": [{"type": "step"}], "ends": [0]}


def start_flow(db: Db, session: Session, job: Any, steps: int = 2) -> tuple[list[UUID], UUID]:
    """What the job of a slot does that starts a chain, up to its commit; the steps, and the job that waits for them."""
    ids = [db.new_id() for _ in range(steps)]
    chain = [{"id": str(i), "type": "step", "depends_on": [place - 1] if place else []} for place, i in enumerate(ids)]
    session.begin()
    session.call("enqueue_many", jobs=chain)
    last = session.value("_add_chain_end", id=job.id, steps=ids, ends=ids[-1:])
    session.call("complete", id=job.id, fence=job.fence)
    return ids, last


def due_flow(db: Db, hour: int, **rule: Any) -> Any:
    add(db, type="watchbill.flow", payload=FLOW, **rule)
    tick_at(db, at(hour))


def waiting(db: Db) -> list[tuple[str, int, str | None]]:
    return [(job.type, job.slot.hour, job.wait) for job in jobs(db) if job.type != "step"]


def test_queued_slot_waits_for_the_whole_previous_chain(db: Db) -> None:
    due_flow(db, 12, missed="catch_up")
    epoch, session = db.node(), db.session()
    for hour in (10, 11, 12):
        (job,) = [job for job in db.claim(epoch) if job.type == "watchbill.flow"]
        start_flow(db, session, job)
        session.commit()
        unblock(db)
        later = [("watchbill.flow", after, "blocked") for after in range(hour + 1, 13)]
        assert waiting(db) == [("watchbill.flow_end", hour, "blocked"), *later]
        while claimed := db.claim(epoch):
            assert {each.type for each in claimed} <= {"step", "watchbill.flow_end"}, "one chain at a time"
            db.settle(epoch, *(End(each) for each in claimed))
            unblock(db)
            if claimed[0].type == "watchbill.flow_end":
                break
    assert jobs(db) == []
    assert [slot.outcome for slot in db.rows("slots", "slot")] == ["succeeded"] * 3


def test_slot_of_a_chain_keeps_its_start_time(db: Db) -> None:
    due_flow(db, 10)
    epoch, session = db.node(), db.session()
    (job,) = db.claim(epoch)
    start_flow(db, session, job, steps=1)
    session.commit()
    (began,) = [slot.started_at for slot in db.rows("slots")]
    assert began is not None
    for outcome in ("succeeded", "failed"):
        unblock(db)
        ended = db.run(epoch, outcome, error={"kind": "permanent", "message": "x"} if outcome == "failed" else None)
    assert ended == "dead"
    (slot,) = db.rows("slots")
    assert (slot.outcome, slot.started_at) == ("failed", began)
    db.value("reschedule", id=slot.job_id)
    (slot,) = db.rows("slots")
    assert (slot.outcome, slot.started_at) == (None, began)


def test_tick_and_chain_start_wait_for_each_other(db: Db) -> None:
    due_flow(db, 10, overlap="queue")
    (job,) = db.claim(db.node())
    scheduler, starter = db.session(), db.session()
    db.now = at(11)
    scheduler.begin()
    assert scheduler.row("tick").fired == 1, "behind the job that is about to hand over"
    starter.begin()
    step = starter.row("enqueue", type="step").id
    handing = starter.start("_add_chain_end", id=job.id, steps=[step], ends=[step]).blocked()
    scheduler.commit()
    handing.rows()
    assert tick_at(db, at(12)).fired == 0, "passed by: its timer is locked"
    starter.call("complete", id=job.id, fence=job.fence)
    starter.commit()
    unblock(db)
    assert waiting(db) == [("watchbill.flow_end", 10, "blocked"), ("watchbill.flow", 11, "blocked")]
    assert tick_at(db, at(12)).fired == 1
    unblock(db)
    assert waiting(db)[1:] == [("watchbill.flow", 11, "blocked"), ("watchbill.flow", 12, "blocked")]


def test_cancel_previous_cancels_the_whole_chain(db: Db) -> None:
    due_flow(db, 10, overlap="cancel_previous")
    epoch, session = db.node(), db.session()
    (job,) = db.claim(epoch)
    (first, second), last = start_flow(db, session, job)
    session.commit()
    (running,) = db.claim(epoch)
    tick_at(db, at(11))
    unblock(db)
    db.expect(first, state="running", canceling=True)
    db.expect(second, state="canceled", error={"kind": "canceled", "message": "the next slot is due"})
    assert waiting(db) == [("watchbill.flow_end", 10, "blocked"), ("watchbill.flow", 11, "blocked")]
    db.settle(epoch, End(running, "canceled"))
    unblock(db)
    (end,) = db.claim(epoch)
    assert end.id == last
    db.settle(epoch, End(end, "failed", error={"kind": "permanent", "message": "step is canceled"}))
    unblock(db)
    assert [(slot.outcome, slot.error) for slot in db.rows("slots", "slot")] == [
        ("canceled", "step is canceled"),
        (None, None),
    ]
    assert waiting(db) == [("watchbill.flow", 11, None)]


def test_chain_started_after_its_cancel_is_canceled(db: Db) -> None:
    due_flow(db, 10, overlap="cancel_previous")
    (job,) = db.claim(db.node())
    tick_at(db, at(11))
    session = db.session()
    steps, _ = start_flow(db, session, job)
    session.commit()
    unblock(db)
    for step in steps:
        db.expect(step, state="canceled")
    assert waiting(db) == [("watchbill.flow_end", 10, None), ("watchbill.flow", 11, "blocked")]


FAULT = {"kind": "permanent", "message": "x"}


def run_chain(db: Db, epoch: int, outcome: str = "succeeded") -> None:
    """One step that ends so, and what follows from that, up to the job that stands for the slot."""
    unblock(db)
    db.run(epoch, outcome, error=None if outcome == "succeeded" else FAULT)
    unblock(db)


def slot_of(db: Db) -> Any:
    return db.rows("slots", "slot")[0]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_retry_of_a_step_reopens_the_slot(db: Db, outcome: str) -> None:
    due_flow(db, 10)
    epoch, session = db.node(), db.session()
    (job,) = db.claim(epoch)
    (step,), last = start_flow(db, session, job, steps=1)
    session.commit()
    run_chain(db, epoch, outcome)
    db.run(epoch, outcome, error=None if outcome == "succeeded" else FAULT)
    assert slot_of(db).outcome == outcome
    db.value("reschedule", id=step)
    assert (slot_of(db).outcome, slot_of(db).job_id) == (None, last)
    db.expect(last, state="blocked")
    assert tick_at(db, at(11)).skipped == 1, "it is under way"
    run_chain(db, epoch)
    db.run(epoch, "succeeded")
    assert [slot.outcome for slot in db.rows("slots", "slot")] == ["succeeded", "skipped"]
    assert [a.outcome for a in db.rows("attempt", "run") if a.job_id == last] == [outcome, "succeeded"]


@pytest.mark.parametrize("claimed", [False, True])
def test_retry_of_a_step_before_the_chain_ends_keeps_the_slot_open(db: Db, claimed: bool) -> None:
    due_flow(db, 10)
    epoch, session = db.node(), db.session()
    (job,) = db.claim(epoch)
    (first, second), last = start_flow(db, session, job)
    session.commit()
    run_chain(db, epoch, "failed")
    db.expect(second, state="canceled")
    held = db.claim(epoch) if claimed else []
    db.value("reschedule", id=first)
    db.expect(last, state="blocked")
    db.expect(second, state="blocked")
    assert [db.settle(epoch, End(end)) for end in held] == [{last: None}] * len(held), "it was taken away"
    run_chain(db, epoch)
    run_chain(db, epoch)
    db.expect(last, state="queued")
    db.run(epoch, "succeeded")
    assert slot_of(db).outcome == "succeeded"


def test_retry_of_a_step_waits_for_an_uncommitted_chain_end(db: Db) -> None:
    due_flow(db, 10)
    epoch, handler, operator = db.node(), db.session(), db.session()
    (job,) = db.claim(epoch)
    (step,), last = start_flow(db, handler, job, steps=1)
    handler.commit()
    run_chain(db, epoch, "failed")
    (end,) = db.claim(epoch)
    handler.begin()
    handler.call("fail", id=last, fence=end.fence, error=FAULT, retryable=False)
    retrying = operator.start("reschedule", id=step).blocked()
    handler.commit()
    retrying.rows()
    db.expect(last, state="blocked")
    assert slot_of(db).outcome is None


def test_retry_of_the_first_job_reopens_the_slot(db: Db) -> None:
    due_flow(db, 10)
    epoch, session = db.node(), db.session()
    (job,) = db.claim(epoch)
    for outcome in ("failed", "succeeded"):
        _, last = start_flow(db, session, job, steps=1)
        session.commit()
        assert slot_of(db).job_id == last
        if outcome == "failed":
            db.value("reschedule", id=job.id)
            assert slot_of(db).job_id == last, "the chain is under way"
            db.value("cancel", id=job.id)
        run_chain(db, epoch, outcome)
        db.run(epoch, outcome, error=None if outcome == "succeeded" else FAULT)
        assert slot_of(db).outcome == outcome
        if outcome == "failed":
            db.value("reschedule", id=job.id)
            assert (slot_of(db).outcome, slot_of(db).job_id) == (None, job.id)
            (job,) = db.claim(epoch)
    assert len(db.rows("slots")) == 1


def test_run_schedule_refuses_a_payload_for_a_chain(db: Db) -> None:
    add(db, type="watchbill.flow", payload=FLOW)
    with refused("WB003", "payload is invalid: schedule 's' starts a chain, whose steps have their own payloads"):
        db.value("run_schedule", name="s", payload={"jobs": []})
