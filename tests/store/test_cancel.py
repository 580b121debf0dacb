"""Cancel, in every state and against every other end of a run, in both orders."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.harness import Db, End, refused, settlement

EVERY_END = ["succeeded", "skipped", "failed", "timed_out", "snoozed", "released", "unsupported", "canceled", None]
SUCCESS = {"succeeded", "skipped", None}


def settle_arguments(epoch: int, held: Any, outcome: str | None) -> dict[str, Any]:
    if outcome is None:  # the quick way: no outcomes, all have succeeded
        return {"epoch": epoch, "ids": [held.id], "fences": [held.fence]}
    return settlement(epoch, End(held, outcome, error={"kind": "permanent"}))


def test_a_reason_and_a_name_of_the_actor_have_limits(db: Db) -> None:
    """Producers choose both, and a worker sends on who sent a signal."""
    waiting, running, epoch = db.enqueue(), db.enqueue(queue="other"), db.node()
    db.claim_one(epoch, queues=["other"])
    actor = db.session(db.url)
    actor.configure(**{"watchbill.actor": "x" * 5000})
    actor.value("signal", id=running, name="go")
    for job in (waiting, running):
        actor.value("cancel", id=job, reason="y" * 5000)
    assert db.look(waiting).error["message"] == "y" * 1000
    assert [row.reason for row in db.rows("cancels")] == ["y" * 1000]
    assert [row.sent_by for row in db.rows("signals")] == ["x" * 500]
    assert {(row.actor, len(row.detail["reason"])) for row in db.rows("audit")} == {("x" * 500, 1000)}


@pytest.mark.parametrize("wait", [None, "delayed", "blocked", "parked", "paused", "unsupported"])
def test_a_waiting_job_is_canceled_at_once(db: Db, wait: str | None) -> None:
    job = db.enqueue()
    db.set_wait(job, wait)
    db.tick(3)
    assert db.value("cancel", id=job, reason="not needed") == "canceled"
    db.expect(job, state="canceled", error={"kind": "canceled", "message": "not needed"}, finished_at=db.now)
    db.expect(job, attempt=0, run=0, fence=None, epoch=None, started_at=None, outcome=None)
    assert db.outcomes(job) == []
    assert db.claim(db.node()) == []


def test_a_failed_job_that_waits_for_its_next_attempt_is_canceled_at_once(db: Db) -> None:
    job = db.enqueue()
    db.run(db.node(), "failed")
    assert db.value("cancel", id=job) == "canceled"
    db.expect(job, state="canceled", attempt=1, error={"kind": "canceled", "message": "canceled"})
    assert db.outcomes(job) == ["failed"]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_cancel_does_not_change_a_finished_job(db: Db, outcome: str) -> None:
    job = db.enqueue(max_attempts=1)
    db.run(db.node(), outcome)
    state = db.look(job).state
    assert db.value("cancel", id=job) == state
    assert db.value("cancel", id=job, force=True) == state
    assert db.count("audit") == 0


def test_a_canceled_job_stays_canceled(db: Db) -> None:
    job = db.enqueue()
    assert [db.value("cancel", id=job) for _ in range(2)] == ["canceled", "canceled"]


def test_cancel_of_an_unknown_job_returns_null(db: Db) -> None:
    assert db.value("cancel", id=db.new_id()) is None


def test_cancel_requests_a_stop_from_the_node_of_a_running_job(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.tick(3)
    assert db.value("cancel", id=job, reason="enough") == "running"
    db.expect(job, state="running", canceling=True, fence=held.fence)
    (request,) = db.rows("cancels")
    assert (request.job_id, request.fence, request.epoch, request.reason) == (job, held.fence, epoch, "enough")
    assert request.requested_at == db.now
    assert db.value("heartbeat", epoch=epoch) == [job]


def test_second_cancel_makes_no_second_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    assert [db.value("cancel", id=job, reason=reason) for reason in ("first", "second")] == ["running", "running"]
    assert [row.id for row in db.call("stop_requests", epoch=epoch)] == [job]
    assert [row.reason for row in db.rows("cancels")] == ["first"]


@pytest.mark.parametrize("outcome", EVERY_END)
def test_job_with_a_stop_request_never_runs_again(db: Db, outcome: str | None) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("cancel", id=job, reason="enough")
    answer = {row.id: row.state for row in db.call("settle", **settle_arguments(epoch, held, outcome))}
    if outcome in SUCCESS:
        assert answer == {}
        db.expect(job, state="succeeded", attempt=1)
    else:
        assert answer == {job: "canceled"}
        db.expect(job, state="canceled", attempt=1 if outcome in ("failed", "timed_out") else 0)
    assert db.count("cancels") == 0
    db.make_ready()
    assert db.claim(db.node()) == []


def test_canceled_run_shows_its_own_error_or_the_reason(db: Db) -> None:
    epoch = db.node()
    for error, shown in ((None, {"kind": "canceled", "message": "enough"}), ({"message": "mine"}, {"message": "mine"})):
        job = db.enqueue()
        held = db.claim_one(epoch)
        db.value("cancel", id=job, reason="enough")
        db.settle(epoch, End(held, "canceled", age=2.0, error=error))
        db.expect(job, error=shown)
        (attempt,) = db.attempts(job)
        assert (attempt.outcome, attempt.error, attempt.started_at) == ("canceled", shown, db.after(-2))


def test_canceled_job_that_never_started_leaves_no_attempt(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("cancel", id=job)
    db.settle(epoch, End(held, "canceled", age=None))
    assert db.outcomes(job) == []


def test_release_cancels_a_job_with_a_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("cancel", id=job, reason="enough")
    assert db.value("release", id=job) is True
    db.expect(job, state="canceled", error={"kind": "canceled", "message": "enough"})
    assert db.outcomes(job) == ["released"]
    assert db.settle(epoch, End(held)) == {job: None}


def test_forced_cancel_ends_a_running_job_and_fences_its_handler(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.tick(5)
    assert db.value("cancel", id=job, reason="stuck", force=True) == "canceled"
    db.expect(job, state="canceled", error={"kind": "canceled", "message": "stuck"}, finished_at=db.now, attempt=0)
    db.expect(job, epoch=epoch, holder="a", fence=held.fence)
    assert db.settle(epoch, End(held)) == {job: None}
    with refused("WB007"):
        db.value("complete", id=job, fence=held.fence)
    assert db.count("cancels") == 0
    assert db.states(job) == ["canceled"]


def test_cancel_with_force_null_does_not_force(db: Db) -> None:
    epoch, job = db.node(), db.enqueue()
    db.claim_one(epoch)
    assert db.value("cancel", id=job, force=None) == "running"
    assert db.states(job) == ["running"]


def test_forced_cancel_works_after_a_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job)
    assert db.value("cancel", id=job, force=True) == "canceled"
    assert db.count("cancels") == 0


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("outcome", EVERY_END)
def test_cancel_waiting_for_a_settle_cancels_an_unfinished_job(db: Db, outcome: str | None, force: bool) -> None:
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    settler.begin()
    settler.call("settle", **settle_arguments(epoch, held, outcome))
    waiting = operator.start("cancel", id=job, force=force).blocked()
    settler.commit()
    final = "dead" if outcome in ("failed", "timed_out", "canceled") else "canceled"  # nobody had asked it to stop
    assert waiting.value() == ("succeeded" if outcome in SUCCESS else final)
    assert db.states(job) == [waiting.value()]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("outcome", EVERY_END)
def test_settle_waiting_for_a_cancel_obeys_it(db: Db, outcome: str | None, force: bool) -> None:
    """The request is on the newest version of the row, so no settle can miss it."""
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    operator.begin()
    operator.value("cancel", id=job, force=force)
    waiting = settler.start("settle", **settle_arguments(epoch, held, outcome)).blocked()
    operator.commit()
    answer = {row.id: row.state for row in waiting.rows()}
    if force:
        assert answer == {job: None}
        assert db.states(job) == ["canceled"]
    elif outcome in SUCCESS:
        assert answer == {}
        assert db.states(job) == ["succeeded"]
    else:
        assert answer == {job: "canceled"}
        assert db.states(job) == ["canceled"]
    assert db.count("cancels") == 0


@pytest.mark.parametrize("outcome", [None, "failed"])
def test_rolled_back_cancel_has_no_effect(db: Db, outcome: str | None) -> None:
    settler, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue(max_attempts=1)
    held = db.claim_one(epoch)
    operator.begin()
    operator.value("cancel", id=job)
    waiting = settler.start("settle", **settle_arguments(epoch, held, outcome)).blocked()
    operator.rollback()
    waiting.rows()
    assert db.states(job) == ["succeeded" if outcome is None else "dead"]


def test_cancel_waiting_for_a_claim_sends_its_node_a_stop_request(db: Db) -> None:
    claimer, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    waiting = operator.start("cancel", id=job).blocked()
    claimer.commit()
    assert waiting.value() == "running"
    assert db.value("heartbeat", epoch=epoch) == [job]


def test_claim_skips_a_job_that_is_being_canceled(db: Db) -> None:
    operator, epoch = db.session(), db.node()
    job = db.enqueue()
    operator.begin()
    operator.value("cancel", id=job)
    assert db.claim(epoch) == []
    operator.commit()
    assert db.states(job) == ["canceled"]


def test_cancel_waiting_for_a_reclaim_cancels_the_reclaimed_job(db: Db) -> None:
    reclaimer, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.tick(31)
    reclaimer.begin()
    reclaimer.call("reclaim", epochs=[epoch], beats_seen=[0])
    waiting = operator.start("cancel", id=job).blocked()
    reclaimer.commit()
    assert waiting.value() == "canceled"
    db.expect(job, state="canceled", lost=1)


@pytest.mark.parametrize("how", ["force", "release", "lose"])
def test_stop_requests_names_a_given_run_whose_job_was_taken_away(db: Db, how: str) -> None:
    epoch = db.node()
    db.enqueue(), db.enqueue()
    taken, kept = db.claim(epoch, 2)
    runs = {"ids": [taken.id, kept.id], "fences": [taken.fence, kept.fence]}
    assert db.call("stop_requests", epoch=epoch, **runs) == []
    match how:
        case "force":
            db.value("cancel", id=taken.id, force=True)
        case "release":
            db.value("release", id=taken.id)
        case "lose":
            db.lose(epoch)
    found = [(row.id, row.fence) for row in db.call("stop_requests", epoch=epoch, **runs)]
    expected = [taken, kept] if how == "lose" else [taken]
    assert sorted(found) == sorted((run.id, run.fence) for run in expected)


def test_stop_requests_names_the_run_before_a_release_and_not_the_one_after(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    before = db.claim_one(epoch)
    db.value("release", id=job)
    after = db.claim_one(epoch)
    runs = {"ids": [job, job], "fences": [before.fence, after.fence]}
    assert [row.fence for row in db.call("stop_requests", epoch=epoch, **runs)] == [before.fence]


def test_stop_requests_leaves_a_handler_alone_that_has_completed_its_job_itself(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("complete", id=job, fence=held.fence)
    assert db.call("stop_requests", epoch=epoch, ids=[job], fences=[held.fence]) == []


def test_canceled_without_a_stop_request_counts_as_a_failed_attempt(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=2)
    assert db.run(epoch, "canceled") == "failed"
    db.expect(job, state="failed", attempt=1, canceling=False)
    assert db.outcomes(job) == ["failed"]
    db.make_ready()
    assert db.run(epoch, "canceled") == "dead"


def test_reschedule_clears_the_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("cancel", id=job)
    db.settle(epoch, End(held, "canceled"))
    db.value("reschedule", id=job)
    db.expect(job, state="queued", canceling=False)
    assert db.run(epoch, "failed") == "failed"


def test_stop_request_sends_a_notification(db: Db) -> None:
    listener, epoch = db.session(db.url), db.node()
    channel = db.value("_wake_channel")
    listener.connection.execute(f'LISTEN "{channel}"'.encode())
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job)
    heard = next(listener.connection.notifies(timeout=30, stop_after=1))
    assert (heard.channel, heard.payload) == (channel, f"stop {job}")


def test_each_cancel_is_audited(db: Db) -> None:
    job = db.enqueue(tenant="acme")
    db.tick(9)
    db.value("cancel", id=job, reason="why", force=True)
    (row,) = db.rows("audit")
    assert (row.action, row.subject, row.tenant, row.at) == ("cancel", f"job {job}", "acme", db.now)
    assert row.detail == {"reason": "why", "force": True}
    assert row.actor == "postgres"
