"""An enqueue whose reply was lost is sent again, and makes no second job, whatever became of the first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.harness import Db, End, refused, settlement


def test_sent_again_while_the_first_waits_or_runs(db: Db) -> None:
    first = db.send()
    epoch = db.node()
    for _ in range(2):
        again = db.send(id=first.id, resend=True)
        assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
        db.claim(epoch)
    assert db.count("jobs") == 1


def test_sent_again_when_the_first_never_arrived(db: Db) -> None:
    sent = db.send(resend=True)
    assert sent.created
    assert db.states(sent.id) == ["queued"]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_sent_again_after_the_first_has_finished(db: Db, outcome: str) -> None:
    first = db.send(max_attempts=1)
    db.run(db.node(), outcome)
    again = db.send(id=first.id, resend=True, max_attempts=1)
    assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
    assert db.count("jobs") == 0


def test_sent_again_while_the_settle_of_the_first_is_under_way(db: Db) -> None:
    """The INSERT waits for the settle; what it then may insert has finished meanwhile."""
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send()
    held = db.claim_one(epoch)
    settler.begin()
    settler.settle(epoch, End(held))
    again = producer.start("enqueue", type="task", id=first.id, resend=True).blocked()
    settler.commit()
    assert tuple(again.row()) == (first.id, first.seq, True, False)
    assert db.states(first.id) == ["succeeded"]
    assert db.count("jobs") == 0


def test_sent_again_while_a_settle_that_is_rolled_back_is_under_way(db: Db) -> None:
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send()
    held = db.claim_one(epoch)
    settler.begin()
    settler.settle(epoch, End(held))
    again = producer.start("enqueue", type="task", id=first.id, resend=True).blocked()
    settler.rollback()
    assert tuple(again.row()) == (first.id, first.seq, True, False)
    assert db.states(first.id) == ["running"]


def test_sent_again_while_the_first_has_not_committed(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    sent = first.send()
    again = second.start("enqueue", type="task", id=sent.id, resend=True).blocked()
    first.commit()
    assert tuple(again.row()) == (sent.id, sent.seq, True, False)
    assert db.count("jobs") == 1


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_sent_again_needs_a_view_of_what_finished_meanwhile(db: Db, isolation: Any) -> None:
    """With an older snapshot the INSERT succeeds and the finished row is not seen: that would be a second job."""
    producer, epoch = db.session(), db.node()
    first = db.send()
    producer.begin(isolation)
    producer.execute("SELECT 1 FROM watchbill.jobs")
    db.run(epoch, "succeeded")
    with refused("WB005", "needs READ COMMITTED"):
        producer.send(id=first.id, resend=True)
    producer.rollback()


def test_a_bulk_sent_again_makes_only_what_is_missing(db: Db) -> None:
    epoch = db.node()
    jobs = [{"type": "task", "id": str(db.new_id())} for _ in range(4)]
    first = db.call("enqueue_many", jobs=jobs[:3])
    db.run(epoch, "succeeded")
    db.claim_one(epoch)
    again = db.call("enqueue_many", jobs=jobs, resend=True)
    assert [row.created for row in again] == [True] * 4
    assert [row.seq for row in again[:3]] == [row.seq for row in first]
    assert db.states(*(row.id for row in again)) == ["succeeded", "running", "queued", "queued"]


def test_two_producers_that_send_one_bulk_again_do_not_deadlock(db: Db) -> None:
    one, other = db.session(), db.session()
    jobs = [{"type": "task", "id": str(db.new_id())} for _ in range(20)]
    one.begin()
    one.call("enqueue_many", jobs=jobs[5:], resend=True)
    second = other.start("enqueue_many", jobs=jobs, resend=True).blocked()
    one.call("enqueue_many", jobs=jobs[10:], resend=True)
    one.commit()
    assert [row.created for row in second.rows()] == [True] * 20
    assert db.count("jobs") == 20


def test_a_job_with_a_key_sent_again_is_still_the_first(db: Db) -> None:
    epoch = db.node()
    first = db.send(idempotency_key="k")
    for _ in range(2):
        again = db.send(id=first.id, idempotency_key="k", resend=True)
        assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
        for held in db.claim(epoch):
            db.settle(epoch, End(held))
    assert db.states(first.id) == ["succeeded"]
    again = db.send(id=first.id, idempotency_key="k", resend=True)
    assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
    assert db.count("jobs") == 0


def test_a_job_with_a_key_sent_again_while_it_is_settled(db: Db) -> None:
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send(idempotency_key="k")
    held = db.claim_one(epoch)
    settler.begin()
    settler.call("settle", **settlement(epoch, End(held)))
    again = producer.start("enqueue", type="task", id=first.id, idempotency_key="k", resend=True).blocked()
    settler.commit()
    assert tuple(again.row()) == (first.id, first.seq, True, False)
    assert db.count("jobs") == 0
