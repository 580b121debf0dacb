"""Looks for damage in an installation that works, and asks it for little.

Each look is one statement in a READ ONLY transaction. An invariant of kind S is decided by it. A suspect of kind E must
still be there, as the same row, in a second look: after all transactions of the first look have ended, and after
SECOND_LOOK_SECONDS. If one of them stays open, it may hide the answer: the finding is undecided, and says who holds it.

Large tables are read in parts of some pages, each in about a quarter of a second, with pauses between.
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg import errors, sql

from watchbill.errors import WatchbillError
from watchbill.verify.invariants import Invariant, Part, read_invariants

SECOND_LOOK_SECONDS = 30.0
PATIENCE_SECONDS = 60.0  # how long a second look waits for other transactions
PAUSE_FACTOR, GENTLE_FACTOR = 3.0, 19.0  # a pause is so many times as long as the look before it
LOOK_SECONDS = 0.25
QUICK_SECONDS = 6.0  # for parts of large tables
FIRST_PAGES, MOST_PAGES = 200, 5_000
STATEMENT_TIMEOUT = "10s"
POLL_SECONDS = 0.2

# Parts are read through indexes, row by row: a plan that reads a whole table for a part would never end.
_ROW_BY_ROW: LiteralString = """
    SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
      set_config('enable_mergejoin', 'off', true)"""
_BEGIN: LiteralString = """
    SELECT set_config('transaction_read_only', 'on', true), set_config('jit', 'off', true),
      set_config('max_parallel_workers_per_gather', '0', true), set_config('statement_timeout', %s, true)"""
_RELATIONS: LiteralString = """
    SELECT c.relname, pg_relation_size(c.oid) / current_setting('block_size')::int
    FROM (
      SELECT t.relid
      FROM pg_partition_tree(%(table)s::regclass) t
      WHERE t.isleaf
      UNION
      SELECT %(table)s::regclass) t(relid)
    JOIN pg_class c ON c.oid = t.relid AND c.relkind = 'r'
    ORDER BY 1"""
# Every transaction that has written something holds a lock on its own number.
_OPEN_TRANSACTIONS: LiteralString = """
    SELECT l.transactionid::text,
      coalesce('pid ' || l.pid, (
        SELECT 'the prepared transaction ' || p.gid
        FROM pg_prepared_xacts p
        WHERE p.transaction = l.transactionid), 'another transaction')
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'transactionid'
      AND l.mode = 'ExclusiveLock'
      AND l.granted
      AND (l.pid IS NULL OR a.datname = current_database())
    ORDER BY age(l.transactionid) DESC"""
_DAY_OR_MONTH = re.compile(r"_(\d{8}|\d{6})$")


@dataclass(frozen=True, slots=True)
class Finding:
    """`damage`; `undecided`: an open transaction, `held_by`, hides the answer; `unchecked`: nothing could be looked
    at."""

    invariant: str
    state: Literal["damage", "undecided", "unchecked"]
    subject: str
    what: str
    held_by: str | None = None


@dataclass(frozen=True)
class _Suspect:
    invariant: Invariant
    part: Part
    row: tuple[str, str | None]  # the subject, and the version of its row
    what: str


class NoSuchPosition(WatchbillError):
    exit_code = 2

    def __init__(self, position: str) -> None:
        super().__init__(
            f"The position {position!r} is invalid.", hint="Give one that an earlier run has printed, such as jobs:400."
        )


class Verifier:
    """Looks at one installation. `position` is where the look is, for a run that continues."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        *,
        pause_factor: float = PAUSE_FACTOR,
        second_look: float = SECOND_LOOK_SECONDS,
        patience: float = PATIENCE_SECONDS,
        report: Callable[[Verifier], None] = lambda verifier: None,
    ) -> None:
        """`report` is called after each part of a full run."""
        self._connection, self._schema = connection, schema
        self._pause_factor = pause_factor
        self._second_look, self._patience, self._report = second_look, patience, report
        self._suspects: list[_Suspect] = []
        self._unchecked: set[str] = set()
        self._last_look = 0.0
        self._small: list[Invariant] = []
        self._by_table: dict[str, list[Invariant]] = defaultdict(list)
        for each in read_invariants():
            (self._small if each.table is None else self._by_table[each.table]).append(each)
        self.position = ""
        self.looked_at = 0  # pages

    def look_quickly(self) -> Iterator[Finding]:
        """Small tables as a whole, and parts of the large ones by chance: of those with days, only of the last ones."""
        yield from self._look_at_small_tables()
        until = time.monotonic() + QUICK_SECONDS
        parts = [part for table in self._by_table for part in self._choose_parts(table)]
        random.shuffle(parts)
        for table, part in parts:
            if time.monotonic() >= until:
                break
            yield from self._look_at(table, part)
        yield from self._look_again()

    def look_at_everything(self, start: str | None = None) -> Iterator[Finding]:
        """Every row. `start` is a position of an earlier run, which continues there."""
        relation, page = _read_position(start)
        if start is None:
            yield from self._look_at_small_tables()
        found = [(table, *row) for table in sorted(self._by_table) for row in self._list_relations(table)]
        if relation is not None and relation not in [each[1] for each in found]:
            raise NoSuchPosition(str(start))
        for table, name, pages in found:
            if relation is not None and name != relation:
                continue
            first = page if relation is not None else 0
            relation = None
            size = FIRST_PAGES
            while first < pages:
                self.position = f"{name}:{first}"
                began = time.monotonic()
                yield from self._look_at(table, Part(name, first, first + size), pauses=False)
                took = time.monotonic() - began
                first += size
                self.looked_at += size
                self._report(self)
                size = int(min(max(size * LOOK_SECONDS / max(took, 0.01), 1), 2 * size, MOST_PAGES))
                time.sleep(self._pause_factor * took)
        yield from self._look_again()

    def look_at_job(self, job: UUID) -> Iterator[Finding]:
        for table in self._by_table:
            for name, _ in self._list_relations(table):
                yield from self._look_at(table, Part(name, job=job), pauses=False)
        yield from self._look_again()

    @property
    def pages(self) -> int:
        """How many pages the large tables have."""
        return sum(pages for table in self._by_table for _, pages in self._list_relations(table))

    # -- Looks.

    def _look_at_small_tables(self) -> Iterator[Finding]:
        for invariant in self._small:
            yield from self._look(invariant, Part())

    def _look_at(self, table: str, part: Part, *, pauses: bool = True) -> Iterator[Finding]:
        began = time.monotonic()
        for invariant in self._by_table[table]:
            yield from self._look(invariant, part)
        if pauses:
            time.sleep(self._pause_factor * (time.monotonic() - began))

    def _look(self, invariant: Invariant, part: Part) -> Iterator[Finding]:
        if invariant.name in self._unchecked or (part.job is not None and invariant.job_column is None):
            return
        try:
            rows = self._read(invariant, part)
        except (errors.InsufficientPrivilege, errors.QueryCanceled) as error:
            self._unchecked.add(invariant.name)
            yield Finding(invariant.name, "unchecked", invariant.table or "small tables", str(error).splitlines()[0])
            return
        for subject, what, *version in rows:
            if invariant.kind == "S":
                yield Finding(invariant.name, "damage", subject, what)
            else:
                self._suspects.append(_Suspect(invariant, part, (subject, version[0]), what))
                self._last_look = time.monotonic()

    def _read(self, invariant: Invariant, part: Part) -> list[tuple[Any, ...]]:
        with self._connection.transaction():
            self._connection.execute(_BEGIN, (STATEMENT_TIMEOUT,))
            if invariant.table is not None:
                self._connection.execute(_ROW_BY_ROW)
            return self._connection.execute(invariant.write(self._schema, part)).fetchall()

    def _look_again(self) -> Iterator[Finding]:
        """Decides about the suspects."""
        if not self._suspects:
            return
        opened = self._list_open_transactions()
        time.sleep(max(0.0, self._last_look + self._second_look - time.monotonic()))
        holder = self._wait_for_transactions(opened)
        suspects, self._suspects = self._suspects, []
        looks = {(each.invariant.name, each.part): each.invariant for each in suspects}
        still = {
            (name, part, subject, version)
            for (name, part), invariant in looks.items()
            for subject, _, version in self._read(invariant, part)
        }
        for each in suspects:
            if (each.invariant.name, each.part, *each.row) in still:
                state: Literal["damage", "undecided"] = "damage" if holder is None else "undecided"
                yield Finding(each.invariant.name, state, each.row[0], each.what, holder)

    def _list_open_transactions(self) -> dict[str, str]:
        """By number, who holds them; the oldest first."""
        return dict(self._connection.execute(_OPEN_TRANSACTIONS).fetchall())

    def _wait_for_transactions(self, opened: dict[str, str]) -> str | None:
        """Waits until all of these have ended. Returns who holds one that stays open."""
        until = time.monotonic() + self._patience
        while True:
            left = [holder for number, holder in self._list_open_transactions().items() if number in opened]
            if not left:
                return None
            if time.monotonic() >= until:
                return left[0]
            time.sleep(POLL_SECONDS)

    # -- Parts.

    def _list_relations(self, table: str) -> list[tuple[str, int]]:
        """The table, or its partitions, with their pages."""
        name = sql.Identifier(self._schema, table).as_string(self._connection)
        return self._connection.execute(_RELATIONS, {"table": name}).fetchall()

    def _choose_parts(self, table: str) -> list[tuple[str, Part]]:
        row = self._connection.execute("SELECT now()").fetchone()
        assert row is not None
        return [
            (table, Part(name, first, first + FIRST_PAGES))
            for name, pages in self._list_relations(table)
            if _is_recent(name, row[0])
            for first in range(0, pages, FIRST_PAGES)
        ]


def _is_recent(relation: str, now: datetime) -> bool:
    """Whether the relation is a table, or the partition of today or yesterday, of this month or the last one."""
    found = _DAY_OR_MONTH.search(relation)
    yesterday = f"{now - timedelta(days=1):%Y%m%d}"
    return found is None or yesterday[: len(found[1])] <= found[1]


def _read_position(position: str | None) -> tuple[str | None, int]:
    if position is None:
        return None, 0
    relation, _, page = position.rpartition(":")
    if not relation or not page.isdecimal():
        raise NoSuchPosition(position)
    return relation, int(page)
