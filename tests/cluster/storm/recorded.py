"""What a storm records beside Watchbill's own tables, and what the checker reads of it.

Triggers in the storm's database write down every change of a token and of a pin, and every plan of a leader, with the
time. Work on a key is a row of `works`, in the transaction that has checked its fence. The harness records what it did
to which process. Members write their answers of `owns` to files. All processes run on one machine, so their times are
of one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

ITEMS, JOBS = "items", "jobs"  # the two groups of a storm
TOTAL = 60  # tokens of each
ITEM_KEYS = [f"item-{number}" for number in range(40)]
JOB_KEYS = [f"job-{number}" for number in range(40)]

TABLES = """
CREATE TABLE ledger (key text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE works (
  number bigint GENERATED ALWAYS AS IDENTITY,
  key text, fence bigint, epoch bigint, value bigint, sequence int, began timestamptz, ended timestamptz);
CREATE INDEX ON works (number, key);
CREATE TABLE token_history (
  number bigint GENERATED ALWAYS AS IDENTITY,
  at timestamptz DEFAULT clock_timestamp(), token_group text, token int, epoch bigint, next bigint, fence bigint);
CREATE TABLE pin_history (key text, token int);
CREATE TABLE switch (pause float8 NOT NULL); -- for which each change of tokens waits before it commits
INSERT INTO switch VALUES (0);

CREATE FUNCTION record_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.token_history (token_group, token, epoch, next, fence)
  VALUES (
    coalesce(NEW.token_group, OLD.token_group), coalesce(NEW.token, OLD.token), coalesce(NEW.epoch, 0), NEW.next,
    coalesce(NEW.fence, OLD.fence));
  RETURN NULL;
END $$;
CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON watchbill.tokens
  FOR EACH ROW EXECUTE FUNCTION record_token();

CREATE FUNCTION wait_a_moment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(pause) FROM public.switch WHERE pause > 0;
  RETURN NULL;
END $$;
CREATE TRIGGER wait AFTER UPDATE ON watchbill.tokens FOR EACH STATEMENT EXECUTE FUNCTION wait_a_moment();

CREATE FUNCTION record_pin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.pin_history VALUES (NEW.key, NEW.token);
  RETURN NULL;
END $$;
CREATE TRIGGER record AFTER INSERT ON watchbill.pins FOR EACH ROW EXECUTE FUNCTION record_pin();

CREATE TABLE plan_history (at timestamptz, token_group text, leader text, holder text);
CREATE FUNCTION record_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.plan_history
  SELECT clock_timestamp(), NEW.token_group, NEW.leader, l.holder
  FROM watchbill.locks l
  WHERE l.name = 'leader/' || NEW.token_group;
  RETURN NULL;
END $$;
CREATE TRIGGER record AFTER INSERT ON watchbill.rebalances FOR EACH ROW EXECUTE FUNCTION record_plan();
"""


@dataclass(frozen=True)
class Work:
    """Fenced work that was committed. `value` is one more than it has read; `sequence` numbers the jobs of a key."""

    number: int
    key: str
    fence: int
    epoch: int
    value: int
    began: float
    ended: float
    sequence: int | None = None


@dataclass(frozen=True)
class Change:
    """A token after a change. Epoch 0: it has no owner."""

    at: float
    group: str
    token: int
    epoch: int
    next: int | None
    fence: int


@dataclass(frozen=True)
class Plan:
    """A plan that was committed. `holder` is the node that led the group at that time; None: nobody."""

    at: float
    group: str
    leader: str
    holder: str | None


@dataclass(frozen=True)
class Answer:
    """`owns` was true for these keys, at some instant between `began` and `ended`."""

    epoch: int
    began: float
    ended: float
    keys: tuple[str, ...]


@dataclass
class Life:
    """A process, as the harness knows it."""

    pid: int
    started: float
    ended: float = inf
    freezes: list[tuple[float, float]] = field(default_factory=list)

    def is_well(self, at: float) -> bool:
        return self.started <= at < self.ended and not any(begin <= at < end for begin, end in self.freezes)


@dataclass(frozen=True)
class Calm:
    """A time without faults, and within how many seconds of its beginning every token must have an owner."""

    began: float
    ended: float
    bound: float


@dataclass
class History:
    works: list[Work] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)  # by pid
    pids: dict[int, int] = field(default_factory=dict)  # by epoch
    ends: dict[int, float] = field(default_factory=dict)  # when epochs have left, or the last beat of lost ones
    calms: list[Calm] = field(default_factory=list)
    ledger: dict[str, int] = field(default_factory=dict)
    pin_tokens: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    dead_jobs: set[tuple[str, int]] = field(default_factory=set)
    sent_jobs: dict[str, int] = field(default_factory=dict)  # how many, by key
    total: int = TOTAL
    groups: tuple[str, ...] = (ITEMS, JOBS)

    def read_tables(self, url: str) -> None:
        with psycopg.connect(url, row_factory=namedtuple_row) as connection:

            def rows(query: str) -> list[Any]:
                return connection.execute(query.encode()).fetchall()

            self.works = [
                Work(r.number, r.key, r.fence, r.epoch, r.value, r.began.timestamp(), r.ended.timestamp(), r.sequence)
                for r in rows("SELECT * FROM works ORDER BY number")
            ]
            self.changes = [
                Change(r.at.timestamp(), r.token_group, r.token, r.epoch, r.next, r.fence)
                for r in rows("SELECT * FROM token_history ORDER BY number")
            ]
            self.plans = [
                Plan(r.at.timestamp(), r.token_group, r.leader, r.holder)
                for r in rows("SELECT * FROM plan_history ORDER BY at")
            ]
            nodes = rows("SELECT epoch, pid, ended_at FROM watchbill.nodes")
            self.pids = {r.epoch: r.pid for r in nodes}
            self.ends = {r.epoch: r.ended_at.timestamp() for r in nodes if r.ended_at is not None}
            self.ledger = {r.key: r.value for r in rows("SELECT key, value FROM ledger")}
            for r in rows("SELECT DISTINCT key, token FROM pin_history"):
                self.pin_tokens[r.key].add(r.token)
            self.dead_jobs = {
                (r.payload["key"], r.payload["sequence"])
                for r in rows("SELECT payload FROM watchbill.finished_jobs WHERE state <> 'succeeded'")
            }

    def read_answers(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            if record["what"] == "owns":
                keys = tuple(ITEM_KEYS[number] for number in record["keys"])
                self.answers.append(Answer(record["epoch"], record["began"], record["ended"], keys))

    def is_well(self, epoch: int, at: float) -> bool:
        """Whether the process of this epoch lives, and is not frozen."""
        life = self.lives.get(self.pids.get(epoch, 0))
        return life is not None and life.is_well(at)
