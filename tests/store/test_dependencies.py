"""Jobs that wait for others: what blocks them, what lets them run, what cancels them, and who waits for whom."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.store.harness import NOBODY, Db, End, Session, refused


def look(session: Session, **which: Any) -> dict[UUID, str | None]:
    """Until nothing is left to decide; what became of whom."""
    decided: dict[UUID, str | None] = {}
    while rows := session.call("unblock", **which):
        decided |= {row.id: row.state for row in rows}
    return decided


def flow(db: Db, *jobs: dict[str, Any], **more: Any) -> list[UUID]:
    return [row.id for row in db.call("enqueue_many", jobs=[{"type": "task"} | job for job in jobs], **more)]


def end(db: Db, epoch: int, outcomes: dict[UUID, str]) -> None:
    """Claims whatever is ready and ends these so; the others go back."""
    held = {row.id: row for row in db.claim(epoch)}
    assert outcomes.keys() <= held.keys()
    permanent = {"kind": "permanent", "message": "no"}
    db.settle(epoch, *(End(row, outcomes.get(job, "released"), error=permanent, age=None) for job, row in held.items()))


def waiting(db: Db) -> int:
    return db.count("dependency_checks")


# What lets a job run.


def test_a_child_runs_when_its_parent_has_succeeded(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0]})
    db.expect(child, state="blocked", wait="blocked")
    assert [row.id for row in db.claim(epoch)] == [parent]
    (held,) = db.rows("jobs")[:1]
    db.tick(5)
    assert [tuple(row) for row in db.call("settle", epoch=epoch, ids=[parent], fences=[held.fence])] == [
        (child, "blocked", None)
    ]
    db.expect(child, state="blocked")
    assert look(db, ids=[child]) == {child: "queued"}
    db.expect(child, state="queued", wait=None, run_at=db.now)
    assert waiting(db) == 0


@pytest.mark.parametrize("run_if", ["all_succeeded", "all_finished", "any_failed"])
@pytest.mark.parametrize("ends", ["ss", "sd", "dd", "cs", "s-", "d-", "c-", "--", "ks"])
def test_run_if_decides_for_each_pair_of_parent_endings(db: Db, run_if: str, ends: str) -> None:
    """s succeeded, d dead, c canceled, k skipped by its handler, - not ended."""
    epoch = db.node()
    one, other, child = flow(db, {}, {}, {"depends_on": [0, 1], "run_if": run_if})
    words = {"s": "succeeded", "d": "failed", "c": "canceled", "k": "skipped"}
    end(db, epoch, {job: words[word] for job, word in zip((one, other), ends, strict=True) if word in words})
    look(db)
    failed, open_ = bool(set("dc") & set(ends)), "-" in ends
    expected = {
        "all_succeeded": "canceled" if failed else "blocked" if open_ else "queued",
        "all_finished": "blocked" if open_ else "queued",
        "any_failed": "queued" if failed else "blocked" if open_ else "canceled",
    }[run_if]
    assert db.look(child).state == expected
    if expected == "canceled":
        assert db.look(child).error["kind"] == ("dependency" if failed else "skipped")


def test_children_of_a_skipped_job_are_skipped(db: Db) -> None:
    epoch = db.node()
    first, alternative, after, complaint, always = flow(
        db,
        {},
        {"depends_on": [0], "run_if": "any_failed"},
        {"depends_on": [1]},
        {"depends_on": [2], "run_if": "any_failed"},
        {"depends_on": [1, 2, 3], "run_if": "all_finished"},
    )
    end(db, epoch, {first: "succeeded"})
    look(db)
    assert db.states(alternative, after, complaint, always) == ["canceled", "canceled", "canceled", "queued"]
    assert {db.look(job).error["kind"] for job in (alternative, after, complaint)} == {"skipped"}


def test_failed_parent_outweighs_a_skipped_one_in_any_order(db: Db) -> None:
    for order in (0, 1):
        epoch = db.node()
        good, bad, skipped, child, complaint = flow(
            db,
            {},
            {},
            {"depends_on": [0], "run_if": "any_failed"},
            {"depends_on": [2, 1]},
            {"depends_on": [3], "run_if": "any_failed"},
        )
        steps = [{good: "succeeded"}, {bad: "failed"}]
        for step in steps if order else reversed(steps):
            end(db, epoch, step)
            look(db)
        assert db.states(skipped, child, complaint) == ["canceled", "canceled", "queued"]
        assert db.look(child).error["kind"] == "dependency"
        db.value("cancel", id=complaint)


def test_failed_attempt_does_not_end_the_parent(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0], "run_if": "any_failed"})
    assert db.run(epoch, "failed") == "failed"
    assert look(db) == {}
    db.expect(child, state="blocked")
    assert db.value("cancel", id=parent) == "canceled"
    assert look(db) == {child: "queued"}


def test_unblocked_child_still_waits_for_its_delay(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0], "delay": "1 minute"})
    due = db.after(60)
    end(db, epoch, {parent: "succeeded"})
    look(db)
    db.expect(child, state="queued", wait="delayed", run_at=due)


@pytest.mark.parametrize("how", ["settle", "complete", "fail", "cancel", "force", "lose", "release", "expire"])
def test_every_way_to_end_a_parent_unblocks_its_children(db: Db, how: str) -> None:
    epoch = db.node()
    parent, child = flow(db, {"max_attempts": 1}, {"depends_on": [0], "run_if": "all_finished"})
    job = db.claim_one(epoch)
    match how:
        case "settle":
            db.settle(epoch, End(job, "skipped"))
        case "complete":
            db.value("complete", id=parent, fence=job.fence)
        case "fail":
            db.value("fail", id=parent, fence=job.fence)
        case "cancel":
            db.value("cancel", id=parent)
            db.settle(epoch, End(job, "canceled"))
        case "force":
            db.value("cancel", id=parent, force=True)
        case "lose":
            db.lose(epoch)
        case "release":
            db.value("cancel", id=parent)
            db.value("release", id=parent)
        case "expire":
            db.settle(epoch, End(job, "unsupported", age=None))
            db.tick(7200)
            db.value("heartbeat", epoch=epoch)
            db.value("expire_unsupported", grace="1 hour")
    assert look(db) == {child: "queued"}
    assert waiting(db) == 0


# Parents that are there already.


def test_succeeded_parent_does_not_block_a_new_child(db: Db) -> None:
    epoch = db.node()
    parent = db.enqueue()
    end(db, epoch, {parent: "succeeded"})
    assert db.look(db.enqueue(depends_on=[parent])).state == "queued"
    assert waiting(db) == 0


def test_unblock_cancels_an_any_failed_child_of_a_success(db: Db) -> None:
    """Not by its producer: whoever cancels tells of it, after the commit."""
    epoch = db.node()
    parent = db.enqueue()
    end(db, epoch, {parent: "succeeded"})
    alternative = db.enqueue(depends_on=[parent], run_if="any_failed")
    assert look(db) == {alternative: "canceled"}
    assert db.look(alternative).error["kind"] == "skipped"
    assert waiting(db) == 0


@pytest.mark.parametrize("outcome", ["failed", "canceled"])
def test_unblock_decides_new_children_of_a_failed_parent(db: Db, outcome: str) -> None:
    epoch = db.node()
    parent = db.enqueue()
    end(db, epoch, {parent: outcome})
    child, other = db.enqueue(depends_on=[parent]), db.enqueue(depends_on=[parent], run_if="any_failed")
    assert look(db) == {child: "canceled", other: "queued"}


def test_settle_of_a_running_parent_returns_its_blocked_child(db: Db) -> None:
    epoch = db.node()
    parent = db.enqueue()
    job = db.claim_one(epoch)
    child = db.enqueue(depends_on=[parent])
    assert look(db) == {}
    assert waiting(db) == 0
    assert db.settle(epoch, End(job)) == {child: "blocked"}
    assert look(db, ids=[child]) == {child: "queued"}


def test_unblock_finds_a_parent_that_ended_before_the_first_check(db: Db) -> None:
    epoch = db.node()
    parent = db.enqueue()
    job = db.claim_one(epoch)
    child = db.enqueue(depends_on=[parent])
    assert db.settle(epoch, End(job)) == {}
    assert look(db) == {child: "queued"}


def test_purged_parent_counts_as_failed(db: Db) -> None:
    epoch = db.node()
    parent = db.enqueue()
    job = db.claim_one(epoch)
    child = db.enqueue(depends_on=[parent])
    db.settle(epoch, End(job))
    db.value("purge", states=["succeeded"])
    look(db)
    db.expect(child, state="canceled")


@pytest.mark.parametrize("kind", ["never", "purged", "uncommitted"])
def test_unknown_parent_is_refused(db: Db, kind: str) -> None:
    epoch, other = db.node(), db.session()
    parent = NOBODY
    if kind == "purged":
        parent = db.enqueue()
        end(db, epoch, {parent: "succeeded"})
        db.value("purge", states=["succeeded"])
    if kind == "uncommitted":
        other.begin()
        parent = other.enqueue()
    with refused("WB003", f"job of type 'task' is invalid: it depends on job {parent}, which is unknown"):
        db.enqueue(depends_on=[parent])
    if kind == "uncommitted":
        other.rollback()


def test_a_parent_of_another_tenant_is_refused_like_an_unknown_one(db: Db) -> None:
    """The error of a scheduled chain is told to its tenant, whose producers must not learn which ids others have."""
    parent = db.enqueue(tenant="one")
    texts = []
    for given in (parent, NOBODY):
        with pytest.raises(psycopg.Error) as caught:
            db.enqueue(tenant="two", depends_on=[given])
        texts.append(str(caught.value).replace(str(given), "ID"))
    assert texts[0] == texts[1]
    with refused("WB003", "or of another tenant"):
        flow(db, {"tenant": "one"}, {"tenant": "two", "depends_on": [0]})
    db.enqueue(tenant="one", depends_on=[parent])


# What is refused.


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ([[0]], r"a \[0\] waits for a \[0\]"),
        ([[1], [0]], r"a \[0\] waits for b \[1\] waits for a \[0\]|b \[1\] waits for a \[0\] waits for b \[1\]"),
        ([[], [3, 0], [1], [2, 0]], r"(b \[1\] waits for d \[3\]|d \[3\] waits for c \[2\]|c \[2\] waits for b \[1\])"),
        ([[4], [], [0], [2], [3], [4]], r"waits for"),
    ],
)
def test_circular_dependency_is_refused_and_named(db: Db, graph: list[list[int]], said: str) -> None:
    with refused("WB003", f"jobs wait for each other: .*({said})"):
        flow(db, *({"type": "abcdef"[place], "depends_on": parents} for place, parents in enumerate(graph)))
    assert db.count("jobs") == 0


def test_acyclic_graph_is_accepted_in_any_order(db: Db) -> None:
    last, *others = flow(db, {"depends_on": [1, 2]}, {"depends_on": [3]}, {"depends_on": [3]}, {})
    assert db.states(last, *others) == ["blocked", "blocked", "blocked", "queued"]


def test_long_backward_chain_is_accepted_until_it_is_circular(db: Db) -> None:
    count = 3000
    jobs = [{"type": "task", "depends_on": [place + 1]} for place in range(count - 1)] + [{"type": "task"}]
    assert len(db.call("enqueue_many", jobs=jobs)) == count
    jobs[-1]["depends_on"] = [0]
    with refused("WB003", r"jobs wait for each other: task \[\d+\] waits for .* waits for \.\.\. waits for"):
        db.call("enqueue_many", jobs=jobs)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"depends_on": [1]}, "depends_on names position 1, but this call has the positions 0 to 0"),
        ({"depends_on": [-1]}, "depends_on names position -1, but"),
        ({"depends_on": [0.5]}, "depends_on names position 0.5, but"),
        ({"depends_on": "x"}, "depends_on must be an array of ids, or of positions in this call"),
        ({"depends_on": [None]}, "depends_on must name jobs by their ids"),
        ({"run_if": "all_finished"}, "run_if needs depends_on"),
        ({"depends_on": [str(NOBODY)], "run_if": "maybe"}, "run_if must be all_succeeded, all_finished or any_failed"),
    ],
)
def test_invalid_dependencies_are_refused(db: Db, job: dict[str, Any], said: str) -> None:
    with refused("WB003", said):
        flow(db, job)


def test_a_job_cannot_wait_for_itself(db: Db) -> None:
    own = db.new_id()
    with refused("WB003", "task .* waits for task"):
        db.enqueue(id=own, depends_on=[own])


def test_duplicate_and_empty_parent_lists_are_accepted(db: Db) -> None:
    parent = db.enqueue()
    child = db.enqueue(depends_on=[parent, parent])
    assert [(row.parent, row.place) for row in db.rows("dependencies")] == [(parent, 1)]
    db.expect(child, state="blocked")
    assert db.look(db.enqueue(depends_on=[])).state == "queued"


# Sending.


def test_resent_jobs_keep_their_dependencies(db: Db) -> None:
    epoch = db.node()
    one, two = db.new_id(), db.new_id()
    jobs = [{"type": "task", "id": str(one)}, {"type": "task", "id": str(two), "depends_on": [str(one)]}]
    for resend in (False, True):
        assert [row.created for row in db.call("enqueue_many", jobs=jobs, resend=resend)] == [True, True]
    assert db.states(one, two) == ["queued", "blocked"]
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.call("enqueue_many", jobs=jobs, resend=True)
    assert db.states(one, two) == ["succeeded", "queued"]
    end(db, epoch, {two: "succeeded"})
    db.call("enqueue_many", jobs=jobs, resend=True)
    assert db.states(one, two) == ["succeeded", "succeeded"]
    assert db.count("dependencies") == 1


def test_first_delivery_by_resend_stores_dependencies(db: Db) -> None:
    epoch = db.node()
    one, two = flow(db, {}, {"depends_on": [0]}, resend=True)
    assert db.states(one, two) == ["queued", "blocked"]
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.expect(two, state="queued")


def test_child_of_a_duplicate_depends_on_the_first_job(db: Db) -> None:
    epoch = db.node()
    keyed = {"idempotency_key": "k"}
    first, child = flow(db, keyed, {"depends_on": [0]})
    same, other = flow(db, keyed, {"depends_on": [0]})
    assert same == first
    assert {(row.child, row.parent) for row in db.rows("dependencies")} == {(child, first), (other, first)}
    end(db, epoch, {first: "succeeded"})
    look(db)
    assert db.states(child, other) == ["queued", "queued"]


@pytest.mark.parametrize("resend", [False, True])
def test_duplicate_child_gets_no_new_dependencies(db: Db, resend: bool) -> None:
    child = db.enqueue(idempotency_key="k")
    again = flow(db, {}, {"depends_on": [0], "idempotency_key": "k"}, resend=resend)
    assert again[1] == child
    db.expect(child, state="queued")
    assert db.count("dependencies") == 0


def test_copied_rows_may_depend_on_each_other(db: Db) -> None:
    db.begin()
    db.execute("CREATE TEMP TABLE incoming OF watchbill.new_job ON COMMIT DROP")
    one, two = db.new_id(), db.new_id()
    db.execute("INSERT INTO incoming (id, type) VALUES (%s, 'task')", (one,))
    db.execute("INSERT INTO incoming (id, type, depends_on) VALUES (%s, 'task', %s)", (two, [one]))
    assert db.call("enqueue_from", source="incoming") == []
    db.commit()
    assert db.states(one, two) == ["queued", "blocked"]


def test_settling_parents_updates_dependencies_hot(own_db: Db) -> None:
    """Otherwise each would be written to two indexes as well, and a wide fan-in takes twice as long."""
    epoch = own_db.node()
    flow(own_db, *({} for _ in range(500)), {"depends_on": list(range(500))})
    rows = own_db.claim(epoch, 500)
    own_db.call("settle", epoch=epoch, ids=[row.id for row in rows], fences=[row.fence for row in rows])
    own_db.execute("SELECT pg_stat_force_next_flush()")
    (told,) = own_db.execute(
        "SELECT n_tup_upd AS all, n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'dependencies'"
    )
    assert tuple(told) == (500, 500)
    assert own_db.count("dependency_checks") == 1


# Who waits for whom.


def test_open_producer_transaction_does_not_block_settle(db: Db) -> None:
    epoch, producer = db.node(), db.session()
    parent = db.enqueue()
    producer.begin("REPEATABLE READ")
    child = producer.enqueue(depends_on=[parent])
    job = db.claim_one(epoch)
    db.settle(epoch, End(job))
    assert look(db) == {}
    producer.commit()
    assert look(db) == {child: "queued"}


def test_two_producers_of_one_parent_do_not_wait_for_each_other(db: Db) -> None:
    parent, one, two = db.enqueue(), db.session(), db.session()
    one.begin()
    one.enqueue(depends_on=[parent])
    two.enqueue(depends_on=[parent])
    one.commit()
    assert db.count("dependencies") == 2


def test_parents_settle_concurrently_and_the_last_unblock_sees_both(db: Db) -> None:
    epoch, one, two = db.node(), db.session(), db.session()
    *_, child = flow(db, {}, {}, {"depends_on": [0, 1]})
    first, second = db.claim(epoch)
    one.begin()
    one.settle(epoch, End(first))
    two.begin()
    two.settle(epoch, End(second))  # waits for nobody
    two.commit()
    assert look(two, ids=[child]) == {}
    one.commit()
    assert look(one, ids=[child]) == {child: "queued"}
    assert waiting(db) == 0


def test_unblock_ignores_parents_ended_in_its_own_transaction(db: Db) -> None:
    """Both would miss the other's end, and the child would wait for ever."""
    epoch, one, two = db.node(), db.session(), db.session()
    *_, child = flow(db, {}, {}, {"depends_on": [0, 1]})
    first, second = db.claim(epoch)
    for session, job in ((one, first), (two, second)):
        session.begin()
        session.settle(epoch, End(job))
        assert look(session) == {}
    one.commit()
    two.commit()
    assert waiting(db) == 2
    assert look(db) == {child: "queued"}


