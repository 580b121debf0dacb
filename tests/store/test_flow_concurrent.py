"""Many sessions at once with limits, order, discarded and replaced jobs: nothing deadlocks, and every limit holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.crowd import Actions, Member, let_loose
from tests.store.flow import assert_within_limits, declare_limit, declare_queue
from tests.store.harness import Db, End

QUEUES = ["default", "sync"]
LATER = timedelta(hours=1)
EXPECTED = {"WB001", "WB007", "WB008"}  # lost, stale, running


class Actor(Member):
    """A node, a producer, an operator and a chore in one, on one connection."""

    expected = EXPECTED

    def actions(self) -> Actions:
        return [
            (5, self.produce), (8, self.work), (2, self.complete), (1, self.cancel), (1, self.release),
            (1, self.reclaim), (1, self.abandon), (1, self.sweep), (1, self.change), (2, self.promote),
            (1, self.unpark), (1, self.operate),
        ]  # fmt: skip

    def produce(self) -> None:
        jobs = [self.job() for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.3:
            jobs[-1]["depends_on"] = [0]
            jobs.insert(0, {"type": "parent"})
        self.session.call("enqueue_many", jobs=jobs)

    def job(self) -> dict[str, Any]:
        number = self.random.randrange(4)
        choices: list[dict[str, Any]] = [
            {"limit_keys": ["api", f"account:{number}"]},
            {"limit_keys": [f"account:{number}", f"latest:{number}"]},
            {"limit_keys": [f"once:{number}", "api"]},
            {"ordered_by": f"{number}", "limit_keys": [f"account:{number}"]},
            {"unique_by": f"u{number}", "idempotency_key": f"{self.random.randrange(10**6)}", "limit_keys": ["api"]},
            {"unique_by": f"r{number}", "on_duplicate": "replace", "ordered_by": f"{number}"},
            {"queue": "sync"},
            {"queue": "sync", "limit_keys": [f"account:{number}"]},
            {"expires_in": "30 minutes", "limit_keys": [f"account:{number}"]},
        ]
        return {"type": "task", "max_attempts": 9} | self.random.choice(choices)

    def work(self) -> None:
        rows = self.session.claim(self.epoch, self.random.randint(1, 6), queues=QUEUES)
        outcomes = ["succeeded", "succeeded", "failed", "snoozed", "released", "canceled"]
        ends = [End(row, self.random.choice(outcomes), delay=timedelta(0)) for row in rows]
        self.random.shuffle(ends)
        self.session.settle(self.epoch, *ends, closed=[row.fence for row in rows])

    def complete(self) -> None:
        for row in self.session.claim(self.epoch, 2, queues=QUEUES):
            self.session.begin()
            self.session.value("complete", id=row.id, fence=row.fence)
            self.session.commit()
            self.session.call("settle", epoch=self.epoch, ids=[row.id], fences=[row.fence])

    def any_job(self) -> Any:
        found = self.session.execute("SELECT id FROM watchbill.jobs ORDER BY random() LIMIT 1")
        return found[0].id if found else None

    def cancel(self) -> None:
        self.session.value("cancel", id=self.any_job(), force=self.random.random() < 0.5)

    def release(self) -> None:
        self.session.value("release", id=self.any_job())

    def reclaim(self) -> None:
        beats = self.session.execute("SELECT epoch, n FROM watchbill.beats")
        victims = self.random.sample(beats, k=min(2, len(beats)))
        epochs, seen = [row.epoch for row in victims], [row.n for row in victims]
        self.session.call("reclaim", epochs=epochs, beats_seen=seen, now=self.db.now + LATER)

    def abandon(self) -> None:
        self.session.value("release_unknown", epoch=self.epoch, known=[])

    def sweep(self) -> None:
        self.session.value("sweep_limits")

    def change(self) -> None:
        self.session.call("set_limit", name="api", max=self.random.randint(1, 4))

    def unpark(self) -> None:
        keys = ["key:api", "queue:sync", *(f"key:account:{number}" for number in range(4))]
        self.session.value("unpark", keys=self.random.sample(keys, k=3))

    def operate(self) -> None:
        kind, state = self.random.choice([("retry", "dead"), ("cancel", "failed"), ("release", "running")])
        condition = {"field": "state", "operator": "=", "values": [state]}
        self.session.call("start_operation", kind=kind, conditions=[condition], max_jobs=3)
        self.session.value("run_operations")

    def promote(self) -> None:
        self.session.value("promote", now=self.db.now + LATER)


def storm(db: Db, actors: int, actions: int) -> None:
    declare_limit(db, "api", 4)
    declare_limit(db, "account", 1)
    declare_limit(db, "once", 1, when_full="discard")
    declare_limit(db, "latest", 1, when_full="replace")
    declare_queue(db, "sync", max=2)
    let_loose(actors, lambda seed: Actor(db, seed), actions)
    db.value("set_limit", name="api", max=4)
    assert_within_limits(db)
    db.assert_sound()
    drain(db)


def drain(db: Db) -> None:
    """What the crowd left behind runs to its end."""
    db.lose(*[row.epoch for row in db.rows("beats")])
    epoch = db.node()
    for _ in range(1000):
        if not db.count("jobs"):
            break
        db.make_ready()
        db.call("unblock")
        db.value("sweep_limits")
        rows = db.claim(epoch, 100, queues=QUEUES) or db.claim(epoch, 1, alone=True, queues=QUEUES)
        db.settle(epoch, *(End(row) for row in rows))
        assert_within_limits(db)
    assert db.rows("jobs") == []
    assert db.rows("holds") == []


def test_concurrent_verbs_keep_limits_and_never_deadlock(db: Db) -> None:
    storm(db, actors=5, actions=40)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repetition", range(5))
def test_many_concurrent_verbs_keep_limits_and_never_deadlock(db: Db, repetition: int) -> None:
    storm(db, actors=10, actions=500)
