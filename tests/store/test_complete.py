"""Ending one job in the caller's own transaction, and the guard for everything else he does there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, refused

ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
every_isolation = pytest.mark.parametrize("isolation", ISOLATIONS)


@every_isolation
def test_complete_commits_with_the_callers_writes_or_not_at_all(db: Db, isolation: Any) -> None:
    handler, epoch = db.session(), db.node("a")
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin(isolation)
    other = handler.enqueue("effect")
    handler.value("complete", id=job, fence=held.fence, result={"r": 1}, age=3.0)
    assert db.states(job) == ["running"]
    handler.rollback()
    assert db.states(job) == ["running"]
    assert all(row.id != other for row in db.rows("job"))
    handler.begin(isolation)
    handler.value("complete", id=job, fence=held.fence, result={"r": 1}, age=3.0)
    handler.commit()
    db.expect(job, state="succeeded", result={"r": 1}, attempt=1, started_at=db.after(-3), finished_at=db.now)
    db.expect(job, epoch=epoch, holder="a", fence=held.fence)
    assert db.outcomes(job) == ["succeeded"]


@every_isolation
@pytest.mark.parametrize("verb", ["complete", "fail", "guard"])
def test_caller_that_does_not_hold_the_job_is_refused(db: Db, verb: str, isolation: Any) -> None:
    handler, epoch = db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("release", id=job)
    for fence in (held.fence, held.fence + 1, 0, None):
        before = db.look(job)
        handler.begin(isolation)
        with refused("WB007", f"job {job} is no longer claimed under fence"):
            handler.value(verb, id=job, fence=fence)
        handler.rollback()
        assert db.look(job) == before


@every_isolation
@pytest.mark.parametrize("verb", ["complete", "fail", "guard"])
def test_previous_holder_of_the_job_is_refused(db: Db, verb: str, isolation: Any) -> None:
    handler, one, other = db.session(), db.node(), db.node()
    job = db.enqueue()
    before = db.claim_one(one)
    db.value("release", id=job)
    held = db.claim_one(other)
    handler.begin(isolation)
    with refused("WB007", f"job {job} is no longer claimed under fence {before.fence}"):
        handler.value(verb, id=job, fence=before.fence)
    handler.rollback()
    db.expect(job, state="running", epoch=other, fence=held.fence)


@pytest.mark.parametrize("verb", ["complete", "fail", "guard"])
def test_finished_or_unknown_job_is_refused(db: Db, verb: str) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("complete", id=job, fence=held.fence)
    with refused("WB007"):
        db.value(verb, id=job, fence=held.fence)
    with refused("WB007"):
        db.value(verb, id=db.new_id(), fence=held.fence)
    with refused("WB007"):
        db.value(verb, id=None, fence=None)
    assert db.outcomes(job) == ["succeeded"]


@every_isolation
def test_complete_is_refused_after_a_reclaim_during_its_transaction(db: Db, isolation: Any) -> None:
    """At the stricter levels his snapshot is older than the loss: that is a serialization failure."""
    handler, epoch = db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin(isolation)
    handler.execute("SELECT count(*) FROM watchbill.jobs")  # takes his snapshot
    db.lose(epoch)
    with refused("WB007" if isolation == "READ COMMITTED" else "40001"):
        handler.value("complete", id=job, fence=held.fence)
    handler.rollback()
    db.expect(job, state="failed", lost=1)


@every_isolation
def test_complete_waits_for_a_running_reclaim_and_is_refused(db: Db, isolation: Any) -> None:
    handler, reclaimer, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.tick(31)
    handler.begin(isolation)
    handler.execute("SELECT 1")
    reclaimer.begin()
    reclaimer.call("reclaim", epochs=[epoch], beats_seen=[0])
    waiting = handler.start("complete", id=job, fence=held.fence).blocked()
    reclaimer.commit()
    with refused("WB007" if isolation == "READ COMMITTED" else "40001"):
        waiting.rows()
    handler.rollback()
    db.expect(job, state="failed", lost=1)


@every_isolation
def test_reclaim_skips_a_job_with_an_uncommitted_complete(db: Db, isolation: Any) -> None:
    handler, epoch = db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin(isolation)
    handler.value("complete", id=job, fence=held.fence)
    assert db.lose(epoch) == {}
    handler.commit()
    assert db.reclaim() == {}
    db.expect(job, state="succeeded", lost=0)
    assert db.count("claims") == 0


def test_fail_retries_and_ends_a_job_like_settle(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=2, retry={"kind": "fixed", "base": 8, "jitter": 0})
    held = db.claim_one(epoch)
    assert db.value("fail", id=job, fence=held.fence, error={"message": "no"}, age=2.0) == "failed"
    db.expect(job, state="failed", attempt=1, run_at=db.after(8), error={"message": "no"})
    (attempt,) = db.attempts(job)
    assert (attempt.outcome, attempt.epoch, attempt.started_at) == ("failed", epoch, db.after(-2))
    db.make_ready()
    held = db.claim_one(epoch)
    assert db.value("fail", id=job, fence=held.fence) == "dead"
    db.expect(job, state="dead", attempt=2, outcome="failed")


def test_fail_accepts_a_delay(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("fail", id=job, fence=held.fence, delay=timedelta(hours=2))
    db.expect(job, run_at=db.after(7200), wait="delayed")


@pytest.mark.parametrize("error", [{"message": "no"}, {}, None, "no", ["no"], 5, True])
def test_fail_with_retryable_false_ends_the_job_dead(db: Db, error: Any) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    assert db.value("fail", id=job, fence=held.fence, error=error, retryable=False) == "dead"
    db.expect(job, state="dead", attempt=1, error_kind="permanent")
    if isinstance(error, str):
        assert db.look(job).error["message"] == error


def test_fail_with_retryable_null_retries(db: Db) -> None:
    epoch, job = db.node(), db.enqueue()
    assert db.value("fail", id=job, fence=db.claim_one(epoch).fence, retryable=None) == "failed"


def test_fail_without_an_age_clears_the_loss_count(db: Db) -> None:
    """A worker in shell may not know when its handler started."""
    job = db.enqueue()
    for _ in range(2):
        epoch = db.node()
        db.make_ready()
        db.claim_one(epoch, alone=db.look(job).quarantined)
        db.lose(epoch)
    db.make_ready()
    epoch = db.node()
    held = db.claim_one(epoch, alone=True)
    db.value("fail", id=job, fence=held.fence)
    db.expect(job, state="failed", lost=0, quarantined=False)


# The guard.


def test_reclaim_skips_a_guarded_job_until_its_transaction_ends(db: Db) -> None:
    handler, epoch = db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    assert db.lose(epoch) == {}
    db.expect(job, state="running")
    handler.value("guard", id=job, fence=held.fence)  # still his
    handler.commit()
    assert db.reclaim() == {job: "failed"}
    with refused("WB007"):
        handler.value("guard", id=job, fence=held.fence)


def test_release_waits_for_a_guarded_transaction(db: Db) -> None:
    handler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    released = operator.start("release", id=job).blocked()
    handler.commit()
    assert released.value() is True
    assert db.states(job) == ["queued"]


def test_release_does_nothing_if_the_guarded_transaction_completed(db: Db) -> None:
    handler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    released = operator.start("release", id=job).blocked()
    handler.value("complete", id=job, fence=held.fence)
    handler.commit()
    assert released.value() is False
    assert db.states(job) == ["succeeded"]


def test_a_stop_request_does_not_wait_for_a_guarded_transaction(db: Db) -> None:
    handler, epoch = db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    assert db.value("cancel", id=job) == "running"
    assert db.value("heartbeat", epoch=epoch) == [job]
    handler.value("complete", id=job, fence=held.fence)
    handler.commit()
    assert db.states(job) == ["succeeded"]


def test_a_forced_cancel_waits_for_a_guarded_transaction_and_neither_deadlocks(db: Db) -> None:
    handler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    canceled = operator.start("cancel", id=job, force=True).blocked()
    handler.value("complete", id=job, fence=held.fence)
    handler.commit()
    assert canceled.value() == "succeeded"
    assert db.states(job) == ["succeeded"]
    assert db.count("cancels") == 0


def test_forced_cancel_succeeds_after_a_guarded_rollback(db: Db) -> None:
    handler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    canceled = operator.start("cancel", id=job, force=True).blocked()
    handler.rollback()
    assert canceled.value() == "canceled"
    with refused("WB007"):
        handler.value("guard", id=job, fence=held.fence)


@every_isolation
@pytest.mark.parametrize("taker", ["release", "reclaim", "cancel", "release_unknown", "settle"])
def test_guard_waits_for_a_running_takeover_and_is_refused(db: Db, taker: str, isolation: Any) -> None:
    handler, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.tick(31)
    handler.begin(isolation)
    handler.execute("SELECT 1")
    other.begin()
    match taker:
        case "release":
            other.value("release", id=job)
        case "reclaim":
            other.call("reclaim", epochs=[epoch], beats_seen=[0])
        case "cancel":
            other.value("cancel", id=job, force=True)
        case "release_unknown":
            other.value("release_unknown", epoch=epoch, known=[])
        case "settle":
            other.settle(epoch, End(held, "failed"))
    waiting = handler.start("guard", id=job, fence=held.fence).blocked()
    other.commit()
    with refused("WB007" if isolation == "READ COMMITTED" else "40001"):
        waiting.rows()
    handler.rollback()


def test_two_transactions_may_guard_one_job_at_once(db: Db) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    for session in (one, other):
        session.begin()
        session.value("guard", id=job, fence=held.fence)
    for session in (one, other):
        session.commit()
    assert db.states(job) == ["running"]


def test_complete_records_where_an_artifact_is(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(meta={"trace": "x"})
    claimed = db.claim_one(epoch)
    db.call("complete", id=job, fence=claimed.fence, artifact_ref="s3://bucket/report.pdf")
    (row,) = db.rows("job")
    assert (row.artifact_ref, row.meta) == (
        "s3://bucket/report.pdf",
        {"trace": "x", "artifact_ref": "s3://bucket/report.pdf"},
    )


def test_a_stale_fence_records_no_artifact(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    claimed = db.claim_one(epoch)
    db.call("release", id=job)
    with refused("WB007"):
        db.call("complete", id=job, fence=claimed.fence, artifact_ref="s3://bucket/late")
    (row,) = db.rows("job")
    assert row.artifact_ref is None