def test_unblock_leaves_a_locked_child_for_the_next_call(db: Db) -> None:
    epoch, other = db.node(), db.session()
    parent, child = flow(db, {}, {"depends_on": [0]})
    end(db, epoch, {parent: "succeeded"})
    other.begin()
    other.value("reschedule", id=child)
    assert look(db) == {}
    other.commit()
    assert look(db) == {child: "queued"}


def test_concurrent_unblocks_decide_each_child_once(db: Db) -> None:
    epoch, other = db.node(), db.session()
    parent, *children = flow(db, {}, *({"depends_on": [0]} for _ in range(5)))
    end(db, epoch, {parent: "succeeded"})
    db.begin()
    assert len(db.call("unblock")) == 5
    assert other.call("unblock") == []
    db.commit()
    assert look(other) == {}
    assert db.states(*children) == ["queued"] * 5


def test_unblock_handles_many_children_in_batches(db: Db) -> None:
    epoch = db.node()
    parent, *_ = flow(db, {}, *({"depends_on": [0]} for _ in range(25)))
    end(db, epoch, {parent: "succeeded"})
    sizes = []
    while rows := db.call("unblock", max=10):
        sizes.append(len(rows))
    assert sizes == [10, 10, 5]
    assert waiting(db) == 0


def test_rolled_back_unblock_is_repeated(db: Db) -> None:
    epoch, other = db.node(), db.session()
    parent, child = flow(db, {}, {"depends_on": [0]})
    end(db, epoch, {parent: "succeeded"})
    other.begin()
    assert len(other.call("unblock")) == 1
    other.rollback()
    assert look(db) == {child: "queued"}


