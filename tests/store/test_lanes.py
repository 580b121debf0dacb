"""Lanes: fair shares take turns, tokens route jobs to their owners, labels choose nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest

from tests.store.flow import assert_within_limits, declare_limit, declare_queue, enqueue, waits
from tests.store.harness import Db, End
from tests.store.test_work import work


def order(db: Db, epoch: int, max: int = 1, **more: Any) -> list[UUID]:
    """The ids in the order in which a worker starts them."""
    found: list[UUID] = []
    while rows := db.claim(epoch, max, **more):
        rows.sort(key=lambda row: (row.turn, -row.priority, row.run_at, row.id))
        found += [row.id for row in rows]
    return found


def own(db: Db, epoch: int, *tokens: int, to: int | None = None) -> None:
    for token in tokens:
        db.change(
            """INSERT INTO {schema}.tokens (token_group, token, epoch, fence, next, asked_at)
               VALUES ('cells', %s, %s, 1, %s, %s) ON CONFLICT (token_group, token)
               DO UPDATE SET epoch = EXCLUDED.epoch, next = EXCLUDED.next, asked_at = EXCLUDED.asked_at""",
            token, epoch, to, None if to is None else db.now,
        )  # fmt: skip


# Fair queues.


@pytest.mark.parametrize("max", [1, 2, 3, 100])
def test_shares_take_turns_whatever_the_size_of_a_claim(db: Db, max: int) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    jobs = {lane: [enqueue(db, queue="fair", lane=lane) for _ in range(4)] for lane in (5, 9, 700)}
    expected = [jobs[lane][n] for n in range(4) for lane in (5, 9, 700)]
    taken = order(db, epoch, max, queues=["fair"])
    turns = [[taken.index(job) for job in jobs[lane]] for lane in jobs]
    assert all(sorted(places) == places for places in turns)
    if max in (1, 3):
        assert taken == expected
    for n in range(4):
        assert max < 100 or {taken.index(jobs[lane][n]) // 3 for lane in jobs} == {n}


def test_two_claims_of_a_fair_queue_at_once_take_different_jobs(db: Db) -> None:
    """The second claim finds the same first jobs, of which the other one has locked some."""
    first, second, other = db.node(), db.node(), db.session()
    declare_queue(db, "fair", "share")
    jobs = {lane: [enqueue(db, queue="fair", lane=lane) for _ in range(2)] for lane in (5, 9, 700)}
    other.begin()
    assert {row.id for row in other.claim(first, 2, queues=["fair"])} == {jobs[5][0], jobs[9][0]}
    assert {row.id for row in db.claim(second, 3, queues=["fair"])} == {jobs[5][1], jobs[9][1], jobs[700][0]}
    other.commit()
    assert {row.id for row in db.claim(second, 3, queues=["fair"])} == {jobs[700][1]}


def test_the_places_of_a_limit_are_given_in_the_order_of_the_turns(db: Db) -> None:
    """Not in the order of enqueue."""
    epoch = db.node()
    declare_queue(db, "fair", "share")
    declare_limit(db, "api", 1)
    jobs = {lane: enqueue(db, "key:api", queue="fair", lane=lane) for lane in (700, 9, 5)}
    assert [row.id for row in db.claim(epoch, 3, queues=["fair"])] == [jobs[5]]


def test_turns_at_a_full_key_go_on_behind_the_share_that_started_last(db: Db) -> None:
    """Also if all jobs of that claim could start."""
    epoch = db.node()
    declare_queue(db, "fair", "share")
    declare_limit(db, "api", 2)
    for lane in (5, 9):
        enqueue(db, "key:api", queue="fair", lane=lane)
    running = db.claim(epoch, 2, queues=["fair"])
    assert len(running) == 2
    jobs = {lane: enqueue(db, "key:api", queue="fair", lane=lane) for lane in (5, 20)}
    assert db.claim(epoch, 2, queues=["fair"]) == []
    db.settle(epoch, End(running[0]))
    assert [row.id for row in db.claim(epoch, 2, queues=["fair"])] == [jobs[20]]


def test_a_share_with_a_weight_may_fill_a_claim(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    db.change("INSERT INTO {schema}.shares VALUES ('fair', 5, 'gold', 3)")
    jobs = {lane: [enqueue(db, queue="fair", lane=lane) for _ in range(3)] for lane in (5, 9)}
    assert {row.id for row in db.claim(epoch, 2, queues=["fair"])} == set(jobs[5][:2])


def test_a_newcomer_waits_for_one_job_of_each_other_share(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    backlog = [enqueue(db, queue="fair", lane=lane) for lane in (10, 20, 30) for _ in range(20)]
    for _ in range(7):
        db.claim(epoch, 2, queues=["fair"])
    newcomer = enqueue(db, queue="fair", lane=25)
    after = order(db, epoch, 1, queues=["fair"])
    assert after.index(newcomer) <= 3
    assert set(after) | {newcomer} <= {*backlog, newcomer}


def test_weights_give_a_share_more_jobs_of_each_turn(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    db.change("INSERT INTO {schema}.shares VALUES ('fair', 9, 'gold', 3)")
    jobs = {lane: [enqueue(db, queue="fair", lane=lane) for _ in range(9)] for lane in (5, 9)}
    first = order(db, epoch, 4, queues=["fair"])[:8]
    assert len([job for job in first if job in jobs[9]]) == 6


def test_priority_holds_within_a_share(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    low, high = enqueue(db, queue="fair", lane=5), enqueue(db, queue="fair", lane=5, priority=9)
    other = enqueue(db, queue="fair", lane=6)
    assert order(db, epoch, queues=["fair"]) == [high, other, low]


def test_a_one_attempt_job_of_a_share_is_not_claimed_ahead(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    once = [enqueue(db, queue="fair", lane=lane, max_attempts=1) for lane in (5, 6, 7)]
    assert db.claim(epoch, 10, free=0, queues=["fair"]) == []
    assert len(db.claim(epoch, 10, free=2, queues=["fair"])) == 2
    assert len(db.claim(epoch, 10, free=2, queues=["fair"])) == 1
    assert db.states(*once) == ["running"] * 3


def test_concurrent_claims_of_a_fair_queue_share_its_jobs(db: Db) -> None:
    one, first, second = db.session(), db.node(), db.node()
    declare_queue(db, "fair", "share")
    for lane in (5, 6, 7):
        for _ in range(4):
            enqueue(db, queue="fair", lane=lane)
    one.begin()
    assert len(one.claim(first, 3, queues=["fair"])) == 3
    assert len(db.claim(second, 100, queues=["fair"])) == 9
    one.commit()


def test_jobs_of_a_full_key_take_turns_by_their_shares(db: Db) -> None:
    """The queue is fair and its jobs are limited: the next comes from the next share, not from the oldest backlog."""
    epoch = db.node()
    declare_queue(db, "fair", "share")
    declare_limit(db, "api", 1)
    jobs = {lane: [enqueue(db, "key:api", queue="fair", lane=lane) for _ in range(3)] for lane in (5, 9)}
    taken = []
    while rows := db.claim(epoch, queues=["fair"]):
        taken += [row.id for row in rows]
        db.settle(epoch, *[End(row) for row in rows])
        assert_within_limits(db)
    assert taken == [jobs[lane][n] for n in range(3) for lane in (5, 9)]


def test_a_limit_with_several_places_takes_turns_too(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "fair", "share")
    declare_limit(db, "api", 4)
    jobs = {lane: [enqueue(db, "key:api", queue="fair", lane=lane) for _ in range(9)] for lane in (5, 9, 12)}
    held = db.claim(epoch, 100, queues=["fair"])
    while rows := db.claim(epoch, 100, queues=["fair"]):
        held += rows
    assert len(held) == 4
    db.settle(epoch, *[End(row) for row in held])
    ready = [row.lane for row in db.rows("jobs") if row.wait is None]
    assert len(ready) == 4
    assert set(ready) == set(jobs)


def test_a_fair_queue_with_a_limit_serves_the_newcomer_next(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "sync", "share", max=2)
    for _ in range(10):
        enqueue(db, queue="sync", lane=1)
    running = db.claim(epoch, 10, queues=["sync"])
    assert len(running) == 2
    newcomer = enqueue(db, queue="sync", lane=2)
    db.settle(epoch, End(running[0]))
    assert [row.id for row in db.claim(epoch, 10, queues=["sync"])] == [newcomer]


def test_a_fair_claim_reads_one_entry_per_share(own_db: Db) -> None:
    db = own_db
    epoch = db.node()
    declare_queue(db, "fair", "share")
    db.call("enqueue_many", jobs=[{"type": "t", "queue": "fair"}] * 3000)
    db.change("UPDATE {schema}.jobs SET lane = 1 + seq % 10")
    db.execute("VACUUM ANALYZE watchbill.jobs")
    read = work(db, "claim", epoch=epoch, max=5, queues=["fair"])
    assert read.entries["jobs_ready"] < 40


# Routed queues.


def test_a_node_takes_only_lanes_whose_token_it_owns(db: Db) -> None:
    one, other = db.node(), db.node()
    declare_queue(db, "routed", "route")
    jobs = {lane: enqueue(db, queue="routed", lane=lane) for lane in (1, 2, 3, 40, 0)}
    own(db, one, 0, 2, 7)
    own(db, other, 1, 39)
    own(db, other, 3, to=one)
    assert set(order(db, one, 2, queues=["routed"])) == {jobs[0], jobs[1], jobs[3]}
    assert set(order(db, other, 100, queues=["routed"])) == {jobs[2], jobs[40]}


def test_a_lane_that_moves_is_taken_by_its_new_owner(db: Db) -> None:
    one, other = db.node(), db.node()
    declare_queue(db, "routed", "route")
    job = enqueue(db, queue="routed", lane=4)
    own(db, one, 3, to=other)
    assert db.claim(one, queues=["routed"]) == []
    assert db.claim(other, queues=["routed"]) == []
    own(db, other, 3)
    assert [row.id for row in db.claim(other, queues=["routed"])] == [job]


def test_a_pin_is_a_token_beyond_the_total(db: Db) -> None:
    """Eight tokens; the pin is token 8, lane 9."""
    one, other = db.node(), db.node()
    declare_queue(db, "routed", "route")
    own(db, one, *range(8))
    own(db, other, 8)
    jobs = [enqueue(db, queue="routed", lane=lane) for lane in (3, 9)]
    assert [row.id for row in db.claim(one, queues=["routed"])] == [jobs[0]]
    assert [row.id for row in db.claim(other, queues=["routed"])] == [jobs[1]]


def test_routed_lanes_take_turns(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, 4, 8)
    jobs = {lane: [enqueue(db, queue="routed", lane=lane) for _ in range(3)] for lane in (5, 9)}
    assert order(db, epoch, queues=["routed"]) == [jobs[lane][n] for n in range(3) for lane in (5, 9)]


def test_a_routed_claim_takes_up_to_four_jobs_of_a_lane_and_fills_up_from_other_lanes(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, *range(20))
    lanes = {enqueue(db, queue="routed", lane=lane): lane for lane in range(1, 11)}
    lanes |= {enqueue(db, queue="routed", lane=lane): lane for lane in range(11, 15) for _ in range(10)}
    claims = []
    while rows := db.claim(epoch, 8, queues=["routed"]):
        claims.append([lanes[row.id] for row in rows])
    assert sorted(claims[0]) == [1, 2, 3, 4, 5, 6, 7, 8], "lanes of one job each"
    assert sorted(claims[1]) == [9, 10, 11, 11, 11, 11, 12, 12]
    assert sorted(claims[2]) == [13, 13, 13, 13, 14, 14, 14, 14], "behind the last one"
    assert sum(map(len, claims)) == 50


def test_a_routed_claim_fills_up_from_few_lanes(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, *range(20))
    jobs = [enqueue(db, queue="routed", lane=lane) for lane in (3, 9) for _ in range(10)]
    assert len(db.claim(epoch, 15, queues=["routed"])) == 15
    assert len(db.claim(epoch, 15, queues=["routed"])) == len(jobs) - 15


def test_claims_of_other_nodes_do_not_keep_a_node_from_its_last_lanes(db: Db) -> None:
    """With one cursor for all nodes, each claim of the second node would send the first one back to lane 1."""
    nodes = [db.node(), db.node()]
    declare_queue(db, "routed", "route")
    own(db, nodes[0], *range(10))
    own(db, nodes[1], *range(10, 20))
    lanes = {enqueue(db, queue="routed", lane=lane): lane for lane in range(1, 21) for _ in range(5)}
    served = [lanes[row.id] for _ in range(10) for node in nodes for row in db.claim(node, 1, queues=["routed"])]
    assert sorted(served) == list(range(1, 21)), "each lane once"


@pytest.mark.parametrize("end", ["leaves", "is lost"])
def test_the_cursor_of_a_node_ends_with_it(db: Db, end: str) -> None:
    epoch, other = db.node(), db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, 4)
    own(db, other, 5)
    for lane in (5, 6):
        enqueue(db, queue="routed", lane=lane)
    assert db.claim(epoch, queues=["routed"])
    assert db.claim(other, queues=["routed"])
    assert [row.epoch for row in db.rows("lane_cursors")] == [epoch, other]
    if end == "leaves":
        db.call("leave", epoch=epoch)
    else:
        db.change("SELECT {schema}._mark_node_lost(%s, %s)", epoch, db.now)
    assert [row.epoch for row in db.rows("lane_cursors")] == [other]


def test_pruning_deletes_a_cursor_that_was_written_after_the_end_of_its_node(db: Db) -> None:
    epoch = db.node()
    db.change("INSERT INTO {schema}.lane_cursors VALUES (0, 'fair', 5), (%s, 'routed', 5), (-7, 'routed', 5)", epoch)
    db.value("prune_nodes", keep=timedelta(days=1))
    assert [row.epoch for row in db.rows("lane_cursors")] == [0, epoch]


def test_sweeping_deletes_the_cursors_of_older_schemas(db: Db) -> None:
    """Up to schema 15 the states of limits had them."""
    db.change("INSERT INTO {schema}.limit_states (key, name, lane_cursor) VALUES ('turn:fair', 'turn:fair', 5)")
    db.value("sweep_limits")
    assert db.rows("limit_states") == []


def test_a_routed_claim_takes_one_limited_job_of_each_lane(db: Db) -> None:
    """The next one of the lane would be set aside, and queued again when the first has ended."""
    epoch = db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, *range(10))
    for lane in range(1, 11):
        declare_limit(db, f"lane-{lane}", 1)
        for _ in range(5):
            enqueue(db, f"key:lane-{lane}", queue="routed", lane=lane)
    assert len(db.claim(epoch, 8, queues=["routed"])) == 8
    assert [row for row in db.rows("jobs") if row.wait == "parked"] == []


def test_a_claim_of_a_routed_queue_leaps_over_lanes_of_others(own_db: Db) -> None:
    db = own_db
    epoch = db.node()
    declare_queue(db, "routed", "route")
    db.call("enqueue_many", jobs=[{"type": "t", "queue": "routed"}] * 3000)
    db.change("UPDATE {schema}.jobs SET lane = 1 + seq % 1000")
    own(db, epoch, 500, 900)
    db.execute("VACUUM ANALYZE watchbill.jobs")
    read = work(db, "claim", epoch=epoch, max=100, queues=["routed"])
    assert read.entries["jobs_ready"] < 40
    assert read.entries["tokens_owner"] < 20


def test_a_forced_move_of_tokens_stops_a_claim_under_way(db: Db) -> None:
    """The leader raises the assignment under the lock of the node's row."""
    one, leader, epoch = db.session(), db.session(), db.node()
    declare_queue(db, "routed", "route")
    own(db, epoch, 1)
    enqueue(db, queue="routed", lane=2)
    leader.begin()
    leader.execute("SELECT FROM watchbill.nodes WHERE epoch = %s FOR UPDATE", [epoch])
    leader.execute("UPDATE watchbill.nodes SET assignment = assignment + 1 WHERE epoch = %s", [epoch])
    assert one.claim(epoch, queues=["routed"]) == []
    leader.commit()
    assert len(one.claim(epoch, queues=["routed"])) == 1


