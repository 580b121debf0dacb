"""A job that is claimed is named by its claim, in every snapshot and whatever happens.

Nodes settle parts of a claim at once, die, leave, or come too late; beside them are operators, locks that nobody gives
up, statements that are canceled, an old snapshot, and a trigger that refuses whatever it likes.
"""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from tests.store.crowd import Actions, let_loose
from tests.store.harness import Db, End, settlement
from tests.store.test_concurrent import EXPECTED, LATER, Actor, settle_everything

LOCKED, REFUSED, CANCELED = "55P03", "P0001", "57014"
OUTCOMES = ["succeeded", "succeeded", "failed", "timed_out", "snoozed", "released", "skipped", "canceled"]
NO_CLAIM: LiteralString = """
    SELECT j.id FROM watchbill.jobs j WHERE j.fence <> 0 AND NOT EXISTS (
      SELECT FROM watchbill.claims c JOIN watchbill.nodes n USING (epoch)
      WHERE c.fence = j.fence AND j.id = ANY (c.job_ids))
"""
NO_JOB: LiteralString = """
    SELECT c.fence FROM watchbill.claims c WHERE NOT EXISTS (
      SELECT FROM unnest(c.job_ids) x(id) JOIN watchbill.jobs j ON j.id = x.id AND j.fence = c.fence)
"""
TRIGGER: LiteralString = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON watchbill.jobs FOR EACH ROW
      WHEN (OLD.payload ? 'poison' AND OLD.fence <> 0 AND random() < 0.5) EXECUTE FUNCTION refuse()
"""


class Holder(Actor):
    """A node that keeps what it claims, ends it bit by bit, and closes a claim when it has told every end of it."""

    expected = EXPECTED | {LOCKED, REFUSED, CANCELED}

    def __init__(self, db: Db, jobs: list[UUID], seed: int) -> None:
        self.held: dict[int, list[Any]] = {}
        self.second = db.session()
        super().__init__(db, jobs, seed)
        for session in (self.session, self.second):
            session.configure(lock_timeout="20ms")

    def register(self) -> int:
        self.held.clear()
        return super().register()

    def actions(self) -> Actions:
        few = [self.force_cancel, self.leave, self.die, self.sweep, self.give_up_unknown, self.complete_or_not]
        return [
            *super().actions(), (6, self.take), (8, self.settle_part), (4, self.settle_two_parts),
            (3, self.settle_and_cancel), (3, self.beside_locks), (4, self.look), *((1, action) for action in few),
        ]  # fmt: skip

    def take(self) -> None:
        rows = self.session.claim(self.epoch, self.random.randint(1, 6))
        if rows:
            self.held[rows[0].fence] = rows

    def part(self, fence: int) -> list[Any]:
        return self.random.sample(self.held[fence], self.random.randint(1, len(self.held[fence])))

    def told(self, fence: int, rows: list[Any]) -> list[Any]:
        """What is left of the claim once these ends are known."""
        return [row for row in self.held[fence] if row not in rows]

    def ends(self, rows: list[Any]) -> list[End]:
        return [End(row, self.random.choice(OUTCOMES)) for row in rows]

    def settle_part(self) -> None:
        if self.held:
            fence = self.random.choice(list(self.held))
            rows = self.part(fence)
            left = self.told(fence, rows)
            self.session.settle(self.epoch, *self.ends(rows), closed=[] if left else [fence])
            self.keep(fence, left)

    def settle_two_parts(self) -> None:
        """At once, on two connections; the claim is closed after both."""
        if self.held:
            fence = self.random.choice(list(self.held))
            rows = self.part(fence)
            left, self.held[fence] = self.told(fence, rows), rows
            beside = self.second.start("settle", **settlement(self.epoch, *self.ends(left)))
            try:
                self.session.settle(self.epoch, *self.ends(rows))
            except psycopg.Error:
                self.held[fence] = left + rows  # told again, and then refused, where it was done
                self.ended(beside.rows)
                raise
            self.held[fence] = left
            beside.rows()
            self.session.settle(self.epoch, closed=[fence])
            del self.held[fence]

    def ended(self, call: Any) -> None:
        """However it ended."""
        try:
            call()
        except psycopg.Error as error:
            if error.sqlstate not in self.expected:
                raise

    def settle_and_cancel(self) -> None:
        """A statement that is canceled has been carried out or has not; its ends are told again later."""
        if self.held:
            fence = self.random.choice(list(self.held))
            beside = self.second.start("settle", **settlement(self.epoch, *self.ends(self.part(fence))))
            self.session.execute("SELECT pg_cancel_backend(%s)", (self.second.connection.info.backend_pid,))
            self.ended(beside.rows)

    def keep(self, fence: int, left: list[Any]) -> None:
        if left:
            self.held[fence] = left
        else:
            del self.held[fence]

    def beside_locks(self) -> None:
        """While somebody has some jobs locked, and for a moment longer."""
        self.second.begin()
        self.second.execute("SELECT FROM watchbill.jobs WHERE random() < 0.3 FOR UPDATE SKIP LOCKED")
        try:
            self.random.choice([self.settle_part, self.reclaim, self.give_up_unknown, self.leave, self.cancel])()
        finally:
            self.second.rollback()

    def force_cancel(self) -> None:
        self.session.value("cancel", id=self.random.choice(self.jobs), force=True)

    def leave(self) -> None:
        self.session.value("leave", epoch=self.epoch)
        self.epoch = self.register()

    def die(self) -> None:
        self.epoch = self.register()

    def sweep(self) -> None:
        self.session.value("sweep_claims", now=self.db.now + LATER)

    def give_up_unknown(self) -> None:
        self.session.value("release_unknown", epoch=self.epoch, known=list(self.held))

    def complete_or_not(self) -> None:
        """In a handler's own transaction, which may come to nothing."""
        for row in self.session.claim(self.epoch, 1):
            self.session.begin()
            self.session.value("guard", id=row.id, fence=row.fence)
            self.session.value("complete", id=row.id, fence=row.fence, age=1.0)
            self.session.rollback()
            self.held[row.fence] = [row]

    def look(self) -> None:
        assert self.session.execute(NO_CLAIM) == []


def storm(db: Db, actors: int, actions: int, jobs: int) -> None:
    db.change("ALTER FUNCTION {schema}.settle SET lock_timeout = '20ms'")
    db.connection.execute(TRIGGER)
    ids = [db.enqueue(max_attempts=9, payload={"poison": n} if n % 10 == 0 else {}) for n in range(jobs)]
    snapshot = db.session()
    snapshot.begin("REPEATABLE READ")
    snapshot.execute(NO_CLAIM)
    let_loose(actors, lambda seed: Holder(db, ids, seed), actions)
    snapshot.commit()
    db.change("DROP TRIGGER refuse ON {schema}.jobs")
    db.assert_sound()
    db.value("sweep_claims", now=db.now + LATER)
    assert db.execute(NO_JOB) == []
    settle_everything(db)
    assert {row.id for row in db.rows("finished_jobs")} == set(ids)


def test_every_claimed_job_is_named_by_its_claim(own_db: Db) -> None:
    storm(own_db, actors=5, actions=80, jobs=60)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repetition", range(10))
def test_every_claimed_job_is_named_by_its_claim_in_a_long_storm(own_db: Db, repetition: int) -> None:
    storm(own_db, actors=10, actions=1000, jobs=200)