def test_unblock_needs_read_committed(db: Db) -> None:
    db.begin("REPEATABLE READ")
    with refused("WB005"):
        db.call("unblock")
    db.rollback()


def test_unblock_leaves_an_uncommitted_settle_for_the_next_call(db: Db) -> None:
    epoch, other = db.node(), db.session()
    parent = db.enqueue()
    job = db.claim_one(epoch)
    child = db.enqueue(depends_on=[parent])
    other.begin()
    other.settle(epoch, End(job))
    assert look(db) == {}
    assert waiting(db) == 1
    other.commit()
    assert look(db) == {child: "queued"}


def test_child_of_a_guarded_parent_is_unblocked_by_its_completion(db: Db) -> None:
    epoch, handler = db.node(), db.session()
    parent = db.enqueue()
    job = db.claim_one(epoch)
    handler.begin()
    handler.value("guard", id=parent, fence=job.fence)
    child = db.enqueue(depends_on=[parent])
    assert look(db) == {}
    assert waiting(db) == 0
    handler.value("complete", id=parent, fence=job.fence)
    handler.commit()
    assert look(db) == {child: "queued"}


# What operators do.


def test_retry_of_a_canceled_parent_blocks_its_children_again(db: Db) -> None:
    epoch = db.node()
    one, two, three, alternative = flow(
        db, {}, {"depends_on": [0]}, {"depends_on": [1]}, {"depends_on": [2], "run_if": "any_failed"}
    )
    db.value("cancel", id=one)
    look(db)
    assert db.states(one, two, three, alternative) == ["canceled", "canceled", "canceled", "queued"]
    assert db.value("reschedule", id=one) == "canceled"
    assert db.states(one, two, three, alternative) == ["queued", "blocked", "blocked", "queued"]
    for job in (one, two, three):
        end(db, epoch, {job: "succeeded"})
        look(db)
    assert db.states(one, two, three) == ["succeeded"] * 3