# Labels.


def label_set(db: Db, lane: int, labels: LiteralString) -> None:
    db.change("INSERT INTO {schema}.label_sets VALUES (%s, %s::jsonb)", lane, labels)


def test_only_nodes_with_all_labels_take_a_job_that_asks_for_them(db: Db) -> None:
    label_set(db, -1, '{"gpu": "a100"}')
    label_set(db, -2, '{"gpu": "a100", "zone": "b"}')
    plain, gpu, both = (
        db.node(),
        db.node(labels={"gpu": "a100", "zone": "a"}),
        db.node(labels={"gpu": "a100", "zone": "b"}),
    )
    jobs = {lane: enqueue(db, lane=lane) for lane in (0, -1, -2)}
    assert [row.id for row in db.claim(plain)] == [jobs[0]]
    assert [row.id for row in db.claim(gpu)] == [jobs[-1]]
    assert [row.id for row in db.claim(both)] == [jobs[-2]]


def test_a_node_is_named_by_the_label_node(db: Db) -> None:
    """A worker with several processes is several nodes, and its name stands for all of them."""
    pinned = db.enqueue(runs_on={"node": "gpu-1"})
    also = db.enqueue(runs_on={"node": "gpu-1", "gpu": "a100"})
    process = db.enqueue(runs_on={"node": "gpu-1/2"})
    nodes = [db.node(name) for name in ("gpu-2", "gpu-11", "gpu-1/x", "gpu")]
    assert [db.claim(epoch) for epoch in nodes] == [[], [], [], []]
    assert [row.id for row in db.claim(db.node("gpu-1"))] == [pinned]
    assert [row.id for row in db.claim(db.node("gpu-1/1", labels={"gpu": "a100"}))] == [also]
    assert [row.id for row in db.claim(db.node("gpu-1/2"))] == [process]


