"""Limits: at most so many jobs of a key run at once, whatever ends them, and none waits for ever."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql

from tests.store.flow import assert_within_limits, declare_limit, declare_queue, enqueue, waits
from tests.store.harness import Db, End, Session
from tests.store.test_work import work

API = "key:api"


def ids(rows: list[Any]) -> list[UUID]:
    return sorted(row.id for row in rows)


def test_claim_does_not_deadlock_with_unpark_that_makes_a_state(db: Db) -> None:
    """The claim has locked `key:b`, and needs `key:c`; unpark() has made `key:c`, and will wait for `key:b`."""
    epoch = db.node()
    for name in "abc":
        declare_limit(db, name, 5)
    for key in ("key:a", "key:b"):
        enqueue(db, key)
    db.settle(epoch, *[End(row, "succeeded") for row in db.claim(epoch)])
    parked, job = enqueue(db, "key:c"), enqueue(db, "key:b", "key:c")
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:c' WHERE id = %s", parked)
    holder, unparking, claiming = db.session(), db.session(), db.session()
    holder.begin()
    holder.execute("SELECT FROM watchbill.limit_states WHERE key = 'key:a' FOR UPDATE")
    made = unparking.start("unpark", keys=["key:a", "key:b", "key:c"]).blocked()
    claimed = claiming.start("claim", epoch=epoch, max=9).stopped()
    holder.commit()
    assert made.value() == 1
    rows = claimed.rows() + db.claim(epoch)
    assert ids(rows) == sorted([parked, job])


def test_claim_that_has_locked_a_queue_does_not_deadlock_with_unpark_that_makes_a_state(db: Db) -> None:
    """The claim has locked `queue:narrow`, and needs `key:c`; unpark() has made that, and will wait for the queue."""
    epoch = db.node()
    declare_queue(db, "narrow", max=5)
    for name in "ac":
        declare_limit(db, name, 5)
    enqueue(db, "key:a", queue="narrow")
    db.settle(epoch, End(db.claim_one(epoch, queues=["narrow"])))
    parked, job = enqueue(db, "key:c"), enqueue(db, "key:c", queue="narrow")
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:c' WHERE id = %s", parked)
    holder, unparking, claiming = db.session(), db.session(), db.session()
    holder.begin()
    holder.execute("SELECT FROM watchbill.limit_states WHERE key = 'key:a' FOR UPDATE")
    made = unparking.start("unpark", keys=["key:a", "key:c", "queue:narrow"]).blocked()
    claimed = claiming.start("claim", epoch=epoch, max=9, queues=["narrow"]).stopped()
    holder.commit()
    assert made.value() == 1
    assert ids(claimed.rows() + db.claim(epoch, queues=["narrow"])) == [job]


def test_claim_that_finds_a_queue_busy_wakes_a_worker(db: Db) -> None:
    """Otherwise its worker would sleep until its next poll, although the jobs can start."""
    epoch, holder, listener = db.node(), db.session(), db.session(db.url)
    declare_queue(db, "narrow", max=5)
    db.enqueue(queue="narrow")
    db.enqueue(queue="narrow")
    assert len(db.claim(epoch, 1, queues=["narrow"])) == 1
    listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(db.value("_wake_channel"))))
    holder.begin()
    holder.execute("SELECT FROM watchbill.limit_states WHERE key = 'queue:narrow' FOR UPDATE")
    assert db.claim(epoch, 1, queues=["narrow"]) == []
    holder.commit()
    heard = listener.connection.notifies(timeout=30, stop_after=1)
    assert [note.payload for note in heard] == ["ready "]
    assert len(db.claim(epoch, 1, queues=["narrow"])) == 1


def test_claim_that_picks_again_takes_no_more_jobs_than_it_was_asked_for(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1)
    holder = enqueue(db, "key:api", priority=2)
    assert [row.id for row in db.claim(epoch, 1)] == [holder]
    for _ in range(2):
        enqueue(db, "key:api", priority=1)
    plain = [db.enqueue() for _ in range(5)]
    assert {row.id for row in db.claim(epoch, 2)} == set(plain[:2])


def test_claim_takes_no_more_jobs_of_a_key_than_its_maximum(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 2)
    jobs = [enqueue(db, API) for _ in range(4)]
    other = enqueue(db)
    assert ids(db.claim(epoch)) == sorted([*jobs[:2], other])
    assert waits(db, *jobs[2:]) == [("parked", API)] * 2
    assert db.claim(epoch) == []
    assert_within_limits(db)


def test_a_claim_returns_the_keys_that_the_job_holds(db: Db) -> None:
    declare_limit(db, "api", 2)
    enqueue(db, API)
    assert db.claim_one(db.node()).limit_keys == [API]


def test_keys_of_one_limit_are_apart(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "account", 1)
    jobs = [enqueue(db, f"key:account:{n % 2}") for n in range(4)]
    assert ids(db.claim(epoch)) == sorted(jobs[:2])


@pytest.mark.parametrize("ending", ["succeeded", "plain", "skipped", "failed", "snoozed", "released", "unsupported"])
def test_end_of_a_run_lets_the_next_job_of_the_key_start(db: Db, ending: str) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1)
    first, second, third = (enqueue(db, API) for _ in range(3))
    held = db.claim_one(epoch)
    assert held.id == first
    assert db.claim(epoch) == []
    if ending == "plain":
        db.call("settle", epoch=epoch, ids=[first], fences=[held.fence])
    else:
        db.settle(epoch, End(held, ending, age=None if ending == "unsupported" else 1.0))
    assert waits(db, second, third) == [(None, None), ("parked", API)]
    assert_within_limits(db)
    taken = db.claim(epoch)
    assert ids(taken) == ids(taken[:1])
    assert_within_limits(db)


@pytest.mark.parametrize("how", ["leave", "release_unknown", "reclaim", "release", "cancel", "complete", "fail"])
def test_a_job_that_its_node_no_longer_has_holds_nothing(db: Db, how: str) -> None:
    epoch, other = db.node(), db.node()
    declare_limit(db, "api", 1)
    first, second = enqueue(db, API), enqueue(db, API)
    held = db.claim_one(epoch)
    assert db.claim(other) == []
    match how:
        case "leave":
            db.value("leave", epoch=epoch)
        case "release_unknown":
            db.value("release_unknown", epoch=epoch, known=[])
        case "reclaim":
            db.lose(epoch)
        case "release":
            db.value("release", id=first)
        case "cancel":
            db.value("cancel", id=first, force=True)
        case _:
            db.call(how, id=first, fence=held.fence)
    assert_within_limits(db)
    assert db.count("holds") == 0
    if how in (
        "release",
        "cancel",
        "complete",
        "fail",
    ):  # they lock no key: the caller's transaction may be long
        assert waits(db, second) == [("parked", API)]
        assert db.value("unpark", keys=[API]) == 1
    assert waits(db, second) == [(None, None)]


def test_complete_in_an_open_transaction_stops_no_settle_of_the_key(db: Db) -> None:
    epoch, user = db.node(), db.session()
    declare_limit(db, "api", 2)
    jobs = [enqueue(db, API) for _ in range(4)]
    one, two = db.claim(epoch)
    assert db.claim(epoch) == []
    user.begin()
    user.call("complete", id=one.id, fence=one.fence)
    db.settle(epoch, End(two))
    assert len(db.claim(epoch)) == 1
    user.commit()
    assert db.claim(epoch) == []
    db.value("unpark", keys=[API])
    assert ids(db.claim(epoch)) == [jobs[3]]


def test_jobs_wait_for_all_their_keys(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 2)
    declare_limit(db, "account", 1)
    first = enqueue(db, API, "key:account:1")
    second = enqueue(db, API, "key:account:1")
    third = enqueue(db, API, "key:account:2")
    assert ids(db.claim(epoch, 2)) == [first]
    assert waits(db, second) == [("parked", "key:account:1")]
    assert ids(db.claim(epoch, 2)) == [third]
    assert_within_limits(db)


def test_a_job_waits_for_the_one_of_its_keys_that_is_full(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "a", 5)
    declare_limit(db, "z", 1)
    enqueue(db, "key:z")
    db.claim_one(epoch)
    job = enqueue(db, "key:a", "key:z")
    assert db.claim(epoch) == []
    assert waits(db, job) == [("parked", "key:z")]


def test_jobs_beyond_the_number_that_a_claim_asks_for_stay_ready(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "full", 0)
    declare_limit(db, "api", 5)
    enqueue(db, "key:full", priority=1)  # so that the claim picks again, and more
    jobs = [enqueue(db, API) for _ in range(3)]
    assert ids(db.claim(epoch, 1)) == jobs[:1]
    assert waits(db, *jobs[1:]) == [(None, None)] * 2


def test_a_waiter_that_moves_to_another_key_lets_the_next_one_go(db: Db) -> None:
    """The first that waits for api now waits for its account: the place must not stay empty."""
    epoch = db.node()
    declare_limit(db, "api", 1)
    declare_limit(db, "account", 1)
    blocker = enqueue(db, "key:account:1", priority=9)
    holder = enqueue(db, API, priority=8)
    moves = enqueue(db, API, "key:account:1")
    after = enqueue(db, API)
    rows = {row.id: row for row in db.claim(epoch)}
    assert set(rows) == {blocker, holder}
    # Both wait for api; the account is full too, but a job waits for one key.
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = %s WHERE id = %s", API, moves)
    assert waits(db, moves, after) == [("parked", API)] * 2
    db.settle(epoch, End(rows[holder]))
    assert waits(db, moves, after) == [(None, None), ("parked", API)]
    assert ids(db.claim(epoch)) == [after]
    assert waits(db, moves) == [("parked", "key:account:1")]
    assert_within_limits(db)


def test_a_job_behind_a_full_key_does_not_hide_others(db: Db) -> None:
    """A claim for one job, and two thousand that cannot start before the one that can."""
    epoch = db.node()
    declare_limit(db, "api", 0)
    db.call("enqueue_many", jobs=[{"type": "t", "priority": 5}] * 2000)
    db.change("UPDATE {schema}.jobs SET limit_keys = %s", [API])
    job = db.enqueue()
    assert ids(db.claim(epoch, 1)) == [job]


def test_claim_without_a_free_slot_sets_no_more_jobs_aside_than_it_was_asked_for(db: Db) -> None:
    """A node that claims ahead meets the keys of its own jobs, and can wait for these."""
    epoch = db.node()
    declare_limit(db, "api", 1)
    holder = enqueue(db, API, priority=9)
    assert ids(db.claim(epoch, 1)) == [holder]
    jobs = [enqueue(db, API, priority=5) for _ in range(5)]
    other = db.enqueue()
    assert db.claim(epoch, 2, free=0) == []
    assert waits(db, *jobs) == [("parked", API)] * 2 + [(None, None)] * 3
    assert ids(db.claim(epoch, 2, free=1)) == [other]


def test_a_full_key_is_not_walked_by_every_claim(own_db: Db) -> None:
    db = own_db
    epoch = db.node()
    declare_limit(db, "api", 1)
    db.call("enqueue_many", jobs=[{"type": "t", "priority": 5}] * 5000)
    db.change("UPDATE {schema}.jobs SET limit_keys = %s", [API])
    for _ in range(4):
        while db.claim(epoch, 1000):
            pass
    db.call("enqueue_many", jobs=[{"type": "t"}] * 200)
    db.execute("VACUUM watchbill.jobs")
    read = work(db, "claim", epoch=epoch, max=100)
    assert read.entries["jobs_ready"] < 300
    assert read.entries.get("jobs_waiting", 0) < 10


def test_end_of_a_run_reads_few_of_many_waiting_jobs(own_db: Db) -> None:
    db = own_db
    epoch = db.node()
    declare_limit(db, "api", 1)
    db.call("enqueue_many", jobs=[{"type": "t"}] * 5000)
    db.change("UPDATE {schema}.jobs SET limit_keys = %s", [API])
    (held,) = db.claim(epoch, 1000)
    while db.claim(epoch, 1000):
        pass
    db.execute("VACUUM watchbill.jobs")
    read = work(db, "settle", epoch=epoch, ids=[held.id], fences=[held.fence])
    assert read.entries["jobs_waiting"] < 20
    assert "jobs" not in read.scanned


def test_a_raised_limit_takes_effect_with_unpark(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1)
    jobs = [enqueue(db, API) for _ in range(5)]
    assert len(db.claim(epoch)) == 1
    db.change("UPDATE {schema}.limits SET max = 3")
    assert db.value("unpark", keys=[API, "key:unknown"]) == 2
    assert ids(db.claim(epoch)) == sorted(jobs[1:3])
    db.change("DELETE FROM {schema}.limits")
    assert db.value("unpark", keys=[API]) == 2
    assert ids(db.claim(epoch)) == sorted(jobs[3:])


def test_sweep_finds_jobs_that_were_not_woken(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "account", 1)
    jobs = [enqueue(db, f"key:account:{n // 2}") for n in range(6)]
    held = db.claim(epoch)
    assert ids(held) == sorted(jobs[::2])
    for row in held:
        db.call("complete", id=row.id, fence=row.fence)
    last = db.value("sweep_limits", max=2)
    assert last == "key:account:1"
    assert db.value("sweep_limits", after=last, max=2) is None
    assert ids(db.claim(epoch)) == sorted(jobs[1::2])


def test_sweep_deletes_the_states_of_keys_that_are_not_used(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "account", 1)
    for n in range(3):
        enqueue(db, f"key:account:{n}")
    held = db.claim(epoch)
    enqueue(db, "key:account:2")
    assert db.claim(epoch) == []
    db.settle(epoch, *[End(row) for row in held if row.limit_keys == ["key:account:0"]])
    db.value("sweep_limits")
    assert {row.key for row in db.rows("limit_states")} == {"key:account:1", "key:account:2"}


def test_sweep_keeps_the_state_of_a_key_for_which_a_job_waits(db: Db) -> None:
    """A changed limit finds its keys by their states, and frees their jobs at once."""
    epoch = db.node()
    declare_limit(db, "api", 0)
    job = enqueue(db, API)
    assert db.claim(epoch) == []
    db.value("sweep_limits")
    db.value("set_limit", name="api", max=1)
    assert waits(db, job) == [(None, None)]


# A queue with a limit.


def test_a_queue_with_a_limit_gives_no_more_jobs_than_it_has_places(db: Db) -> None:
    epoch, other = db.node(), db.node()
    declare_queue(db, "sync", max=3)
    jobs = [enqueue(db, queue="sync") for _ in range(5)]
    plain = [enqueue(db) for _ in range(2)]
    rows = db.claim(epoch, 2, queues=["sync", "default"])
    assert ids(rows) == sorted(jobs[:2])
    assert ids(db.claim(other, queues=["sync", "default"])) == sorted([jobs[2], *plain])
    assert waits(db, *jobs[3:]) == [(None, None)] * 2  # they are not set aside
    assert db.claim(epoch, queues=["sync"]) == []
    db.settle(epoch, *[End(row) for row in rows])
    assert_within_limits(db)
    assert ids(db.claim(epoch, queues=["sync"])) == sorted(jobs[3:])
    assert_within_limits(db)


def test_end_of_a_job_wakes_the_sleepers_of_its_full_queue(db: Db) -> None:
    epoch, sleeper = db.node(), db.session()
    declare_queue(db, "sync", max=1)
    enqueue(db, queue="sync")
    held = db.claim_one(epoch, queues=["sync"])
    sleeper.execute("SELECT pg_advisory_lock(1466004579, 'watchbill.jobs'::regclass::oid::int)")
    (channel,) = sleeper.execute("SELECT watchbill._wake_channel() AS name")
    sleeper.execute(f'LISTEN "{channel.name}"')
    db.settle(epoch, End(held))
    assert [n.payload for n in sleeper.connection.notifies(timeout=5, stop_after=1)] == ["ready sync"]


def test_a_job_in_quarantine_needs_a_place_of_its_queue(db: Db) -> None:
    lost, epoch = db.node(), db.node()
    declare_queue(db, "sync", max=1)
    job = enqueue(db, queue="sync")
    db.claim_one(lost, queues=["sync"])
    db.lose(lost)
    db.make_ready()
    enqueue(db, queue="sync")
    held = db.claim_one(epoch, queues=["sync"])
    assert db.claim(epoch, alone=True, queues=["sync"]) == []
    db.settle(epoch, End(held))
    assert ids(db.claim(epoch, alone=True, queues=["sync"])) == [job]
    assert_within_limits(db)
    enqueue(db, queue="sync")
    assert db.claim(epoch, queues=["sync"]) == []


def test_jobs_that_another_node_does_not_know_need_places_of_their_queue(db: Db) -> None:
    epoch, expert = db.node(), db.node(types={"task": 1, "other": 1})
    declare_queue(db, "sync", max=3)
    jobs = [enqueue(db, queue="sync") for _ in range(3)]
    db.settle(epoch, *[End(row, "unsupported", age=None) for row in db.claim(epoch, queues=["sync"])])
    plain = enqueue(db, type="other", queue="sync")
    rows = db.claim(expert, queues=["sync"])
    assert plain in ids(rows)
    assert len(rows) == 3
    assert_within_limits(db)
    assert db.claim(expert, queues=["sync"]) == []
    db.settle(expert, *[End(row) for row in rows])
    (last,) = db.claim(expert, queues=["sync"])
    assert {last.id, *ids(rows)} == {plain, *jobs}


def test_claims_that_name_queues_in_other_orders_make_their_states_in_one_order(db: Db) -> None:
    epoch, other = db.node(), db.session()
    for queue in ("a", "b"):
        declare_queue(db, queue, max=1)
    job = enqueue(db, queue="b")
    make_state = "INSERT INTO watchbill.limit_states (key, name) VALUES (%s, %s)"
    other.begin()
    other.execute("SET LOCAL lock_timeout = '5s'")
    other.execute(make_state, ["queue:a", "queue:a"])
    claim = db.session().start("claim", epoch=epoch, queues=["b", "a"]).blocked()
    other.execute(make_state, ["queue:b", "queue:b"])
    other.commit()
    assert [row.id for row in claim.rows()] == [job]


def test_states_are_made_in_the_order_of_their_keys(db: Db) -> None:
    """Whatever the order in which they are named: two that make the same states must not wait for each other."""
    other = db.session()
    for name in ("a", "b"):
        declare_limit(db, name, 1)
        job = enqueue(db, f"key:{name}")
        db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = %s WHERE id = %s", f"key:{name}", job)
    make_state = "INSERT INTO watchbill.limit_states (key, name) VALUES (%s, %s)"
    other.begin()
    other.execute("SET LOCAL lock_timeout = '5s'")
    other.execute(make_state, ["key:a", "a"])
    unpark = db.session().start("unpark", keys=["key:b", "key:a"]).blocked()
    other.execute(make_state, ["key:b", "b"])
    other.commit()
    assert [row.unpark for row in unpark.rows()] == [2]


def test_claim_waits_a_moment_for_another_one_of_a_queue_with_a_limit(db: Db) -> None:
    """If it found nothing at once, its worker would sleep beside ready jobs and free places."""
    first, second, one = db.node(), db.node(), db.session()
    declare_queue(db, "sync", max=5)
    assert db.claim(first, queues=["sync"]) == []  # makes the state of the queue
    jobs = [enqueue(db, queue="sync") for _ in range(2)]
    one.begin()
    assert ids(one.claim(first, 1, queues=["sync"])) == jobs[:1]
    assert work(db, "claim", epoch=second, queues=["sync"]).entries["limit_states_pkey"] >= 10
    one.commit()
    assert work(db, "claim", epoch=second, queues=["sync"]).entries["limit_states_pkey"] < 10
    assert ids(db.claim(second, 1, queues=["sync"])) == jobs[1:]


def test_sweep_keeps_the_state_of_a_queue_with_a_limit(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "sync", max=1)
    enqueue(db, queue="sync")
    db.settle(epoch, End(db.claim_one(epoch, queues=["sync"])))
    db.value("sweep_limits")
    assert [row.key for row in db.rows("limit_states")] == ["queue:sync"]
    db.change("UPDATE {schema}.queues SET max = NULL")
    db.value("sweep_limits")
    assert db.rows("limit_states") == []


@pytest.mark.parametrize("outcomes", [None, ["succeeded", "skipped"]])
def test_settle_locks_the_keys_of_completed_jobs_in_one_order_with_the_others(
    db: Db, outcomes: list[str] | None
) -> None:
    epoch, other = db.node(), db.session()
    for name in ("a", "z"):
        declare_limit(db, name, 1)
    completed, settled = enqueue(db, "key:a"), enqueue(db, "key:z")
    fences = {row.id: row.fence for row in db.claim(epoch)}
    db.value("complete", id=completed, fence=fences[completed])
    other.begin()
    lock_state = "SELECT key FROM watchbill.limit_states WHERE key = %s FOR UPDATE SKIP LOCKED"
    assert other.execute(lock_state, ["key:a"])
    settle = db.session().start(
        "settle", epoch=epoch, ids=[completed, settled], fences=[fences[completed], fences[settled]], outcomes=outcomes
    )
    settle.blocked()
    assert other.execute(lock_state, ["key:z"])
    other.commit()
    assert (completed, None) in [(row.id, row.state) for row in settle.rows()]


def lock_state(session: Session, key: str) -> None:
    """Locks the state of a key; fails if another transaction has locked it."""
    lock = "SELECT key FROM watchbill.limit_states WHERE key = %s FOR UPDATE SKIP LOCKED"
    assert session.execute(lock, [key]), f"the state of {key} is locked"


@pytest.mark.parametrize("left", [False, True], ids=["lost", "left"])
def test_reclaim_locks_the_keys_of_all_nodes_in_one_order(db: Db, left: bool) -> None:
    """Settle locks all its keys in the order of the keys, and must not wait for a reclaim that waits for it."""
    one, two, other = db.node(), db.node(), db.session()
    for name in ("a", "z"):
        declare_limit(db, name, 1)
    enqueue(db, "key:z")
    db.claim_one(one)
    enqueue(db, "key:a")
    db.claim_one(two)
    waiting = [enqueue(db, key) for key in ("key:a", "key:z")]
    assert db.claim(two) == []
    other.begin()
    lock_state(other, "key:a")
    db.change("UPDATE {schema}.nodes SET state = %s, ended_at = now()", "left" if left else "lost")
    db.change("DELETE FROM {schema}.beats")
    reclaim = db.session().start("reclaim").blocked()
    lock_state(other, "key:z")
    other.commit()
    assert len(reclaim.rows()) == (0 if left else 2)
    assert waits(db, *waiting) == [(None, None)] * 2
    assert db.count("claims") == 0


def test_release_unparks_keys_before_it_deletes_claims(db: Db) -> None:
    """As settle does, which waits for claims while it holds the states of its keys."""
    epoch, other = db.node(), db.session()
    declare_limit(db, "api", 1)
    enqueue(db, API)
    held = db.claim_one(epoch)
    other.begin()
    lock_state(other, API)
    leave = db.session().start("leave", epoch=epoch).blocked()
    assert other.execute("SELECT fence FROM watchbill.claims WHERE fence = %s FOR UPDATE SKIP LOCKED", [held.fence])
    other.commit()
    assert leave.value() == 1


# What happens to a job that finds its key full.


def test_a_job_is_discarded_if_the_rule_says_so(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, when_full="discard")
    first, second, third = (enqueue(db, API) for _ in range(3))
    assert ids(db.claim(epoch)) == [first]
    db.expect(second, state="canceled", error={"kind": "canceled", "message": f"limit {API} is full"})
    db.expect(third, state="canceled")
    db.assert_sound()


def test_the_newest_job_replaces_the_others(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, when_full="replace")
    first = enqueue(db, API)
    held = db.claim_one(epoch)
    second, third = enqueue(db, API), enqueue(db, API)
    assert db.claim(epoch) == []
    db.expect(first, state="running", canceling=True)
    db.expect(second, state="canceled")
    assert waits(db, third) == [("parked", API)]
    fourth = enqueue(db, API)
    assert db.claim(epoch) == []
    db.expect(third, state="canceled")
    db.settle(epoch, End(held, "canceled"))
    db.expect(first, state="canceled")
    assert ids(db.claim(epoch)) == [fourth]
    db.assert_sound()


def test_a_job_replaces_and_stops_none_of_another_tenant(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, when_full="replace")
    running = enqueue(db, API, tenant="b")
    held = db.claim_one(epoch)
    foreign = enqueue(db, API, tenant="a")
    assert db.claim(epoch) == []
    db.expect(running, state="running", canceling=False)
    waiting = enqueue(db, API, tenant="b")
    assert db.claim(epoch) == []
    db.expect(running, state="running", canceling=True)
    newer = enqueue(db, API, tenant="a")
    assert db.claim(epoch) == []
    db.expect(foreign, state="canceled")
    assert waits(db, waiting, newer) == [("parked", API)] * 2
    db.settle(epoch, End(held, "canceled"))
    assert ids(db.claim(epoch)) == [waiting]
    db.assert_sound()


def test_a_retry_does_not_replace_a_newer_job(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, when_full="replace")
    old = enqueue(db, API)
    db.settle(epoch, End(db.claim_one(epoch), "failed"))
    new = enqueue(db, API)
    assert ids(db.claim(epoch)) == [new]
    db.make_ready()
    assert db.claim(epoch) == []
    db.expect(new, state="running", canceling=False)
    db.expect(old, state="canceled")


# Several sessions at once.


def test_claim_that_has_made_states_does_not_wait_for_one_that_makes_others(db: Db) -> None:
    """Two claims that meet the new keys of each other in their second rounds must not wait for each other."""
    epoch, claimer, other = db.node(), db.session(), db.session()
    declare_limit(db, "full", 0)
    declare_limit(db, "api", 1)
    enqueue(db, "key:full", priority=1)
    job = enqueue(db, API)
    other.begin()
    other.execute("INSERT INTO watchbill.limit_states (key, name) VALUES ('key:api', 'api')")
    claimer.configure(lock_timeout="10s")
    assert claimer.claim(epoch, 1) == []
    other.rollback()
    assert claimer.claim_one(epoch).id == job


def test_cancel_announces_a_key_that_a_claim_is_about_to_wait_for(db: Db) -> None:
    """The claim still counts the job that ends, so it sets the next one aside, after the cancel has looked."""
    epoch, claimer, listener = db.node(), db.session(), db.session()
    declare_limit(db, "api", 1)
    first = enqueue(db, API)
    db.claim_one(epoch)
    waiting = enqueue(db, API)
    (channel,) = db.execute("SELECT watchbill._wake_channel() AS name")
    listener.execute(f'LISTEN "{channel.name}"')
    claimer.begin()
    assert claimer.claim(epoch) == []
    db.value("cancel", id=first, force=True)
    claimer.commit()
    assert waits(db, waiting) == [("parked", API)]
    notes = [note.payload for note in listener.connection.notifies(timeout=10, stop_after=2)]
    assert "unpark" in notes
    db.call("promote")
    assert waits(db, waiting) == [(None, None)]


def test_notifications_name_no_key(db: Db) -> None:
    """Every role of the database hears them, and a key may hold the name of a customer."""
    epoch, listener = db.node(), db.session()
    declare_limit(db, "api", 1)
    (channel,) = db.execute("SELECT watchbill._wake_channel() AS name")
    listener.execute(f'LISTEN "{channel.name}"')
    first, _ = enqueue(db, API), enqueue(db, API)
    db.claim(epoch)
    db.value("cancel", id=first, force=True)
    db.call("promote")
    db.value("clear_limit", name="api")
    notes = [note.payload for note in listener.connection.notifies(timeout=0.5)]
    assert "unpark" in notes
    assert not [note for note in notes if "api" in note]


def test_cleared_limit_frees_a_thousand_jobs_and_asks_for_the_next_call(db: Db) -> None:
    epoch, listener = db.node(), db.session()
    declare_limit(db, "api", 0)
    db.call("enqueue_many", jobs=[{"type": "t"}] * 1500)
    db.change("UPDATE {schema}.jobs SET limit_keys = %s", [API])
    while db.execute("SELECT id FROM watchbill.jobs WHERE wait IS NULL LIMIT 1"):
        assert db.claim(epoch, 1000) == []
    (channel,) = db.execute("SELECT watchbill._wake_channel() AS name")
    listener.execute(f'LISTEN "{channel.name}"')
    assert db.value("clear_limit", name="api")
    assert db.execute("SELECT count(*) FROM watchbill.jobs WHERE wait IS NULL")[0].count == 1000
    notes = [note.payload for note in listener.connection.notifies(timeout=10, stop_after=1)]
    assert notes == ["unpark"]
    db.call("promote")
    assert db.execute("SELECT count(*) FROM watchbill.jobs WHERE wait IS NULL")[0].count == 1500
    assert list(listener.connection.notifies(timeout=0.1)) == []


def test_raised_limit_frees_as_many_jobs_as_it_has_places(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 0)
    db.call("enqueue_many", jobs=[{"type": "t"}] * 1300)
    db.change("UPDATE {schema}.jobs SET limit_keys = %s", [API])
    while db.execute("SELECT id FROM watchbill.jobs WHERE wait IS NULL LIMIT 1"):
        assert db.claim(epoch, 1000) == []
    db.value("set_limit", name="api", max=1200)
    assert db.execute("SELECT count(*) FROM watchbill.jobs WHERE wait IS NULL")[0].count == 1200


def test_the_state_of_a_key_that_another_claim_has_locked_keeps_its_jobs_ready(db: Db) -> None:
    one, first, second = db.session(), db.node(), db.node()
    declare_limit(db, "api", 3)
    jobs = [enqueue(db, API) for _ in range(3)]
    assert db.claim_one(first).id == jobs[0]
    one.begin()
    assert ids(one.claim(first, 1)) == [jobs[1]]
    assert db.claim(second) == []
    assert waits(db, jobs[2]) == [(None, None)]
    one.commit()
    assert ids(db.claim(second)) == [jobs[2]]


def test_settle_waits_for_a_claim_that_may_park_a_job_of_its_key(db: Db) -> None:
    """Otherwise the claim would park the job after the last end of the key."""
    one, other, epoch = db.session(), db.session(), db.node()
    declare_limit(db, "api", 1)
    enqueue(db, API)
    held = db.claim_one(epoch)
    job = enqueue(db, API)
    one.begin()
    assert one.claim(epoch) == []
    pending = other.start("settle", epoch=epoch, ids=[held.id], fences=[held.fence]).blocked()
    one.commit()
    pending.rows()
    assert waits(db, job) == [(None, None)]


@pytest.mark.parametrize("seed", range(3))
def test_random_ends_in_several_sessions_keep_limits_and_strand_nothing(db: Db, seed: int) -> None:
    """Each step is one transaction of one of four sessions, two of which may be open at once."""
    chance = random.Random(seed)
    declare_limit(db, "api", 3)
    declare_limit(db, "account", 1)
    declare_queue(db, "sync", max=4)
    nodes = [db.node() for _ in range(3)]
    for n in range(120):
        keys = [API] * (n % 3 == 0) + [f"key:account:{chance.randrange(4)}"] * (n % 2)
        enqueue(db, *keys, queue=chance.choice(["default", "sync"]), max_attempts=chance.choice([1, 5, 5]))
    held: list[tuple[int, Any]] = []
    sessions = [db.session() for _ in range(4)]
    open_now: list[Session] = []
    for _ in range(500):
        free = [session for session in sessions if session not in open_now]
        if open_now and (len(open_now) == 2 or chance.random() < 0.5):
            open_now.pop(0).commit()
            continue
        session, epoch = chance.choice(free), chance.choice(nodes)
        what = chance.random()
        if what < 0.4 or not held:
            if open_now == [] and chance.random() < 0.5:
                session.begin()
                open_now.append(session)
            rows = session.claim(epoch, chance.choice([1, 3, 10]), queues=["default", "sync"])
            held += [(epoch, row) for row in rows]
        elif not open_now:
            chance.shuffle(held)
            epoch, row = held.pop()
            ending = chance.choice(["succeeded", "succeeded", "failed", "released", "complete", "cancel"])
            if ending == "complete":
                session.call("complete", id=row.id, fence=row.fence)
                session.value("unpark", keys=row.limit_keys or [])
            elif ending == "cancel":
                session.value("cancel", id=row.id, force=True)
                session.value("unpark", keys=row.limit_keys or [])
            else:
                session.settle(epoch, End(row, ending, age=1.0))
            assert_within_limits(db)
        else:
            open_now.pop(0).commit()
    for session in open_now:
        session.commit()
    for _ in range(1000):
        db.make_ready()
        rows = db.claim(nodes[0], 10, queues=["default", "sync"])
        assert_within_limits(db)
        held += [(nodes[0], row) for row in rows]
        if not held:
            break
        db.settle(held[0][0], *[End(row) for epoch, row in held if epoch == held[0][0]])
        held = [item for item in held if item[0] != held[0][0]]
    assert db.rows("jobs") == []
    assert db.rows("holds") == []
