"""What an operator may do to one job: reschedule it from any state, and take a running one away."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from tests.store.harness import Db, End, refused


def in_state(db: Db, epoch: int, state: str) -> UUID:
    """A job in that state, after one failed attempt where that is possible."""
    job = db.enqueue(tenant="acme", max_attempts=9)
    held = db.claim_one(epoch)
    ends = {"succeeded": End(held), "dead": End(held, "failed", error={"kind": "permanent", "message": "no"})}
    db.settle(epoch, ends.get(state, End(held, "failed", error={"message": "no"})))
    match state:
        case "canceled":
            db.value("cancel", id=job)
        case "queued":
            db.make_ready()
            db.settle(epoch, End(db.claim_one(epoch), "released", age=None))
        case "blocked":
            db.change("UPDATE {schema}.jobs SET wait = 'blocked', failed = false WHERE id = %s", job)
        case "running":
            db.make_ready()
            db.claim_one(epoch)
    db.expect(job, state=state)
    return job


@pytest.mark.parametrize("notify", ["someone", {"mail": "me"}, ["delivery"]])
def test_a_job_whose_meta_had_a_notify_before_there_were_notifications_runs_again(db: Db, notify: object) -> None:
    job = db.enqueue()
    db.change("UPDATE {schema}.jobs SET meta = jsonb_build_object('notify', %s::jsonb) WHERE id = %s",
              json.dumps(notify), job)  # fmt: skip
    db.value("cancel", id=job)
    assert db.value("reschedule", id=job) == "canceled"
    assert db.count("jobs") == 1


@pytest.mark.parametrize("state", ["succeeded", "dead", "canceled", "failed"])
@pytest.mark.parametrize("seconds", [0, 3600])
def test_reschedule_queues_an_ended_or_failed_job_with_new_attempts(db: Db, state: str, seconds: float) -> None:
    epoch = db.node()
    job = in_state(db, epoch, state)
    before, attempts = db.look(job), db.outcomes(job)
    db.tick(60)
    run_at = db.after(seconds) if seconds else None
    assert db.value("reschedule", id=job, run_at=run_at) == state
    db.expect(
        job, state="queued", attempt=0, run=1, lost=0, quarantined=False, finished_at=None, result=None, canceling=False
    )
    db.expect(job, run_at=db.after(seconds), wait="delayed" if seconds else None, fence=None, epoch=None)
    same = (
        "id",
        "seq",
        "type",
        "tenant",
        "queue",
        "priority",
        "payload",
        "version",
        "max_attempts",
        "created_at",
        "policy",
    )
    assert [getattr(db.look(job), name) for name in same] == [getattr(before, name) for name in same]
    assert db.outcomes(job) == attempts
    db.make_ready()
    assert db.claim_one(epoch).run == 2
    assert db.count("finished_jobs") == 0


def test_reschedule_keeps_the_attempt_of_a_succeeded_job(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.settle(epoch, End(held, age=4.0))
    (before,) = db.attempts(job)
    db.value("reschedule", id=job)
    assert db.attempts(job) == [before]
    db.tick(9)
    db.run(epoch, "succeeded")
    first, second = db.attempts(job)
    assert first == before
    assert (second.run, second.outcome, second.ended_at) == (2, "succeeded", db.now)


def test_reschedule_of_a_queued_job_changes_only_its_time(db: Db) -> None:
    epoch = db.node()
    job = in_state(db, epoch, "queued")
    before = db.look(job)
    assert db.value("reschedule", id=job, run_at=db.after(60)) == "queued"
    db.expect(job, state="queued", wait="delayed", run_at=db.after(60), attempt=1, run=2)
    db.value("reschedule", id=job)
    db.expect(job, wait=None, run_at=db.now, attempt=before.attempt)


def test_reschedule_of_a_queued_job_keeps_its_quarantine(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.lose(epoch)
    db.make_ready()
    epoch = db.node()
    db.claim(epoch, alone=True)
    db.value("leave", epoch=epoch)
    assert db.value("reschedule", id=job, run_at=db.after(5)) == "queued"
    db.expect(job, quarantined=True, lost=1)


def test_reschedule_of_a_lost_job_clears_its_losses(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.lose(epoch)
    assert db.value("reschedule", id=job) == "failed"
    db.expect(job, state="queued", lost=0, quarantined=False, wait=None)


def test_reschedule_delays_a_parked_job(db: Db) -> None:
    """When it is due, a claim parks it again if its key still has no place."""
    job = db.enqueue()
    db.set_wait(job, "parked")
    assert db.value("reschedule", id=job) == "queued"
    db.expect(job, wait="parked", run_at=db.now)
    assert db.value("reschedule", id=job, run_at=db.after(60)) == "queued"
    db.expect(job, wait="delayed", run_at=db.after(60))


@pytest.mark.parametrize("wait", ["blocked", "paused"])
def test_reschedule_keeps_any_other_wait(db: Db, wait: str) -> None:
    job = db.enqueue()
    db.set_wait(job, wait)
    assert db.value("reschedule", id=job, run_at=db.after(60)) == ("blocked" if wait == "blocked" else "queued")
    db.expect(job, wait=wait, run_at=db.after(60))


def test_reschedule_refuses_a_running_job(db: Db) -> None:
    epoch = db.node()
    job = in_state(db, epoch, "running")
    before = db.look(job)
    with refused("WB008", f"job {job} is running"):
        db.value("reschedule", id=job)
    assert db.look(job) == before


def test_reschedule_and_release_ignore_an_unknown_job(db: Db) -> None:
    assert db.value("reschedule", id=db.new_id()) is None
    assert db.value("release", id=db.new_id()) is False
    assert db.count("audit") == 0


def test_reschedule_refuses_an_infinite_time(db: Db) -> None:
    job = db.enqueue()
    for wrong in ("infinity", "-infinity", "10000-01-01", "0001-01-01"):
        with refused("WB003", "run_at .* is invalid"):
            db.value("reschedule", id=job, run_at=wrong)


@pytest.mark.parametrize("state", ["dead", "failed"])
def test_second_of_two_concurrent_reschedules_finds_the_job_queued(db: Db, state: str) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = in_state(db, epoch, state)
    one.begin()
    assert one.value("reschedule", id=job) == state
    waiting = other.start("reschedule", id=job, run_at=db.after(9)).blocked()
    one.commit()
    assert waiting.value() == "queued"
    db.expect(job, state="queued", run_at=db.after(9))


@pytest.mark.parametrize(("outcome", "was"), [("succeeded", "succeeded"), ("failed", "failed"), ("snoozed", "queued")])
def test_reschedule_waiting_for_a_settle_queues_the_settled_job(db: Db, outcome: str, was: str) -> None:
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    settler.begin()
    settler.settle(epoch, End(held, outcome))
    waiting = operator.start("reschedule", id=job).blocked()
    settler.commit()
    assert waiting.value() == was
    db.expect(job, state="queued", attempt=0, run=1, wait=None)


def test_reschedule_waiting_for_a_claim_is_refused(db: Db) -> None:
    claimer, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    waiting = operator.start("reschedule", id=job).blocked()
    claimer.commit()
    with refused("WB008"):
        waiting.rows()
    assert db.states(job) == ["running"]


def test_resend_during_a_reschedule_makes_no_second_job(db: Db) -> None:
    producer, operator, epoch = db.session(), db.session(), db.node()
    sent = db.send()
    db.run(epoch, "succeeded")
    operator.begin()
    operator.value("reschedule", id=sent.id)
    waiting = producer.start("enqueue", type="task", id=sent.id, resend=True).blocked()
    operator.commit()
    assert tuple(waiting.row()) == (sent.id, sent.seq, True, False)
    assert db.states(sent.id) == ["queued"]


def test_rescheduled_canceled_job_fails_like_any_other(db: Db) -> None:
    epoch = db.node()
    job = in_state(db, epoch, "canceled")
    db.value("reschedule", id=job)
    assert db.run(epoch, "failed") == "failed"
    db.expect(job, attempt=1, run=2)


# Release.


def test_release_queues_a_running_job_again(db: Db) -> None:
    epoch = db.node("a")
    job = in_state(db, epoch, "running")
    held = db.look(job)
    db.tick(60)
    assert db.value("release", id=job) is True
    db.expect(job, state="queued", wait=None, run_at=db.now, attempt=1, run=2, fence=None, holder=None)
    last = db.attempts(job)[-1]
    assert (last.outcome, last.run, last.attempt, last.fence, last.holder) == ("released", 2, 1, held.fence, "a")
    assert last.ended_at == db.now
    db.expect(job, error={"kind": "released", "message": "released by postgres"})
    taken = db.claim_one(db.node())
    assert taken.run == 3
    assert taken.fence > held.fence


def test_late_calls_for_a_released_job_are_refused(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    held = db.claim_one(epoch)
    db.value("release", id=held.id)
    assert db.settle(epoch, End(held)) == {held.id: None}
    with refused("WB007"):
        db.value("fail", id=held.id, fence=held.fence)
    assert db.lose(epoch) == {}
    db.expect(held.id, state="queued", lost=0)


@pytest.mark.parametrize("state", ["blocked", "queued", "failed", "succeeded", "dead", "canceled"])
def test_only_a_running_job_is_released(db: Db, state: str) -> None:
    job = in_state(db, db.node(), state)
    before = db.look(job)
    assert db.value("release", id=job) is False
    assert db.look(job) == before


def test_release_waiting_for_a_settle_does_nothing(db: Db) -> None:
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    for outcome in ("snoozed", "succeeded"):
        settler.begin()
        settler.settle(epoch, End(held, outcome))
        waiting = operator.start("release", id=job).blocked()
        settler.commit()
        assert waiting.value() is False
        if outcome == "snoozed":
            held = db.claim_one(epoch)
    assert db.outcomes(job) == ["snoozed", "succeeded"]


def test_settle_waiting_for_a_release_is_refused(db: Db) -> None:
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    for outcomes in (None, ["failed"]):
        operator.begin()
        operator.value("release", id=job)
        waiting = settler.start("settle", epoch=epoch, ids=[job], fences=[held.fence], outcomes=outcomes).blocked()
        operator.commit()
        assert [row.state for row in waiting.rows()] == [None]
        held = db.claim_one(epoch)
    db.expect(job, state="running", attempt=0)


# The audit.


def test_each_operator_verb_writes_an_audit_row(db: Db) -> None:
    epoch = db.node()
    dead, running = in_state(db, epoch, "dead"), in_state(db, epoch, "running")
    db.tick(5)
    db.value("reschedule", id=dead, run_at=db.after(60))
    db.value("release", id=running)
    rescheduled, released = db.rows("audit")
    assert (rescheduled.action, rescheduled.subject, rescheduled.tenant) == ("reschedule", f"job {dead}", "acme")
    assert rescheduled.detail["from"] == "dead"
    assert (released.action, released.subject, released.tenant) == ("release", f"job {running}", "acme")
    assert {rescheduled.at, released.at} == {db.now}
    assert rescheduled.actor == "postgres"


def test_actor_setting_is_written_to_the_audit(db: Db) -> None:
    session = db.session()
    job = db.enqueue()
    session.begin()
    session.execute("SELECT set_config('watchbill.actor', 'ann@example.com', true)")
    session.value("cancel", id=job)
    session.commit()
    session.value("pause", queue="x")
    assert [row.actor for row in db.rows("audit")] == ["ann@example.com", "postgres"]


def test_rolled_back_verb_is_not_audited(db: Db) -> None:
    session = db.session()
    job = db.enqueue()
    session.begin()
    session.value("cancel", id=job)
    session.rollback()
    assert db.count("audit") == 0