def test_label_lanes_are_merged_with_the_others_by_priority(db: Db) -> None:
    label_set(db, -1, '{"gpu": "a100"}')
    label_set(db, -2, '{"zone": "b"}')
    epoch = db.node(labels={"gpu": "a100", "zone": "b"})
    jobs = [enqueue(db, lane=-(n % 3), priority=20 - n, max_attempts=1 if n % 4 == 0 else 5) for n in range(12)]
    assert order(db, epoch, 1) == jobs
    again = [enqueue(db, lane=-(n % 3), priority=20 - n, max_attempts=1 if n % 4 == 0 else 5) for n in range(12)]
    assert {row.id for row in db.claim(epoch, 5)} == set(again[:5])
    assert {row.id for row in db.claim(epoch, 100, free=2)} == set(again[5:8])


# Pauses, types and quarantine in lanes.


@pytest.mark.parametrize("lanes", ["share", "route"])
def test_a_paused_type_waits_in_its_lane(db: Db, lanes: str) -> None:
    epoch = db.node()
    declare_queue(db, "q", lanes)
    own(db, epoch, 4)
    job = enqueue(db, type="p", queue="q", lane=5)
    db.value("pause", type="p")
    assert db.claim(epoch, queues=["q"]) == []
    assert [wait for wait, _ in waits(db, job)] == ["paused"]
    db.value("resume", type="p")
    assert [row.id for row in db.claim(epoch, queues=["q"])] == [job]


