"""Retention: what is too old goes by whole days or in batches, and nothing else goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.store.flow import declare_limit
from tests.store.harness import Db, End

DAY = timedelta(days=1)
PARENTS = ("finished_succeeded", "finished_otherwise", "attempts", "job_logs")


def finish(db: Db, outcome: str, at: datetime, **job: Any) -> None:
    db.now = at
    db.enqueue(**job)
    db.run(db.node(), outcome, error={"kind": "permanent"})


def days(db: Db, parent: str) -> list[str]:
    query = """SELECT inhrelid::regclass::text AS name FROM pg_inherits
        WHERE inhparent = ('watchbill.' || %s)::regclass ORDER BY 1"""
    return [row.name.removeprefix("watchbill.") for row in db.execute(query, (parent,))]


def prune(db: Db, parent: str, keep: timedelta, **more: object) -> list[str]:
    """All steps; what was done."""
    done = []
    while True:
        (row,) = db.call("prune_history", parent=parent, keep=keep, **more)
        if row.done:
            done.append(row.done)
        if not row.more:
            return done


@pytest.fixture
def empty(own_db: Db) -> Db:
    """Without the partitions of the real week in which the tests run: the clock of these tests is ahead of it."""
    for parent in PARENTS:
        prune(own_db, parent, DAY)
        assert days(own_db, parent) == [f"{parent}_default"]
    return own_db


@pytest.fixture
def history(empty: Db) -> Db:
    """A job of each kind on three days in a row, and then it is noon of the third."""
    first = datetime(2031, 3, 14, 12, tzinfo=UTC)
    empty.now = first
    empty.value("make_partitions", days=2)
    for n in range(3):
        finish(empty, "succeeded", first + n * DAY, idempotency_key=f"good-{n}")
        finish(empty, "failed", first + n * DAY, idempotency_key=f"bad-{n}")
    return empty


def test_a_day_is_dropped_when_all_of_it_is_older_than_kept(history: Db) -> None:
    assert prune(history, "finished_succeeded", timedelta(hours=60)) == []
    assert prune(history, "finished_succeeded", timedelta(hours=37)) == []
    assert prune(history, "finished_succeeded", timedelta(hours=36)) == ["finished_succeeded_20310314"]
    assert "finished_succeeded_20310314" not in days(history, "finished_succeeded")
    assert "finished_otherwise_20310314" in days(history, "finished_otherwise")
    assert history.count("finished_succeeded") == 2
    assert history.count("finished_otherwise") == 3


def test_keys_of_dropped_jobs_leave_and_others_stay(history: Db) -> None:
    prune(history, "finished_succeeded", DAY)
    assert {row.key for row in history.rows("idempotency")} == {"good-1", "good-2", "bad-0", "bad-1", "bad-2"}
    again = history.call("enqueue", type="task", idempotency_key="good-0")[0]
    assert again.created


def test_key_with_an_open_window_outlives_its_job(empty: Db) -> None:
    empty.value("make_partitions", days=1)
    finish(empty, "succeeded", empty.now, idempotency_key="k", idempotency_window=10 * DAY)
    empty.tick(3 * 86_400)
    prune(empty, "finished_succeeded", DAY)
    assert empty.count("finished_jobs") == 0
    assert empty.value("prune_keys") == 0
    assert not empty.call("enqueue", type="task", idempotency_key="k")[0].created
    empty.tick(7 * 86_400)
    assert empty.value("prune_keys") == 1
    assert empty.count("idempotency") == 0


def test_keys_are_deleted_in_batches_before_the_day_is_dropped(empty: Db) -> None:
    empty.value("make_partitions", days=0)
    for n in range(5):
        finish(empty, "succeeded", empty.now, idempotency_key=str(n))
    empty.tick(3 * 86_400)
    day = "finished_succeeded_20310314"
    assert prune(empty, "finished_succeeded", DAY, max=2) == [f"2 idempotency keys of {day}"] * 2 + [day]
    assert empty.count("idempotency") == 0


@pytest.mark.parametrize("has_days", [True, False], ids=["days", "default"])
def test_a_dead_job_that_is_pruned_no_longer_keeps_its_ordered_key(empty: Db, has_days: bool) -> None:
    """With `when_dead = 'pause'` a dead job keeps its key; one of a later day still does."""
    if has_days:
        empty.value("make_partitions", days=2)
    declare_limit(empty, "order:task", when_dead="pause")
    for day, account in enumerate(("old", "new")):
        finish(empty, "failed", empty.now + day * DAY, ordered_by=account)
    waiting = empty.enqueue(ordered_by="old")
    empty.tick(86_400)
    done = "finished_otherwise_20310314" if has_days else "1 rows of finished_otherwise_default"
    assert prune(empty, "finished_otherwise", DAY) == [done]
    assert [row.key for row in empty.rows("holds")] == ["order:task:new"]
    assert empty.claim_one(empty.node()).id == waiting


@pytest.mark.parametrize("parent", PARENTS[:3])
def test_old_rows_of_the_default_partition_are_deleted_in_batches(empty: Db, parent: str) -> None:
    outcome = "failed" if parent != "finished_succeeded" else "succeeded"
    for _ in range(5):
        finish(empty, outcome, empty.now, idempotency_key=str(empty.new_id()))
    empty.tick(2 * 86_400)
    finish(empty, outcome, empty.now)
    assert prune(empty, parent, DAY, max=2) == [f"{n} rows of {parent}_default" for n in (2, 2, 1)]
    assert empty.count(parent) == 1
    assert empty.count("idempotency") == (5 if parent == "attempts" else 0)


def test_prune_gives_up_beside_a_reader_and_settles_go_on(history: Db) -> None:
    reader, epoch = history.session(), history.node()
    job = history.enqueue()
    held = history.claim_one(epoch)
    reader.begin()
    reader.execute("SELECT FROM watchbill.finished_succeeded")
    (row,) = history.call("prune_history", parent="finished_succeeded", keep=DAY)
    assert (row.done, row.more, row.locked) == (None, False, "finished_succeeded")
    history.settle(epoch, End(held))
    reader.commit()
    assert history.states(job) == ["succeeded"]
    assert prune(history, "finished_succeeded", DAY) == ["finished_succeeded_20310314"]


def test_second_pruner_comes_again_because_the_first_may_give_up(history: Db) -> None:
    other = history.session()
    other.begin()
    other.call("prune_history", parent="attempts", keep=DAY)
    (row,) = history.call("prune_history", parent="finished_succeeded", keep=DAY)
    assert (row.done, row.more, row.locked) == (None, False, "finished_succeeded")
    other.rollback()
    assert prune(history, "finished_succeeded", DAY) == ["finished_succeeded_20310314"]


def test_prune_is_undone_with_its_transaction(history: Db) -> None:
    session = history.session()
    session.begin()
    (row,) = session.call("prune_history", parent="finished_succeeded", keep=DAY)
    assert row.done == "finished_succeeded_20310314"
    session.rollback()
    assert "finished_succeeded_20310314" in days(history, "finished_succeeded")
    assert history.count("idempotency") == 6


def test_reschedule_of_a_pruned_job_finds_no_job(history: Db) -> None:
    (job,) = [row.id for row in history.rows("finished_otherwise") if row.idempotency_key == "bad-0"]
    prune(history, "finished_otherwise", DAY)
    assert history.value("reschedule", id=job) is None


@pytest.mark.parametrize(("parent", "keep"), [("jobs", DAY), ("attempts", timedelta(0)), ("attempts", None)])
def test_prune_history_refuses_bad_arguments(db: Db, parent: str, keep: timedelta | None) -> None:
    with pytest.raises(Exception, match="is invalid") as caught:
        db.call("prune_history", parent=parent, keep=keep)
    assert caught.value.sqlstate == "WB003"  # type: ignore[attr-defined]


def test_old_audit_rows_are_deleted_in_batches(empty: Db) -> None:
    for _ in range(3):
        empty.value("cancel", id=empty.enqueue())
    empty.tick(86_400)
    empty.value("cancel", id=empty.enqueue())
    assert [empty.value("prune_audit", keep=DAY / 2, max=2) for _ in range(3)] == [2, 1, 0]
    assert empty.count("audit") == 1


def test_nodes_that_ended_long_ago_are_deleted_unless_a_claim_names_them(empty: Db) -> None:
    left, living, claiming = empty.node(), empty.node(), empty.node()
    empty.value("leave", epoch=left)
    empty.enqueue()
    empty.claim_one(claiming)
    empty.change("UPDATE {schema}.nodes SET state = 'lost', ended_at = %s WHERE epoch = %s", empty.now, claiming)
    empty.change("DELETE FROM {schema}.beats WHERE epoch = %s", claiming)
    empty.tick(2 * 86_400)
    assert empty.value("prune_nodes", keep=3 * DAY) == 0
    assert empty.value("prune_nodes", keep=DAY) == 1
    assert {row.epoch for row in empty.rows("nodes")} == {living, claiming}


def test_preview_lists_what_the_steps_then_remove(history: Db) -> None:
    finish(history, "succeeded", history.now - 30 * DAY)
    history.now = datetime(2031, 3, 16, 12, tzinfo=UTC)
    keep = {"keep_succeeded": DAY, "keep_otherwise": 9 * DAY, "keep_audit": DAY, "keep_nodes": 9 * DAY}
    found = [(row.what, row.action) for row in history.call("preview_retention", **keep)]
    assert found == [("finished_succeeded_20310314", "drop"), ("finished_succeeded_default", "delete")]
    done = prune(history, "finished_succeeded", DAY)
    assert done == ["finished_succeeded_20310314", "1 rows of finished_succeeded_default"]
    assert history.call("preview_retention", **keep) == []
