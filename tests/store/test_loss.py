"""A node that dies: who may say so, what becomes of its jobs, and how often a job may take its node with it."""

from __future__ import annotations

from datetime import timedelta
from typing import LiteralString

import pytest

from tests.store.flow import declare_limit, enqueue, waits
from tests.store.harness import LEASE, T0, Db, End, refused


def lose_once(db: Db) -> None:
    """A new node takes the job, alone if need be, and dies."""
    epoch = db.node()
    db.make_ready()
    assert db.claim(epoch, 1) or db.claim(epoch, 1, alone=True)
    db.lose(epoch)


def test_reclaim_needs_an_expired_lease_and_the_last_beat(db: Db) -> None:
    epoch = db.node("a", types={"task": 1})
    job = db.enqueue()
    db.claim(epoch)
    db.value("heartbeat", epoch=epoch, running=[])
    db.now += LEASE
    assert db.call("reclaim", epochs=[epoch], beats_seen=[1]) == []  # to the microsecond not yet
    db.tick(0.001)
    assert db.call("reclaim", epochs=[epoch], beats_seen=[0]) == []  # that beat is not the last one
    assert db.call("reclaim", epochs=[], beats_seen=[]) == []
    assert db.states(job) == ["running"]
    (row,) = db.call("reclaim", epochs=[epoch], beats_seen=[1])
    assert tuple(row) == (job, epoch, "failed")
    (node,) = db.rows("node")
    assert (node.state, node.heartbeat_at, node.types) == ("lost", None, None)
    assert node.ended_at == T0, "when it was last heard of"


def test_a_node_that_died_before_the_clock_was_set_back_is_lost(db: Db) -> None:
    """Its last beat is of the future, so it proves no life; the caller has seen no other for a whole lease."""
    dead, alive = db.node(types={"task": 1}), db.node()
    job = db.enqueue()
    db.claim(dead)
    db.tick(-86_400)
    (row,) = db.call("reclaim", epochs=[dead, alive], beats_seen=[0, 1])  # the other has sent another beat than this
    assert tuple(row) == (job, dead, "failed")
    lost, kept = db.rows("node")
    assert (lost.state, kept.state) == ("lost", "active")
    assert lost.ended_at <= db.now


def test_a_node_that_lives_while_the_clock_is_set_back_beats_again(db: Db) -> None:
    epoch = db.node()
    db.tick(-86_400)
    db.value("heartbeat", epoch=epoch)
    assert db.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
    assert db.call("reclaim", epochs=[epoch], beats_seen=[1]) == [], "its lease has begun anew"
    (node,) = db.rows("node")
    assert (node.state, node.heartbeat_at) == ("active", db.now)


def test_each_node_has_its_own_lease(db: Db) -> None:
    short, long = db.node(lease=timedelta(seconds=1)), db.node(lease=timedelta(minutes=5))
    db.tick(60)
    db.call("reclaim", epochs=[long, short], beats_seen=[0, 0])
    assert [(node.epoch, node.state) for node in db.rows("nodes")] == [(short, "lost"), (long, "active")]


