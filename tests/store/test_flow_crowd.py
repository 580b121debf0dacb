"""Many sessions at once on jobs with limits, rates, order and unique keys, some of them killed amid a statement: no
claim exceeds a limit, every hold belongs to its job, and no job waits for a key that is free."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.flow_invariants import STRANDED, find_excess
from tests.store.crowd import Actions, Member, let_loose
from tests.store.flow import declare_limit, declare_queue
from tests.store.harness import T0, Db, End

LATER = timedelta(hours=1)
CHANGED_LIMITS = (1, 2, 4)  # between which operators change `api`
PER, COUNT = 1_000_000, 12  # a rate, in microseconds

# At the commit of each claim, when it still has the lock of the key. `api` may have been lowered meanwhile.
OBSERVER = """
CREATE FUNCTION check_hold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  holders int := (SELECT count(*) FROM watchbill.holds h WHERE h.key = NEW.key);
  most int := CASE
      WHEN NEW.key = 'key:api' THEN 4
      WHEN starts_with(NEW.key, 'order:') THEN 1
      WHEN starts_with(NEW.key, 'queue:') THEN (
        SELECT q.max FROM watchbill.queues q WHERE 'queue:' || q.name = NEW.key)
      ELSE (SELECT l.max FROM watchbill.limits l WHERE l.name = watchbill._limit_name(NEW.key))
    END;
BEGIN
  IF holders > most THEN RAISE EXCEPTION 'key % has % holds of %', NEW.key, holders, most; END IF;
  IF starts_with(NEW.key, 'order:') AND EXISTS (
    SELECT
    FROM watchbill.jobs j
    JOIN watchbill.jobs x ON x.order_key = j.order_key AND x.seq < j.seq
    WHERE j.id = NEW.job_id) THEN
    RAISE EXCEPTION 'job % of key % was claimed before an earlier one', NEW.job_id, NEW.key;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER check_hold AFTER INSERT ON watchbill.holds
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_hold();
CREATE TABLE rated_claims (at timestamptz);
CREATE FUNCTION log_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.rated_claims
  SELECT NEW.at
  FROM unnest(NEW.job_ids) x(id)
  JOIN watchbill.jobs j USING (id)
  WHERE 'key:calls' = ANY (j.limit_keys);
  RETURN NULL;
END $$;
CREATE TRIGGER log_claim AFTER INSERT ON watchbill.claims
FOR EACH ROW EXECUTE FUNCTION log_claim();
"""


class Actor(Member):
    """A node, its handlers, an operator and the chores of a node, on one connection that others may kill."""

    expected = ("WB001", "WB007", "WB008")  # lost, stale, running: what somebody hears who comes too late
    may_be_killed = True
    began = 0.0

    def __init__(self, db: Db, jobs: list[UUID], free: list[UUID], seed: int, pids: dict[int, int]) -> None:
        self.jobs, self.free, self.seed, self.pids = jobs, free, seed, pids
        super().__init__(db, seed)

    def register(self) -> int:
        self.pids[self.seed] = self.session.connection.info.backend_pid
        return super().register()

    def actions(self) -> Actions:
        chosen = [
            (10, self.work), (4, self.complete), (1, self.cancel), (2, self.release), (1, self.reschedule),
            (1, self.reclaim), (1, self.abandon), (3, self.promote), (1, self.sweep), (1, self.unpark),
            (1, self.set_limit), (2, self.repeat), (1, self.kill),
        ]  # fmt: skip
        return [(weight, self._on_time(action)) for weight, action in chosen]

    def _on_time(self, action: Any) -> Any:
        """The database's clock goes on while the crowd works."""

        def act() -> None:
            self.db.now = T0 + timedelta(seconds=time.monotonic() - self.began)
            action()

        return act

    def claim(self, most: int, **ways: Any) -> list[Any]:
        return self.session.claim(self.epoch, most, queues=["default", "narrow", "fair"], **ways)

    def work(self) -> None:
        outcomes = ["succeeded", "succeeded", "succeeded", "failed", "timed_out", "snoozed", "released", "skipped"]
        ways: list[dict[str, Any]] = [{}, {}, {}, {"alone": True}, {"without": ["none of these"]}]
        rows = self.claim(self.random.randint(1, 8), **self.random.choice(ways))
        ends = [End(row, self.random.choice(outcomes)) for row in rows]
        self.random.shuffle(ends)
        self.session.settle(self.epoch, *ends, closed=[row.fence for row in rows])

    def complete(self) -> None:
        """In a transaction of its own, which locks no key; then settle is told, as by a worker."""
        for row in self.claim(1):
            self.session.begin()
            self.session.value("guard", id=row.id, fence=row.fence)
            self.session.value(self.random.choice(["complete", "fail"]), id=row.id, fence=row.fence, age=1.0)
            self.session.commit()
            self.session.call("settle", epoch=self.epoch, ids=[row.id], fences=[row.fence], closed=[row.fence])

    def cancel(self) -> None:
        self.session.value("cancel", id=self.random.choice(self.jobs), force=self.random.random() < 0.5)

    def release(self) -> None:
        self.session.value("release", id=self.random.choice(self.jobs))

    def reschedule(self) -> None:
        """Not an ordered job: one that runs again comes late, and may follow another."""
        self.session.value("reschedule", id=self.random.choice(self.free))

    def reclaim(self) -> None:
        beats = self.session.execute("SELECT epoch, n FROM watchbill.beats")
        for row in self.random.sample(beats, k=min(1, len(beats))):
            self.session.call("reclaim", epochs=[row.epoch], beats_seen=[row.n], now=self.db.now + LATER)

    def abandon(self) -> None:
        self.session.value("release_unknown", epoch=self.epoch, known=[])

    def promote(self) -> None:
        self.session.value("promote")

    def sweep(self) -> None:
        self.session.value("sweep_limits")

    def unpark(self) -> None:
        self.session.value("unpark", keys=["key:api", "key:account:1", "order:task:1"])

    def set_limit(self) -> None:
        self.session.value("set_limit", name="api", max=self.random.choice(CHANGED_LIMITS))

    def repeat(self) -> None:
        """A duplicate of a unique job, which may be waiting, running or gone."""
        account = self.random.randint(0, 2)
        job = self.session.send(
            "unique", payload={"account": account}, unique_by="{account}", limit_keys=["account:{account}"]
        )
        self.jobs.append(job.id)

    def kill(self) -> None:
        """Ends the session of another one, whatever it is at."""
        victim = self.random.choice([pid for seed, pid in self.pids.items() if seed != self.seed])
        self.session.execute("SELECT pg_terminate_backend(%s)", (victim,))


