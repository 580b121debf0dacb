"""metric_list: what Prometheus gets of the installation, with a bounded number of series."""

from __future__ import annotations

from tests.store.flow import declare_limit
from tests.store.harness import Db
from tests.store.test_alert_rules import add_rollup, observe
from tests.store.test_alerts import wait_in_queue
from watchbill.client.metrics import METRICS


def measure(db: Db) -> dict[tuple[str, ...], float]:
    """The series, by name and the values of their labels in the order of the reference."""
    found: dict[tuple[str, ...], float] = {}
    for row in db.call("metric_list"):
        labels = METRICS[f"watchbill_{row.metric}"].labels
        key = (row.metric, *(str(row.labels[label]) for label in labels))
        assert set(row.labels) == set(labels), row
        assert key not in found, "no series comes twice"
        found[key] = row.value
    return found


def test_the_backlog_comes_from_the_newest_sample(db: Db) -> None:
    wait_in_queue(db, 3)
    wait_in_queue(db, 1, "reports")
    observe(db, 90)
    found = measure(db)
    assert found["queue_jobs", "mail", "ready"] == 3
    assert found["queue_jobs", "reports", "running"] == 0
    assert ("queue_jobs", "reports", "paused") not in found, "a state without jobs has no series"
    assert found["queue_oldest_seconds", "mail"] == 90
    assert found["tenant_unfinished", "default"] == 4
    assert found["sample_age_seconds",] == 0
    db.tick(45)
    assert measure(db)["sample_age_seconds",] == 45


def test_what_has_ended_in_the_last_hour(db: Db) -> None:
    add_rollup(db, succeeded=30, failed=10, dead=2, wait_seconds=80)
    found = measure(db)
    assert found["queue_ended_last_hour", "mail", "succeeded"] == 30
    assert found["type_ended_last_hour", "send", "failed"] == 10
    assert found["type_ended_last_hour", "send", "dead"] == 2
    assert found["queue_mean_wait_seconds", "mail"] == 2
    db.tick(7200)
    assert ("type_ended_last_hour", "send", "failed") not in measure(db)


def test_nodes_that_are_silent_are_not_active(db: Db) -> None:
    db.node("one", app="shop", capacity=8)
    assert measure(db)["nodes", "shop", "active"] == 1
    assert measure(db)["capacity", "shop"] == 8
    db.tick(31)
    found = measure(db)
    assert (found["nodes", "shop", "silent"], found["oldest_beat_seconds", "shop"]) == (1, 31)
    assert ("nodes", "shop", "active") not in found
    db.lose(db.node("two", app="other"))
    assert measure(db)["nodes", "other", "lost"] == 1


def test_pauses_limits_alerts_and_chores(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "crm", 1)
    for _ in range(3):
        db.enqueue(limit_keys=["crm"])
    db.claim(epoch)
    db.value("pause", queue="mail")
    wait_in_queue(db, 1001, "reports")
    observe(db)
    observe(db, 300)
    found = measure(db)
    assert (found["limit_held", "crm"], found["limit_max", "crm"], found["limit_waiting", "crm"]) == (1, 1, 2)
    assert found["paused_seconds", "mail", ""] == 300
    assert found["alerts", "backlog", "warning"] == 1
    assert found["chore_failing", "samples"] == 0
    assert found["oldest_transaction_seconds",] >= 0
    assert found["table_bytes", "jobs"] >= 0
    assert ("partition_days_ahead", "attempts") in found


def test_token_groups_and_schedules(db: Db) -> None:
    db.value("declare_group", name="g", total=8)
    db.value("add_schedule", name="nightly", pattern="@daily", type="t")
    found = measure(db)
    assert (found["tokens", "g", "owned"], found["tokens", "g", "unowned"]) == (0, 8)
    assert found["rebalances_last_hour", "g"] == 0
    assert found["schedules", "all"] == 1
    assert found["schedule_lag_seconds",] == 0
    db.tick(90_000)
    assert measure(db)["schedules", "late"] == 1
    assert measure(db)["schedule_lag_seconds",] > 0


def test_series_are_bounded_however_many_names_there_are(db: Db) -> None:
    db.change(
        """INSERT INTO {schema}.samples (grain, dimension, at, name, tenant, running, ready, scheduled, retrying,
             limited, paused, unsupported, unmatched, blocked, oldest, is_estimate)
           SELECT 'minute', d, %s, d || n, CASE d WHEN 'tenant' THEN d || n END, n, 1, 1, 1, 1, 1, 1, 1, 1, %s, false
           FROM generate_series(1, 400) n, unnest('{{queue,tenant}}'::text[]) d""",
        db.now, db.now,
    )  # fmt: skip
    db.change(
        """INSERT INTO {schema}.rollups (grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost,
             snoozed, dead, canceled, run_seconds, wait_seconds)
           SELECT g, d, %s, d || n, n, 1, 1, 1, 1, 1, 1, 1, 1, 1
           FROM generate_series(1, 1000) n, (VALUES ('minute', 'queue'), ('ten_minutes', 'type')) x(g, d)""",
        db.now,
    )  # fmt: skip
    db.change("""INSERT INTO {schema}.limits (name, max) SELECT 'limit' || n, 1 FROM generate_series(1, 300) n""")
    for number in range(60):
        db.value("pause", queue=f"queue{number}")
    found = measure(db)
    assert len(found) < 2_000
    assert found["queue_jobs", "(other)", "ready"] == 300
    assert found["queue_jobs", "queue400", "running"] == 400
    assert found["queue_ended_last_hour", "(other)", "failed"] == 970
    assert found["tenant_running", "(other)"] == sum(range(1, 381))
