"""Jobs of types or versions that a node does not know: unspent, for one that does, and dead after a grace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, settlement

HOUR = timedelta(hours=1)


def meet(db: Db, epoch: int, **more: Any) -> Any:
    """The node takes the next job and gives it back because it does not know it."""
    held = db.claim_one(epoch, **more)
    assert db.settle(epoch, End(held, "unsupported", age=None)) == {held.id: "queued"}
    return held


def test_it_goes_back_unspent_and_the_node_does_not_see_it_again(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t")
    meet(db, stranger)
    db.expect(job, state="queued", wait="unsupported", attempt=0, lost=0, run=1, run_at=db.now)
    assert db.claim(stranger) == []
    assert db.outcomes(job) == []


def test_a_node_that_knows_it_takes_it(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1, "u": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    held = db.claim_one(expert)
    assert (held.id, held.run) == (job, 2)
    assert db.settle(expert, End(held)) == {}
    assert db.states(job) == ["succeeded"]


def test_a_node_that_has_no_place_for_it_leaves_it(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1, "u": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    assert db.claim(expert, without=["t"]) == []
    assert [row.id for row in db.claim(expert, without=["u"])] == [job]


def test_a_node_must_know_the_version_too(db: Db) -> None:
    old, new = db.node(types={"t": 1}), db.node(types={"t": 3})
    job = db.enqueue("t", version=2)
    meet(db, old)
    assert db.claim(old) == []
    assert [row.id for row in db.claim(new)] == [job]


@pytest.mark.parametrize("wait", ["delayed", "blocked", "parked", "paused"])
def test_others_of_its_type_that_wait_for_something_else_go_on_waiting(db: Db, wait: str) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    met = db.enqueue("t")
    meet(db, stranger)
    other = db.enqueue("t", priority=9)
    db.change("UPDATE {schema}.jobs SET wait = %s WHERE id = %s", wait, other)
    assert [row.id for row in db.claim(expert)] == [met]


def test_only_its_queues_are_searched(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    db.enqueue("t", queue="a")
    meet(db, stranger, queues=["a"])
    assert db.claim(expert, queues=["b"]) == []
    assert len(db.claim(expert, queues=["b", "a"])) == 1


def test_a_claim_that_is_full_takes_none_of_them_and_one_with_room_no_more_than_fit(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    for _ in range(4):
        db.enqueue("t")
    for _ in range(4):
        meet(db, stranger)
    db.enqueue("o"), db.enqueue("o")
    assert [row.type for row in db.claim(expert, 2)] == ["o", "o"]
    assert len(db.claim(expert, 10, free=1)) == 1
    assert len(db.claim(expert, 2)) == 2


def test_they_are_taken_by_priority(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    low, high, middle = (db.enqueue("t", priority=priority) for priority in (1, 3, 2))
    for _ in range(3):
        meet(db, stranger)
    assert [db.claim_one(expert).id for _ in range(3)] == [high, middle, low]


def test_one_that_was_lost_still_runs_alone(db: Db) -> None:
    """A node that does not know its type must not make it forget that it may kill its process."""
    lost, stranger, expert = db.node(), db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    db.claim(lost)
    db.lose(lost)
    db.value("heartbeat", epoch=stranger), db.value("heartbeat", epoch=expert)
    db.make_ready()
    meet(db, stranger, alone=True)
    db.expect(job, wait="unsupported", alone=True, lost=1)
    assert db.claim(expert) == []
    assert db.claim(stranger, alone=True) == []
    assert [row.id for row in db.claim(expert, alone=True)] == [job]


@pytest.mark.parametrize(
    ("outcome", "state", "wait"),
    [("failed", "failed", "delayed"), ("snoozed", "queued", None), ("released", "queued", None)],
)
def test_after_a_run_it_waits_like_any_other(db: Db, outcome: str, state: str, wait: str | None) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    held = db.claim_one(expert)
    assert db.settle(expert, End(held, outcome)) == {job: state}
    db.expect(job, state=state, wait=wait)


def test_a_loss_of_the_node_that_knows_it_counts(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    db.claim(expert)
    assert db.lose(expert) == {job: "failed"}
    db.expect(job, state="failed", wait="delayed", lost=1, alone=True)


def test_it_is_dead_after_the_grace_and_no_attempt_was_spent(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t", version=3)
    meet(db, stranger)
    db.tick(3599)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    db.tick(1)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    error = {"kind": "unsupported", "message": "no live node handles type t, version 3"}
    db.expect(job, state="dead", attempt=0, lost=0, error=error, finished_at=db.now, fence=None, epoch=None)
    assert db.outcomes(job) == []
    assert db.value("expire_unsupported", grace=HOUR) == 0
    assert db.count("unsupported_types") == 0


def test_the_grace_counts_from_when_the_job_was_due(db: Db) -> None:
    stranger = db.node()
    first = db.enqueue("t")
    meet(db, stranger)
    db.tick(3000)
    second = db.enqueue("t")
    meet(db, stranger)
    db.tick(600)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    assert db.states(first, second) == ["dead", "queued"]


def test_a_node_that_handles_the_type_stops_that_clock(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t")
    meet(db, stranger)
    db.tick(3000)
    expert = db.node(types={"t": 1})
    db.tick(3000)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    db.value("leave", epoch=expert)
    db.tick(3599)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    db.tick(1)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    assert db.states(job) == ["dead"]


@pytest.mark.parametrize("types", [{"t": 1}, {"u": 9}])
def test_a_node_of_another_type_or_an_older_version_does_not(db: Db, types: dict[str, int]) -> None:
    stranger = db.node()
    db.enqueue("t", version=2)
    meet(db, stranger)
    db.node(types=types)
    db.tick(3600)
    assert db.value("expire_unsupported", grace=HOUR) == 1


def test_a_node_that_drains_does_not(db: Db) -> None:
    stranger = db.node()
    db.enqueue("t")
    meet(db, stranger)
    db.node("leaving", types={"t": 1})
    db.value("drain", name="leaving")
    db.tick(3600)
    assert db.value("expire_unsupported", grace=HOUR) == 1


def test_a_running_one_is_not_expired(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    db.claim(expert)
    db.value("drain", name=db.rows("nodes")[1].name)
    db.tick(7200)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    assert db.states(job) == ["running"]


def test_as_many_expire_in_one_call_as_it_is_told(db: Db) -> None:
    stranger = db.node()
    for _ in range(5):
        db.enqueue("t")
    for _ in range(5):
        meet(db, stranger)
    db.tick(3600)
    assert [db.value("expire_unsupported", grace=HOUR, max=2) for _ in range(4)] == [2, 2, 1, 0]


def test_one_that_an_operator_holds_is_passed_over(db: Db) -> None:
    stranger, operator = db.node(), db.session()
    job = db.enqueue("t")
    meet(db, stranger)
    db.tick(3600)
    operator.begin()
    operator.value("cancel", id=job)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    operator.commit()
    assert db.states(job) == ["canceled"]


def test_a_type_forgotten_while_a_job_was_given_back_is_listed_again(db: Db) -> None:
    """The chore saw no job of the type and forgot it, while a settle that relied on its row was under way."""
    stranger, settler = db.node(), db.session()
    db.enqueue("t")
    meet(db, stranger)
    db.value("cancel", id=db.rows("jobs")[0].id)  # the type's row stays until the chore runs
    job = db.enqueue("t")
    held = db.claim_one(stranger)
    settler.begin()
    settler.settle(stranger, End(held, "unsupported", age=None))
    db.value("expire_unsupported", grace=HOUR)
    settler.commit()
    assert db.count("unsupported_types") == 0
    db.value("expire_unsupported", grace=HOUR)
    expert = db.node(types={"t": 1})
    assert [row.id for row in db.claim(expert)] == [job]


def test_types_given_back_are_listed_in_sorted_order(db: Db) -> None:
    """So that of two nodes which give back the same new types one waits for the other and neither deadlocks."""
    one, other = db.session(), db.session()
    first, second = db.node(), db.node()
    types = [f"t{n:02}" for n in range(20)]
    for name in types:
        db.enqueue(name)
    mine = [End(db.claim_one(first), "unsupported", age=None) for _ in types]
    for name in reversed(types):
        db.enqueue(name)
    yours = [End(db.claim_one(second), "unsupported", age=None) for _ in types]
    one.begin()
    one.settle(first, mine[10])
    waiting = other.start("settle", **settlement(second, *yours)).blocked()
    one.settle(first, *mine[11:])  # would deadlock if the other had listed one of these already
    one.commit()
    assert {row.state for row in waiting.rows()} == {"queued"}


def test_a_job_put_off_while_nobody_knows_its_type_starts_no_earlier(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t")
    db.settle(stranger, End(db.claim_one(stranger), "unsupported", age=None))
    db.value("reschedule", id=job)
    db.expect(job, wait="unsupported")
    db.value("reschedule", id=job, run_at=db.after(3600))
    expert = db.node(types={"t": 1})
    assert db.claim(expert) == []
    db.make_ready()
    assert [row.id for row in db.claim(expert)] == [job]