@pytest.mark.parametrize("state", ["unsupported", "quarantined"])
def test_special_jobs_of_a_routed_queue_stay_routed(db: Db, state: str) -> None:
    stranger, expert, owner = db.node(), db.node(types={"t": 1}), db.node(types={"t": 1})
    declare_queue(db, "q", "route")
    own(db, stranger, 4)
    job = enqueue(db, type="t", queue="q", lane=5)
    held = db.claim_one(stranger, queues=["q"])
    if state == "unsupported":
        db.settle(stranger, End(held, "unsupported", age=None))
    else:
        db.change("UPDATE {schema}.nodes SET lease = '1 day' WHERE epoch <> %s", stranger)
        db.lose(stranger)
        db.make_ready()
    own(db, owner, 4)
    alone = state == "quarantined"
    assert db.claim(expert, queues=["q"], alone=alone) == []
    assert [row.id for row in db.claim(owner, queues=["q"], alone=alone)] == [job]


def test_an_unsupported_job_of_another_node_is_not_taken_in_place_of_an_own_one(db: Db) -> None:
    stranger, expert, owner = db.node(), db.node(types={"t": 1}), db.node(types={"t": 1})
    declare_queue(db, "q", "route")
    own(db, stranger, 4, 5)
    jobs = [enqueue(db, type="t", queue="q", lane=lane) for lane in (5, 6)]
    db.settle(stranger, *(End(held, "unsupported", age=None) for held in db.claim(stranger, queues=["q"])))
    own(db, expert, 4)
    own(db, owner, 5)
    assert [row.id for row in db.claim(owner, queues=["q"])] == jobs[1:]


