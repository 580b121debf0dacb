"""An enqueue whose reply was lost is sent again, and makes no second job, whatever became of the first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.harness import Db, End, refused, settlement


def test_resend_finds_a_waiting_or_running_job(db: Db) -> None:
    first = db.send()
    epoch = db.node()
    for _ in range(2):
        again = db.send(id=first.id, resend=True)
        assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
        db.claim(epoch)
    assert db.count("jobs") == 1


def test_resend_makes_the_job_if_the_first_never_arrived(db: Db) -> None:
    sent = db.send(resend=True)
    assert sent.created
    assert db.states(sent.id) == ["queued"]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_resend_finds_a_finished_job(db: Db, outcome: str) -> None:
    first = db.send(max_attempts=1)
    db.run(db.node(), outcome)
    again = db.send(id=first.id, resend=True, max_attempts=1)
    assert (again.id, again.seq, again.created) == (first.id, first.seq, True)
    assert db.count("jobs") == 0


def test_resend_during_a_settle_makes_no_second_job(db: Db) -> None:
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


def test_resend_during_a_rolled_back_settle_makes_no_second_job(db: Db) -> None:
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send()
    held = db.claim_one(epoch)
    settler.begin()
    settler.settle(epoch, End(held))
    again = producer.start("enqueue", type="task", id=first.id, resend=True).blocked()
    settler.rollback()
    assert tuple(again.row()) == (first.id, first.seq, True, False)
    assert db.states(first.id) == ["running"]


def test_resend_before_the_first_commits_makes_no_second_job(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    sent = first.send()
    again = second.start("enqueue", type="task", id=sent.id, resend=True).blocked()
    first.commit()
    assert tuple(again.row()) == (sent.id, sent.seq, True, False)
    assert db.count("jobs") == 1


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_resend_needs_read_committed(db: Db, isolation: Any) -> None:
    """With an older snapshot the INSERT succeeds and the finished row is not seen: that would be a second job."""
    producer, epoch = db.session(), db.node()
    first = db.send()
    producer.begin(isolation)
    producer.execute("SELECT 1 FROM watchbill.jobs")
    db.run(epoch, "succeeded")
    with refused("WB005", "needs READ COMMITTED"):
        producer.send(id=first.id, resend=True)
    producer.rollback()


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_id_of_a_finished_job_makes_no_second_job(db: Db, outcome: str) -> None:
    first = db.send(max_attempts=1)
    db.run(db.node(), outcome)
    again = db.send(id=first.id)
    assert (again.id, again.seq, again.created) == (first.id, first.seq, False)
    assert db.count("jobs") == 0


def test_ids_of_finished_jobs_in_a_bulk_make_no_second_jobs(db: Db) -> None:
    first = db.send()
    db.run(db.node(), "succeeded")
    waiting = db.send()
    jobs = [{"type": "task", "id": str(each)} for each in (first.id, waiting.id, db.new_id())]
    again = db.call("enqueue_many", jobs=jobs)
    assert [(row.seq, row.created) for row in again[:2]] == [(first.seq, False), (waiting.seq, False)]
    assert again[2].created
    assert db.count("jobs") == 2


def test_id_during_a_settle_makes_no_second_job(db: Db) -> None:
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send()
    held = db.claim_one(epoch)
    settler.begin()
    settler.settle(epoch, End(held))
    again = producer.start("enqueue", type="task", id=first.id).blocked()
    settler.commit()
    assert tuple(again.row()) == (first.id, first.seq, False, False)
    assert db.count("jobs") == 0


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_given_id_needs_read_committed(db: Db, isolation: Any) -> None:
    producer = db.session()
    producer.begin(isolation)
    with refused("WB005", "enqueue with a given id needs READ COMMITTED"):
        producer.send(id=db.new_id())
    producer.rollback()
    producer.begin(isolation)
    assert producer.send(id=db.new_id(), id_is_new=True).created
    producer.commit()


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_given_ids_of_a_bulk_need_read_committed(db: Db, isolation: Any) -> None:
    producer = db.session()
    producer.begin(isolation)
    with refused("WB005", "enqueue with a given id needs READ COMMITTED"):
        producer.call("enqueue_many", jobs=[{"type": "task", "id": str(db.new_id())}])
    producer.rollback()


def test_given_ids_of_a_bulk_keep_the_order_of_enqueue_and_all_options(db: Db) -> None:
    ids = sorted((db.new_id() for _ in range(3)), reverse=True)
    options = {
        "type": "task",
        "queue": "q",
        "max_attempts": 1,
        "timeout": "9 s",
        "delay": "1 minute",
        "ordered_by": "x",
    }
    given = db.call("enqueue_many", jobs=[options | {"id": str(each)} for each in ids])
    assert [row.id for row in given] == ids
    assert [row.seq for row in given] == sorted(row.seq for row in given)
    made = db.call("enqueue_many", jobs=[options])[0]
    one, other = db.look(ids[0])._asdict(), db.look(made.id)._asdict()
    assert {name for name in one if one[name] != other[name]} == {"id", "seq"}


def test_resend_of_a_bulk_makes_only_the_missing_jobs(db: Db) -> None:
    epoch = db.node()
    jobs = [{"type": "task", "id": str(db.new_id())} for _ in range(4)]
    first = db.call("enqueue_many", jobs=jobs[:3])
    db.run(epoch, "succeeded")
    db.claim_one(epoch)
    again = db.call("enqueue_many", jobs=jobs, resend=True)
    assert [row.created for row in again] == [True] * 4
    assert [row.seq for row in again[:3]] == [row.seq for row in first]
    assert db.states(*(row.id for row in again)) == ["succeeded", "running", "queued", "queued"]


def test_concurrent_resends_of_one_bulk_do_not_deadlock(db: Db) -> None:
    one, other = db.session(), db.session()
    jobs = [{"type": "task", "id": str(db.new_id())} for _ in range(20)]
    one.begin()
    one.call("enqueue_many", jobs=jobs[5:], resend=True)
    second = other.start("enqueue_many", jobs=jobs, resend=True).blocked()
    one.call("enqueue_many", jobs=jobs[10:], resend=True)
    one.commit()
    assert [row.created for row in second.rows()] == [True] * 20
    assert db.count("jobs") == 20


def test_resend_with_a_key_returns_the_first_job_as_created(db: Db) -> None:
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


def test_resend_with_a_key_during_a_settle_makes_no_second_job(db: Db) -> None:
    settler, producer, epoch = db.session(), db.session(), db.node()
    first = db.send(idempotency_key="k")
    held = db.claim_one(epoch)
    settler.begin()
    settler.call("settle", **settlement(epoch, End(held)))
    again = producer.start("enqueue", type="task", id=first.id, idempotency_key="k", resend=True).blocked()
    settler.commit()
    assert tuple(again.row()) == (first.id, first.seq, True, False)
    assert db.count("jobs") == 0
