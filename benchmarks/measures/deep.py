"""Whether claims stay as quick with ten million jobs as with ten thousand: the SQL functions, called as a worker does.

Two installations in one database hold the same mixture (deep.sql), one shallow and one deep, and are measured in turns,
call by call. Each keeps its depth: what was claimed and settled is put back. The deep one is measured three times: with
statistics from when it was shallow, through a connection whose plans are as old; without any; and after ANALYZE.
Commits do not wait for the disk: that takes as long at any depth, and would hide a difference.
"""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import psycopg

from benchmarks.contestant import Contestant
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.places import DSN, OUR_PYTHON

QUEUES = [f"queue{number}" for number in range(100)]
CLAIMS = {1: 300, 20: 200, 1000: 40}  # how often a claim of each size is made
TIMES = 100  # how often everything else is done
PROMOTED = 20
CHUNK = 500_000
DELAYED, READY = 0.0, 1.0  # kinds of jobs
STATES = ("stale", "none", "fresh")
DEEP, SHALLOW = "watchbill", "shallow"  # schemas

LOAD = (Path(__file__).parent / "deep.sql").read_text()
CLAIM = "SELECT id, fence FROM {schema}.claim(%s::bigint, %s::text[], %s::int, %s::int, false)"
SETTLE = "SELECT id FROM {schema}.settle(%s::bigint, %s::uuid[], %s::bigint[], closed => %s::bigint[])"
ENQUEUE = "SELECT id FROM {schema}.enqueue('type1', jsonb_build_object('number', 1), 'queue1')"
PROMOTE = "SELECT {schema}.promote(%s::int, now => clock_timestamp() + interval '60 days')"
WORK = """
SELECT t.seq_scan, s.heap_blks_read + s.heap_blks_hit + s.idx_blks_read + s.idx_blks_hit, s.heap_blks_read,
  ((pg_current_wal_insert_lsn() - '0/0') / 1024)::float8
FROM pg_stat_user_tables t JOIN pg_statio_user_tables s USING (relid) WHERE relid = '{schema}.jobs'::regclass
"""


def deep(contestant: Contestant, sizes: Sizes) -> Run:
    """Medians of each operation, in milliseconds: "stale claim 20", and beside it "stale shallow claim 20"."""
    contestant.set_up()
    migrate = [str(OUR_PYTHON), "-m", "watchbill.cli", "--database-url", DSN, "--schema", SHALLOW, "db", "migrate"]
    subprocess.run(migrate, check=True, stdout=subprocess.DEVNULL)
    before = usage()
    found: Run = {}
    with Session(SHALLOW) as shallow, Session(DEEP) as deep:
        for session in (shallow, deep):
            session.execute("ALTER TABLE {schema}.jobs SET (autovacuum_enabled = false)")  # it happens when we say so
            session.load(sizes.shallow)
            session.execute("ANALYZE {schema}.jobs")
            for operation, _ in OPERATIONS:
                operation(session)  # every plan is made
        deep.load(sizes.depth - sizes.shallow)
        found |= compare("stale", shallow, deep)
        deep.forget_statistics()
    for state in STATES[1:]:
        with Session(SHALLOW) as shallow, Session(DEEP) as deep:
            if state == "fresh":
                deep.execute("ANALYZE {schema}.jobs")
            found |= compare(state, shallow, deep)
    return {**found, "other_cpu": usage().since(before)["other_cpu"]}


def compare(state: str, shallow: Session, deep: Session) -> Run:
    """Every operation, in turns."""
    deep.execute("CHECKPOINT")
    scans = deep.scans()
    samples: dict[str, list[float]] = defaultdict(list)
    for operation, times in OPERATIONS:
        shallow.execute("VACUUM {schema}.jobs")  # as often as autovacuum would; of ten million too few rows change here
        for _ in range(times):
            for prefix, session in ((f"{state} shallow", shallow), (state, deep)):
                for name, value in operation(session).items():
                    samples[f"{prefix} {name}"].append(value)
    found = {name: median(values) for name, values in samples.items()}
    return {**found, f"{state} sequential scans": deep.scans() - scans}


