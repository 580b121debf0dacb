"""A node's life: register, heartbeat, drain, abandon, leave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.store.harness import CENTURY, LEASE, NOBODY, Db, End, refused


def test_a_registered_node_is_active_and_has_a_lease(db: Db) -> None:
    epoch = db.node("a", app="shop", types={"mail": 2}, labels={"zone": "x"}, host="h", pid=7)
    (node,) = db.rows("node")
    assert (node.epoch, node.name, node.app, node.state, node.host, node.pid) == (epoch, "a", "shop", "active", "h", 7)
    assert (node.labels, node.types, node.started_at) == ({"zone": "x"}, ["mail"], db.now)
    assert (node.heartbeat_at, node.lease_expires_at, node.beats) == (db.now, db.now + LEASE, 0)


def test_epochs_grow(db: Db) -> None:
    first, second = db.node(), db.node()
    assert first < second


def test_a_living_name_is_refused_and_the_refusal_says_who_has_it(db: Db) -> None:
    epoch = db.node("a", host="here", pid=41)
    with refused("WB002", "a node named 'a' is alive"):
        db.node("a")
    db.value("drain", name="a")
    with refused("WB002", f"epoch {epoch}, host here, pid 41"):
        db.node("a")


def test_a_name_is_free_again_when_its_node_has_left_or_is_lost(db: Db) -> None:
    db.value("leave", epoch=db.node("a"))
    db.lose(db.node("a"))
    db.node("a")
    assert [node.state for node in db.rows("nodes")] == ["left", "lost", "active"]


def test_a_registration_sent_again_is_the_same_node(db: Db) -> None:
    """Its reply was lost; the instance says that it is us."""
    me, other = uuid4(), uuid4()
    epoch = db.node("a", instance=me)
    assert db.node("a", instance=me) == epoch
    with refused("WB002"):
        db.node("a", instance=other)
    with refused("WB002"):
        db.node("a")
    db.value("leave", epoch=epoch)
    assert db.node("a", instance=me) > epoch


def test_two_processes_that_register_one_name_at_once_are_told_apart(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    first.node("a")
    waiting = second.start("register", name="a").blocked()
    first.commit()
    with refused("WB002"):
        waiting.rows()


def test_a_name_given_up_by_a_registration_rolled_back_is_free(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    first.node("a")
    waiting = second.start("register", name="a").blocked()
    first.rollback()
    assert waiting.value() == db.rows("nodes")[0].epoch


@pytest.mark.parametrize("name", ["", None])
def test_a_node_needs_a_name(db: Db, name: str | None) -> None:
    with refused("WB003", "a node needs a name"):
        db.value("register", name=name)


def test_a_lease_has_a_least_length(db: Db) -> None:
    db.node(lease=timedelta(seconds=1))
    with refused("WB003", "too short"):
        db.node(lease=timedelta(seconds=0.999))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lease": None}, "a lease of NULL is too short"),
        ({"lease": timedelta(days=2)}, "is too long"),
        ({"name": "x" * 201}, "201 characters is too long"),
        ({"types": ["t"]}, "types cannot be"),
        ({"types": {"t": "1"}}, "types cannot be"),
        ({"types": {"t": 1.5}}, "types cannot be"),
        ({"types": {"t": 0}}, "types cannot be"),
    ],
)
def test_what_cannot_be_a_node_is_refused_in_words(db: Db, given: dict[str, Any], words: str) -> None:
    with refused("WB003", words):
        db.value("register", **({"name": "n"} | given))
    assert db.count("nodes") == 0


def test_a_heartbeat_renews_the_lease(db: Db) -> None:
    epoch = db.node()
    db.tick(10)
    assert db.value("heartbeat", epoch=epoch) == []
    (beat,) = db.rows("beats")
    assert (beat.at, beat.n) == (db.now, 1)


def test_a_heartbeat_of_a_lost_node_is_refused(db: Db) -> None:
    epoch = db.node()
    db.lose(epoch)
    with refused("WB001", "is lost"):
        db.value("heartbeat", epoch=epoch)
    with refused("WB001", "is lost"):
        db.value("heartbeat", epoch=987654321)


def test_a_draining_node_keeps_its_lease_and_claims_nothing(db: Db) -> None:
    epoch = db.node("a")
    job = db.enqueue()
    assert db.value("drain", name="a") is True
    assert db.value("drain", name="a") is False
    assert db.value("drain", name="b") is False
    db.value("heartbeat", epoch=epoch)
    with refused("WB006", "is draining"):
        db.claim(epoch)
    assert db.states(job) == ["queued"]
    assert [(row.action, row.subject, row.at) for row in db.rows("audit")] == [("drain", "node a", db.now)]


def test_drain_waits_for_a_claim_under_way_and_later_ones_are_refused(db: Db) -> None:
    epoch, claimer, operator = db.node("a"), db.session(), db.session()
    db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    drained = operator.start("drain", name="a").blocked()
    claimer.commit()
    assert drained.value() is True
    with refused("WB006"):
        claimer.claim(epoch)


def test_a_heartbeat_records_what_runs_long_and_forgets_what_does_not_run(db: Db) -> None:
    epoch = db.node()
    long, short = db.enqueue(), db.enqueue()
    fence = db.claim(epoch)[0].fence
    told = [{"id": str(job), "fence": fence, "age": 12.5, "progress": {"done": 3}} for job in (long, short)]
    db.value("heartbeat", epoch=epoch, running=told)
    db.expect(long, started_at=db.after(-12.5), progress={"done": 3})
    db.tick(10)
    told = [{"id": str(long), "fence": fence, "age": 22.6, "progress": {"done": 9}}]
    db.value("heartbeat", epoch=epoch, running=told)
    db.expect(long, started_at=db.after(-22.5), progress={"done": 9})
    db.expect(short, started_at=None, progress=None)
    assert db.look(long).updated_at == db.now
    db.value("heartbeat", epoch=epoch)  # says nothing about them
    assert db.look(long).progress == {"done": 9}
    db.value("heartbeat", epoch=epoch, running=[])
    assert db.look(long).progress is None


@pytest.mark.parametrize(
    "running",
    [
        5,
        {},
        [1],
        [{}],
        [{"id": str(NOBODY)}],
        [{"id": None, "fence": 1}],
        [{"id": str(NOBODY), "fence": 1, "age": "x"}],
    ],
)
def test_what_cannot_be_running_is_refused_in_words(db: Db, running: Any) -> None:
    epoch = db.node()
    with refused("WB003", "running cannot be"):
        db.value("heartbeat", epoch=epoch, running=running)


@pytest.mark.parametrize(("age", "ago"), [(None, 0.0), (-5.0, 0.0), (1e300, CENTURY)])
def test_a_run_of_an_age_that_cannot_be_is_shown_as_one_that_can(db: Db, age: float | None, ago: float) -> None:
    epoch, job = db.node(), db.enqueue()
    told = {"id": str(job), "fence": db.claim_one(epoch).fence} | ({} if age is None else {"age": age})
    db.value("heartbeat", epoch=epoch, running=[told])
    db.expect(job, started_at=db.after(-ago))


def test_one_nodes_heartbeat_leaves_the_runs_of_others_alone(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    held = db.claim_one(one)
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": held.fence, "age": 40}])
    db.value("heartbeat", epoch=other, running=[])
    assert db.look(job).started_at == db.after(-40)


def test_a_late_beat_of_a_handler_that_lost_its_job_does_not_hide_its_successor(db: Db) -> None:
    """An operator released the job, another node runs it, and the first handler still runs too."""
    one, other = db.node(), db.node()
    job = db.enqueue()
    before = db.claim_one(one)
    db.value("release", id=job)
    after = db.claim_one(other)
    db.value("heartbeat", epoch=other, running=[{"id": str(job), "fence": after.fence, "age": 5}])
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": before.fence, "age": 50}])
    assert db.look(job).started_at == db.after(-5)


def test_a_job_that_was_taken_over_has_started_when_its_new_handler_did(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    before = db.claim_one(one)
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": before.fence, "age": 50}])
    db.value("release", id=job)
    after = db.claim_one(other)
    db.expect(job, started_at=None, progress=None)
    db.value("heartbeat", epoch=other, running=[{"id": str(job), "fence": after.fence, "age": 5}])
    db.expect(job, started_at=db.after(-5))


def test_a_node_may_run_one_job_under_two_fences_and_still_beats(db: Db) -> None:
    """Released by an operator and claimed again by the same node, whose first handler is a thread that goes on."""
    epoch = db.node()
    job = db.enqueue()
    before = db.claim_one(epoch)
    db.value("release", id=job)
    after = db.claim_one(epoch)
    told = [{"id": str(job), "fence": after.fence, "age": 5}, {"id": str(job), "fence": before.fence, "age": 50}]
    db.value("heartbeat", epoch=epoch, running=told)
    db.value("heartbeat", epoch=epoch, running=told[::-1])
    assert db.look(job).started_at == db.after(-5)


def test_a_heartbeat_answers_with_the_jobs_asked_to_stop(db: Db) -> None:
    one, other = db.node(), db.node()
    db.enqueue(), db.enqueue()
    mine, foreign = db.claim_one(one), db.claim_one(other)
    db.value("cancel", id=mine.id)
    db.value("cancel", id=foreign.id)
    assert db.value("heartbeat", epoch=one) == [mine.id]
    assert db.value("stop_requests", epoch=other) == [foreign.id]
    db.settle(one, End(mine, "canceled"))
    assert db.value("heartbeat", epoch=one) == []


def test_leaving_gives_everything_back_unspent(db: Db) -> None:
    epoch = db.node("a", types={"task": 1})
    ids = [db.enqueue(), db.enqueue()]
    db.claim(epoch)
    db.value("heartbeat", epoch=epoch, running=[])
    db.tick(1)
    assert db.value("leave", epoch=epoch) == 2
    for job in ids:
        db.expect(job, state="queued", attempt=0, lost=0, run=1, alone=False, fence=None)
    (node,) = db.rows("node")
    assert (node.state, node.ended_at, node.heartbeat_at, node.types) == ("left", db.now, None, None)
    assert db.count("claims") == db.count("runs") == 0
    assert len(db.claim(db.node())) == 2


def test_a_node_that_has_left_or_never_was_leaves_nothing(db: Db) -> None:
    epoch = db.node()
    db.value("leave", epoch=epoch)
    assert db.value("leave", epoch=epoch) == 0
    assert db.value("leave", epoch=4711) == 0


def test_a_node_that_has_left_claims_nothing(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    db.value("leave", epoch=epoch)
    with refused("WB001", "is left"):
        db.claim(epoch)


def test_a_lost_node_that_leaves_stays_lost(db: Db) -> None:
    epoch = db.node()
    db.lose(epoch)
    assert db.value("leave", epoch=epoch) == 0
    assert [node.state for node in db.rows("nodes")] == ["lost"]


def test_leave_waits_for_a_claim_under_way_and_gives_it_back(db: Db) -> None:
    epoch, claimer, leaver = db.node(), db.session(), db.session()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    left = leaver.start("leave", epoch=epoch).blocked()
    claimer.commit()
    assert left.value() == 1
    assert db.states(job) == ["queued"]


def test_leave_ends_what_was_asked_to_stop(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job, reason="enough")
    db.tick(5)
    db.value("leave", epoch=epoch)
    db.expect(job, state="canceled", error={"kind": "canceled", "message": "enough"}, finished_at=db.now)


def test_a_job_kept_locked_while_its_node_leaves_comes_back_without_a_loss(db: Db) -> None:
    """A handler's own transaction is open; a polite end counts no loss, also not when reclaim tidies up."""
    epoch, handler = db.node(), db.session()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    assert db.value("leave", epoch=epoch) == 0
    assert db.reclaim() == {}
    assert db.states(job) == ["running"]
    handler.rollback()
    db.reclaim()
    db.expect(job, state="queued", lost=0, alone=False)
    assert db.outcomes(job) == []
    assert db.count("claims") == 0


