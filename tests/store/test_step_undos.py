"""Undoing in SQL: whatever makes a job dead or canceled lets it undo its steps first, once, and never for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, refused
from tests.store.test_steps import claimed, sleep, step

PERMANENT = {"kind": "permanent", "message": "card declined"}


def booked(db: Db, **options: Any) -> tuple[int, Any]:
    """A running job with a step that has an undo."""
    epoch = db.node()
    db.enqueue(**options)
    job = db.claim_one(epoch)
    db.call("save_steps", **step(job, "book", result=7), undos=[True])
    return epoch, job


def error_of(db: Db) -> Any:
    (row,) = db.rows("finished_jobs", "id")
    return row.error


def undo(db: Db, epoch: int, error: dict[str, Any]) -> Any:
    """The next run: it finds the step `undo/` with the error of the job, undoes, and ends."""
    rows = db.claim(epoch, 1) or db.claim(epoch, 1, alone=True)
    (job,) = rows
    found = {row.name: row for row in db.call("load_steps", ids=[job.id])}
    assert found["book"].has_undo
    assert (found["undo/"].kind, found["undo/"].state) == ("undo", "begun")
    assert error.items() <= found["undo/"].error.items()
    db.call("save_steps", **step(job, "undo/book", seqs=3))
    return job


@pytest.mark.parametrize("attempts", [1, 10])
def test_a_job_that_dies_undoes_its_steps_first(db: Db, attempts: int) -> None:
    epoch, job = booked(db, max_attempts=attempts)
    assert db.settle(epoch, End(job, "failed", error=PERMANENT)) == {job.id: "failed"}
    again = undo(db, epoch, PERMANENT)
    assert db.settle(epoch, End(again, "undone", error=PERMANENT)) == {job.id: "dead"}
    db.expect(job.id, state="dead", attempt=1)
    assert error_of(db) == PERMANENT
    assert [row.outcome for row in db.attempts(job.id)] == ["failed"]
    db.assert_sound()


def test_a_suspended_job_that_is_canceled_undoes_its_steps_first(db: Db) -> None:
    epoch, job = booked(db)
    db.call("save_steps", **sleep(job, seqs=2))
    db.settle(epoch, End(job, "suspended"))
    assert db.value("cancel", id=job.id, reason="no longer wanted") == "queued"
    assert db.value("cancel", id=job.id) == "queued"  # a second request changes nothing
    again = undo(db, epoch, {"kind": "canceled", "message": "no longer wanted"})
    assert db.value("cancel", id=job.id) == "running"
    assert db.call("stop_requests", epoch=epoch) == []
    error = {"kind": "canceled", "message": "no longer wanted"}
    assert db.settle(epoch, End(again, "undone", error=error)) == {job.id: "canceled"}
    assert error_of(db) == error
    db.assert_sound()


@pytest.mark.parametrize("ends", ["canceled", "released", "suspended", "lost", "release", "leave"])
def test_a_running_job_with_a_stop_request_undoes_its_steps_however_its_run_ends(db: Db, ends: str) -> None:
    epoch, job = booked(db)
    assert db.value("cancel", id=job.id, reason="enough") == "running"
    if ends == "lost":
        db.lose(epoch)
    elif ends == "release":
        db.value("release", id=job.id)
    elif ends == "leave":
        db.value("leave", epoch=epoch)
    else:
        db.settle(epoch, End(job, ends))
    db.tick(10)
    db.value("promote")
    undo(db, db.node(), {"kind": "canceled", "message": "enough"})
    assert db.rows("cancels", "job_id") == []
    db.assert_sound()


def test_force_ends_a_job_at_once_and_names_what_is_not_undone(db: Db) -> None:
    epoch, job = booked(db)
    db.call("save_steps", **step(job, "book#2", seqs=2), undos=[True])
    assert db.value("cancel", id=job.id, reason="now", force=True) == "canceled"
    assert error_of(db)["message"] == "now; these steps were not undone: book#2, book"
    assert db.settle(epoch, End(job)) == {job.id: None}


def test_a_node_that_is_lost_while_undoing_is_replaced_up_to_three_times(db: Db) -> None:
    epoch, job = booked(db, max_attempts=1)
    db.settle(epoch, End(job, "failed", error=PERMANENT))
    losses = 0
    while rows := db.claim(epoch, 1) or db.claim(epoch, 1, alone=True):
        losses += len(rows)
        db.lose(epoch)
        db.tick(100)
        db.value("promote")
        epoch = db.node()
    assert losses == 3
    db.expect(job.id, state="dead")
    db.assert_sound()


def test_a_job_that_fails_while_undoing_is_dead_once_its_attempts_are_spent(db: Db) -> None:
    epoch, job = booked(db, max_attempts=1)
    db.settle(epoch, End(job, "failed", error=PERMANENT))
    again = undo(db, epoch, PERMANENT)
    assert db.settle(epoch, End(again, "timed_out", error={"kind": "timed_out"})) == {job.id: "dead"}
    db.expect(job.id, state="dead", attempt=1)
    db.assert_sound()


def test_a_job_without_a_stored_undo_ends_at_once(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **step(job, "book"))
    db.call("save_steps", **step(job, "pay", seqs=2, states="failed"), undos=[True])
    assert db.settle(epoch, End(job, "failed", error=PERMANENT)) == {job.id: "dead"}


def test_a_retry_of_an_undone_job_begins_anew(db: Db) -> None:
    epoch, job = booked(db)
    db.settle(epoch, End(job, "failed", error=PERMANENT))
    again = undo(db, epoch, PERMANENT)
    db.settle(epoch, End(again, "undone", error=PERMANENT))
    with refused("WB008", "has undone its steps"):
        db.value("rewind", id=job.id, step="book")
    assert db.value("reschedule", id=job.id) == "dead"
    assert db.rows("steps", "seq") == []


def test_a_restart_deletes_the_steps_and_keeps_the_signals(db: Db) -> None:
    epoch, job = booked(db, max_attempts=3)
    db.settle(epoch, End(job, "failed", delay=timedelta()))
    db.make_ready()
    job = db.claim_one(epoch)
    db.value("signal", id=job.id, name="more")
    assert db.value("restart", id=job.id, fence=job.fence, payload={"page": 2}) is True
    assert db.value("restart", id=job.id, fence=job.fence, payload={"page": 2}) is True  # the reply was lost
    assert db.value("restart", id=job.id, fence=job.fence - 1, payload={"page": 3}) is False
    assert db.settle(epoch, End(job, "suspended", result=[])) == {job.id: "queued"}
    db.expect(job.id, state="queued", attempt=0, payload={"page": 2}, waits="ready")
    assert (db.rows("steps", "seq"), [row.name for row in db.rows("signals", "seq")]) == ([], ["more"])


def test_a_step_that_the_code_no_longer_calls_does_not_keep_a_job_awake(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job, "old", seconds=1))
    db.call("receive", id=job.id, fence=job.fence, step="receive", seq=2, names=["approval"])
    db.tick(2)
    db.settle(epoch, End(job, "suspended", result=["receive"]))
    db.expect(job.id, state="suspended", wait="waiting")