class Work(NamedTuple):
    """What was done with jobs so far: sequential scans, pages touched and, of the table, read; and kB of WAL."""

    scans: int
    pages: int
    read: int
    wal: float


class Session:
    """One connection and the node that it speaks for."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(DSN, autocommit=True, prepare_threshold=0)
        self.execute("SET synchronous_commit = off")
        self._turn = 0

    def __enter__(self) -> Self:
        [(self._epoch,)] = self.execute("SELECT {schema}.register('deep ' || clock_timestamp(), lease => '1 day')")
        return self

    def __exit__(self, *_: object) -> None:
        self.execute("SELECT {schema}.leave(%s)", self._epoch)
        self._connection.close()

    def execute(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.replace("{schema}", self._schema).encode(), params)
        return cursor.fetchall() if cursor.description else []

    def load(self, count: int, kind: float | None = None) -> None:
        """`kind`: only jobs of that kind, instead of the mixture."""
        statement = LOAD.replace("{schema}", self._schema).encode()
        for first in range(0, count, CHUNK):
            part = min(CHUNK, count - first)
            self._connection.execute(statement, {"first": first, "count": part, "of": count, "kind": kind})

    def forget_statistics(self) -> None:
        self.execute("DELETE FROM pg_statistic WHERE starelid = '{schema}.jobs'::regclass")
        self.execute("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = '{schema}.jobs'::regclass")

    def scans(self) -> int:
        """Sequential scans of jobs so far."""
        return self._work().scans

    def claim_and_settle(self, size: int) -> Run:
        """A claim of all queues, which take turns to be the first, and the settle of what it got."""
        self._turn += 7
        queues = QUEUES[self._turn % 100 :] + QUEUES[: self._turn % 100]
        before = self._work()
        claim, rows = _timed(lambda: self.execute(CLAIM, self._epoch, queues, size, size))
        work = self._work()
        assert len(rows) == size, f"a claim of {size} got {len(rows)}"
        ids, fences = [row[0] for row in rows], [row[1] for row in rows]
        settle, refused = _timed(lambda: self.execute(SETTLE, self._epoch, ids, fences, fences[:1]))
        assert refused == []
        self.load(size, READY)
        return {
            f"claim {size}": claim,
            f"pages of claim {size}": work.pages - before.pages,
            f"of these, not in memory: {size}": work.read - before.read,
            f"kB of WAL of claim {size}": work.wal - before.wal,  # with the image of each page that is touched first
            f"settle {size}": settle,
        }

    def rest(self) -> Run:
        """What else must not depend on the depth."""
        claim, _ = _timed(lambda: self.execute(CLAIM, self._epoch, ["nobody's"], 1, 1))
        enqueue, _ = _timed(lambda: self.execute(ENQUEUE))
        promote, _ = _timed(lambda: self.execute(PROMOTE, PROMOTED))
        self.load(PROMOTED, DELAYED)
        more = self.execute(CLAIM, self._epoch, QUEUES, PROMOTED + 1, PROMOTED + 1)
        self.execute(SETTLE, self._epoch, [row[0] for row in more], [row[1] for row in more], [more[0][1]])
        return {"claim of nothing": claim, "enqueue": enqueue, f"promote {PROMOTED}": promote}

    def _work(self) -> Work:
        self.execute("SELECT pg_stat_force_next_flush()")
        [row] = self.execute(WORK)
        return Work(*row)


def _claims(size: int) -> Operation:
    return lambda session: session.claim_and_settle(size)


def _timed(work: Callable[[], list[tuple[Any, ...]]]) -> tuple[float, list[tuple[Any, ...]]]:
    """Milliseconds, and what it answered."""
    began = time.perf_counter()
    rows = work()
    return (time.perf_counter() - began) * 1000, rows


Operation = Callable[[Session], Run]
OPERATIONS: list[tuple[Operation, int]] = [
    *((_claims(size), times) for size, times in CLAIMS.items()),
    (Session.rest, TIMES),
]
