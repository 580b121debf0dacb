"""schedule_metrics: how the runs of a schedule went."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.harness import Db
from tests.store.test_tick import add, at, tick_at

FAILED = {"kind": "permanent"}


def run(db: Db, hour: int, outcome: str, seconds: float) -> None:
    tick_at(db, at(hour))
    db.run(db.node(), outcome, age=seconds, error=FAILED if outcome == "failed" else None)


def test_metrics_are_of_the_runs_that_have_ended(db: Db) -> None:
    add(db)
    for hour, outcome, seconds in ((10, "succeeded", 1), (11, "failed", 2), (12, "skipped", 3), (13, "succeeded", 4)):
        run(db, hour, outcome, seconds)
    tick_at(db, at(14))  # it has not ended
    tick_at(db, at(15))  # skipped, because that one overlaps
    found = db.row("schedule_metrics", name="s")
    assert (found.runs, found.success_rate, found.health) == (4, 75.0, "unhealthy")
    assert (found.shortest, found.longest) == (timedelta(seconds=1), timedelta(seconds=4))
    assert (found.average, found.p95) == (timedelta(seconds=2.5), timedelta(seconds=3.85))


def test_metrics_start_at_an_instant_or_with_the_latest_slots(db: Db) -> None:
    add(db)
    for hour, outcome in ((10, "failed"), (11, "succeeded"), (12, "succeeded")):
        run(db, hour, outcome, 1)
    assert db.row("schedule_metrics", name="s").success_rate == 66.67
    assert db.row("schedule_metrics", name="s", since=at(11)).success_rate == 100
    assert db.row("schedule_metrics", name="s", max=1).runs == 1


def test_metrics_without_runs_are_unknown(db: Db) -> None:
    add(db)
    assert db.row("schedule_metrics", name="s") == (0, None, None, None, None, None, "unknown")
    tick_at(db, at(10))
    (job,) = db.rows("jobs")
    db.call("cancel", id=job.id)
    assert db.row("schedule_metrics", name="s").runs == 0
    assert db.call("schedule_metrics", name="none") == []


@pytest.mark.parametrize(
    ("rate", "health"),
    [(None, "unknown"), (100, "healthy"), (95, "healthy"), (94.99, "warning"), (80, "warning"), (79.9, "unhealthy")],
)
def test_health_class_depends_on_the_success_rate(db: Db, rate: float | None, health: str) -> None:
    (row,) = db.execute("SELECT watchbill._describe_success_rate(%s::numeric) AS health", (rate,))
    assert row.health == health