def prepare(db: Db, number: int) -> tuple[list[UUID], list[UUID]]:
    """Limits of several kinds and jobs that mix them; all jobs, and those that are not ordered."""
    db.connection.execute(OBSERVER)
    declare_limit(db, "api", 2)
    declare_limit(db, "account", 1)
    declare_limit(db, "task:task", 5)
    declare_limit(db, "calls", rates=[(COUNT, PER / 1_000_000)])
    declare_queue(db, "narrow", max=2)
    declare_queue(db, "fair", lanes="share")
    kinds: list[dict[str, Any]] = [
        {"limit_keys": ["api"]},
        {"limit_keys": ["api", "account:{n}"]},
        {"limit_keys": ["account:{n}", "task:task"]},
        {"limit_keys": ["calls"]},
        {"limit_keys": ["calls", "account:{n}"], "queue": "fair"},
        {"limit_keys": ["account:{n}"], "queue": "fair", "tenant": "other"},
        {"queue": "narrow"},
        {"queue": "narrow"},
        {"limit_keys": ["api"], "queue": "narrow"},
        {"ordered_by": "{n}"},
        {"ordered_by": "{n}", "limit_keys": ["api"]},
        {},
    ]
    jobs, free = [], []
    for n in range(number):
        kind = kinds[n % len(kinds)]
        job = db.enqueue(payload={"n": n % 3}, max_attempts=9, **kind)
        jobs.append(job)
        if "ordered_by" not in kind:
            free.append(job)
    return jobs, free


def storm(db: Db, actors: int, actions: int, number: int) -> None:
    jobs, free = prepare(db, number)
    Actor.began = time.monotonic()
    pids: dict[int, int] = {}
    let_loose(actors, lambda seed: Actor(db, jobs, free, seed, pids), actions)
    db.assert_sound()
    settle_everything(db)
    assert {row.id for row in db.rows("finished_jobs")} >= set(jobs[:number])
    assert db.count("holds") == 0
    assert db.count("jobs") == 0
    times = [round((row.at - T0) / timedelta(microseconds=1)) for row in db.execute("SELECT at FROM rated_claims")]
    assert find_excess(times, count=COUNT, per=PER) is None


def settle_everything(db: Db) -> None:
    """Nothing is stranded: one sweep, as every node does, and then each end of a run makes the next job ready."""
    db.lose(*[row.epoch for row in db.rows("beats")])
    db.value("sweep_limits")
    assert db.execute(STRANDED, (db.now,)) == []
    epoch, queues = db.node(), ["default", "narrow", "fair"]
    while db.count("jobs"):
        db.tick(10)
        db.make_ready()
        rows = db.claim(epoch, 100, queues=queues) or db.claim(epoch, 1, alone=True, queues=queues)
        assert rows, db.rows("jobs")
        db.assert_sound()
        if len(rows) % 2:
            db.settle(epoch, *(End(row) for row in rows), closed=[rows[0].fence])
        else:
            ids, fences = [row.id for row in rows], [row.fence for row in rows]
            db.call("settle", epoch=epoch, ids=ids, fences=fences, closed=fences[:1])


def test_concurrent_verbs_keep_every_limit(own_db: Db) -> None:
    storm(own_db, actors=6, actions=60, number=96)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repetition", range(10))
def test_many_concurrent_verbs_keep_every_limit(own_db: Db, repetition: int) -> None:
    storm(own_db, actors=12, actions=1000, number=360)