def test_a_draining_node_can_be_lost(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue()
    db.claim(epoch)
    db.value("drain", name="a")
    assert db.lose(epoch) == {job: "failed"}


def test_reclaim_quarantines_the_job_and_counts_the_loss(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue()
    held, claimed_at = db.claim_one(epoch), db.now
    db.lose(epoch)
    db.expect(job, state="failed", wait="delayed", attempt=0, lost=1, run=1, quarantined=True, fence=None, holder=None)
    db.expect(job, error={"kind": "lost", "message": "the node that ran it was lost"}, error_kind="lost")
    assert db.now <= db.look(job).run_at <= db.after(1)
    (attempt,) = db.attempts(job)
    assert (attempt.outcome, attempt.run, attempt.attempt, attempt.fence) == ("lost", 1, 1, held.fence)
    assert (attempt.epoch, attempt.holder, attempt.ended_at) == (epoch, "a", db.now)
    assert attempt.started_at == claimed_at, "its node had not reported when it started"
    assert db.count("claims") == db.count("runs") == 0


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_lost_run_has_its_attempt_and_the_start_that_its_node_reported(db: Db, max_attempts: int) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=max_attempts)
    held = db.claim_one(epoch)
    db.value("heartbeat", epoch=epoch, running=[{"id": str(job), "fence": held.fence, "age": 3}], now=db.after(10))
    reported, (beat,) = db.after(7), db.rows("beats")
    db.tick(60)
    db.call(
        "_declare_lost", epochs=[epoch], beats_seen=[beat.n]
    )  # a node declares it lost, and reclaims in a second call
    db.call("reclaim")
    (attempt,) = db.attempts(job)
    assert (attempt.outcome, attempt.attempt, attempt.started_at) == ("lost", 1, reported)
    assert db.look(job).attempt == 0, "a loss does not use up the attempt"
    assert db.count("runs") == 0


def test_a_lost_node_leaves_no_record_of_a_run_that_had_ended(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.value("heartbeat", epoch=epoch, running=[{"id": str(job), "fence": held.fence, "age": 3}])
    db.settle(epoch, End(held, "succeeded"))
    assert db.count("runs") == 1
    db.lose(epoch)
    assert db.count("runs") == 0


def test_every_claimed_job_of_a_lost_node_is_lost(db: Db) -> None:
    """Which of them killed it nobody knows: each runs alone next, and the culprit is found alone."""
    epoch = db.node()
    jobs = [db.enqueue(queue=queue) for queue in ("a", "b", "b")]
    db.claim(epoch, queues=["a"])
    db.claim(epoch, queues=["b"])
    assert db.lose(epoch) == dict.fromkeys(jobs, "failed")
    assert [db.look(job).lost for job in jobs] == [1, 1, 1]


def test_reclaim_does_not_touch_jobs_of_other_nodes(db: Db) -> None:
    lost, alive = db.node(), db.node()
    mine, theirs = db.enqueue(), db.enqueue()
    db.claim_one(lost)
    held = db.claim_one(alive)
    db.value("heartbeat", epoch=alive, running=[{"id": str(theirs), "fence": held.fence, "age": 1}], now=db.after(20))
    assert db.lose(lost) == {mine: "failed"}
    db.expect(theirs, state="running", epoch=alive, fence=held.fence, lost=0)
    assert [row.job_id for row in db.rows("runs")] == [theirs]


def test_delay_grows_with_each_loss(db: Db) -> None:
    job = db.enqueue()
    for most in (1, 2):
        lose_once(db)
        assert db.now <= db.look(job).run_at <= db.after(most)


def test_third_loss_in_a_row_ends_the_job_dead(db: Db) -> None:
    job = db.enqueue()
    lose_once(db)
    lose_once(db)
    db.expect(job, state="failed", lost=2)
    lose_once(db)
    db.expect(job, state="dead", lost=3, attempt=0, run=3, outcome="lost", error_kind="lost", finished_at=db.now)
    assert db.outcomes(job) == ["lost", "lost", "lost"]


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "snoozed", "released"])
def test_any_other_ending_clears_the_loss_count(db: Db, outcome: str) -> None:
    job = db.enqueue()
    lose_once(db)
    lose_once(db)
    db.make_ready()
    epoch = db.node()
    held = db.claim_one(epoch, alone=True)
    db.settle(epoch, End(held, outcome))
    db.expect(job, lost=0, quarantined=False)
    lose_once(db)
    lose_once(db)
    db.expect(job, state="failed", lost=2)
    lose_once(db)
    db.expect(job, state="dead", lost=3)


@pytest.mark.parametrize("outcome", ["succeeded", "skipped", "failed"])
def test_finished_job_shows_no_earlier_losses(db: Db, outcome: str) -> None:
    job = db.enqueue()
    lose_once(db)
    db.make_ready()
    epoch = db.node()
    db.settle(epoch, End(db.claim_one(epoch, alone=True), outcome, error={"kind": "permanent"}))
    db.expect(job, lost=0, attempt=1, run=2)


@pytest.mark.parametrize("give_back", ["settle", "release_unknown", "leave", "release"])
def test_release_before_the_start_keeps_the_quarantine(db: Db, give_back: str) -> None:
    job = db.enqueue()
    lose_once(db)
    db.make_ready()
    epoch = db.node()
    held = db.claim_one(epoch, alone=True)
    match give_back:
        case "settle":
            db.settle(epoch, End(held, "released", age=None))
        case "release_unknown":
            db.value("release_unknown", epoch=epoch, known=[])
        case "leave":
            db.value("leave", epoch=epoch)
        case "release":
            db.value("release", id=job)
    db.expect(job, state="queued", lost=1, quarantined=True)
    assert db.claim(db.node()) == []
    assert len(db.claim(db.node(), alone=True)) == 1


def test_a_job_with_one_attempt_is_dead_at_its_first_loss(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=1)
    db.claim(epoch)
    assert db.lose(epoch) == {job: "dead"}
    db.expect(job, state="dead", lost=1, attempt=0, outcome="lost", error_kind="lost")
    assert db.outcomes(job) == ["lost"]


def test_loss_during_the_last_attempt_does_not_spend_it(db: Db) -> None:
    job = db.enqueue(max_attempts=2)
    epoch = db.node()
    db.run(epoch, "failed")
    lose_once(db)
    db.expect(job, state="failed", attempt=1, lost=1)
    db.make_ready()
    epoch = db.node()
    db.settle(epoch, End(db.claim_one(epoch, alone=True), "failed"))
    db.expect(job, state="dead", attempt=2)


