"""Asks the SQL cron engine, many cases in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from tests.unit.cron.strategies import Case
from watchbill.cron import Cron
from watchbill.cron.bits import bits
from watchbill.cron.compiler import check_schedule
from watchbill.cron.days import LastDay, NearestWorkday
from watchbill.cron.fields import YEAR
from watchbill.cron.pattern import Fields

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


class CompiledPart(NamedTuple):
    """What a part without @every and modifier allows, in the masks that cron/cron_layout.sql describes."""

    times: tuple[int, int, int]  # seconds, minutes, hours
    months: int
    month_days: tuple[int, int, int, int]  # plain days, L-n, L-nW, nW
    weekdays: tuple[int, int, int, int]  # plain weekdays, d#n, d#-n, dWk
    either_day_suffices: bool
    weeks: int
    years: list[int] | None


def compiled_by_sql(numbers: Sequence[int]) -> CompiledPart:
    c = [0, *numbers]  # SQL counts from 1
    assert c[26] == 1
    return CompiledPart(
        (c[5], c[6], c[7]),
        c[8],
        (c[9], c[16], c[17], c[18]),
        (c[10], c[19], c[20], c[21]),
        c[11] == 1,
        c[14],
        _years(c[c[22] :]) if c[22] else None,
    )


def compiled_by_python(pattern: str) -> CompiledPart:
    [part] = check_schedule(pattern, "UTC", "default").parts
    fields = part.body
    assert isinstance(fields, Fields)
    of_month, of_week, both = fields.days
    month_specials = of_month.specials if of_month else ()
    nth, rows = (of_week.nth, of_week.rows) if of_week else ((), ())
    lasts = [special for special in month_specials if isinstance(special, LastDay)]
    return CompiledPart(
        (fields.seconds, fields.minutes, fields.hours),
        (fields.months >> 3 | fields.months << 9) & 0xFFF,
        (
            of_month.days if of_month else 2**31 - 1,
            _mask(30 - special.before for special in lasts if not special.workday),
            _mask(30 - special.before for special in lasts if special.workday),
            _mask(special.day - 1 for special in month_specials if isinstance(special, NearestWorkday)),
        ),
        (
            (of_week.weekdays if of_week else 127) * sum(1 << 7 * week for week in range(6)),
            _mask(7 * (special.nth - 1) + special.weekday for special in nth if special.nth > 0),
            _mask(7 * (5 + special.nth) + special.weekday for special in nth if special.nth < 0),
            _mask(7 * (special.row - 1) + (special.weekday - 1) % 7 for special in rows),
        ),
        of_month is not None and of_week is not None and not both,
        part.weeks or 0,
        None if fields.years is None else [YEAR.low + bit for bit in bits(fields.years)],
    )


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _years(numbers: Sequence[int]) -> list[int]:
    """From {first, last, step}, or from {1970, last, 0} and masks of 62 years each."""
    first, last, step, *masks = numbers
    if step:
        return list(range(first, last + 1, step))
    return [first + 62 * place + bit for place, mask in enumerate(masks) for bit in bits(mask)]
