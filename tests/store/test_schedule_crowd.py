"""Schedulers, editors, workers, operators and nodes that come and go, all at once: nothing deadlocks, no slot twice."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from tests.store.crowd import Actions, Member, let_loose
from tests.store.harness import T0, Db, End

EXPECTED = {"WB001", "WB003", "WB007", "WB008", "WB009"}
"""Lost, refused, stale, running, taken: what somebody hears who comes too late."""
NAMES = [f"s{n}" for n in range(12)]


class Actor(Member):
    expected = EXPECTED

    def __init__(self, db: Db, minutes: itertools.count[int], seed: int) -> None:
        super().__init__(db, seed)
        self.minutes = minutes

    def register(self) -> int:
        return self.session.node(app="crowd")

    def actions(self) -> Actions:
        return [
            (8, self.tick), (6, self.work), (4, self.edit), (2, self.run_by_hand), (2, self.cancel),
            (1, self.reschedule), (2, self.declare), (1, self.remove), (3, self.unblock), (1, self.chores),
        ]  # fmt: skip

    @property
    def now(self) -> Any:
        """Time goes on with every look at it."""
        return T0 + timedelta(minutes=next(self.minutes))

    def tick(self) -> None:
        self.session.begin()
        self.session.call("tick", max=self.random.choice([1, 5, 100]), now=self.now)
        if self.random.random() < 0.2:
            self.session.rollback()
        else:
            self.session.commit()

    def work(self) -> None:
        rows = self.session.claim(self.epoch, 5)
        outcomes = ["succeeded", "succeeded", "failed", "skipped", "released"]
        ends = [End(row, self.random.choice(outcomes)) for row in rows]
        self.session.settle(self.epoch, *ends, closed=[row.fence for row in rows])

    def edit(self) -> None:
        change: dict[str, Any] = self.random.choice([
            {"pattern": f"*/{self.random.randint(1, 9)} * * * *", "every": None},
            {"every": self.random.randint(60, 600), "pattern": None},
            {"enabled": self.random.random() < 0.7},
            {"overlap": self.random.choice(["skip", "queue", "cancel_previous", "allow"])},
            {"missed": self.random.choice(["skip", "once", "catch_up"]), "catch_up": 3},
            {"max_runs": self.random.choice([None, 1000]), "deadline": 60},
        ])  # fmt: skip
        name = self.random.choice(NAMES)
        if not self.session.value("update_schedule", name=name, changes=change, now=self.now):
            self.session.value(
                "add_schedule", name=name, pattern="*/5 * * * *", type="task", max_attempts=2, now=self.now
            )

    def remove(self) -> None:
        self.session.value("remove_schedule", name=self.random.choice(NAMES), now=self.now)

    def run_by_hand(self) -> None:
        self.session.value("run_schedule", name=self.random.choice(NAMES), now=self.now)

    def declare(self) -> None:
        if self.random.random() < 0.3:
            self.session.value("leave", epoch=self.epoch, now=self.now)
            self.epoch = self.session.node(app="crowd", now=self.now)
        rule = {"pattern": "*/5 * * * *", "type": "task", "run_on_start": True}
        rules = [rule | {"name": f"d{n}", "hash": self.random.choice("ab")} for n in self.random.sample(range(4), 3)]
        self.session.call("declare_schedules", epoch=self.epoch, schedules=rules, now=self.now)

    def unblock(self) -> None:
        self.session.call("unblock", now=self.now)

    def cancel(self) -> None:
        for job in self.some_job("jobs"):
            self.session.value("cancel", id=job.id, now=self.now)

    def reschedule(self) -> None:
        for job in self.some_job("finished_jobs"):
            self.session.value("reschedule", id=job.id, now=self.now)

    def chores(self) -> None:
        self.session.call("_release_orphans")
        self.session.call("_recompute_timers", now=self.now)
        self.session.call("promote", now=self.now)

    def some_job(self, table: str) -> list[Any]:
        found = self.session.execute(f"SELECT id FROM watchbill.{table} LIMIT 50".encode())
        return [self.random.choice(found)] if found else []


def storm(db: Db, members: int, actions: int) -> None:
    minutes = itertools.count()
    let_loose(members, lambda seed: Actor(db, minutes, seed), actions)
    db.now = T0 + timedelta(minutes=next(minutes))
    db.assert_sound()
    twice = db.execute(
        "SELECT slot FROM watchbill.job WHERE slot IS NOT NULL GROUP BY schedule_id, slot HAVING count(*) > 1"
    )
    assert twice == []
    wrong = db.execute("SELECT name FROM watchbill.schedule WHERE successes < 0 OR runs < failures + running")
    assert wrong == []


def test_concurrent_schedule_verbs_never_deadlock_or_repeat_a_slot(db: Db) -> None:
    storm(db, members=6, actions=50)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repetition", range(5))
def test_many_concurrent_schedule_verbs_never_deadlock(db: Db, repetition: int) -> None:
    storm(db, members=12, actions=1000)