def test_child_waits_again_after_both_dead_parents_are_retried(db: Db) -> None:
    epoch = db.node()
    one, two, child = flow(db, {}, {}, {"depends_on": [0, 1]})
    end(db, epoch, {one: "failed", two: "failed"})
    look(db)
    db.value("reschedule", id=one)
    db.expect(child, state="canceled")
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.value("reschedule", id=two)
    db.expect(child, state="blocked")
    end(db, epoch, {two: "succeeded"})
    look(db)
    db.expect(child, state="queued")


def test_retry_of_a_succeeded_parent_keeps_its_children_blocked(db: Db) -> None:
    epoch = db.node()
    one, two, child = flow(db, {}, {}, {"depends_on": [0, 1]})
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.value("reschedule", id=one)
    end(db, epoch, {two: "succeeded"})
    look(db)
    db.expect(child, state="blocked")
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.expect(child, state="queued")


def test_retry_of_a_parent_blocks_a_skipped_alternative_again(db: Db) -> None:
    epoch = db.node()
    one, alternative = flow(db, {}, {"depends_on": [0], "run_if": "any_failed"})
    end(db, epoch, {one: "succeeded"})
    look(db)
    db.expect(alternative, state="canceled")
    db.value("reschedule", id=one)
    db.expect(alternative, state="blocked")
    end(db, epoch, {one: "failed"})
    look(db)
    db.expect(alternative, state="queued")


