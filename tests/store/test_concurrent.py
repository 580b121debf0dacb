"""Many sessions at once, each doing what it likes: nothing deadlocks, nothing is lost, and the books balance."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.crowd import Actions, Member, let_loose
from tests.store.harness import Db, End

EXPECTED = {"WB001", "WB007", "WB008"}
"""Lost, stale, running: what somebody hears who comes too late."""
LATER = timedelta(hours=1)


class Actor(Member):
    """A node, a handler with its own transaction, an operator and a chore in one, on one connection."""

    expected = EXPECTED

    def __init__(self, db: Db, jobs: list[UUID], seed: int) -> None:
        super().__init__(db, seed)
        self.jobs = jobs

    def actions(self) -> Actions:
        return [
            (8, self.work), (2, self.complete), (1, self.cancel), (1, self.release), (1, self.reschedule),
            (1, self.reclaim), (1, self.abandon), (1, self.resend), (2, self.promote),
        ]  # fmt: skip

    def work(self) -> None:
        outcomes = ["succeeded", "succeeded", "failed", "timed_out", "snoozed", "released", "skipped"]
        ways: list[dict[str, Any]] = [{}, {}, {}, {"alone": True}, {"without": ["none of these"]}]
        rows = self.session.claim(self.epoch, self.random.randint(1, 5), **self.random.choice(ways))
        ends = [End(row, self.random.choice(outcomes)) for row in rows]
        self.random.shuffle(ends)
        self.session.settle(self.epoch, *ends, closed=[row.fence for row in rows])

    def complete(self) -> None:
        for row in self.session.claim(self.epoch, 1):
            self.session.begin()
            self.session.value("guard", id=row.id, fence=row.fence)
            if self.random.random() < 0.5:
                self.session.value("complete", id=row.id, fence=row.fence, age=1.0)
            else:
                self.session.value("fail", id=row.id, fence=row.fence, age=1.0)
            self.session.commit()

    def cancel(self) -> None:
        self.session.value("cancel", id=self.random.choice(self.jobs))

    def release(self) -> None:
        self.session.value("release", id=self.random.choice(self.jobs))

    def reschedule(self) -> None:
        self.session.value("reschedule", id=self.random.choice(self.jobs))

    def resend(self) -> None:
        self.session.send(id=self.random.choice(self.jobs), resend=True)

    def reclaim(self) -> None:
        """Whoever is named here is lost: its lease ran out long ago."""
        beats = self.session.execute("SELECT epoch, n FROM watchbill.beats")
        victims = self.random.sample(beats, k=min(2, len(beats)))
        self.session.call(
            "reclaim",
            epochs=[row.epoch for row in victims],
            beats_seen=[row.n for row in victims],
            now=self.db.now + LATER,
        )

    def abandon(self) -> None:
        self.session.value("release_unknown", epoch=self.epoch, known=[])

    def promote(self) -> None:
        self.session.value("promote", now=self.db.now + LATER)


def storm(db: Db, actors: int, actions: int, jobs: int) -> None:
    ids = [db.enqueue(max_attempts=9) for _ in range(jobs)]
    let_loose(actors, lambda seed: Actor(db, ids, seed), actions)
    db.assert_sound()
    settle_everything(db)
    finished = {row.id: row for row in db.rows("finished_jobs")}
    assert set(finished) == set(ids)
    assert len(db.rows("finished_jobs")) == jobs
    assert db.count("cancels") == 0
    for row in finished.values():
        assert {"succeeded", "dead", "canceled"} >= {row.state}
        runs = [attempt.run for attempt in db.attempts(row.id)]
        assert len(runs) == len(set(runs))
        assert row.run >= len(runs)


def settle_everything(db: Db) -> None:
    """Nothing is stranded: what the crowd left behind can be lost, claimed and settled to its end."""
    db.lose(*[row.epoch for row in db.rows("beats")])
    epoch = db.node()
    while db.count("jobs"):
        db.make_ready()
        rows = db.claim(epoch, 100) or db.claim(epoch, 1, alone=True)
        assert rows, db.rows("jobs")
        db.settle(epoch, *(End(row) for row in rows), closed=[rows[0].fence])
    assert db.count("claims") == 0


def test_concurrent_verbs_strand_no_job_and_never_deadlock(db: Db) -> None:
    storm(db, actors=6, actions=60, jobs=60)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repetition", range(10))
def test_many_concurrent_verbs_strand_no_job_and_never_deadlock(db: Db, repetition: int) -> None:
    storm(db, actors=12, actions=1000, jobs=300)
