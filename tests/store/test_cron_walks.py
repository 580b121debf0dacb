"""Walks through clock changes and calendars in SQL, forwards and backwards, step by step as in Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest

from tests.store.cron_sql import Connection, at, in_utc
from watchbill.cron import Cron
from watchbill.cron.compiler import Policy

HALF_A_DAY = timedelta(hours=12)
POLICIES: list[Policy] = ["default", "skip", "once", "both"]
CHANGES = [
    ("America/New_York", "2024-03-10 07:00:00"),
    ("America/New_York", "2024-11-03 06:00:00"),
    ("Australia/Lord_Howe", "2024-04-06 15:00:00"),
    ("Australia/Lord_Howe", "2024-10-05 15:30:00"),
    ("Europe/Dublin", "2024-03-31 01:00:00"),
    ("America/Sao_Paulo", "2018-11-04 03:00:00"),
    ("Pacific/Apia", "2011-12-30 10:00:00"),
    ("America/Juneau", "1867-10-19 15:33:32"),
    ("Africa/Monrovia", "1972-01-07 00:44:30"),
]
THROUGH_CHANGES = [
    "*/30 * * * *",
    "15,45 1-3 * * *",
    "0 0-23 * * *",
    "30 */2 * * *",
    "0 0 * * *",
    "7 2 30 12 * | */40 1-4 * * * TZ:Europe/Paris",
    "E0H",
]
THROUGH_YEARS = [
    "0 9 1W,31W,LW,L-3W * *",
    "0 0 * * 1W1,5W5,FRI#5,MON#-2,3L",
    "0 0 0 * * * WOY:1,52,53",
    "0 0 29 2 *",
    "0 0 13 * +FRI",
    "0 0 12 L,L-30,15 */2 1#L 2019-2031/3",
    "0 0 1 1 * E0Q",
    "0 0 1 * * S1W",
]
MODIFIERS = [
    "E0Y0S0Y0S",
    "S0Y0W0Y0W",
    "S1M0W2D0M",
    "E" + "0Y0W" * 40,
    "S" + "0M0W0Q" * 40,
    "S" + "1Y1S" * 40,
    "E8000Y",
    "S720000000001S",
    "E0D" + "9" * 300 + "W",
]
WALK = """
    SELECT runs,
      ARRAY(SELECT watchbill.prev_run(cron, t) FROM unnest(%s::timestamptz[]) WITH ORDINALITY u(t, i) ORDER BY i)
    FROM watchbill.parse_cron(%s, %s, %s) cron,
      LATERAL (SELECT ARRAY(SELECT watchbill.cron_between(cron, %s, %s)) AS runs OFFSET 0) walk
"""


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


def compare(sql: Connection, cron: Cron, begin: datetime, end: datetime, stops: int = 40) -> None:
    """All runs from the one to the other, and at some instants on the way the run before."""
    runs = [in_utc(run) for run in cron.between(begin, end)]
    probes = [begin + (end - begin) * step / stops for step in range(stops + 1)]
    backwards = [in_utc(cron.prev(probe)) for probe in probes]
    with sql.cursor(binary=True) as cursor:
        found = cursor.execute(WALK, (probes, cron.pattern, cron.tz, cron.dst, begin, end)).fetchall()
    assert found == [(runs, backwards)], cron


def test_walks_through_clock_changes_match_python(sql: Connection) -> None:
    for zone, moment in CHANGES:
        for pattern in THROUGH_CHANGES:
            for policy in POLICIES:
                compare(sql, Cron(pattern, zone, policy), at(moment) - HALF_A_DAY, at(moment) + HALF_A_DAY)


def test_walks_with_large_modifiers_match_python(sql: Connection) -> None:
    for modifier in MODIFIERS:
        for body in ("", "*/20 * * * * "):
            for zone, moment in CHANGES[1:3]:
                begin, end = at(moment) - HALF_A_DAY / 8, at(moment) + HALF_A_DAY / 8
                compare(sql, Cron(body + modifier, zone), begin, end, stops=6)


def test_walks_through_many_years_match_python(sql: Connection) -> None:
    for pattern in THROUGH_YEARS:
        compare(sql, Cron(pattern, "Europe/Paris"), at("2018-12-01 00:00:00"), at("2032-12-31 00:00:00"))