def test_abandon_gives_back_what_the_node_does_not_know(db: Db) -> None:
    epoch = db.node()
    first, second = db.enqueue(), db.enqueue()
    known, unknown = db.claim_one(epoch), db.claim_one(epoch)
    assert (known.id, unknown.id) == (first, second)
    assert db.value("abandon", epoch=epoch, known=[known.fence]) == 1
    assert db.states(first, second) == ["running", "queued"]
    assert db.value("abandon", epoch=epoch, known=[known.fence]) == 0
    assert db.value("abandon", epoch=epoch, known=[]) == 1
    db.expect(second, attempt=0, lost=0, run=1)
    assert db.count("claims") == 0


def test_abandon_leaves_other_nodes_alone(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    db.claim(one)
    assert db.value("abandon", epoch=other, known=[]) == 0
    assert db.states(job) == ["running"]


def test_abandon_waits_for_a_claim_whose_reply_was_lost(db: Db) -> None:
    epoch, claimer, node = db.node(), db.session(), db.session()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    abandoned = node.start("abandon", epoch=epoch, known=[]).blocked()
    claimer.commit()
    assert abandoned.value() == 1
    assert db.states(job) == ["queued"]


def test_abandon_ends_what_was_asked_to_stop(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job)
    db.tick(5)
    db.value("abandon", epoch=epoch, known=[])
    db.expect(job, state="canceled", finished_at=db.now)


def test_abandon_passes_over_a_job_in_its_handlers_transaction(db: Db) -> None:
    epoch, handler = db.node(), db.session()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    assert db.value("abandon", epoch=epoch, known=[]) == 0
    handler.value("complete", id=job, fence=held.fence)
    handler.commit()
    assert db.states(job) == ["succeeded"]
    db.value("abandon", epoch=epoch, known=[])
    assert db.count("claims") == 0


@pytest.mark.parametrize("verb", ["abandon", "leave"])
@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_what_another_node_holds_by_now_is_not_given_back(db: Db, verb: str, asked_to_stop: bool) -> None:
    """A claim's row still names a job that an operator took away; only the fence says whose it is."""
    one, other = db.node(), db.node()
    taken, kept = db.enqueue(), db.enqueue()
    db.claim(one)
    db.value("release", id=taken)
    held = db.claim_one(other)
    if asked_to_stop:
        db.value("cancel", id=taken)
    assert db.value(verb, epoch=one, **({"known": []} if verb == "abandon" else {})) == 1
    db.expect(taken, state="running", epoch=other, fence=held.fence)
    assert db.states(kept) == ["queued"]


def test_a_settle_of_what_was_abandoned_is_refused(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    held = db.claim_one(epoch)
    db.value("abandon", epoch=epoch, known=[])
    assert db.settle(epoch, End(held)) == {held.id: None}
    assert db.states(held.id) == ["queued"]


@pytest.mark.parametrize("give_back", ["abandon", "release", "leave", "settle"])
def test_what_failed_before_and_is_given_back_is_queued(db: Db, give_back: str) -> None:
    """Release leads to queued, whichever way it comes."""
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "failed")
    db.make_ready()
    held = db.claim_one(epoch)
    match give_back:
        case "abandon":
            db.value("abandon", epoch=epoch, known=[])
        case "release":
            db.value("release", id=job)
        case "leave":
            db.value("leave", epoch=epoch)
        case "settle":
            db.settle(epoch, End(held, "released", age=None))
    db.expect(job, state="queued", attempt=1, run=2)
