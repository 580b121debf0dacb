"""Ordered keys: one job at a time, in the order of enqueue, retries included."""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import UUID

import pytest

from tests.store.flow import assert_within_limits, declare_limit, enqueue, waits
from tests.store.harness import Db, End, refused
from tests.store.test_wake import heard, sleeper
from tests.waiting import until

KEY = "order:task:7"


def take(db: Db, epoch: int) -> list[UUID]:
    return sorted(row.id for row in db.claim(epoch))


def test_jobs_of_a_key_run_one_at_a_time_in_the_order_of_enqueue(db: Db) -> None:
    epoch = db.node()
    jobs = [enqueue(db, order="7") for _ in range(4)]
    other = enqueue(db, order="8")
    (held, *rest) = sorted(db.claim(epoch), key=lambda row: row.id)
    assert [held.id, *(row.id for row in rest)] == [jobs[0], other]
    for job in jobs[1:]:
        assert db.claim(epoch) == []
        db.settle(epoch, End(held))
        held = db.claim_one(epoch)
        assert held.id == job
    assert_within_limits(db)


@pytest.mark.parametrize("ending", ["failed", "snoozed", "released", "unsupported"])
def test_an_unfinished_head_keeps_its_key(db: Db, ending: str) -> None:
    epoch, expert = db.node(), db.node(types={"task": 1})
    head, second = enqueue(db, order="7"), enqueue(db, order="7")
    held = db.claim_one(epoch)
    db.settle(epoch, End(held, ending, age=None if ending == "unsupported" else 1.0, delay=timedelta(hours=1)))
    assert_within_limits(db)
    if ending == "released":
        assert take(db, epoch) == [head]
        return
    assert take(db, epoch) == []
    assert waits(db, second) == [("parked", KEY)]
    db.make_ready()
    assert take(db, expert) == [head]
    assert take(db, expert) == []


@pytest.mark.parametrize("wait", ["delayed", "blocked", "paused", "unsupported"])
def test_an_earlier_job_that_waits_holds_its_key(db: Db, wait: str) -> None:
    epoch = db.node()
    head, second = enqueue(db, order="7"), enqueue(db, order="7")
    db.set_wait(head, wait)
    if wait == "unsupported":
        db.change("INSERT INTO {schema}.unsupported_types VALUES ('task', 1, now())")
    elif wait == "paused":
        db.value("pause", queue="nothing", type="task")
    assert take(db, epoch) == []
    assert waits(db, second) == [("parked", KEY)]
    db.set_wait(head, None)
    assert take(db, epoch) == [head]


def test_the_head_that_is_canceled_while_it_waits_lets_the_next_one_go(db: Db) -> None:
    epoch = db.node()
    head, second = enqueue(db, order="7"), enqueue(db, order="7")
    db.set_wait(head, "delayed")
    assert take(db, epoch) == []
    db.value("cancel", id=head)
    assert db.value("unpark", keys=[KEY]) == 1
    assert take(db, epoch) == [second]


@pytest.mark.parametrize("when_dead", ["continue", "pause"])
def test_a_dead_head_lets_the_next_one_go_or_keeps_the_key(db: Db, when_dead: str) -> None:
    epoch = db.node()
    declare_limit(db, "order:task", when_dead=when_dead)
    head, second = enqueue(db, order="7"), enqueue(db, order="7")
    db.settle(epoch, End(db.claim_one(epoch), "failed", error={"kind": "permanent"}))
    db.expect(head, state="dead")
    if when_dead == "continue":
        assert take(db, epoch) == [second]
        return
    assert take(db, epoch) == []
    assert waits(db, second) == [("parked", KEY)]
    db.value("reschedule", id=head)
    held = db.claim_one(epoch)
    assert held.id == head
    db.settle(epoch, End(held))
    assert take(db, epoch) == [second]


@pytest.mark.parametrize("how", ["purge", "erase_tenant"])
def test_a_dead_head_that_is_deleted_no_longer_keeps_the_key(db: Db, how: str) -> None:
    epoch, listener = db.node(), sleeper(db)
    declare_limit(db, "order:task", when_dead="pause")
    head, second = enqueue(db, order="7", tenant="acme"), enqueue(db, order="7")
    db.settle(epoch, End(db.claim_one(epoch), "failed", error={"kind": "permanent"}))
    assert take(db, epoch) == []
    if how == "purge":
        assert db.value("purge", states=["dead"], ids=[head]) == 1
    else:
        until(lambda: db.row("erase_tenant", tenant="acme").is_done)
    assert "unpark" in heard(db, listener)
    db.call("promote")
    assert take(db, epoch) == [second]
    assert_within_limits(db)


