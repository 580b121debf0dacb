"""One job per (tenant, type, key), for a window or as long as the job is kept."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.store.harness import Db, End, refused


def test_a_duplicate_returns_the_first_job_and_says_so(db: Db) -> None:
    first = db.send("t", idempotency_key="k", payload={"a": 1})
    again = db.send("t", idempotency_key="k", payload={"a": 1})
    assert tuple(again) == (first.id, first.seq, False, False)
    assert db.count("jobs") == 1


def test_key_is_unique_per_tenant_and_type(db: Db) -> None:
    for more in ({}, {"tenant": "b"}, {"type": "u"}):
        assert db.send(**({"type": "t", "idempotency_key": "k"} | more)).created


def test_duplicate_with_another_payload_sets_payload_differs(db: Db) -> None:
    first = db.send("t", idempotency_key="k", payload={"a": 1})
    assert tuple(db.send("t", idempotency_key="k", payload={"a": 2})) == (first.id, first.seq, False, True)
    db.expect(first.id, payload={"a": 1})


def test_key_order_does_not_make_payloads_differ(db: Db) -> None:
    db.send("t", idempotency_key="k", payload={"a": 1, "b": [1.0, None]})
    assert not db.send("t", idempotency_key="k", payload={"b": [1.0, None], "a": 1}).payload_differs


def test_strict_refuses_a_duplicate_with_another_payload(db: Db) -> None:
    first = db.send("t", idempotency_key="k", payload={"a": 1}, strict=True)
    assert db.send("t", idempotency_key="k", payload={"a": 1}, strict=True).created is False
    with refused("WB004", f"idempotency key 'k' of type 't' was used with another payload, by job {first.id}"):
        db.send("t", idempotency_key="k", payload={"a": 2}, strict=True)
    with refused("WB004"):
        db.call("enqueue_many", jobs=[{"type": "t", "idempotency_key": "k", "payload": {"a": 2}}], strict=True)


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_key_without_a_window_holds_as_long_as_the_job_is_kept(db: Db, outcome: str) -> None:
    epoch = db.node()
    first = db.send("t", idempotency_key="k", max_attempts=1)
    db.run(epoch, outcome)
    db.tick(86400 * 300)
    assert tuple(db.send("t", idempotency_key="k")) == (first.id, first.seq, False, False)
    db.value("purge", states=["succeeded", "dead"])
    assert db.send("t", idempotency_key="k").created


def test_key_of_a_deleted_job_can_be_used_again(db: Db) -> None:
    """A partition was dropped, and the keys of its jobs have not been pruned yet."""
    first = db.send("t", idempotency_key="k", payload={"a": 1})
    db.run(db.node(), "succeeded")
    db.change("DELETE FROM {schema}.finished_jobs")
    second = db.send("t", idempotency_key="k", payload={"a": 2})
    assert (second.created, second.payload_differs) == (True, False)
    assert second.id != first.id
    assert tuple(db.send("t", idempotency_key="k", payload={"a": 2})) == (second.id, second.seq, False, False)


def test_key_can_be_used_again_after_its_window(db: Db) -> None:
    first = db.send("t", idempotency_key="k", idempotency_window=timedelta(hours=1), payload={"a": 1})
    db.tick(3599)
    assert db.send("t", idempotency_key="k", payload={"a": 1}).id == first.id
    db.tick(1)
    second = db.send("t", idempotency_key="k", idempotency_window=timedelta(hours=2), payload={"a": 2})
    assert (second.created, second.payload_differs) == (True, False)
    db.tick(7199)
    assert db.send("t", idempotency_key="k", payload={"a": 2}).id == second.id


def test_key_is_held_during_its_window_after_the_job_ended(db: Db) -> None:
    first = db.send("t", idempotency_key="k", idempotency_window=timedelta(hours=1))
    db.run(db.node(), "succeeded")
    assert db.send("t", idempotency_key="k").id == first.id


def test_concurrent_duplicate_waits_and_returns_the_first_job(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    first = one.send("t", idempotency_key="k", payload={"a": 1})
    second = other.start("enqueue", type="t", idempotency_key="k", payload={"a": 2}).blocked()
    one.commit()
    assert tuple(second.row()) == (first.id, first.seq, False, True)


def test_concurrent_duplicate_of_a_rolled_back_job_is_created(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    one.send("t", idempotency_key="k")
    second = other.start("enqueue", type="t", idempotency_key="k").blocked()
    one.rollback()
    assert second.row().created
    assert db.count("jobs") == 1


def test_only_one_of_two_concurrent_jobs_gets_an_expired_key(db: Db) -> None:
    db.send("t", idempotency_key="k", idempotency_window=timedelta(hours=1))
    db.tick(7200)
    one, other = db.session(), db.session()
    one.begin()
    first = one.send("t", idempotency_key="k", idempotency_window=timedelta(hours=1))
    second = other.start("enqueue", type="t", idempotency_key="k", idempotency_window=timedelta(hours=1)).blocked()
    one.commit()
    assert first.created
    assert tuple(second.row()) == (first.id, first.seq, False, False)


def test_waiting_duplicate_gets_the_key_if_it_is_purged(db: Db) -> None:
    """The duplicate found the key taken, waited for its row, and the row was gone."""
    db.send("t", idempotency_key="k")
    db.run(db.node(), "succeeded")
    one, other = db.session(), db.session()
    one.begin()
    one.send("t", idempotency_key="k")  # locks the key's row
    waiting = other.start("enqueue", type="t", idempotency_key="k").blocked()
    one.value("purge", states=["succeeded"])
    one.commit()
    second = waiting.row()
    assert second.created
    assert tuple(db.send("t", idempotency_key="k")) == (second.id, second.seq, False, False)


def test_a_bulk_with_one_key_twice_makes_one_job(db: Db) -> None:
    job = {"type": "t", "idempotency_key": "k", "payload": {"a": 1}}
    first, second, third = db.call("enqueue_many", jobs=[job, job, job | {"payload": {"a": 2}}])
    assert (first.created, second.created, third.created) == (True, False, False)
    assert (first.id, first.seq) == (second.id, second.seq) == (third.id, third.seq)
    assert (second.payload_differs, third.payload_differs) == (False, True)
    assert db.count("jobs") == 1


def test_two_bulks_with_the_same_keys_in_opposite_order_do_not_deadlock(db: Db) -> None:
    one, other = db.session(), db.session()
    jobs = [{"type": "t", "idempotency_key": f"k{n}"} for n in range(50)]
    one.begin()
    first = one.call("enqueue_many", jobs=jobs[25:] + jobs[:25])
    waiting = other.start("enqueue_many", jobs=jobs[::-1]).blocked()
    one.commit()
    second = waiting.rows()
    assert [row.created for row in second] == [False] * 50
    assert {row.id for row in second} == {row.id for row in first}


def test_bulk_enqueue_locks_keys_in_sorted_order(db: Db) -> None:
    """The first that a bulk waits for is its smallest, so all bulks wait in one order."""
    one, other = db.session(), db.session()
    one.begin()
    one.send("t", idempotency_key="b")
    waiting = other.start(
        "enqueue_many", jobs=[{"type": "t", "idempotency_key": key} for key in ("d", "c", "b", "a")]
    ).blocked()
    one.call("enqueue_many", jobs=[{"type": "t", "idempotency_key": key} for key in ("c", "d")])  # would deadlock
    one.commit()
    assert sorted(row.created for row in waiting.rows()) == [False, False, False, True]


def test_key_rolled_back_to_a_savepoint_can_be_used_again(db: Db) -> None:
    one = db.session()
    one.begin()
    one.execute("SAVEPOINT s")
    one.send("t", idempotency_key="k")
    one.execute("ROLLBACK TO s")
    assert one.send("t", idempotency_key="k").created
    one.commit()


def test_a_rescheduled_job_keeps_its_key(db: Db) -> None:
    epoch = db.node()
    first = db.send("t", idempotency_key="k")
    db.settle(epoch, End(db.claim_one(epoch)))
    db.value("reschedule", id=first.id)
    assert db.send("t", idempotency_key="k").id == first.id
    job: UUID = first.id
    db.expect(job, idempotency_key="k", state="queued")
