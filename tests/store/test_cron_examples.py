"""Every worked example of the cron language in SQL, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import LiteralString

import psycopg
import pytest

from tests.store.cron_sql import Connection, at
from tests.unit.cron.examples import CALENDAR, CLOCK_CHANGES, JCRON, REJECTED, Example, examples

WITHOUT_MODIFIERS = examples(CLOCK_CHANGES) + examples(CALENDAR)


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


def value(sql: Connection, query: LiteralString, *parameters: object) -> object:
    [(found,)] = sql.execute(query, parameters)
    return found


def test_next_n_times_returns_the_documented_runs(sql: Connection) -> None:
    for pattern, zone, start, runs in WITHOUT_MODIFIERS + examples(JCRON):
        query = "SELECT jcron.next_n_times(%s, %s, %s, %s)"
        found = sql.execute(query, (pattern, len(runs) or 1, at(start), zone)).fetchall()
        assert [moment for (moment,) in found] == [at(run) for run in runs], pattern


def test_prev_time_returns_the_documented_runs_backwards(sql: Connection) -> None:
    for pattern, zone, start, runs in WITHOUT_MODIFIERS:
        for earlier, later in pairwise(runs):
            assert value(sql, "SELECT jcron.prev_time(%s, %s, %s)", pattern, at(later), zone) == at(earlier), pattern
        if runs:
            before_all = value(sql, "SELECT jcron.prev_time(%s, %s, %s) <= %s", pattern, at(runs[0]), zone, at(start))
            assert before_all in (True, None), pattern


def test_is_match_is_true_at_a_run_and_false_a_second_before(sql: Connection) -> None:
    for pattern, zone, _, runs in WITHOUT_MODIFIERS:
        for run in runs:
            match: LiteralString = "SELECT jcron.is_match(%s, %s, %s)"
            assert value(sql, match, pattern, at(run), zone) is True
            assert value(sql, match, pattern, at(run) - timedelta(seconds=1), zone) is False


@pytest.mark.parametrize("pattern", REJECTED)
def test_unsupported_syntax_is_rejected(sql: Connection, pattern: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        sql.execute("SELECT jcron.check_pattern(%s)", (pattern,))
    assert raised.value.sqlstate == "WB010"
    assert value(sql, "SELECT jcron.is_valid_pattern(%s) OR jcron.validate_pattern(%s)", pattern, pattern) is False


def test_get_duration_returns_the_window_length(sql: Connection) -> None:
    found = value(sql, "SELECT jcron.get_duration('0 0 9 * * 1 E1W', '2025-10-06 00:00:00+00')")
    assert found == timedelta(days=13, hours=14, minutes=59, seconds=59)


def test_schedule_between_returns_the_runs_in_the_range(sql: Connection) -> None:
    example: Example = ("0 2,3 * * *", "America/New_York", "2024-03-10 05:00:00", ["2024-03-10 07:00:00"])
    pattern, zone, start, runs = example
    found = sql.execute(
        "SELECT jcron.schedule_between(%s, %s, %s, %s)", (pattern, at(start), at("2024-03-11 06:00:00"), zone)
    ).fetchall()
    assert [moment for (moment,) in found] == [at(run) for run in runs]
