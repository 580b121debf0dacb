"""The survey: it finds what a chore has to do, nothing else, and reads little for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End
from tests.store.test_declare import rule, start
from tests.store.test_work import work

NOTHING = {
    "has_leftover_claim": False,
    "next_delayed_in": None,
    "has_dependency_check": False,
    "has_ready_job": False,
    "has_sleeping_worker": False,
    "has_stale_declaration": False,
    "has_unpaused_job": False,
    "has_freed_schedule": False,
    "has_unsupported_job": False,
    "has_claim": False,
    "has_dependency": False,
    "has_operation": False,
    "has_due_delivery": False,
}


def survey(db: Db, epoch: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = db.row("_survey", epoch=epoch, queues=["default"], **more)._asdict()
    return found


def findings(db: Db, epoch: int, **more: Any) -> dict[str, Any]:
    """What differs from a database in which there is nothing to do."""
    found = survey(db, epoch, **more)
    return {name: found[name] for name, value in NOTHING.items() if found[name] != value}


def test_survey_finds_nothing_where_nothing_is_to_do(db: Db) -> None:
    epoch = db.node()
    assert findings(db, epoch) == {}
    db.enqueue(queue="another")
    db.value("pause", queue="default")
    db.enqueue()
    assert findings(db, epoch) == {}, "another queue, and a paused one"


def test_survey_finds_a_message_of_an_alert_while_nobody_sends_it(db: Db) -> None:
    epoch = db.node()
    db.value("set_alert_route", name="log", kind="log")
    db.value("test_alert_route", name="log")
    assert findings(db, epoch) == {"has_due_delivery": True}
    assert [row.kind for row in db.call("_claim_alert_deliveries", abilities=["log"])] == ["log"]
    assert findings(db, epoch) == {}
    db.tick(60)
    assert findings(db, epoch) == {"has_due_delivery": True}


def test_survey_returns_the_heartbeats_of_all_nodes(db: Db) -> None:
    epochs = [db.node(lease=timedelta(seconds=lease)) for lease in (10, 20)]
    db.tick(3)
    db.value("heartbeat", epoch=epochs[1])
    left = db.node()
    db.value("leave", epoch=left)
    found = survey(db, epochs[0])
    rows = zip(found["epochs"], found["beats"], found["leases"], found["ages"], strict=True)
    assert sorted(rows) == [(epochs[0], 0, 10.0, 3.0), (epochs[1], 1, 20.0, 0.0)]


@pytest.mark.parametrize("options", [{}, {"max_attempts": 1}])
def test_survey_finds_a_ready_job(db: Db, options: dict[str, Any]) -> None:
    epoch = db.node()
    db.enqueue(**options)
    assert findings(db, epoch) == {"has_ready_job": True}
    assert findings(db, epoch, looks_for_jobs=False) == {"has_ready_job": None, "has_sleeping_worker": None}
    assert survey(db, epoch)["fences"] == []
    (job,) = db.claim(epoch)
    assert findings(db, epoch) == {"has_claim": True}
    assert survey(db, epoch)["fences"] == [job.fence]
    assert survey(db, db.node())["fences"] == []


def test_survey_finds_a_quarantined_job_and_what_is_left_of_a_lost_node(db: Db) -> None:
    lost, handler = db.node(), db.session()
    db.enqueue()
    job = db.claim_one(lost)
    handler.begin()
    handler.value("guard", id=job.id, fence=job.fence)
    db.lose(lost)
    epoch = db.node()
    assert findings(db, epoch) == {"has_leftover_claim": True, "has_claim": True}
    handler.commit()
    db.reclaim()
    db.make_ready()
    assert findings(db, epoch) == {"has_ready_job": True}


def test_survey_finds_an_unsupported_job_that_this_node_handles(db: Db) -> None:
    ignorant = db.node()
    db.enqueue("task")
    db.settle(ignorant, End(db.claim_one(ignorant), "unsupported"), closed=[row.fence for row in db.rows("claims")])
    assert findings(db, ignorant) == {"has_unsupported_job": True}
    knowing = db.node(types={"task": 1})
    assert findings(db, knowing) == {"has_unsupported_job": True, "has_ready_job": True}


@pytest.mark.parametrize("seconds", [12, -5])
def test_survey_says_when_the_next_delayed_job_is_due(db: Db, seconds: int) -> None:
    epoch = db.node()
    db.enqueue(delay=timedelta(seconds=30))
    db.enqueue(delay=timedelta(seconds=40))
    db.tick(30 - seconds)
    assert findings(db, epoch) == {"next_delayed_in": seconds}
    assert findings(db, epoch, since=db.after(seconds + 1)) == {"next_delayed_in": seconds + 10}


def test_survey_finds_dependency_checks_and_dependencies(db: Db) -> None:
    epoch = db.node()
    parent = db.enqueue()
    db.enqueue(depends_on=[parent])
    assert findings(db, epoch) == {"has_dependency_check": True, "has_dependency": True, "has_ready_job": True}
    assert "has_dependency_check" not in findings(db, epoch, since=db.after(1))
    db.call("unblock")
    assert findings(db, epoch) == {"has_dependency": True, "has_ready_job": True}


def test_survey_finds_jobs_whose_pause_has_ended(db: Db) -> None:
    epoch = db.node()
    for name in ("a", "b", "c"):
        db.value("pause", type=name)
        db.enqueue(name)
        db.enqueue(name)
    db.claim(epoch)
    assert findings(db, epoch) == {}, "they are parked"
    db.change("DELETE FROM {schema}.pauses WHERE type = 'b'")  # as if a claim had parked them after the resume()
    assert findings(db, epoch) == {"has_unpaused_job": True}
    assert db.value("unpark_paused") == 2
    assert findings(db, epoch) == {"has_ready_job": True}


def test_survey_finds_a_declaration_that_counts_again(db: Db) -> None:
    old = start(db, rule("1"))
    new = start(db, rule("2"))
    assert findings(db, old) == {}
    db.value("leave", epoch=new)
    assert findings(db, old) == {"has_stale_declaration": True}


def test_survey_finds_a_schedule_that_is_no_longer_an_orphan(db: Db) -> None:
    declaring, other = start(db, rule()), start(db)
    db.value("leave", epoch=declaring)
    db.tick(3600)
    assert db.row("tick").fired == 0
    assert findings(db, other) == {}, "it is an orphan"
    epoch = start(db, rule())
    db.change("UPDATE {schema}.timers SET held_slot = next_run, next_run = NULL")  # a tick at the same time did so
    assert findings(db, epoch) == {"has_freed_schedule": True}
    assert db.value("_release_orphans") == 1
    assert findings(db, epoch) == {}


def test_survey_finds_a_sleeping_worker(db: Db) -> None:
    epoch, worker, key = db.node(), db.session(), db.value("_wake_lock_key")
    worker.execute("SELECT pg_advisory_lock_shared(1466004579, %s)", (key,))
    assert findings(db, epoch) == {}, "a producer"
    worker.execute("SELECT pg_advisory_unlock_shared(1466004579, %s)", (key,))
    worker.execute("SELECT pg_advisory_lock(1466004579, %s)", (key,))
    assert findings(db, epoch) == {"has_sleeping_worker": True}


CROWDS: dict[str, Callable[[Db, int], object]] = {
    "ready": lambda db, epoch: None,
    "claimed": lambda db, epoch: db.claim(epoch, 1000),
    "parked": lambda db, epoch: (db.value("pause", type="task"), db.claim(epoch, 1000)),
    "delayed": lambda db, epoch: db.change("UPDATE {schema}.jobs SET wait = 'delayed', run_at = run_at + '1 d'"),
    "blocked": lambda db, epoch: db.change("UPDATE {schema}.jobs SET wait = 'blocked'"),
}


@pytest.mark.parametrize("crowd", list(CROWDS))
def test_survey_reads_little_among_many_jobs(own_db: Db, crowd: str) -> None:
    """Without statistics about them, as after a bulk load. Only jobs that run are read one by one: a claim leaves them
    in the ready index, and there are few of them. The database is new: a shared one has dead entries of other tests."""
    db = own_db
    epoch = db.node()
    db.call("enqueue_many", jobs=[{"type": "task"} for _ in range(1000)])
    CROWDS[crowd](db, epoch)
    db.execute("VACUUM watchbill.jobs")
    read = work(db, "_survey", epoch=epoch, queues=["default"])
    assert read.scanned.keys() <= {"installation", "pauses", "unsupported_types", "chore_marks"}
    assert sum(read.entries.values()) <= (1100 if crowd == "claimed" else 40), read


def _register_many(db: Db, count: int) -> list[int]:
    """Nodes as `register` makes them, without a statement for each."""
    db.node()
    db.change(
        """WITH made AS (
             INSERT INTO {schema}.nodes (epoch, name, app, instance, lease, started_at)
             SELECT {schema}._next_fence(), 'many-' || g, n.app, n.instance, n.lease, n.started_at
             FROM {schema}.nodes n, generate_series(1, %s) g
             RETURNING epoch)
           INSERT INTO {schema}.beats (epoch, at, n)
           SELECT m.epoch, b.at, 0 FROM made m, {schema}.beats b""",
        count - 1,
    )
    return [row.epoch for row in db.rows("nodes", "epoch")]


def _count_reads(db: Db) -> int:
    """How many rows of nodes and heartbeats the session has read since its figures were last collected."""
    ((rows,),) = db.execute(
        """SELECT sum(pg_stat_get_xact_tuples_returned(x) + pg_stat_get_xact_tuples_fetched(x))::int
           FROM unnest('{watchbill.beats,watchbill.nodes}'::regclass[]) x"""
    )
    return int(rows)


def test_sixteen_nodes_watch_all_others_and_the_rest_read_no_heartbeats(db: Db) -> None:
    """Otherwise the cost of all surveys would grow with the square of the number of nodes."""
    epochs = _register_many(db, 500)
    read = {epoch: len(survey(db, epoch)["epochs"] or []) for epoch in epochs}
    assert list(read.values()) == [500] * 16 + [0] * 484


def test_a_survey_of_many_nodes_reads_few_rows_of_heartbeats(db: Db) -> None:
    """Counted, because an idle node among thousands would spend most of its time on them."""
    epochs = _register_many(db, 2000)
    db.execute("ANALYZE watchbill.beats, watchbill.nodes")
    db.begin()  # figures are collected between transactions
    before = _count_reads(db)
    survey(db, epochs[-1])
    assert _count_reads(db) - before <= 100
    db.rollback()


def test_another_node_watches_soon_after_the_watchers_have_died(db: Db) -> None:
    """So thousands that die at once are found within two leases: half a lease until others watch, and then a lease."""
    epochs = _register_many(db, 50)
    living = epochs[40:]
    for seconds in (10, 4):
        db.tick(seconds)
        for epoch in living:
            db.value("heartbeat", epoch=epoch)
    assert [survey(db, epoch)["epochs"] for epoch in living] == [None] * 10
    db.tick(2)
    assert [len(survey(db, epoch)["epochs"]) for epoch in living] == [50] * 10
