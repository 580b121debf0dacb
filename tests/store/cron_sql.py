"""Asks the SQL cron engine, many cases in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from watchbill.cron import Cron
from tests.unit.cron.strategies import Case

Connection = psycopg.Connection[Any]

_ASK = """
    SELECT first, jcron.prev_run(cron, at), jcron.next_run(cron, first), watchbill.cron_matches(cron, at)
    FROM (SELECT cron, at, jcron.next_run(cron, at) AS first
      FROM unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[]) WITH ORDINALITY u(pattern, tz, dst, at, i),
        LATERAL (SELECT watchbill.parse_cron(pattern, tz, dst) AS cron OFFSET 0) parsed
      ORDER BY i) answers
"""


class Answer(NamedTuple):
    """What an engine says about a case: the next run, the one before, the one after next, and whether this is one."""

    next: datetime | None
    prev: datetime | None
    second: datetime | None
    matches: bool


def ask_sql(connection: Connection, cases: Sequence[Case]) -> list[Answer]:
    """In binary form, which no DateStyle can spoil."""
    columns = [list(column) for column in zip(*((c.pattern, c.zone, c.dst, c.instant) for c in cases), strict=True)]
    with connection.cursor(binary=True) as cursor:
        return [Answer(*row) for row in cursor.execute(_ASK, columns).fetchall()]


def ask_python(case: Case) -> Answer:
    cron = Cron(case.pattern, case.zone, case.dst)
    after = cron.next(case.instant)
    second = None if after is None else cron.next(after)
    return Answer(in_utc(after), in_utc(cron.prev(case.instant)), in_utc(second), cron.matches(case.instant))


def in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