def test_retry_of_a_parent_does_not_change_a_child_that_ran(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0], "run_if": "any_failed"})
    end(db, epoch, {parent: "failed"})
    look(db)
    end(db, epoch, {child: "succeeded"})
    db.value("reschedule", id=parent)
    db.expect(child, state="succeeded")
    end(db, epoch, {parent: "succeeded"})
    assert [row.outcome for row in db.rows("dependencies")] == ["failed"]  # that is what it ran upon
    assert waiting(db) == 0


def test_retry_of_a_parent_keeps_an_operators_cancel_of_the_child(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0]})
    db.value("cancel", id=child)
    end(db, epoch, {parent: "failed"})
    look(db)
    db.value("reschedule", id=parent)
    db.expect(child, state="canceled")


def test_unblock_skips_a_child_whose_parent_is_being_retried(db: Db) -> None:
    epoch, operator = db.node(), db.session()
    parent, child = flow(db, {}, {"depends_on": [0]})
    end(db, epoch, {parent: "failed"})
    operator.begin()
    operator.value("reschedule", id=parent)  # holds the child's row
    assert look(db) == {}
    operator.commit()
    assert look(db) == {}
    db.expect(child, state="blocked")


def test_retry_waiting_for_unblock_undoes_its_decision(db: Db) -> None:
    epoch, other = db.node(), db.session()
    parent, child = flow(db, {}, {"depends_on": [0]})
    end(db, epoch, {parent: "failed"})
    db.begin()
    assert [row.state for row in db.call("unblock")] == ["canceled"]
    retry = other.start("reschedule", id=parent).blocked()
    db.commit()
    assert retry.value() == "dead"
    db.expect(child, state="blocked")


