"""A node's life: register, heartbeat, drain, abandon, leave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.store.harness import CENTURY, LEASE, NOBODY, Db, End, refused


def test_a_registered_node_is_active_and_has_a_lease(db: Db) -> None:
    epoch = db.node("a", app="shop", types={"mail": 2}, labels={"zone": "x"}, host="h", pid=7)
    (node,) = db.rows("node")
    assert (node.epoch, node.name, node.app, node.state, node.host, node.pid) == (epoch, "a", "shop", "active", "h", 7)
    assert (node.labels, node.types, node.started_at) == ({"zone": "x"}, ["mail"], db.now)
    assert (node.heartbeat_at, node.lease_expires_at, node.beats) == (db.now, db.now + LEASE, 0)


def test_later_node_has_a_larger_epoch(db: Db) -> None:
    first, second = db.node(), db.node()
    assert first < second


def test_register_refuses_a_name_in_use_and_names_its_node(db: Db) -> None:
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


def test_resent_registration_returns_the_same_node(db: Db) -> None:
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


def test_a_node_that_takes_over_a_name_fences_the_old_one(db: Db) -> None:
    old = db.node("a")
    db.enqueue()
    job = db.claim_one(old)
    term = db.call("elect", epoch=old, groups=["g"])[0].term
    new = db.node("a", take_over=True)
    assert [(node.epoch, node.state) for node in db.rows("nodes")] == [(old, "lost"), (new, "active")]
    with refused("WB001"):
        db.call("heartbeat", epoch=old)
    with refused("WB001"):
        db.claim(old)
    assert db.call("elect", epoch=new, groups=["g"])[0].leader == new
    with refused("WB012"):
        db.call("_check_term", group_name="g", term=term)
    assert db.reclaim() == {job.id: "failed"}
    assert [(row.action, row.subject, row.detail) for row in db.rows("audit")] == [
        ("take_over", "node a", {"epoch": old})
    ]


def test_a_take_over_that_is_sent_again_does_not_fence_itself(db: Db) -> None:
    me = uuid4()
    epoch = db.node("a", instance=me, take_over=True)
    assert db.node("a", instance=me, take_over=True) == epoch
    assert db.count("audit") == 0


def test_a_take_over_waits_for_a_claim_under_way(db: Db) -> None:
    old = db.node("a")
    db.enqueue()
    claiming = db.session()
    claiming.begin()
    job = claiming.claim_one(old)
    taking = db.session().start("register", name="a", take_over=True).blocked()
    claiming.commit()
    taking.rows()
    assert db.reclaim() == {job.id: "failed"}, "the claim that came first is found and reclaimed"


def test_the_view_shows_labels_capacity_and_what_a_node_leads(db: Db) -> None:
    epoch = db.node("a", labels={"gpu": "a100"}, capacity=7, machine="m", now=None)
    db.call("elect", epoch=epoch, groups=["y", "x"], now=None)
    (node,) = db.rows("node")
    assert (node.labels, node.capacity, node.leads) == ({"gpu": "a100"}, 7, ["x", "y"])
    other = db.node("leads nothing")
    assert [row.leads for row in db.rows("node") if row.epoch == other] == [[]]


def test_the_label_node_is_reserved(db: Db) -> None:
    with refused("WB003", "the label node is reserved: it is the name of the node"):
        db.node("a", labels={"node": "b"})


def test_labels_that_are_not_an_object_are_refused(db: Db) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        db.node("a", labels=[1])


def test_second_of_two_concurrent_registrations_is_refused(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    first.node("a")
    waiting = second.start("register", name="a").blocked()
    first.commit()
    with refused("WB002"):
        waiting.rows()


def test_name_is_free_after_a_rolled_back_registration(db: Db) -> None:
    first, second = db.session(), db.session()
    first.begin()
    first.node("a")
    waiting = second.start("register", name="a").blocked()
    first.rollback()
    assert waiting.value() == db.rows("nodes")[0].epoch


@pytest.mark.parametrize("name", ["", None])
def test_a_node_needs_a_name(db: Db, name: str | None) -> None:
    with refused("WB003", "a node name of 0 characters is invalid"):
        db.value("register", name=name)


def test_lease_has_a_minimum_length(db: Db) -> None:
    db.node(lease=timedelta(seconds=1))
    with refused("WB003", "a lease of 00:00:00.999 is invalid"):
        db.node(lease=timedelta(seconds=0.999))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lease": None}, "a lease of NULL is invalid"),
        ({"lease": timedelta(days=2)}, "a lease of 2 days is invalid"),
        ({"name": "x" * 201}, "201 characters is invalid"),
        ({"types": ["t"]}, "types .* is invalid"),
        ({"types": {"t": "1"}}, "types .* is invalid"),
        ({"types": {"t": 1.5}}, "types .* is invalid"),
        ({"types": {"t": 0}}, "types .* is invalid"),
    ],
)
def test_invalid_nodes_are_refused_with_a_message(db: Db, given: dict[str, Any], words: str) -> None:
    with refused("WB003", words):
        db.value("register", **({"name": "n"} | given))
    assert db.count("nodes") == 0


def test_a_heartbeat_renews_the_lease(db: Db) -> None:
    epoch = db.node()
    db.tick(10)
    assert db.value("heartbeat", epoch=epoch) == []
    (beat,) = db.rows("beats")
    assert (beat.at, beat.n) == (db.now, 1)


def test_a_heartbeat_carries_the_number_of_runs_that_have_ended(db: Db) -> None:
    leaving, lost = db.node("leaving"), db.node("lost")
    for epoch in (leaving, lost):
        db.value("heartbeat", epoch=epoch, processed=7)
        db.value("heartbeat", epoch=epoch)
    assert [node.processed for node in db.rows("node")] == [7, 7]
    db.value("leave", epoch=leaving)
    db.lose(lost)
    assert [node.processed for node in db.rows("node")] == [7, 7]


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


def test_drain_waits_for_a_running_claim_and_refuses_later_ones(db: Db) -> None:
    epoch, claimer, operator = db.node("a"), db.session(), db.session()
    db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    drained = operator.start("drain", name="a").blocked()
    claimer.commit()
    assert drained.value() is True
    with refused("WB006"):
        claimer.claim(epoch)


def test_heartbeat_records_long_runs_and_removes_ended_ones(db: Db) -> None:
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
def test_heartbeat_refuses_an_invalid_running_list(db: Db, running: Any) -> None:
    epoch = db.node()
    with refused("WB003", "running .* is invalid"):
        db.value("heartbeat", epoch=epoch, running=running)


@pytest.mark.parametrize(("age", "ago"), [(None, 0.0), (-5.0, 0.0), (1e300, CENTURY)])
def test_heartbeat_clamps_an_impossible_age(db: Db, age: float | None, ago: float) -> None:
    epoch, job = db.node(), db.enqueue()
    told = {"id": str(job), "fence": db.claim_one(epoch).fence} | ({} if age is None else {"age": age})
    db.value("heartbeat", epoch=epoch, running=[told])
    db.expect(job, started_at=db.after(-ago))


def test_heartbeat_does_not_change_runs_of_other_nodes(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    held = db.claim_one(one)
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": held.fence, "age": 40}])
    db.value("heartbeat", epoch=other, running=[])
    assert db.look(job).started_at == db.after(-40)


def test_late_heartbeat_does_not_hide_the_new_holder(db: Db) -> None:
    """An operator released the job, another node runs it, and the first handler still runs too."""
    one, other = db.node(), db.node()
    job = db.enqueue()
    before = db.claim_one(one)
    db.value("release", id=job)
    after = db.claim_one(other)
    db.value("heartbeat", epoch=other, running=[{"id": str(job), "fence": after.fence, "age": 5}])
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": before.fence, "age": 50}])
    assert db.look(job).started_at == db.after(-5)


def test_released_job_shows_the_start_of_its_new_run(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    before = db.claim_one(one)
    db.value("heartbeat", epoch=one, running=[{"id": str(job), "fence": before.fence, "age": 50}])
    db.value("release", id=job)
    after = db.claim_one(other)
    db.expect(job, started_at=None, progress=None)
    db.value("heartbeat", epoch=other, running=[{"id": str(job), "fence": after.fence, "age": 5}])
    db.expect(job, started_at=db.after(-5))


def test_heartbeat_accepts_one_job_under_two_fences(db: Db) -> None:
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


def test_heartbeat_returns_the_stop_requests_of_its_node(db: Db) -> None:
    one, other = db.node(), db.node()
    db.enqueue(), db.enqueue()
    mine, foreign = db.claim_one(one), db.claim_one(other)
    db.value("cancel", id=mine.id)
    db.value("cancel", id=foreign.id)
    assert db.value("heartbeat", epoch=one) == [mine.id]
    assert [row.id for row in db.call("stop_requests", epoch=other)] == [foreign.id]
    db.settle(one, End(mine, "canceled"))
    assert db.value("heartbeat", epoch=one) == []


def test_types_that_are_added_later_count_like_registered_ones(db: Db) -> None:
    epoch = db.node("a", types={"mail": 2})
    job = db.enqueue("late", version=2)
    db.settle(epoch, End(db.claim(epoch)[0], "unsupported"))
    assert db.claim(epoch) == []
    db.value("extend_node", epoch=epoch, types={"late": 1, "mail": 1})
    assert db.claim(epoch) == []
    db.value("extend_node", epoch=epoch, types={"late": 2})
    assert [row.id for row in db.claim(epoch)] == [job]
    assert {(row.type, row.version) for row in db.rows("node_types")} == {("late", 2), ("mail", 2)}


def test_queues_that_are_added_later_are_listed_once(db: Db) -> None:
    epoch, unknown = db.node("a", queues=["default"]), db.node("b")
    for queues in (["late", "default"], ["late"], []):
        db.value("extend_node", epoch=epoch, queues=queues)
        db.value("extend_node", epoch=unknown, queues=queues)
    assert [node.queues for node in db.rows("node")] == [["default", "late"], None]


def test_types_are_not_added_to_a_node_that_is_gone(db: Db) -> None:
    left, lost = db.node("a"), db.node("b")
    db.value("leave", epoch=left)
    db.lose(lost)
    for epoch in (left, lost, 12345):
        with refused("WB001", f"node {epoch} is lost"):
            db.value("extend_node", epoch=epoch, types={"late": 1})
    with refused("WB003", "types .* is invalid"):
        db.value("extend_node", epoch=db.node("c"), types={"late": 0})
    assert db.count("node_types") == 0


def test_leaving_node_waits_for_types_under_way_and_keeps_none(db: Db) -> None:
    epoch = db.node("a")
    adding, leaving = db.session(), db.session()
    adding.begin()
    adding.value("extend_node", epoch=epoch, types={"late": 1})
    waiting = leaving.start("leave", epoch=epoch).blocked()
    adding.commit()
    waiting.rows()
    assert db.count("node_types") == 0


def test_leave_releases_all_jobs_unspent(db: Db) -> None:
    epoch = db.node("a", types={"task": 1})
    ids = [db.enqueue(), db.enqueue()]
    db.claim(epoch)
    db.value("heartbeat", epoch=epoch, running=[])
    db.tick(1)
    assert db.value("leave", epoch=epoch) == 2
    for job in ids:
        db.expect(job, state="queued", attempt=0, lost=0, run=1, quarantined=False, fence=None)
    (node,) = db.rows("node")
    assert (node.state, node.ended_at, node.heartbeat_at, node.types) == ("left", db.now, None, None)
    assert db.count("claims") == db.count("runs") == 0
    assert len(db.claim(db.node())) == 2


def test_leave_of_a_left_or_unknown_node_releases_nothing(db: Db) -> None:
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


def test_leave_waits_for_a_running_claim_and_releases_its_jobs(db: Db) -> None:
    epoch, claimer, leaver = db.node(), db.session(), db.session()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    left = leaver.start("leave", epoch=epoch).blocked()
    claimer.commit()
    assert left.value() == 1
    assert db.states(job) == ["queued"]


def test_leave_cancels_jobs_with_a_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job, reason="enough")
    db.tick(5)
    db.value("leave", epoch=epoch)
    db.expect(job, state="canceled", error={"kind": "canceled", "message": "enough"}, finished_at=db.now)


def test_job_locked_during_leave_is_reclaimed_without_a_loss(db: Db) -> None:
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
    db.expect(job, state="queued", lost=0, quarantined=False)
    assert db.outcomes(job) == []
    assert db.count("claims") == 0


def test_release_unknown_releases_claims_the_node_does_not_know(db: Db) -> None:
    epoch = db.node()
    first, second = db.enqueue(), db.enqueue()
    known, unknown = db.claim_one(epoch), db.claim_one(epoch)
    assert (known.id, unknown.id) == (first, second)
    assert db.value("release_unknown", epoch=epoch, known=[known.fence]) == 1
    assert db.states(first, second) == ["running", "queued"]
    assert db.value("release_unknown", epoch=epoch, known=[known.fence]) == 0
    assert db.value("release_unknown", epoch=epoch, known=[]) == 1
    db.expect(second, attempt=0, lost=0, run=1)
    assert db.count("claims") == 0


def test_release_unknown_does_not_touch_other_nodes(db: Db) -> None:
    one, other = db.node(), db.node()
    job = db.enqueue()
    db.claim(one)
    assert db.value("release_unknown", epoch=other, known=[]) == 0
    assert db.states(job) == ["running"]


def test_release_unknown_waits_for_a_running_claim(db: Db) -> None:
    epoch, claimer, node = db.node(), db.session(), db.session()
    job = db.enqueue()
    claimer.begin()
    claimer.claim(epoch)
    abandoned = node.start("release_unknown", epoch=epoch, known=[]).blocked()
    claimer.commit()
    assert abandoned.value() == 1
    assert db.states(job) == ["queued"]


def test_release_unknown_cancels_jobs_with_a_stop_request(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    db.value("cancel", id=job)
    db.tick(5)
    db.value("release_unknown", epoch=epoch, known=[])
    db.expect(job, state="canceled", finished_at=db.now)


def test_release_unknown_skips_a_guarded_job(db: Db) -> None:
    epoch, handler = db.node(), db.session()
    job = db.enqueue()
    held = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=job, fence=held.fence)
    assert db.value("release_unknown", epoch=epoch, known=[]) == 0
    handler.value("complete", id=job, fence=held.fence)
    handler.commit()
    assert db.states(job) == ["succeeded"]
    db.value("release_unknown", epoch=epoch, known=[])
    assert db.count("claims") == 0


@pytest.mark.parametrize("verb", ["release_unknown", "leave"])
@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_node_does_not_release_a_job_that_another_node_holds(db: Db, verb: str, asked_to_stop: bool) -> None:
    """A claim's row still names a job that an operator took away; only the fence says whose it is."""
    one, other = db.node(), db.node()
    taken, kept = db.enqueue(), db.enqueue()
    db.claim(one)
    db.value("release", id=taken)
    held = db.claim_one(other)
    if asked_to_stop:
        db.value("cancel", id=taken)
    assert db.value(verb, epoch=one, **({"known": []} if verb == "release_unknown" else {})) == 1
    db.expect(taken, state="running", epoch=other, fence=held.fence)
    assert db.states(kept) == ["queued"]


def test_settle_after_release_unknown_is_refused(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    held = db.claim_one(epoch)
    db.value("release_unknown", epoch=epoch, known=[])
    assert db.settle(epoch, End(held)) == {held.id: None}
    assert db.states(held.id) == ["queued"]


@pytest.mark.parametrize("give_back", ["release_unknown", "release", "leave", "settle"])
def test_released_job_that_failed_before_is_queued(db: Db, give_back: str) -> None:
    """Release leads to queued, whichever way it comes."""
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "failed")
    db.make_ready()
    held = db.claim_one(epoch)
    match give_back:
        case "release_unknown":
            db.value("release_unknown", epoch=epoch, known=[])
        case "release":
            db.value("release", id=job)
        case "leave":
            db.value("leave", epoch=epoch)
        case "settle":
            db.settle(epoch, End(held, "released", age=None))
    db.expect(job, state="queued", attempt=1, run=2)