@pytest.mark.parametrize("lane", [0, 5])
def test_a_quarantined_job_of_a_full_key_waits(db: Db, lane: int) -> None:
    epoch = db.node()
    if lane:
        declare_queue(db, "default", "share")
    declare_limit(db, "api", 1)
    first, second = enqueue(db, "key:api", lane=lane), enqueue(db, "key:api", lane=lane)
    db.change("UPDATE {schema}.jobs SET class = 2 WHERE id = %s", second)
    held = db.claim_one(epoch)
    assert held.id == first
    assert db.claim(epoch, alone=True) == []
    db.settle(epoch, End(held))
    assert [row.id for row in db.claim(epoch, alone=True)] == [second]


# Jobs whose lane is of another kind than their queue.


def test_a_fair_queue_runs_jobs_that_have_no_share(db: Db) -> None:
    epoch, producer = db.node(), db.session()
    finished = db.enqueue()
    db.settle(epoch, End(db.claim_one(epoch)))
    producer.begin()
    late = producer.enqueue()
    declare_queue(db, "default", "share")
    producer.commit()
    db.value("reschedule", id=finished)
    shared = db.enqueue()
    assert {row.id for row in db.claim(epoch)} == {finished, late, shared}


def test_jobs_without_a_share_take_turns_with_the_shares(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "default", "share")
    strays = [enqueue(db, lane=0) for _ in range(3)]
    shared = [enqueue(db, lane=5) for _ in range(3)]
    taken = [db.claim_one(epoch).id for _ in range(6)]
    assert taken == [job for pair in zip(shared, strays, strict=True) for job in pair]