def test_a_purge_leaves_the_keys_of_other_jobs_alone(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "order:task", when_dead="pause")
    for order in ("7", "8"):
        enqueue(db, order=order)
        db.settle(epoch, End(db.claim_one(epoch), "failed", error={"kind": "permanent"}))
    dead = [row.id for row in db.rows("finished_jobs", "seq")]
    enqueue(db, order="9")
    db.claim_one(epoch)
    assert db.value("purge", states=["dead"], ids=[dead[0]]) == 1
    assert [row.key for row in db.rows("holds")] == ["order:task:8", "order:task:9"]


def test_a_lost_head_runs_again_before_the_next_one(db: Db) -> None:
    lost = db.node()
    head, second = enqueue(db, order="7"), enqueue(db, order="7")
    db.claim_one(lost)
    db.lose(lost)
    epoch = db.node()
    assert take(db, epoch) == []
    db.make_ready()
    assert take(db, epoch) == []
    held = db.claim_one(epoch, alone=True)
    assert held.id == head
    db.settle(epoch, End(held))
    assert take(db, epoch) == [second]


def test_a_stale_node_cannot_end_a_job_of_the_key(db: Db) -> None:
    epoch = db.node()
    enqueue(db, order="7")
    held = db.claim_one(epoch)
    db.value("release", id=held.id)
    again = db.claim_one(epoch)
    with refused("WB007"):
        db.call("complete", id=held.id, fence=held.fence)
    assert_within_limits(db)
    db.settle(epoch, End(again))


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_keep_the_order_of_every_key(db: Db, seed: int) -> None:
    """With retries, delays, another limit, several nodes and batches of any size."""
    chance, nodes = random.Random(seed), [db.node() for _ in range(3)]
    declare_limit(db, "api", 2)
    keys: dict[UUID, int] = {}
    for _ in range(60):
        key = chance.randrange(5)
        delay = timedelta(seconds=chance.choice([0, 0, 0, 30]))
        api = ["key:api"] if chance.random() < 0.3 else []
        keys[enqueue(db, *api, order=str(key), delay=delay, max_attempts=50)] = key
    finished: dict[int, list[UUID]] = {key: [] for key in range(5)}
    for _ in range(2000):
        if not keys.keys() - {job for done in finished.values() for job in done}:
            break
        epoch = chance.choice(nodes)
        rows = db.claim(epoch, chance.choice([1, 4, 100]))
        assert len({keys[row.id] for row in rows}) == len(rows)
        assert_within_limits(db)
        ends = [End(row, chance.choice(["succeeded", "succeeded", "failed", "released"])) for row in rows]
        chance.shuffle(ends)
        if ends:
            states = db.settle(epoch, *ends)
            for end in ends:
                if states.get(end.job.id, "succeeded") == "succeeded":
                    finished[keys[end.job.id]].append(end.job.id)
        elif chance.random() < 0.5:
            db.make_ready()
    assert {key: sorted(jobs) for key, jobs in finished.items()} == finished
    assert db.rows("jobs") == []
    assert db.rows("holds") == []


@pytest.mark.parametrize("how", ["rescheduled", "late commit"])
def test_a_job_that_is_tried_again_keeps_its_key_before_an_earlier_one_that_comes_late(db: Db, how: str) -> None:
    epoch, producer = db.node(), db.session()
    producer.begin()
    first = producer.enqueue(ordered_by="7")
    if how == "rescheduled":
        producer.commit()
        db.settle(epoch, End(db.claim_one(epoch)))
    second = db.enqueue(ordered_by="7")
    db.settle(epoch, End(db.claim_one(epoch), "failed", age=1.0, delay=timedelta(hours=1)))
    if how == "rescheduled":
        db.value("reschedule", id=first)
    else:
        producer.commit()
    assert db.claim(epoch) == []
    db.make_ready()
    held = db.claim_one(epoch)
    assert held.id == second
    db.settle(epoch, End(held))
    assert take(db, epoch) == [first]
    assert_within_limits(db)


def test_a_replaced_job_lets_go_of_the_key_that_it_no_longer_has(db: Db) -> None:
    epoch = db.node()
    given = {"ordered_by": "{order}", "unique_by": "{document}", "on_duplicate": "replace"}
    job = db.enqueue(payload={"order": 7, "document": 1}, **given)
    db.settle(epoch, End(db.claim_one(epoch), "failed", age=1.0, delay=timedelta(hours=1)))
    assert db.enqueue(payload={"order": 8, "document": 1}, **given) == job
    assert_within_limits(db)
    next_one = db.enqueue(payload={"order": 7, "document": 2}, **given)
    assert take(db, epoch) == sorted([job, next_one])
    assert_within_limits(db)


def test_unpark_of_an_ordered_key_leaves_a_first_job_that_waits_for_another_key(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 0)
    head = enqueue(db, "key:api", order="1")
    assert db.claim(epoch) == []
    behind = enqueue(db, order="1")
    assert db.claim(epoch) == []
    assert waits(db, head, behind) == [("parked", "key:api"), ("parked", "order:task:1")]
    assert db.value("unpark", keys=["order:task:1"]) == 0
    assert waits(db, head, behind) == [("parked", "key:api"), ("parked", "order:task:1")]