def test_operator_may_retry_a_canceled_child_alone(db: Db) -> None:
    epoch = db.node()
    parent, child = flow(db, {}, {"depends_on": [0]})
    end(db, epoch, {parent: "failed"})
    look(db)
    assert db.value("reschedule", id=child) == "canceled"
    end(db, epoch, {child: "succeeded"})
    db.value("reschedule", id=parent)
    end(db, epoch, {parent: "succeeded"})
    assert look(db) == {}
    db.expect(child, state="succeeded")


def test_blocked_child_may_be_rescheduled_and_canceled(db: Db) -> None:
    epoch = db.node()
    parent, child, grandchild = flow(db, {}, {"depends_on": [0]}, {"depends_on": [1]})
    assert db.value("reschedule", id=child, run_at=db.after(60)) == "blocked"
    db.expect(child, state="blocked")
    assert db.value("cancel", id=child) == "canceled"
    look(db)
    db.expect(grandchild, state="canceled")
    end(db, epoch, {parent: "succeeded"})
    assert look(db) == {}
    db.expect(child, state="canceled")


# What is kept.


def test_dependencies_are_deleted_with_the_child(db: Db) -> None:
    epoch = db.node()
    parent, child, other = flow(db, {}, {"depends_on": [0]}, {"depends_on": [0]})
    end(db, epoch, {parent: "succeeded"})
    look(db)
    end(db, epoch, {child: "succeeded"})
    db.value("purge", states=["succeeded"])
    assert [row.child for row in db.rows("dependencies")] == [other]
    db.change("DELETE FROM {schema}.jobs WHERE id = %s", other)  # as when its partition is dropped
    assert db.value("sweep_dependencies") is None
    assert db.count("dependencies") == 0


