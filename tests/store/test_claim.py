"""Claiming: who may, in which order, how much ahead, and what a claim leaves behind."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import NOBODY, Db, End, refused


def order(db: Db, epoch: int, **more: Any) -> list[UUID]:
    """The ids in the order in which single claims take them."""
    found: list[UUID] = []
    while rows := db.claim(epoch, 1, **more):
        found += [row.id for row in rows]
    return found


def test_a_claim_returns_what_a_handler_needs(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue(
        "mail", payload={"to": "ann"}, queue="q", tenant="acme", priority=3, version=2, max_attempts=7, meta={"m": 1},
        timeout=timedelta(seconds=1.5),
    )  # fmt: skip
    db.tick(4)
    held = db.claim_one(epoch, queues=["q"])
    assert held._asdict() == {
        "id": job, "fence": held.fence, "type": "mail", "payload": {"to": "ann"}, "queue": "q", "tenant": "acme",
        "priority": 3, "run_at": db.after(-4), "run": 1, "attempt": 0, "max_attempts": 7, "version": 2, "timeout": 1.5,
        "meta": {"m": 1}, "limit_keys": None, "turn": 0,
    }  # fmt: skip
    db.expect(job, state="running", holder="a", epoch=epoch, fence=held.fence, claimed_at=db.now, run=1, attempt=0)
    db.expect(job, lease_expires_at=db.after(-4) + timedelta(seconds=30), heartbeat_at=db.after(-4), started_at=None)
    (claim,) = db.rows("claims")
    assert (claim.fence, claim.epoch, claim.job_ids, claim.at) == (held.fence, epoch, [job], db.now)


def test_each_claim_has_one_fence_larger_than_the_last(db: Db) -> None:
    epoch = db.node()
    for _ in range(5):
        db.enqueue()
    first, second = db.claim(epoch, 3), db.claim(epoch, 3)
    assert len(first) == 3
    assert len(second) == 2
    assert len({row.fence for row in first}) == len({row.fence for row in second}) == 1
    assert epoch < first[0].fence < second[0].fence
    assert db.claim(epoch, 3) == []
    assert db.count("claims") == 2


def test_run_counts_claims_and_is_never_reused(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    runs = []
    for ending in ("released", "snoozed", "failed"):
        db.make_ready()
        held = db.claim_one(epoch)
        runs.append(held.run)
        db.settle(epoch, End(held, ending))
    db.make_ready()
    runs.append(db.claim_one(epoch).run)
    db.value("release", id=job)
    runs.append(db.claim_one(epoch).run)
    db.lose(epoch)
    epoch = db.node()
    db.make_ready()
    held = db.claim_one(epoch, alone=True)
    runs.append(held.run)
    db.settle(epoch, End(held))
    db.value("reschedule", id=job)
    runs.append(db.claim_one(epoch).run)
    assert runs == [1, 2, 3, 4, 5, 6, 7]


def test_claim_orders_by_priority_then_run_at_then_id(db: Db) -> None:
    epoch = db.node()
    second = db.enqueue(priority=5, run_at=db.after(-1))
    third = db.enqueue(priority=5, run_at=db.after(-1))
    last = db.enqueue(priority=-3, run_at=db.after(-100))
    fourth = db.enqueue(priority=5)
    first = db.enqueue(priority=32767)
    assert order(db, epoch) == [first, second, third, fourth, last]


def test_claim_orders_one_attempt_jobs_like_others(db: Db) -> None:
    """They are a class of their own; the order is one."""
    epoch = db.node()
    jobs = [db.enqueue(priority=10 - n, max_attempts=1 if n in (1, 2, 5) else 5) for n in range(7)]
    assert order(db, epoch) == jobs
    jobs = [db.enqueue(priority=10 - n, max_attempts=1 if n in (1, 2, 5) else 5) for n in range(7)]
    assert {row.id for row in db.claim(epoch, 4)} == set(jobs[:4])
    assert {row.id for row in db.claim(epoch, 4)} == set(jobs[4:])


def test_a_waiting_job_takes_no_place_from_a_one_attempt_job(db: Db) -> None:
    epoch = db.node()
    db.enqueue(priority=9, delay=timedelta(hours=1))
    job = db.enqueue(max_attempts=1)
    assert db.claim_one(epoch, free=1).id == job


def test_claim_after_scan_positions_orders_one_attempt_jobs_alike(db: Db) -> None:
    epoch = db.node()
    jobs = [db.enqueue(priority=9, run_at=db.after(n - 100), max_attempts=1 if n % 2 else 5) for n in range(6)]
    floors = {
        "floor_queues": ["default"], "floor_priorities": [9], "floor_times": [db.after(-1000)], "floor_ids": [NOBODY],
    }  # fmt: skip
    assert order(db, epoch, **floors) == jobs


def test_claim_takes_queues_in_the_given_order(db: Db) -> None:
    epoch = db.node()
    a, b, c = db.enqueue(queue="a", priority=9), db.enqueue(queue="b"), db.enqueue(queue="c", max_attempts=1)
    db.enqueue(queue="d", priority=99)
    assert order(db, epoch, queues=["b", "c", "a"]) == [b, c, a]


def test_a_claim_takes_only_from_its_queues(db: Db) -> None:
    epoch = db.node()
    db.enqueue(queue="other")
    assert db.claim(epoch) == []
    assert db.claim(epoch, queues=[]) == []
    assert len(db.claim(epoch, queues=["nothing", "other"])) == 1


def test_claim_skips_excluded_types(db: Db) -> None:
    """And takes the others in their order, as many as it may."""
    epoch = db.node()
    jobs = [db.enqueue(f"t{n % 3}", priority=20 - n, max_attempts=1 if n % 2 else 5) for n in reversed(range(12))][::-1]
    other = db.session()
    other.begin()
    other.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", [jobs[1]])  # t1: somebody else's, it seems

    def take(max: int, without: list[str], **more: int) -> set[int]:
        return {jobs.index(row.id) for row in db.claim(epoch, max, without=without, **more)}

    assert take(3, ["t0", "t9"]) == {2, 4, 5}
    assert take(100, ["t0"], free=1) == {7}  # nothing ahead
    other.commit()
    assert take(2, ["t0"]) == {1, 8}
    assert take(100, ["t0"]) == {10, 11}
    assert take(100, []) == {0, 3, 6, 9}


def test_claim_with_excluded_types_keeps_the_queue_order(db: Db) -> None:
    epoch = db.node()
    for queue, priority in (("a", 9), ("b", 1), ("a", 8)):
        db.enqueue(queue, queue=queue, priority=priority)
    taken = [db.claim(epoch, 1, queues=["b", "a"], without=["c"])[0] for _ in range(3)]
    assert [(row.type, row.priority) for row in taken] == [("b", 1), ("a", 9), ("a", 8)]


def test_claim_does_not_prefetch_one_attempt_jobs(db: Db) -> None:
    epoch = db.node()
    once = [db.enqueue(max_attempts=1) for _ in range(4)]
    last = db.enqueue()
    assert db.claim(epoch, 10, free=0) == []
    assert {row.id for row in db.claim(epoch, 10, free=2)} == set(once[:2])
    assert {row.id for row in db.claim(epoch, 1, free=2)} == {once[2]}
    assert {row.id for row in db.claim(epoch, 10)} == {once[3], last}


def test_claim_takes_a_one_attempt_job_only_if_a_slot_is_free(db: Db) -> None:
    """Two can start; what stands third would wait in the node, and might be lost there. The fourth may not overtake."""
    epoch = db.node()
    first, second, third = (
        db.enqueue(priority=3),
        db.enqueue(priority=2, max_attempts=1),
        db.enqueue(priority=1, max_attempts=1),
    )
    fourth = db.enqueue()
    assert {row.id for row in db.claim(epoch, 10, free=2)} == {first, second}
    assert {row.id for row in db.claim(epoch, 10, free=2)} == {third, fourth}


@pytest.mark.parametrize("has_positions", [False, True])
def test_claim_prefetches_only_what_comes_before_the_next_one_attempt_job(db: Db, has_positions: bool) -> None:
    """In all places of its queue: by priority, by time, and in the queues before and after."""
    epoch, positions = db.node(), {}
    if has_positions:
        positions = {
            "floor_queues": ["a", "b", "b", "b"], "floor_priorities": [0, 5, 4, 3],
            "floor_times": [db.after(-1000)] * 4, "floor_ids": [NOBODY] * 4,
        }  # fmt: skip
    before = [
        db.enqueue(queue="a"),
        db.enqueue(queue="b", priority=5),
        db.enqueue(queue="b", priority=4, run_at=db.after(-9)),
    ]
    once = db.enqueue(queue="b", priority=4, run_at=db.after(-8), max_attempts=1)
    after = [
        db.enqueue(queue="b", priority=4, run_at=db.after(-7)),
        db.enqueue(queue="b", priority=3, run_at=db.after(-9)),
        db.enqueue(queue="c", priority=9),
    ]
    assert {row.id for row in db.claim(epoch, 10, free=0, queues=["a", "b", "c"], **positions)} == set(before)
    assert db.claim(epoch, 10, free=0, queues=["a", "b", "c"], **positions) == []
    found = db.claim(epoch, 10, free=1, queues=["a", "b", "c"], **positions)
    assert {row.id for row in found} == {once, *after}


def test_a_locked_one_attempt_job_does_not_keep_free_slots_empty(db: Db) -> None:
    operator, epoch = db.session(), db.node()
    once, others = db.enqueue(priority=1, max_attempts=1), [db.enqueue() for _ in range(3)]
    operator.begin()
    operator.value("reschedule", id=once)
    assert {row.id for row in db.claim(epoch, 10, free=2)} == set(others[:2])
    operator.commit()
    assert {row.id for row in db.claim(epoch, 10, free=1)} == {once, others[2]}


def test_claim_takes_quarantined_jobs_one_at_a_time(db: Db) -> None:
    lost = db.node()
    poison = [db.enqueue(), db.enqueue(priority=1), db.enqueue(queue="other")]
    db.claim(lost, queues=["default", "other"])
    db.lose(lost)
    epoch = db.node()
    db.make_ready()
    assert db.claim(epoch) == []
    ordinary = db.enqueue(priority=9)
    assert [row.id for row in db.claim(epoch, alone=True)] == [poison[1]]
    assert [row.id for row in db.claim(epoch, alone=True)] == [poison[0]]
    assert db.claim(epoch, alone=True) == []
    assert [row.id for row in db.claim(epoch)] == [ordinary]


@pytest.mark.parametrize("how", ["plain", "one attempt", "alone", "above floors"])
def test_claim_skips_waiting_jobs(db: Db, how: str) -> None:
    """Jobs that wait stand before the one that does not."""
    epoch = db.node()
    attempts = 1 if how == "one attempt" else 5
    for wait in ("delayed", "blocked", "parked", "paused", "unsupported"):
        job = db.enqueue(priority=1, max_attempts=attempts)
        db.set_wait(job, wait)
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('task', 1, now())")
    ready = db.enqueue(max_attempts=attempts)
    if how == "alone":
        db.change("UPDATE {schema}.jobs SET class = 2")
    given = floors(*(("default", n, db.after(-9), NOBODY) for n in (1, 0))) if how == "above floors" else {}
    assert [row.id for row in db.claim(epoch, 1, alone=how == "alone", **given)] == [ready]
    assert db.claim(epoch, alone=how == "alone", **given) == []


def test_an_unknown_epoch_claims_nothing(db: Db) -> None:
    db.enqueue()
    with refused("WB001", "node with epoch 4711 is unknown"):
        db.claim(4711)


def test_a_lost_node_claims_nothing(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    db.lose(epoch)
    with refused("WB001", f"node with epoch {epoch} is lost"):
        db.claim(epoch)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("verb", ["claim", "settle", "promote", "reclaim"])
def test_batch_verbs_refuse_any_isolation_but_read_committed(db: Db, verb: str, isolation: Any) -> None:
    session = db.session()
    every: dict[str, dict[str, Any]] = {
        "claim": {"epoch": db.node()}, "settle": {"epoch": 1, "ids": [], "fences": []}, "promote": {}, "reclaim": {},
    }  # fmt: skip
    arguments = every[verb]
    session.begin(isolation)
    with refused("WB005", f"{verb} needs READ COMMITTED, this transaction is {isolation}"):
        session.call(verb, **arguments)
    session.rollback()
    session.begin()
    session.call(verb, **arguments)
    session.commit()


def test_concurrent_claims_share_jobs_without_waiting(db: Db) -> None:
    one, other = db.session(), db.session()
    first, second = db.node(), db.node()
    jobs = [db.enqueue(max_attempts=1 + n % 2) for n in range(6)]
    one.begin()
    taken = {row.id for row in one.claim(first, 3)}
    rest = {row.id for row in other.claim(second, 10)}
    one.commit()
    assert taken == set(jobs[:3])
    assert rest == set(jobs[3:])


def test_rolled_back_claim_takes_nothing(db: Db) -> None:
    session, epoch = db.session(), db.node()
    job = db.enqueue()
    session.begin()
    session.claim(epoch)
    session.rollback()
    db.expect(job, state="queued", run=0)
    assert db.count("claims") == 0


def test_claim_skips_a_locked_job(db: Db) -> None:
    operator, epoch = db.session(), db.node()
    first, second = db.enqueue(), db.enqueue()
    operator.begin()
    operator.value("reschedule", id=first)
    assert [row.id for row in db.claim(epoch)] == [second]
    operator.commit()
    assert [row.id for row in db.claim(epoch)] == [first]


# Floors: claims that start above a position instead of from the top.


def floors(*positions: tuple[str, int, Any, UUID]) -> dict[str, Any]:
    queues, priorities, times, ids = zip(*positions, strict=True)
    return {
        "floor_queues": [*queues], "floor_priorities": [*priorities], "floor_times": [*times], "floor_ids": [*ids],
    }  # fmt: skip


def test_scan_position_hides_jobs_up_to_and_including_it(db: Db) -> None:
    epoch = db.node()
    early, late = db.enqueue(run_at=db.after(-20)), db.enqueue(run_at=db.after(-5))
    twins = [db.enqueue(run_at=db.after(-10)) for _ in range(3)]
    above = floors(("default", 0, db.after(-10), twins[1]))
    assert order(db, epoch, **above) == [twins[2], late]
    assert order(db, epoch) == [early, twins[0], twins[1]]


def test_scan_position_never_hides_the_last_quarter_second(db: Db) -> None:
    """Whatever commits or is promoted within that time is above it, whichever floor the claimer remembers."""
    epoch = db.node()
    hidden = db.enqueue(run_at=db.after(-0.251))
    seen = [db.enqueue(run_at=db.after(-0.25)), db.enqueue(run_at=db.after(-0.2)), db.enqueue()]
    top = floors(("default", 0, db.after(100), UUID(int=2**128 - 1)))
    assert order(db, epoch, **top) == seen
    assert order(db, epoch) == [hidden]


def test_scan_positions_are_per_queue_and_priority(db: Db) -> None:
    epoch = db.node()
    jobs = {
        (queue, priority): db.enqueue(queue=queue, priority=priority, run_at=db.after(-50))
        for queue in ("a", "b")
        for priority in (0, 7)
    }
    between = db.enqueue(
        queue="a", priority=3, run_at=db.after(-50)
    )  # without a floor: from its beginning, in its place
    low, high = (db.after(-100), NOBODY), (db.after(-10), NOBODY)
    given = floors(("b", 0, *low), ("b", 7, *low), ("a", 7, *high), ("a", 0, *low))
    assert order(db, epoch, queues=["a", "b"], **given) == [between, jobs["a", 0], jobs["b", 7], jobs["b", 0]]


def test_scan_positions_that_hide_nothing_keep_the_claim_order(db: Db) -> None:
    """Priorities with and without a floor, the extremes among them, a queue with none; and what is not yet due."""
    epoch, chance = db.node(), random.Random(5)
    priorities, queues = [-32768, -5, 0, 1, 2, 9, 32767], ["b", "a", "c"]
    jobs = [
        (queues.index(queue), -priority, run_at, db.enqueue(queue=queue, priority=priority, run_at=run_at))
        for queue, priority, run_at in (
            (chance.choice(queues), chance.choice(priorities), db.after(-chance.randint(1, 50))) for _ in range(60)
        )
    ]
    for queue, priority in itertools.product(queues, priorities):
        db.enqueue(queue=queue, priority=priority, delay=timedelta(seconds=1))
    some = [(queue, priority) for queue in ("a", "b") for priority in priorities if chance.random() < 0.5]
    given = floors(*((queue, priority, db.after(-100), NOBODY) for queue, priority in some))
    assert order(db, epoch, queues=queues, **given) == [job for _, _, _, job in sorted(jobs)]


def test_scan_position_of_an_unclaimed_or_paused_queue_is_ignored(db: Db) -> None:
    epoch = db.node()
    db.enqueue(queue="a")
    db.enqueue(queue="b")
    db.value("pause", queue="b")
    given = floors(("a", 0, db.after(-100), NOBODY), ("b", 0, db.after(-100), NOBODY))
    assert db.claim(epoch, queues=["b"], **given) == []
    assert db.claim(epoch, queues=["c"], **given) == []
    assert [row.queue for row in db.claim(epoch, queues=["a", "b"], **given)] == ["a"]


def test_claim_after_scan_positions_finds_every_recent_job(db: Db) -> None:
    """Everything above the floors, within the limit: one-attempt jobs, other lanes, what was promoted just now."""
    epoch = db.node()
    once = db.enqueue(max_attempts=1, run_at=db.after(-3600))
    delayed = db.enqueue(delay=timedelta(seconds=10))
    db.tick(10)
    db.value("promote")
    plain = db.enqueue()
    given = floors(("default", 0, db.after(1000), NOBODY))
    assert {row.id for row in db.claim(epoch, **given)} == {once, delayed, plain}


def test_claim_after_scan_positions_respects_its_limit(db: Db) -> None:
    epoch = db.node()
    for priority in (1, 2, 3):
        for _ in range(4):
            db.enqueue(priority=priority)
    given = floors(*(("default", priority, db.after(-100), NOBODY) for priority in (3, 2, 1)))
    assert [row.priority for row in db.claim(epoch, 6, **given)].count(3) == 4
    assert len(db.claim(epoch, 5, **given)) == 5
    assert len(db.claim(epoch, 5, **given)) == 1


# Delayed jobs.


def test_promote_makes_due_jobs_ready_and_returns_the_next_time(db: Db) -> None:
    epoch = db.node()
    soon, later = db.enqueue(delay=timedelta(seconds=10)), db.enqueue(delay=timedelta(seconds=20))
    assert db.value("promote") == db.after(10)
    assert db.claim(epoch) == []
    db.tick(10)
    assert db.value("promote") == db.after(10)
    db.expect(soon, wait=None, run_at=db.now)
    db.expect(later, wait="delayed")
    assert [row.id for row in db.claim(epoch)] == [soon]
    db.tick(10)
    assert db.value("promote") is None
    assert [row.id for row in db.claim(epoch)] == [later]


def test_promote_takes_the_earliest_first_and_reports_more_due_jobs(db: Db) -> None:
    jobs = [db.enqueue(run_at=db.after(9 - n)) for n in range(4)]
    db.tick(60)
    assert db.value("promote", max=3) == db.after(-51)
    assert [db.look(job).wait for job in jobs] == ["delayed", None, None, None]


def test_promote_ignores_jobs_due_before_since(db: Db) -> None:
    old, new = db.enqueue(delay=timedelta(seconds=10)), db.enqueue(delay=timedelta(seconds=100))
    db.tick(200)
    assert db.value("promote", since=db.after(-150)) is None
    assert [db.look(old).wait, db.look(new).wait] == ["delayed", None]


def test_concurrent_promotes_share_jobs_without_waiting(db: Db) -> None:
    one, other = db.session(), db.session()
    jobs = [db.enqueue(delay=timedelta(seconds=n)) for n in (1, 2, 3, 4)]
    db.tick(10)
    one.begin()
    one.value("promote", max=2)
    other.value("promote")
    assert [db.look(job).wait for job in jobs] == ["delayed", "delayed", None, None]
    one.commit()
    assert [db.look(job).wait for job in jobs] == [None] * 4


@pytest.mark.parametrize("next_due", [0.5, 20])
def test_promote_returns_a_second_from_now_if_a_due_job_is_locked(db: Db, next_due: float) -> None:
    """Its time has passed for as long as it is locked: whoever promotes would look again at once, all the time."""
    other = db.session()
    locked, _ = db.enqueue(delay=timedelta(seconds=1)), db.enqueue(delay=timedelta(seconds=10 + next_due))
    db.tick(10)
    other.begin()
    other.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", [locked])
    assert db.value("promote") == db.after(min(1, next_due))
    other.commit()
    assert db.value("promote") == db.after(next_due)
    db.expect(locked, wait=None)


def test_claim_orders_promoted_jobs_by_run_at(db: Db) -> None:
    epoch = db.node()
    late, early = db.enqueue(delay=timedelta(seconds=20)), db.enqueue(delay=timedelta(seconds=10))
    db.tick(30)
    now = db.enqueue()
    db.value("promote")
    assert order(db, epoch) == [early, late, now]


def test_claim_refuses_a_negative_number_of_free_slots(db: Db) -> None:
    epoch = db.node()
    with refused("WB003", "free -1 is invalid"):
        db.call("claim", epoch=epoch, max=1, free=-1)


def test_claim_refuses_a_null_or_negative_max(db: Db) -> None:
    """NULL, an unset variable of some script, would be all there are."""
    epoch, job = db.node(), db.enqueue()
    for wrong in (None, -1):
        with refused("WB003", "max .* is invalid"):
            db.call("claim", epoch=epoch, max=wrong)
    assert db.claim(epoch, 0) == []
    assert [row.id for row in db.claim(epoch, 1)] == [job]