def test_reclaim_cancels_a_job_with_a_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job)
    assert db.lose(epoch) == {job: "canceled"}
    db.expect(job, state="canceled", lost=1)
    assert db.count("cancels") == 0


def test_late_calls_of_a_lost_node_are_refused(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    held = db.claim_one(epoch)
    db.lose(epoch)
    assert db.settle(epoch, End(held)) == {held.id: None}
    with refused("WB001"):
        db.value("heartbeat", epoch=epoch)
    with refused("WB001"):
        db.claim(epoch)
    with refused("WB007"):
        db.value("complete", id=held.id, fence=held.fence)
    assert db.value("release_unknown", epoch=epoch, known=[]) == 0
    assert db.value("leave", epoch=epoch) == 0
    db.expect(held.id, state="failed", lost=1)


def test_second_reclaim_of_a_lost_node_does_nothing(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.lose(epoch)
    assert db.lose(epoch) == {}
    db.expect(job, lost=1)


# Races.


def test_reclaim_skips_a_node_with_an_uncommitted_heartbeat(db: Db) -> None:
    node, epoch = db.session(), db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.tick(31)
    node.begin()
    node.value("heartbeat", epoch=epoch)
    assert db.reclaim(epoch) == {}
    node.commit()
    assert db.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
    assert db.states(job) == ["running"]
    assert db.rows("node")[0].state == "active"


def test_heartbeat_waiting_for_a_reclaim_is_refused(db: Db) -> None:
    node, reclaimer, epoch = db.session(), db.session(), db.node()
    db.tick(31)
    reclaimer.begin()
    reclaimer.call("reclaim", epochs=[epoch], beats_seen=[0])
    waiting = node.start("heartbeat", epoch=epoch).blocked()
    reclaimer.commit()
    with refused("WB001", "is lost"):
        waiting.rows()


def test_reclaim_skips_only_the_node_with_an_open_claim(db: Db) -> None:
    """Its jobs would be stranded on an epoch that was already swept, so that node is left for the next pass."""
    hung, other, session = db.node(), db.node(), db.session()
    waits = db.enqueue()
    db.claim(other)
    hangs = db.enqueue()
    db.tick(31)
    session.begin()
    session.claim(hung)
    assert db.reclaim(hung, other) == {waits: "failed"}
    session.commit()
    assert db.reclaim(hung) == {hangs: "failed"}
    db.expect(hangs, lost=1)


def test_claim_during_the_reclaim_of_its_node_takes_nothing(db: Db) -> None:
    node, reclaimer, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    db.tick(31)
    reclaimer.begin()
    reclaimer.call("reclaim", epochs=[epoch], beats_seen=[0])
    assert node.claim(epoch) == []
    reclaimer.commit()
    with refused("WB001", "is lost"):
        node.claim(epoch)
    db.expect(job, state="queued", run=0)


def test_claim_takes_nothing_if_its_node_is_lost_during_the_scan(db: Db) -> None:
    """It has seen the node active; what counts is the moment of taking."""
    node, barrier, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    db.execute("INSERT INTO watchbill.unsupported_types (type, version, since) VALUES ('another', 1, now())")
    barrier.begin()
    barrier.execute(
        "LOCK TABLE watchbill.node_types"
    )  # the last thing a claim looks at, when there are unsupported types
    waiting = node.start("claim", epoch=epoch, max=2).blocked()
    db.execute("UPDATE watchbill.nodes SET state = 'lost' WHERE epoch = %s", (epoch,))  # reclaim would wait as well
    db.execute("DELETE FROM watchbill.beats WHERE epoch = %s", (epoch,))
    barrier.commit()
    assert waiting.rows() == []
    db.expect(job, state="queued", run=0)


def test_concurrent_reclaims_count_a_loss_once_without_waiting(db: Db) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.tick(31)
    one.begin()
    one.call("reclaim", epochs=[epoch], beats_seen=[0])
    assert other.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
    one.commit()
    assert other.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
    db.expect(job, lost=1, run=1)
    assert db.outcomes(job) == ["lost"]


def test_concurrent_reclaims_of_a_leftover_job_count_it_once(db: Db) -> None:
    one, other, handler, epoch = db.session(), db.session(), db.session(), db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    db.lose(epoch)
    handler.rollback()
    one.begin()
    assert [row.id for row in one.call("reclaim")] == [job]
    assert other.call("reclaim") == []
    one.commit()
    db.expect(job, lost=1)
    assert db.count("claims") == 0


@pytest.mark.parametrize("first", ["leave", "reclaim"])
def test_node_that_leaves_during_a_reclaim_is_left_or_lost_once(db: Db, first: str) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.tick(31)
    one.begin()
    if first == "leave":
        one.value("leave", epoch=epoch)
        assert other.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
        one.commit()
        assert other.call("reclaim", epochs=[epoch], beats_seen=[0]) == []
        db.expect(job, state="queued", lost=0)
    else:
        one.call("reclaim", epochs=[epoch], beats_seen=[0])
        waiting = other.start("leave", epoch=epoch).blocked()
        one.commit()
        assert waiting.value() == 0
        db.expect(job, state="failed", lost=1)
    assert [node.state for node in db.rows("nodes")] == ["left" if first == "leave" else "lost"]


def test_reclaim_skips_a_job_that_is_being_canceled(db: Db) -> None:
    operator, epoch = db.session(), db.node()
    job = db.enqueue()
    db.claim(epoch)
    operator.begin()
    operator.value("cancel", id=job)
    assert db.lose(epoch) == {}
    operator.commit()
    assert db.reclaim() == {job: "canceled"}


def test_expire_node_makes_a_dead_node_lost_at_once(db: Db) -> None:
    epoch, other, session = db.node("mine"), db.node(), db.session()
    job, _ = db.enqueue(), db.enqueue()
    db.claim_one(epoch)
    db.value("heartbeat", epoch=epoch)
    assert db.value("expire_node", epoch=epoch, beat=0) is False, "it has beaten since"
    session.begin()
    session.claim(epoch)
    assert db.value("expire_node", epoch=epoch, beat=1) is False, "a claim of it is under way"
    session.rollback()
    assert db.value("expire_node", epoch=epoch, beat=1) is True
    assert db.reclaim() == {job: "failed"}
    assert [node.state for node in db.rows("nodes")] == ["lost", "active"]
    db.node("mine")
    assert db.value("heartbeat", epoch=other) == []


POISON: LiteralString = """
    CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON {schema}.jobs FOR EACH ROW
      WHEN (OLD.payload ? 'poison' AND NEW.fence = 0) EXECUTE FUNCTION {schema}.refuse()
"""


def test_reclaim_continues_after_a_job_that_a_trigger_refuses(own_db: Db) -> None:
    db, one, other = own_db, own_db.node(), own_db.node()
    first, poison, last = db.enqueue(), db.enqueue(payload={"poison": 1}), db.enqueue()
    db.claim(one)
    elsewhere = db.enqueue()
    db.claim(other)
    db.connection.execute(db._in_schema(POISON))
    assert db.lose(one, other) == {first: "failed", last: "failed", elsewhere: "failed"}
    assert db.reclaim() == {}
    db.expect(poison, state="running", lost=0, epoch=one)
    db.change("DROP TRIGGER refuse ON {schema}.jobs")
    assert db.reclaim() == {poison: "failed"}
    assert db.count("claims") == 0


def test_reclaim_frees_the_key_of_a_job_beside_one_that_a_trigger_refuses(own_db: Db) -> None:
    db, lost = own_db, own_db.node()
    declare_limit(db, "api", 1)
    db.enqueue(payload={"poison": 1}, priority=1)
    limited = enqueue(db, "key:api")
    assert len(db.claim(lost)) == 2
    waiting = enqueue(db, "key:api")
    assert db.claim(lost) == []
    db.connection.execute(db._in_schema(POISON))
    assert db.lose(lost) == {limited: "failed"}
    assert waits(db, waiting) == [(None, None)]


def test_reclaim_counts_no_loss_for_leftover_jobs_of_a_left_node(own_db: Db) -> None:
    db, operator, left, lost = own_db, own_db.session(), own_db.node(), own_db.node()
    jobs = [db.enqueue(payload={"poison": 1}), db.enqueue()]
    db.claim(left)
    other = db.enqueue()
    db.claim(lost)
    operator.begin()
    operator.execute(db._in_schema("SELECT FROM {schema}.jobs FOR UPDATE"))
    db.value("leave", epoch=left)
    operator.rollback()
    db.connection.execute(db._in_schema(POISON))
    assert db.lose(lost) == {other: "failed"}
    assert db.states(*jobs) == ["running", "running"]
    db.change("DROP TRIGGER refuse ON {schema}.jobs")
    assert db.reclaim() == {}
    assert [(row.state, row.lost) for row in map(db.look, jobs)] == [("queued", 0), ("queued", 0)]


def test_reclaim_waits_once_for_a_lock_that_every_job_needs(db: Db) -> None:
    operator, epoch = db.session(), db.node()
    jobs = [db.enqueue() for _ in range(3)]
    db.claim(epoch)
    operator.begin()
    operator.execute(db._in_schema("LOCK {schema}.attempts"))
    db.configure(lock_timeout="50ms")
    with refused("55P03"):
        db.lose(epoch)
    operator.rollback()
    assert set(db.reclaim(epoch)) == set(jobs)
