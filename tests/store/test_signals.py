"""signal, receive and the outcome `suspended` of a job that waits: no signal is lost, read twice or too late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, Session, refused
from tests.store.test_steps import claimed

HOUR = timedelta(hours=1)


def receive(db: Session, job: Any, *names: str, step: str = "receive", seq: int = 1, **more: Any) -> tuple[Any, Any]:
    (row,) = db.call("receive", id=job.id, fence=job.fence, step=step, seq=seq, names=list(names or ("paid",)), **more)
    return row.state, row.result and row.result["payload"]


def wait(db: Db, **more: Any) -> tuple[int, Any]:
    """A job that waits for the signal `paid`."""
    epoch, job = claimed(db)
    assert receive(db, job, **more) == ("waiting", None)
    assert db.settle(epoch, End(job, "suspended")) == {job.id: "queued"}
    db.expect(job.id, state="suspended", waits=None)
    return epoch, job


def send(db: Session, job: Any, name: str = "paid", payload: Any = 1, **more: Any) -> Any:
    return db.value("signal", id=job.id, name=name, payload=payload, **more)


@pytest.mark.parametrize("most", [None, 2_000_000_000])
def test_no_caller_lifts_the_limit_of_a_signal(db: Db, most: int | None) -> None:
    _, job = claimed(db)
    assert send(db, job, payload="x" * 999_000, max_payload=most) == "stored"
    with refused("WB003", "payload of the signal has 1000002 bytes, the limit is 1000000"):
        send(db, job, payload="x" * 1_000_000, max_payload=most)


def test_an_early_signal_is_kept_until_a_step_reads_it(db: Db) -> None:
    _, job = claimed(db)
    assert send(db, job) == "stored"
    assert receive(db, job) == ("done", 1)
    assert receive(db, job) == ("done", 1)  # it was sent again: the reply was lost
    assert receive(db, job, step="receive#2", seq=2) == ("waiting", None)


def test_a_late_signal_makes_the_job_ready_once(db: Db) -> None:
    epoch, job = wait(db)
    assert send(db, job, "other") == "stored"
    db.expect(job.id, state="suspended")
    assert send(db, job) == "woken"
    db.expect(job.id, state="queued", waits="ready")
    assert send(db, job, payload=2) == "stored"
    again = db.claim_one(epoch)
    assert receive(db, again) == ("done", 1)
    assert receive(db, again, step="receive#2", seq=2) == ("done", 2)


def test_a_key_counts_once_even_after_its_signal_was_read(db: Db) -> None:
    _, job = claimed(db)
    assert send(db, job, key="k") == "stored"
    assert send(db, job, payload=2, key="k") == "duplicate"
    assert receive(db, job) == ("done", 1)
    assert send(db, job, payload=3, key="k") == "duplicate"
    assert receive(db, job, step="receive#2", seq=2) == ("waiting", None)


def test_the_oldest_of_several_names_is_read(db: Db) -> None:
    _, job = claimed(db)
    for name in ("third", "override", "approval"):
        send(db, job, name, name)
    assert receive(db, job, "approval", "override") == ("done", "override")


def test_a_time_out_is_stored_and_a_late_signal_is_left(db: Db) -> None:
    epoch, job = wait(db, timeout=HOUR)
    assert db.look(job.id).wait == "delayed"
    db.tick(1800)
    db.value("release", id=job.id)
    db.tick(1801)
    db.value("promote")
    again = db.claim_one(epoch)
    assert receive(db, again, timeout=HOUR) == ("timed_out", None)
    send(db, again)
    assert receive(db, again, timeout=HOUR) == ("timed_out", None)
    assert [row.read_by for row in db.rows("signals")] == [None]


def test_a_signal_that_comes_first_wins_against_the_time_out(db: Db) -> None:
    """It is committed while receive() decides: the time-out waits for it."""
    _, job = claimed(db)
    receive(db, job, timeout=timedelta(seconds=10))
    sender, worker = db.session(), db.session()
    sender.begin()
    send(sender, job)
    db.tick(20)
    assert receive(worker, job) == ("waiting", None)
    sender.commit()
    assert receive(worker, job) == ("done", 1)


def test_suspending_waits_for_a_signal_on_its_way(db: Db) -> None:
    epoch, job = claimed(db)
    receive(db, job)
    sender, worker = db.session(), db.session()
    sender.begin()
    assert send(sender, job) == "stored"
    ending = worker.start(
        "settle", epoch=epoch, ids=[job.id], fences=[job.fence], outcomes=["suspended"], ages=[0.1]
    ).blocked()
    sender.commit()
    ending.rows()
    db.expect(job.id, state="queued", waits="ready")


def test_a_signal_waits_for_a_job_that_is_being_suspended(db: Db) -> None:
    epoch, job = claimed(db)
    receive(db, job)
    sender, worker = db.session(), db.session()
    worker.begin()
    worker.call("settle", epoch=epoch, ids=[job.id], fences=[job.fence], outcomes=["suspended"], ages=[0.1])
    sending = sender.start("signal", id=job.id, name="paid").blocked()
    worker.commit()
    assert sending.value() == "woken"


def test_a_run_that_has_lost_its_job_reads_no_signal(db: Db) -> None:
    epoch, job = claimed(db)
    send(db, job)
    db.value("release", id=job.id)
    again = db.claim_one(epoch)
    assert receive(db, job) == (None, None)
    assert receive(db, again) == ("done", 1)


def test_wake_ends_no_wait_for_a_signal(db: Db) -> None:
    _, job = wait(db)
    assert db.value("wake", id=job.id) == 0
    db.expect(job.id, state="suspended")


def test_why_names_the_signal_and_one_that_nobody_waits_for(db: Db) -> None:
    since = db.now
    _, job = wait(db, timeout=HOUR)
    send(db, job, "piad")
    db.tick(60)
    first, second, *_ = db.call("why_job", id=job.id)
    assert f"it waits in step receive for the signal paid since {since}, until" in first.reason.replace("+00", "+00:00")
    assert first.way_out == [f"watchbill jobs signal {job.id} paid"]
    assert "unread signal piad" in second.reason


def test_waiting_steps_lists_what_people_have_to_decide(db: Db) -> None:
    _, job = wait(db, ask={"claim": 7})
    (row,) = db.call("waiting_steps", signal="paid")
    assert (row.job_id, row.name, row.signals, row.ask) == (job.id, "receive", ["paid"], {"claim": 7})
    assert db.call("waiting_steps", signal="other") == []
    send(db, job)
    assert db.call("waiting_steps") == []


def test_a_signal_by_key_reaches_the_job_that_is_enqueued_in_the_same_transaction(db: Db) -> None:
    sender = db.session()
    for number in range(2):
        sender.begin()
        sender.enqueue(type="order", idempotency_key="order-7", payload={})
        answer = sender.value("signal_by_key", type="order", idempotency_key="order-7", name="paid", payload=number)
        assert answer == "stored"
        sender.commit()
    assert (db.count("jobs"), db.count("signals")) == (1, 2)
    assert db.value("signal_by_key", type="order", idempotency_key="other", name="paid") is None


def test_an_ended_job_gets_no_signal(db: Db) -> None:
    epoch, job = claimed(db)
    db.settle(epoch, End(job))
    assert send(db, job) == "finished"
    assert db.value("signal", id=db.new_id(), name="paid") is None


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "x" * 201}, {"key": ""}, {"payload": "x" * 100_000}])
def test_an_invalid_signal_is_refused(db: Db, wrong: dict[str, Any]) -> None:
    _, job = claimed(db)
    with refused("WB003", "signal"):
        send(db, job, **wrong)


def test_a_job_has_a_bounded_number_of_unread_signals(db: Db) -> None:
    _, job = claimed(db)
    db.change(
        "INSERT INTO {schema}.signals (job_id, tenant, seq, name, sent_by, at) "
        "SELECT %s, 'default', n, 'x', 'me', now() FROM generate_series(1, 10000) n", job.id,
    )  # fmt: skip
    with refused("WB008", "10000 unread signals"):
        send(db, job)
    db.change("UPDATE {schema}.signals SET read_by = 'receive' WHERE seq = 1")
    assert send(db, job) == "stored"


def test_signals_are_deleted_with_their_job(db: Db) -> None:
    epoch, job = claimed(db)
    send(db, job)
    db.settle(epoch, End(job))
    assert db.value("sweep_steps") is None
    assert db.count("signals") == 1
    db.change("DELETE FROM {schema}.finished_jobs")
    db.value("sweep_steps")
    assert db.count("signals") == 0


def test_rewind_runs_a_step_and_later_ones_again_with_their_signals(db: Db) -> None:
    epoch, job = claimed(db)
    send(db, job)
    assert receive(db, job) == ("done", 1)
    assert receive(db, job, step="receive#2", seq=2) == ("waiting", None)
    with refused("WB008", "is running"):
        db.value("rewind", id=job.id, step="receive")
    db.settle(epoch, End(job, "suspended"))
    with refused("WB003", "has no step 'other'"):
        db.value("rewind", id=job.id, step="other")
    assert db.value("rewind", id=job.id, step="receive") == "suspended"
    assert db.count("steps") == 0
    again = db.claim_one(epoch)
    assert receive(db, again) == ("done", 1)
    db.settle(epoch, End(again, "failed", error={"kind": "permanent"}))
    assert db.value("rewind", id=job.id, step="receive") == "dead"
    db.expect(job.id, state="queued", attempt=0)
    db.run(epoch, "succeeded")
    with refused("WB008", "has succeeded"):
        db.value("rewind", id=job.id, step="receive")
    assert db.value("rewind", id=db.new_id(), step="receive") is None
