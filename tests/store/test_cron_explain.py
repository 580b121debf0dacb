"""Explanations and frequencies in SQL are Python's, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from watchbill.cron import Cron
from tests.store.cron_sql import Connection
from tests.unit.cron.strategies import Case, cases
from tests.unit.cron.test_explain import PATTERNS

BATCH = 20
ASK = """
    SELECT watchbill.explain_cron(pattern, tz, dst) FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY
      u(pattern, tz, dst, i) ORDER BY i
"""
LONG = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def test_the_list_of_explained_patterns(sql: Connection) -> None:
    query = "SELECT jcron.get_frequency(p), jcron.explain_pattern(p) FROM unnest(%s::text[]) WITH ORDINALITY u(p, i)"
    found = sql.execute(query, ([pattern for pattern, _ in PATTERNS],)).fetchall()
    for (pattern, text), told in zip(PATTERNS, found, strict=True):
        assert ": ".join(told) == text.strip(), pattern


@pytest.mark.parametrize("count", [15, pytest.param(1_000, marks=LONG)])
def test_any_schedule_is_explained_alike(sql: Connection, count: int) -> None:
    @settings(deadline=None, max_examples=count, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.lists(cases(), min_size=BATCH, max_size=BATCH))
    def check(batch: list[Case]) -> None:
        asked = ([c.pattern for c in batch], [c.zone for c in batch], [c.dst for c in batch])
        for case, (told,) in zip(batch, sql.execute(ASK, asked).fetchall(), strict=True):
            assert told == Cron(case.pattern, case.zone, case.dst).explain(), case

    check()


def test_counts_beyond_all_bounds_and_an_anchor(sql: Connection) -> None:
    anchor = datetime(2025, 1, 1, 9, 30, 15, 500, tzinfo=UTC)
    for pattern in (
        "@every 2h",
        "@every 99999999999999999999999d",
        "E99999999999999999999Y0012M",
        "@every 1d1s | @every 90m",
    ):
        [(told,)] = sql.execute("SELECT jcron.explain_pattern(%s, anchor => %s)", (pattern, anchor))
        assert told == Cron(pattern, anchor=anchor).explain()


def test_an_offset_of_zero_and_utc_are_told_apart(sql: Connection) -> None:
    for zone in ("UTC", "+00:00", "-00:00", "Etc/GMT+3", "America/Argentina/Buenos_Aires", "GMT"):
        for pattern in ("0 9 * * *", "0 9 * * * TZ:UTC", "TZ=-00:00 0 9 * * *", "0 9 * * * Europe/Paris"):
            [(told,)] = sql.execute("SELECT jcron.explain_pattern(%s, %s, 'both')", (pattern, zone))
            assert told == Cron(pattern, zone, "both").explain()
