"""Jobs of types or versions that a node does not know: unspent, for one that does, and dead after a grace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, settlement

HOUR = timedelta(hours=1)
DAY = 86_400


def meet(db: Db, epoch: int, **more: Any) -> Any:
    """The node takes the next job and gives it back because it does not know it."""
    held = db.claim_one(epoch, **more)
    assert db.settle(epoch, End(held, "unsupported", age=None)) == {held.id: "queued"}
    return held


def test_unsupported_job_is_released_unspent_and_not_claimed_again(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t")
    meet(db, stranger)
    db.expect(job, state="queued", wait="unsupported", attempt=0, lost=0, run=1, run_at=db.now)
    assert db.claim(stranger) == []
    assert db.outcomes(job) == []


def test_node_that_knows_the_type_claims_the_job(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1, "u": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    held = db.claim_one(expert)
    assert (held.id, held.run) == (job, 2)
    assert db.settle(expert, End(held)) == {}
    assert db.states(job) == ["succeeded"]


def test_claim_skips_unsupported_jobs_of_excluded_types(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1, "u": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    assert db.claim(expert, without=["t"]) == []
    assert [row.id for row in db.claim(expert, without=["u"])] == [job]


def test_claim_needs_a_node_that_knows_the_version(db: Db) -> None:
    old, new = db.node(types={"t": 1}), db.node(types={"t": 3})
    job = db.enqueue("t", version=2)
    meet(db, old)
    assert db.claim(old) == []
    assert [row.id for row in db.claim(new)] == [job]


@pytest.mark.parametrize("wait", ["delayed", "blocked", "parked", "paused"])
def test_claim_leaves_jobs_of_the_type_with_another_wait(db: Db, wait: str) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    met = db.enqueue("t")
    meet(db, stranger)
    other = db.enqueue("t", priority=9)
    db.set_wait(other, wait)
    assert [row.id for row in db.claim(expert)] == [met]


def test_claim_takes_unsupported_jobs_only_from_its_queues(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    db.enqueue("t", queue="a")
    meet(db, stranger, queues=["a"])
    assert db.claim(expert, queues=["b"]) == []
    assert len(db.claim(expert, queues=["b", "a"])) == 1


def test_claim_takes_unsupported_jobs_of_several_types_by_priority(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"a": 1, "b": 1})
    low, high, middle = db.enqueue("a"), db.enqueue("b", priority=9), db.enqueue("a", priority=5)
    for _ in range(3):
        meet(db, stranger)
    assert [db.claim_one(expert).id for _ in range(3)] == [high, middle, low]


def test_claim_passes_over_an_unsupported_job_that_is_locked(db: Db) -> None:
    stranger, expert, other = db.node(), db.node(types={"t": 1}), db.session()
    locked, free = db.enqueue("t"), db.enqueue("t")
    for _ in range(2):
        meet(db, stranger)
    other.begin()
    other.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR SHARE", [locked])
    assert db.claim_one(expert).id == free
    other.rollback()


def test_claim_takes_unsupported_jobs_only_into_free_room(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    for _ in range(4):
        db.enqueue("t")
    for _ in range(4):
        meet(db, stranger)
    db.enqueue("o"), db.enqueue("o")
    assert [row.type for row in db.claim(expert, 2)] == ["o", "o"]
    assert len(db.claim(expert, 10, free=1)) == 1
    assert len(db.claim(expert, 2)) == 2


@pytest.mark.parametrize("slots", [2, 3])
def test_claim_takes_unsupported_jobs_with_one_attempt_only_into_free_slots(db: Db, slots: int) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1, "u": 1})
    once = [db.enqueue("t", max_attempts=1, priority=1) for _ in range(3)]
    more = [db.enqueue(name) for name in ("t", "u", "u")]
    for _ in range(6):
        meet(db, stranger)
    others = [db.enqueue("o") for _ in range(2)]
    taken = {2: more[:2], 3: once[:1]}[slots]
    assert {row.id for row in db.claim(expert, 10, free=slots)} == {*others, *taken}


def test_claim_takes_unsupported_jobs_by_priority(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    low, high, middle = (db.enqueue("t", priority=priority) for priority in (1, 3, 2))
    for _ in range(3):
        meet(db, stranger)
    assert [db.claim_one(expert).id for _ in range(3)] == [high, middle, low]


def test_unsupported_job_keeps_its_quarantine(db: Db) -> None:
    """A node that does not know its type must not make it forget that it may kill its process."""
    lost, stranger, expert = db.node(), db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    db.claim(lost)
    db.lose(lost)
    db.value("heartbeat", epoch=stranger), db.value("heartbeat", epoch=expert)
    db.make_ready()
    meet(db, stranger, alone=True)
    db.expect(job, wait="unsupported", quarantined=True, lost=1)
    assert db.claim(expert) == []
    assert db.claim(stranger, alone=True) == []
    assert [row.id for row in db.claim(expert, alone=True)] == [job]


def test_claim_of_an_unsupported_type_skips_a_job_in_quarantine(db: Db) -> None:
    lost, stranger, expert = db.node(), db.node(), db.node(types={"t": 1})
    db.enqueue("t", priority=9)
    db.claim(lost)
    db.lose(lost)
    db.value("heartbeat", epoch=stranger), db.value("heartbeat", epoch=expert)
    db.make_ready()
    meet(db, stranger, alone=True)
    job = db.enqueue("t")
    meet(db, stranger)
    assert [row.id for row in db.claim(expert, 1)] == [job]


@pytest.mark.parametrize(
    ("outcome", "state", "wait"),
    [("failed", "failed", "delayed"), ("snoozed", "queued", None), ("released", "queued", None)],
)
def test_unsupported_job_waits_like_any_other_after_a_run(db: Db, outcome: str, state: str, wait: str | None) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    held = db.claim_one(expert)
    assert db.settle(expert, End(held, outcome)) == {job: state}
    db.expect(job, state=state, wait=wait)


def test_loss_of_the_node_that_knows_the_type_counts(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    db.claim(expert)
    assert db.lose(expert) == {job: "failed"}
    db.expect(job, state="failed", wait="delayed", lost=1, quarantined=True)


def pass_time(db: Db, seconds: float, *living: int) -> None:
    db.tick(seconds)
    for epoch in living:
        db.value("heartbeat", epoch=epoch)


def test_unsupported_job_is_dead_after_the_grace_without_an_attempt(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t", version=3)
    meet(db, stranger)
    pass_time(db, 3599, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    pass_time(db, 1, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    error = {"kind": "unsupported", "message": "no live node handles type t, version 3"}
    db.expect(job, state="dead", attempt=0, lost=0, error=error, finished_at=db.now, fence=None, epoch=None)
    assert db.outcomes(job) == []
    assert db.value("expire_unsupported", grace=HOUR) == 0
    assert db.count("unsupported_types") == 0


def test_grace_is_a_day_unless_it_is_given(db: Db) -> None:
    stranger = db.node()
    db.enqueue("t")
    meet(db, stranger)
    pass_time(db, DAY - 1, stranger)
    assert db.value("expire_unsupported") == 0
    pass_time(db, 1, stranger)
    assert db.value("expire_unsupported") == 1


def test_grace_of_a_type_that_was_never_handled_counts_from_the_due_time(db: Db) -> None:
    stranger = db.node()
    first = db.enqueue("t")
    meet(db, stranger)
    pass_time(db, 3000, stranger)
    second = db.enqueue("t")
    meet(db, stranger)
    pass_time(db, 600, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    assert db.states(first, second) == ["dead", "queued"]


@pytest.mark.parametrize("ending", ["leaves", "is lost"])
def test_grace_counts_from_when_the_type_was_last_handled(db: Db, ending: str) -> None:
    """Neither from when a job was enqueued, nor from when a node first met one."""
    stranger, expert = db.node(), db.node(types={"t": 1})
    early = db.enqueue("t")
    meet(db, stranger)
    pass_time(db, 30 * DAY, stranger, expert)
    if ending == "leaves":
        db.value("leave", epoch=expert)
    else:
        db.tick(40)
        db.value("heartbeat", epoch=stranger)
        db.reclaim(expert)
        db.tick(-40)
    pass_time(db, DAY - 100, stranger)
    late = db.enqueue("t")
    meet(db, stranger)
    pass_time(db, 99, stranger)
    assert db.value("expire_unsupported") == 0
    pass_time(db, 1, stranger)
    assert db.value("expire_unsupported") == 2
    assert db.states(early, late) == ["dead", "dead"]


def test_job_of_a_type_that_was_last_handled_long_ago_does_not_wait(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    db.value("leave", epoch=expert)
    pass_time(db, 2 * DAY, stranger)
    job = db.enqueue("t")
    meet(db, stranger)
    assert db.value("expire_unsupported") == 1
    assert db.states(job) == ["dead"]


def test_grace_does_not_count_while_no_node_lives(db: Db) -> None:
    """All programs are stopped for a week. The one that starts first must not end the jobs of the others."""
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    db.value("leave", epoch=expert)
    pass_time(db, 3000, stranger)
    db.value("leave", epoch=stranger)
    db.tick(7 * DAY)
    other = db.node()
    pass_time(db, 599, other)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    pass_time(db, 1, other)
    assert db.value("expire_unsupported", grace=HOUR) == 1
    assert db.states(job) == ["dead"]


def test_grace_does_not_count_while_dead_nodes_wait_to_be_declared_lost(db: Db) -> None:
    """After a crash of all nodes each is declared lost when its own lease has run out, one after the other."""
    slow, expert = db.node(lease=timedelta(hours=2)), db.node(types={"t": 1})
    db.enqueue("t")
    meet(db, slow)
    db.tick(7 * DAY)
    db.node()
    db.reclaim(expert)
    assert db.value("expire_unsupported") == 0


def test_jobs_of_a_type_that_a_live_node_handles_never_expire(db: Db) -> None:
    stranger = db.node()
    job = db.enqueue("t")
    meet(db, stranger)
    db.node(types={"t": 1})
    pass_time(db, 7200, stranger)
    assert db.value("expire_unsupported", grace=timedelta(0)) == 0
    assert db.states(job) == ["queued"]


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("types", [{"t": 1}, {"u": 9}])
def test_node_of_another_type_or_version_does_not_stop_the_grace(db: Db, types: dict[str, int], leaves: bool) -> None:
    stranger = db.node()
    db.enqueue("t", version=2)
    meet(db, stranger)
    expert = db.node(types=types)
    pass_time(db, 3599, stranger)
    if leaves:
        db.value("leave", epoch=expert)
    pass_time(db, 1, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 1


def test_draining_node_handles_its_types_until_it_leaves(db: Db) -> None:
    stranger, leaving = db.node(), db.node("leaving", types={"t": 1})
    db.enqueue("t")
    meet(db, stranger)
    db.value("drain", name="leaving")
    pass_time(db, 7200, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    db.value("leave", epoch=leaving)
    pass_time(db, 3600, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 1


def test_expire_unsupported_can_be_limited_to_one_queue(db: Db) -> None:
    stranger = db.node()
    jobs = [db.enqueue("t", queue=queue) for queue in ("a", "b")]
    for _ in jobs:
        meet(db, stranger, queues=["a", "b"])
    pass_time(db, 1, stranger)
    assert db.value("expire_unsupported", grace=timedelta(0), queue="b") == 1
    assert db.states(*jobs) == ["queued", "dead"]


def test_nodes_that_end_note_each_type_once(db: Db) -> None:
    for _ in range(3):
        epoch = db.node(types={"t": 1, "u": 2})
        db.tick(1)
        db.value("leave", epoch=epoch)
    last = db.now
    assert [(row.type, row.version, row.at) for row in db.rows("handled_types")] == [("t", 1, last), ("u", 2, last)]


def test_nodes_that_end_at_the_same_time_do_not_wait_for_each_other(db: Db) -> None:
    """Two calls of reclaim() that declare several nodes lost would deadlock."""
    db.value("leave", epoch=db.node(types={"t": 1}))
    first, second, other = db.node(types={"t": 1}), db.node(types={"t": 1}), db.session()
    db.tick(1)
    other.begin()
    other.value("leave", epoch=first)
    db.value("leave", epoch=second)
    other.commit()
    assert {row.at for row in db.rows("handled_types")} == {db.now}


def test_prune_nodes_forgets_types_that_were_last_handled_before(db: Db) -> None:
    db.value("leave", epoch=db.node(types={"t": 1}))
    db.tick(3600)
    db.value("leave", epoch=db.node(types={"u": 1}))
    db.tick(1)
    db.value("prune_nodes", keep=HOUR)
    assert [row.type for row in db.rows("handled_types")] == ["u"]


def test_expire_unsupported_skips_a_running_job(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    job = db.enqueue("t")
    meet(db, stranger)
    db.claim(expert)
    db.change("DELETE FROM {schema}.node_types")
    pass_time(db, 7200, stranger)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    assert db.states(job) == ["running"]


def test_expire_unsupported_respects_its_limit(db: Db) -> None:
    stranger = db.node()
    for _ in range(5):
        db.enqueue("t")
    for _ in range(5):
        meet(db, stranger)
    pass_time(db, 3600, stranger)
    assert [db.value("expire_unsupported", grace=HOUR, max=2) for _ in range(4)] == [2, 2, 1, 0]


def test_expire_unsupported_skips_a_job_that_is_being_canceled(db: Db) -> None:
    stranger, operator = db.node(), db.session()
    job = db.enqueue("t")
    meet(db, stranger)
    pass_time(db, 3600, stranger)
    operator.begin()
    operator.value("cancel", id=job)
    assert db.value("expire_unsupported", grace=HOUR) == 0
    operator.commit()
    assert db.states(job) == ["canceled"]


def test_type_deleted_during_a_settle_is_listed_again(db: Db) -> None:
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


def test_settle_lists_unsupported_types_in_sorted_order(db: Db) -> None:
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


def test_rescheduled_unsupported_job_does_not_start_early(db: Db) -> None:
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
