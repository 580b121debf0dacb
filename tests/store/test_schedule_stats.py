"""All schedules in a few numbers, for the doctor and for whoever watches."""

from __future__ import annotations

from datetime import timedelta

from tests.store.harness import Db
from tests.store.test_tick import add, at, tick_at


def numbers(db: Db, **more: int) -> tuple[int, int, int, int, int]:
    row = db.row("schedule_stats", **more)
    return row.schedules, row.due, row.late, row.orphaned, row.overdue


def test_stats_without_schedules_are_zero(db: Db) -> None:
    row = db.row("schedule_stats")
    assert tuple(row) == (0, 0, 0, 0, 0, None, False)


def test_stats_count_a_schedule_as_late_after_a_minute(db: Db) -> None:
    add(db, "ten")
    add(db, "eleven", pattern="0 11 * * *")
    add(db, "off", enabled=False)
    assert db.row("schedule_stats").next_run == at(10)
    db.now = at(10, 1)
    assert numbers(db) == (3, 1, 0, 0, 0)
    db.now += timedelta(milliseconds=1)
    assert numbers(db) == (3, 1, 1, 0, 0)
    assert db.row("schedule_stats").next_run == at(11), "the next after those that are due"
    tick_at(db, db.now)
    assert numbers(db) == (3, 0, 0, 0, 0)


def test_stats_count_orphans_and_overdue_runs(db: Db) -> None:
    add(db, deadline="10 minutes")
    tick_at(db, at(10))
    tick_at(db, at(10, 10))
    assert numbers(db) == (1, 0, 0, 0, 1)
    db.change("UPDATE {schema}.schedules SET owner = 'shop'")
    db.call("declare_schedules", epoch=db.node(app="shop"), schedules=[])
    assert numbers(db) == (1, 0, 0, 1, 1)
    db.call("disable_schedule", name="s")
    assert numbers(db)[3] == 0, "nobody expects it to fire"


def test_stats_stop_counting_at_the_cap(db: Db) -> None:
    for n in range(3):
        add(db, f"s{n}")
    assert db.row("schedule_stats", cap=3).capped is False
    row = db.row("schedule_stats", cap=2)
    assert (row.schedules, row.capped) == (3, True)
