"""Figures: what nodes report is added up once, samples count what waits, and ended hours equal history exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.store.harness import Db, End, refused

HOUR = datetime(2031, 3, 14, 9, tzinfo=UTC)  # the hour of the given clock
COLUMNS = ("succeeded", "skipped", "failed", "timed_out", "lost", "snoozed", "dead", "canceled")


def hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def observe(db: Db) -> None:
    """Calls `_observe` as nodes do, until no ended hour is left to count and nothing is due soon."""
    for _ in range(1000):
        pause = db.value("_observe")
        assert pause is not None
        marks = {row.chore: row for row in db.rows("chore_marks")}
        assert [row.error for row in marks.values() if row.error] == []
        if pause > 5 and (
            marks["history"].until is None or db.now - hour_of(marks["history"].until) < timedelta(hours=1)
        ):
            return
        db.now += timedelta(seconds=max(pause, 0.01))
    raise AssertionError("it does not come to an end")


def report(
    db: Db,
    epoch: int,
    number: int,
    *,
    queue: str = "default",
    type: str = "task",
    tenant: str = "default",
    **counts: float,
) -> bool:
    numbers = dict.fromkeys(("succeeded", "skipped", "failed", "timed_out", "snoozed", "dead", "canceled"), 0)
    row = {"queue": queue, "type": type, "tenant": tenant, "run_seconds": 0.0, "wait_seconds": 0.0} | numbers | counts
    stored: bool = db.value("_report_tally", epoch=epoch, number=number, counts=[row])
    return stored


def figures(db: Db, dimension: str = "all", grain: str = "hour", **more: Any) -> dict[str, dict[str, Any]]:
    """The figures of this hour by name, without what is zero."""
    rows = db.call("figure_list", dimension=dimension, grain=grain, **more)
    return {row.name: {name: getattr(row, name) for name in COLUMNS if getattr(row, name)} for row in rows}


def history(db: Db, since: datetime, until: datetime) -> dict[str, int]:
    """What the views say has ended in this time: the oracle of the counted hours."""
    (row,) = db.execute(
        """SELECT
             count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
             count(*) FILTER (WHERE outcome = 'skipped') AS skipped,
             count(*) FILTER (WHERE outcome = 'failed') AS failed,
             count(*) FILTER (WHERE outcome = 'timed_out') AS timed_out,
             count(*) FILTER (WHERE outcome = 'lost') AS lost,
             count(*) FILTER (WHERE outcome = 'snoozed') AS snoozed,
             (SELECT count(*) FROM watchbill.job
              WHERE state = 'dead' AND finished_at >= %(a)s AND finished_at < %(b)s) AS dead,
             (SELECT count(*) FROM watchbill.job
              WHERE state = 'canceled' AND finished_at >= %(a)s AND finished_at < %(b)s) AS canceled
           FROM watchbill.attempt WHERE ended_at >= %(a)s AND ended_at < %(b)s""",
        {"a": since, "b": until},
    )
    return {name: count for name, count in row._asdict().items() if count}


def work_for_a_while(db: Db, rounds: int) -> int:
    """Runs of every outcome, spread over `rounds` minutes; returns the epoch of the node."""
    epoch = db.node()
    for number in range(rounds):
        db.tick(60)
        db.value("heartbeat", epoch=epoch)
        for outcome in ("succeeded", "skipped", "failed", "timed_out", "snoozed"):
            db.enqueue(
                queue=f"q{number % 3}", type=f"t{number % 2}", tenant="ab"[number % 2], max_attempts=1 + number % 2
            )
            held = db.claim_one(epoch, queues=[f"q{number % 3}"])
            db.settle(epoch, End(held, outcome, delay=timedelta(days=1)))
        canceled = db.enqueue()
        db.value("cancel", id=canceled)
    return epoch


def test_tallies_are_added_up_by_minute_and_hour(db: Db) -> None:
    epoch = db.node()
    assert report(db, epoch, 1, succeeded=3, run_seconds=1.5, wait_seconds=0.25, queue="a", type="t", tenant="x")
    assert report(db, epoch, 2, succeeded=1, failed=2, dead=1, queue="b", type="t", tenant="y")
    observe(db)
    db.tick(60)
    assert report(db, epoch, 3, succeeded=5, queue="a", type="u", tenant="x")
    observe(db)
    everything = {"succeeded": 9, "failed": 2, "dead": 1}
    assert figures(db) == {"": everything}
    assert figures(db, "queue") == {"a": {"succeeded": 8}, "b": {"succeeded": 1, "failed": 2, "dead": 1}}
    assert figures(db, "type") == {"t": {"succeeded": 4, "failed": 2, "dead": 1}, "u": {"succeeded": 5}}
    assert figures(db, "tenant") == {"x": {"succeeded": 8}, "y": {"succeeded": 1, "failed": 2, "dead": 1}}
    minutes = db.call("figure_list", grain="minute")
    assert [(row.at.minute, row.succeeded) for row in minutes] == [(26, 4), (27, 5)]
    assert (minutes[0].run_seconds, minutes[0].wait_seconds) == (1.5, 0.25)
    assert db.count("node_counts") == 0


def test_a_tally_that_is_sent_again_counts_once(db: Db) -> None:
    epoch = db.node()
    assert report(db, epoch, 1, succeeded=3)
    assert not report(db, epoch, 1, succeeded=3), "the reply to the first was lost"
    observe(db)
    assert not report(db, epoch, 1, succeeded=3), "also after it was added up and deleted"
    assert report(db, epoch, 2, succeeded=4)
    db.tick(30)
    observe(db)
    assert figures(db) == {"": {"succeeded": 7}}


def test_a_lost_node_cannot_report(db: Db) -> None:
    epoch = db.node()
    db.lose(epoch)
    assert not report(db, epoch, 1, succeeded=3)
    assert db.count("node_counts") == 0


def test_an_ended_hour_equals_history_whatever_nodes_have_reported(db: Db) -> None:
    epoch = work_for_a_while(db, 30)
    report(db, epoch, 1, succeeded=1000, queue="q0")  # too much, and nothing of the other queues
    observe(db)
    assert figures(db) == {"": {"succeeded": 1000}}
    lost = db.enqueue()
    db.claim(epoch)
    assert db.lose(epoch) == {lost: "failed"}
    expected = history(db, HOUR, HOUR + timedelta(hours=1))
    assert expected.keys() == set(COLUMNS)
    db.now = HOUR + timedelta(hours=1, seconds=1)
    observe(db)
    (row,) = db.call("figure_list", until=HOUR + timedelta(hours=1))
    assert (row.at, row.is_counted) == (HOUR, True)
    assert {name: getattr(row, name) for name in COLUMNS} == expected
    for dimension in ("queue", "type", "tenant"):
        found = figures(db, dimension, until=HOUR + timedelta(hours=1))
        assert {name: sum(each.get(name, 0) for each in found.values()) for name in COLUMNS} == expected
    assert set(figures(db, "tenant", until=HOUR + timedelta(hours=1))) == {"a", "b", "default"}
    assert {row.grain for row in db.rows("rollups")} == {"hour", "minute", "ten_minutes"}


def test_each_slice_is_counted_once_also_if_the_observer_dies_in_between(db: Db) -> None:
    work_for_a_while(db, 30)
    expected = history(db, HOUR, HOUR + timedelta(hours=1))
    observe(db)
    db.now = HOUR + timedelta(hours=1, seconds=1)
    other, steps = db.session(), 0
    while not figures(db, until=HOUR + timedelta(hours=1)):
        other.begin()
        other.value("_observe")
        other.rollback()  # this node dies before its commit, and another one does the same step
        db.value("_observe")
        db.now += timedelta(seconds=10)
        steps += 1
        assert steps < 100
    assert steps > 3
    assert figures(db, until=HOUR + timedelta(hours=1)) == {"": expected}


def test_an_hour_is_counted_after_the_transactions_that_wrote_in_it(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    held = db.claim_one(epoch)
    observe(db)
    late = db.session()
    late.begin()
    late.value("complete", id=held.id, fence=held.fence)
    db.now = HOUR + timedelta(hours=1, seconds=1)
    for _ in range(5):
        db.value("_observe")
        db.tick(10)
    assert figures(db, until=HOUR + timedelta(hours=1)) == {}
    late.commit()
    observe(db)
    assert figures(db, until=HOUR + timedelta(hours=1)) == {"": {"succeeded": 1}}


def test_two_observers_do_not_work_at_once(db: Db) -> None:
    other = db.session()
    other.begin()
    assert other.value("_observe") is not None
    assert db.value("_observe") is None
    other.commit()


def test_a_job_that_runs_again_stays_counted(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "succeeded")
    observe(db)
    db.value("reschedule", id=job)
    db.now = HOUR + timedelta(hours=1, seconds=1)
    observe(db)
    assert figures(db, until=HOUR + timedelta(hours=1)) == {"": {"succeeded": 1}}


def test_after_a_purge_the_larger_figure_stays_and_is_not_called_counted(db: Db) -> None:
    epoch = db.node()
    report(db, epoch, 1, succeeded=2)
    for _ in range(2):
        db.enqueue()
        db.run(epoch, "succeeded")
    db.enqueue(type="other", max_attempts=1)
    db.run(epoch, "failed")
    observe(db)
    db.value("purge", states=["succeeded"])
    db.now = HOUR + timedelta(hours=1, seconds=1)
    observe(db)
    (row,) = db.call("figure_list", until=HOUR + timedelta(hours=1))
    assert (row.succeeded, row.failed, row.is_counted) == (2, 1, False)


def test_hours_are_counted_again_on_request(db: Db) -> None:
    epoch = db.node()
    observe(db)
    for _ in range(3):
        db.enqueue()
        db.run(epoch, "succeeded")
        db.tick(3600)
    observe(db)
    db.change("DELETE FROM {schema}.rollups")
    with refused("WB003", "since is invalid"):
        db.value("rebuild_figures", since=db.after(-100 * 86400))
    assert db.value("rebuild_figures", since=HOUR + timedelta(minutes=5)) == HOUR
    observe(db)
    rows = db.call("figure_list", since=HOUR)
    assert [(row.at, row.succeeded, row.is_counted) for row in rows] == [
        (HOUR + timedelta(hours=n), 1, True) for n in range(3)
    ]


def test_rare_names_are_joined(db: Db) -> None:
    db.node()
    observe(db)
    db.change(
        """INSERT INTO {schema}.finished_jobs (id, seq, run_at, created_at, finished_at, lane, run, policy, version,
             priority, attempt, max_attempts, lost, state, queue, type, tenant, payload)
           SELECT gen_random_uuid(), n, %s, %s, %s, 0, 1, 1, 1, 0, 1, 1, 0, 'succeeded', 'q', 't' || least(n, 1500),
             'x', '{{}}' FROM generate_series(1, 1600) n""",
        db.now, db.now, db.now,
    )  # fmt: skip
    db.now = HOUR + timedelta(hours=1, seconds=1)
    observe(db)
    found = figures(db, "type", until=HOUR + timedelta(hours=1))
    assert (len(found), found["t1500"], found["(other)"]) == (1001, {"succeeded": 101}, {"succeeded": 500})


def test_samples_count_by_what_jobs_wait_for(db: Db) -> None:
    epoch = db.node()
    first = db.now
    for _ in range(2):
        db.enqueue(queue="a", tenant="x")
    db.tick(5)
    db.enqueue(queue="a", run_at=db.after(60))
    db.enqueue(queue="b", priority=5)
    db.claim_one(epoch, queues=["b"])
    db.set_wait(db.enqueue(queue="b"), "parked")
    db.set_wait(db.enqueue(queue="b"), "paused")
    parent = db.enqueue(queue="b")
    db.enqueue(queue="b", depends_on=[parent])
    observe(db)
    everything, *_ = db.call("sample_list")
    assert everything._asdict() | {"at": None} == {
        "at": None, "name": "", "running": 1, "ready": 3, "scheduled": 1, "retrying": 0, "limited": 1, "paused": 1,
        "unsupported": 0, "unmatched": 0, "blocked": 1, "oldest": first, "is_estimate": False,
    }  # fmt: skip
    assert [(row.name, row.ready) for row in db.call("sample_list", dimension="queue")] == [("a", 2), ("b", 1)]
    assert [(row.name, row.ready) for row in db.call("sample_list", dimension="tenant")] == [("default", 1), ("x", 2)]


def test_a_paused_type_counts_as_paused_and_jobs_that_are_alike_are_described_once(db: Db) -> None:
    for number in range(60):
        db.enqueue(type=f"t{number}")
    db.call("pause", type="t7")
    db.execute("SET track_functions = 'all'")
    db.begin()
    observe(db)
    (described,) = db.execute(
        "SELECT calls FROM pg_stat_xact_user_functions WHERE funcid = 'watchbill._describe_job_wait'::regproc"
    )
    db.commit()
    db.execute("RESET track_functions")
    everything, *_ = db.call("sample_list")
    assert (everything.ready, everything.paused) == (59, 1)
    assert described.calls < 10


def test_samples_of_a_large_table_are_estimates_but_small_queues_are_counted(own_db: Db) -> None:
    db = own_db
    db.change(
        """INSERT INTO {schema}.jobs (run_at, created_at, id, queue, type, payload, meta)
           SELECT %s, %s, gen_random_uuid(), CASE WHEN n <= 7 THEN 'small' ELSE 'large' END, 't', '{{}}',
             jsonb_build_object('x', repeat('x', 1500))
           FROM generate_series(1, 9000) n""",
        db.now, db.now,
    )  # fmt: skip
    observe(db)
    found = {row.name: row for row in db.call("sample_list", dimension="queue")}
    assert found["small"].ready == 7
    assert found["large"].is_estimate
    assert found["large"].ready == pytest.approx(8993, rel=0.2)


def test_failures_are_recorded_in_their_groups(db: Db) -> None:
    epoch = db.node()
    observe(db)
    for number in range(3):
        db.enqueue(max_attempts=1 + number % 2)
        db.run(epoch, "failed", error={"type": "Timeout", "message": f"order {number}"})
        db.tick(1)
    db.enqueue()
    db.run(epoch, "succeeded")
    db.tick(30)
    observe(db)
    db.tick(30)
    observe(db)
    (group,) = db.call("failure_list")
    assert (group.attempts, group.dead, group.message, group.exception) == (3, 2, "order 2", "Timeout")
    assert group.last - group.first == timedelta(seconds=2)
    (dead,) = db.call("dead_groups")
    assert group.failure == dead.failure


def test_old_figures_are_deleted_and_hours_become_days(db: Db) -> None:
    epoch = db.node()
    db.change("UPDATE {schema}.chore_marks SET due_at = '2100-01-01Z' WHERE chore = 'history'")
    report(db, epoch, 1, succeeded=3)
    observe(db)
    db.tick(3600)
    db.value("heartbeat", epoch=epoch)
    report(db, epoch, 2, succeeded=4, failed=1)
    db.tick(30)
    observe(db)
    before = db.call("figure_list", grain="day", since=HOUR)
    assert [(row.at, row.succeeded, row.failed) for row in before] == [(HOUR.replace(hour=0), 7, 1)]
    db.tick(91 * 86400)
    observe(db)
    assert {row.grain for row in db.rows("rollups")} == {"day"}
    assert {row.at for row in db.rows("samples")} == {max(row.at for row in db.rows("samples"))}
    assert db.call("figure_list", grain="day", since=HOUR) == before


def test_unknown_words_are_refused(db: Db) -> None:
    with refused("WB003", "dimension 'node' is invalid"):
        db.call("figure_list", dimension="node")
    with refused("WB003", "grain 'week' is invalid"):
        db.call("figure_list", grain="week")


def test_a_part_that_fails_does_not_stop_the_others(db: Db) -> None:
    db.execute("ALTER TABLE watchbill.samples RENAME TO gone")
    try:
        while db.value("_observe") == 0:  # a call ends after 30 ms, perhaps before the last part
            pass
    finally:
        db.execute("ALTER TABLE watchbill.gone RENAME TO samples")
    errors = {row.chore: row.error for row in db.rows("chore_marks") if row.error}
    assert errors == dict.fromkeys(("samples", "retention", "alerts"), 'relation "samples" does not exist')
    db.tick(600)  # more than 61 s if a part took long
    observe(db)
    assert db.count("samples") == 1


def test_full_page_ranges_of_the_history_are_summarized(db: Db) -> None:
    db.change(
        """INSERT INTO {schema}.attempts (job_id, run, attempt, outcome, ended_at, queue, type, tenant, error)
           SELECT gen_random_uuid(), 1, 1, 'failed', %s, 'q', 't', 'x', %s
           FROM generate_series(1, 4000) n""",
        db.now, Jsonb({"message": "x" * 1500}),
    )  # fmt: skip
    observe(db)
    (mark,) = db.execute("SELECT summarized FROM watchbill.chore_marks WHERE chore = 'summaries'")
    (index,) = [name for name in mark.summarized if name.startswith("attempts_default") and mark.summarized[name]]
    (row,) = db.execute("SELECT brin_summarize_new_values(('watchbill.' || %s)::regclass) AS number", (index,))
    assert row.number == 1, "all but the last range, which is not full, was summarized"
