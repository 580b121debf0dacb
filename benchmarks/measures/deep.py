"""Whether claims stay as quick with ten million jobs as with ten thousand: the SQL functions, called as a worker does.

Both depths hold the same mixture (deep.sql), and each keeps its depth: what was claimed and settled is put back. The
deep table is measured three times: with statistics from when it was shallow, through a connection whose plans are as
old; without any; and after ANALYZE. Commits do not wait for the disk: that takes as long at any depth, and would hide
a difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, LiteralString, Self

import psycopg

from benchmarks.contestant import Contestant
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.places import DSN

QUEUES = [f"queue{number}" for number in range(100)]
CLAIMS = {1: 300, 20: 200, 1000: 40}  # how often a claim of each size is made
TIMES = 100  # how often everything else is done
PROMOTED = 20
CHUNK = 500_000
STATES = ("stale", "none", "fresh")

LOAD: Any = (Path(__file__).parent / "deep.sql").read_text()
CLAIM: LiteralString = "SELECT id, fence FROM foliot.claim(%s::bigint, %s::text[], %s::int, %s::int, false)"
SETTLE: LiteralString = "SELECT id FROM foliot.settle(%s::bigint, %s::uuid[], %s::bigint[], closed => %s::bigint[])"
ENQUEUE: LiteralString = "SELECT id FROM foliot.enqueue('type1', '{\"number\": 1}', 'queue1')"
PROMOTE: LiteralString = "SELECT foliot.promote(%s::int, now => clock_timestamp() + interval '60 days')"
WORK: LiteralString = """
SELECT t.seq_scan, s.heap_blks_read + s.heap_blks_hit + s.idx_blks_read + s.idx_blks_hit
FROM pg_stat_user_tables t JOIN pg_statio_user_tables s USING (relid) WHERE relid = 'foliot.jobs'::regclass
"""


def deep(contestant: Contestant, sizes: Sizes) -> Run:
    """Milliseconds (median) of each operation: "shallow claim 20", "stale claim 20", ..., and pages touched by each."""
    contestant.set_up()
    before = usage()
    found: Run = {"depth": sizes.depth}
    with Session() as session:
        session.execute("ALTER TABLE foliot.jobs SET (autovacuum_enabled = false)")  # statistics change when we say so
        session.load(sizes.shallow)
        session.execute("ANALYZE foliot.jobs")
        found |= session.measure("shallow", vacuum=True)
        session.load(sizes.depth - sizes.shallow)
        found |= session.measure("stale")
        session.forget_statistics()
    for state in STATES[1:]:
        with Session() as session:
            if state == "fresh":
                session.execute("ANALYZE foliot.jobs")
            found |= session.measure(state)
    return {**found, "other_cpu": usage().since(before)["other_cpu"]}


class Session:
    """One connection and the node that it speaks for."""

    def __init__(self) -> None:
        self._connection = psycopg.connect(DSN, autocommit=True, prepare_threshold=0)
        self.execute("SET synchronous_commit = off")
        self._turn = 0

    def __enter__(self) -> Self:
        [(self._epoch,)] = self.execute("SELECT foliot.register('deep ' || clock_timestamp(), lease => '1 day')")
        return self

    def __exit__(self, *_: object) -> None:
        self.execute("SELECT foliot.leave(%s)", self._epoch)
        self._connection.close()

    def execute(self, statement: LiteralString, *params: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def load(self, count: int, *, ready: bool = False) -> None:
        for first in range(0, count, CHUNK):
            part = min(CHUNK, count - first)
            self._connection.execute(LOAD, {"first": first, "count": part, "of": count, "ready": ready})

    def forget_statistics(self) -> None:
        self.execute("DELETE FROM pg_statistic WHERE starelid = 'foliot.jobs'::regclass")
        self.execute("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = 'foliot.jobs'::regclass")

    def measure(self, state: str, *, vacuum: bool = False) -> Run:
        """`vacuum`: as often as autovacuum would; of ten million rows too few change here for it to come."""
        self.execute("CHECKPOINT")
        scans, _ = self._work()
        found: Run = {}
        for size, times in CLAIMS.items():
            if vacuum:
                self.execute("VACUUM foliot.jobs")
            found |= self._claim_and_settle(size, times)
        found["claim of nothing"] = self._timed(TIMES, lambda: self._claim(["nobody's"], 1))
        found["enqueue"] = self._timed(TIMES, lambda: self.execute(ENQUEUE))
        found["promote"] = self._timed(TIMES, lambda: self.execute(PROMOTE, PROMOTED))
        found["sequential scans"] = self._work()[0] - scans
        return {f"{state} {name}": value for name, value in found.items()}

    def _claim_and_settle(self, size: int, times: int) -> Run:
        """A claim, and the settle of what it got; the queues take turns to be the first."""
        claims, settles = [], []
        pages = 0
        for _ in range(times):
            self._turn += 7
            queues = QUEUES[self._turn % 100 :] + QUEUES[: self._turn % 100]
            touched = self._work()[1] if size > 1 else 0
            began = time.perf_counter()
            rows = self._claim(queues, size)
            claimed = time.perf_counter()
            pages += self._work()[1] - touched if size > 1 else 0
            assert len(rows) == size, f"a claim of {size} got {len(rows)}"
            ids, fences = [row[0] for row in rows], [row[1] for row in rows]
            settling = time.perf_counter()
            refused = self.execute(SETTLE, self._epoch, ids, fences, fences[:1])
            settles.append(time.perf_counter() - settling)
            assert refused == []
            claims.append(claimed - began)
            self.load(size, ready=True)
        found = {f"claim {size}": median(claims) * 1000, f"settle {size}": median(settles) * 1000}
        return found | ({f"pages of claim {size}": pages / times} if size > 1 else {})

    def _claim(self, queues: list[str], size: int) -> list[tuple[Any, ...]]:
        return self.execute(CLAIM, self._epoch, queues, size, size)

    def _timed(self, times: int, work: Callable[[], object]) -> float:
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
        return median(taken) * 1000

    def _work(self) -> tuple[int, int]:
        """Sequential scans of jobs, and its pages that were touched, so far."""
        self.execute("SELECT pg_stat_force_next_flush()")
        [(scans, pages)] = self.execute(WORK)
        return scans, pages