def test_a_job_that_is_run_again_leaves_the_lane_of_a_queue_that_is_no_longer_fair(db: Db) -> None:
    epoch = db.node()
    declare_queue(db, "default", "share")
    job = db.enqueue()
    db.settle(epoch, End(db.claim_one(epoch)))
    db.change("DELETE FROM {schema}.queues")
    db.value("reschedule", id=job)
    assert db.claim_one(epoch).id == job


def test_a_routed_queue_runs_jobs_that_ask_for_labels(db: Db) -> None:
    plain, epoch = db.node(), db.node(labels={"gpu": "yes"})
    declare_queue(db, "default", "route")
    job = db.enqueue(runs_on={"gpu": "yes"})
    assert db.claim(plain) == []
    assert db.claim_one(epoch).id == job


def test_each_call_of_unpark_serves_the_next_share(db: Db) -> None:
    """Also if no claim takes a job in between."""
    epoch = db.node()
    declare_limit(db, "api", 1)
    blocker = enqueue(db, "key:api", priority=9)
    held = db.claim_one(epoch)
    assert held.id == blocker
    first, second, other = (enqueue(db, "key:api", lane=lane, queue="fair") for lane in (1, 1, 2))
    declare_queue(db, "fair", "share")
    assert db.claim(epoch, queues=["fair"]) == []
    db.call("complete", id=blocker, fence=held.fence)
    for expected in ([first], [first, other]):
        assert db.value("unpark", keys=["key:api"]) == 1
        assert [job for job in (first, second, other) if waits(db, job) == [(None, None)]] == expected