def test_sweep_dependencies_works_in_batches(db: Db) -> None:
    flow(db, {}, *({"depends_on": [0]} for _ in range(5)))
    db.value("sweep_dependencies")
    assert db.count("dependencies") == 5  # not those of children that are there
    db.change("DELETE FROM {schema}.jobs WHERE wait = 'blocked'")
    steps, after = 0, None
    while True:
        after = db.value("sweep_dependencies", after=after, max=2)
        steps += 1
        if after is None:
            break
    assert (steps, db.count("dependencies")) == (3, 0)


def test_ancestors_are_listed_nearest_first_with_results(db: Db) -> None:
    epoch = db.node()
    one, two, three, four = flow(
        db, {"type": "a"}, {"type": "b"}, {"type": "b", "depends_on": [1, 0]}, {"type": "c", "depends_on": [2, 0]}
    )
    held = {row.id: row for row in db.claim(epoch)}
    db.settle(epoch, End(held[one], result={"n": 1}), End(held[two], result={"n": 2}))
    rows = db.call("ancestors", id=four)
    assert [(row.id, row.depth, row.type, row.state, row.result) for row in rows] == [
        (three, 1, "b", "blocked", None),
        (one, 1, "a", "succeeded", {"n": 1}),
        (two, 2, "b", "succeeded", {"n": 2}),
    ]
    assert [row.id for row in db.call("ancestors", id=four, types=["b"])] == [three, two]
    assert [row.id for row in db.call("ancestors", id=four, deepest=1)] == [three, one]
    assert {row[0] for row in db.call("dependency_graph", id=two)} == {one, two, three, four}
    assert len(db.call("dependency_graph", id=two, max=2)) == 2


def test_end_of_a_parent_sends_an_unblock_notification(db: Db) -> None:
    epoch, sleeper = db.node(), db.session()
    parent, _ = flow(db, {}, {"depends_on": [0]})
    (key,) = sleeper.execute("SELECT watchbill._wake_lock_key() AS key, watchbill._wake_channel() AS channel")
    sleeper.execute(f"LISTEN {key.channel}")
    sleeper.execute("SELECT pg_advisory_lock(1466004579, %s)", (key.key,))
    end(db, epoch, {parent: "succeeded"})
    assert "unblock" in [notify.payload for notify in sleeper.connection.notifies(timeout=60, stop_after=1)]
    sleeper.execute("SELECT pg_advisory_unlock_all()")
    sleeper.execute("UNLISTEN *")
