"""Any text at all is read or refused in SQL as in Python: the same verdict, field, position and hint, one SQLSTATE."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import pytest

from tests.store.cron_sql import Connection
from tests.unit.cron.test_errors import WRONG
from tests.unit.cron.test_fuzz import shuffled
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import check_schedule

BATCH = 500
_FIELDS = "|".join({field for _, field, *_ in WRONG} - {"pattern", "zone"})
_MESSAGE = re.compile(
    rf"Invalid (?P<subject>cron pattern|time zone): (?:(?P<field>{_FIELDS}): )?.+, at position (?P<position>\d+)",
    re.DOTALL,
)
VERDICT = """
    CREATE OR REPLACE FUNCTION pg_temp.verdict(pattern text, tz text, OUT state text, OUT said text, OUT meant text)
    LANGUAGE plpgsql AS $$
    DECLARE
      cron watchbill.cron;
      at timestamptz := '2024-03-10 06:59:59+00';
    BEGIN
      cron := watchbill.parse_cron(pattern, tz);
      PERFORM watchbill.next_run(cron, at), watchbill.prev_run(cron, at);
    EXCEPTION WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, said = MESSAGE_TEXT, meant = PG_EXCEPTION_HINT;
    END $$
"""
ASK = """
    SELECT v.* FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY u(pattern, tz, i), pg_temp.verdict(pattern, tz) v
    ORDER BY i
"""


class Verdict(NamedTuple):
    """What an engine says of a pattern; all empty for a valid one."""

    state: str | None = None
    field: str | None = None
    position: int | None = None
    hint: str | None = None


def storable(text: str) -> bool:
    """PostgreSQL has no text with a NUL or half a surrogate pair."""
    return "\x00" not in text and not any(0xD800 <= ord(char) < 0xE000 for char in text)


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")  # for a batch: nothing hangs
        connection.execute(VERDICT)
        yield connection


def in_sql(sql: Connection, patterns: list[str], zones: list[str] | None = None) -> list[Verdict]:
    rows = sql.execute(ASK, (patterns, zones or ["UTC"] * len(patterns))).fetchall()
    return [_read_error(*row) for row in rows]


def _read_error(state: str | None, message: str | None, hint: str | None) -> Verdict:
    if message is None:
        return Verdict()
    found = _MESSAGE.fullmatch(message)
    assert found, message
    field = "zone" if found["subject"] == "time zone" else found["field"] or "pattern"
    return Verdict(state, field, int(found["position"]) - 1, hint)


def in_python(pattern: str, zone: str = "UTC") -> Verdict:
    try:
        check_schedule.__wrapped__(pattern, zone, "default")
    except InvalidPattern as error:
        return Verdict("WB010", error.field, error.position, error.hint or "")
    return Verdict()


def comparable(verdict: Verdict, pattern: str) -> Verdict:
    """Without the suggestion for an unknown macro, which the two engines guess in different ways."""
    return verdict._replace(hint="") if "@" in pattern and verdict.field == "pattern" else verdict


def test_errors_have_the_field_position_and_hint_of_python(sql: Connection) -> None:
    patterns = [pattern for pattern, *_ in WRONG if storable(pattern)]
    for pattern, verdict in zip(patterns, in_sql(sql, patterns), strict=True):
        assert verdict.state == "WB010"
        assert comparable(verdict, pattern) == comparable(in_python(pattern), pattern), pattern


def test_misspelt_macro_gets_a_suggestion(sql: Connection) -> None:
    assert [verdict.hint for verdict in in_sql(sql, ["@dayly", "@Daily"])] == ["Did you mean @daily?"] * 2


def test_sql_and_python_refuse_the_same_zones(sql: Connection) -> None:
    zones = ["", "utc", "Mars/Olympus", "+1", "TZ:UTC", "a" * 5000, "Europe/Paris\n", "+24:00", "-00:60", "paris", "É"]
    for zone, verdict in zip(zones, in_sql(sql, ["0 9 * * *"] * len(zones), zones), strict=True):
        assert verdict == in_python("0 9 * * *", zone), zone


def test_invalid_policy_and_invalid_instants_are_refused(sql: Connection) -> None:
    wrong = (
        "parse_cron('0 9 * * *', 'UTC', 'twice')",
        "next_run(watchbill.parse_cron('0 9 * * *'), 'infinity')",
        "next_run(watchbill.parse_cron('0 9 * * *'), '-infinity')",
        "prev_run(watchbill.parse_cron('0 9 * * *'), '10000-01-01 00:00:00+00')",
        "cron_matches(watchbill.parse_cron('0 9 * * *'), '0001-01-01 00:00:00+00 BC')",
    )
    for call in wrong:
        with pytest.raises(psycopg.Error) as raised:
            sql.execute(f"SELECT watchbill.{call}".encode())
        assert raised.value.sqlstate == "WB003", call


def test_null_arguments_return_null(sql: Connection) -> None:
    calls = (
        "parse_cron(NULL)",
        "next_time(NULL)",
        "next_time('0 9 * * *', NULL)",
        "next_time('0 9 * * *', now(), NULL)",
        "prev_time('0 9 * * *', NULL)",
        "is_match(NULL, now())",
        "is_valid_pattern(NULL)",
        "get_duration(NULL)",
        "get_frequency(NULL)",
        "time_until_next(NULL)",
    )
    for call in calls:
        assert sql.execute(f"SELECT jcron.{call}".encode()).fetchone() == (None,), call
    assert sql.execute("SELECT jcron.next_n_times('0 9 * * *', NULL)").fetchall() == []


@pytest.mark.parametrize("count", [1_500, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_random_text_gets_the_same_verdict_in_sql_and_python(sql: Connection, count: int) -> None:
    draw = random.Random(count)
    accepted = 0
    for _ in range(count // BATCH):
        patterns = [text for text in (shuffled(draw) for _ in range(BATCH)) if storable(text)]
        for pattern, verdict in zip(patterns, in_sql(sql, patterns), strict=True):
            assert comparable(verdict, pattern) == comparable(in_python(pattern), pattern), repr(pattern)
            accepted += verdict.state is None
    assert count * 0.005 < accepted < count * 0.5


def test_longest_patterns_get_the_same_verdict_in_sql_and_python(sql: Connection) -> None:
    longest = [
        "1," * 490 + "1 * * * *",
        "*/1," * 240 + "* * * * *",
        "0 0 " + "L-1W," * 195 + "L * *",
        "0 0 * * " + "1#1," * 195 + "1L",
        "0 0 0 1 1 * " + "1970-3000," * 90 + "1970-3000/1",
        " | ".join(["* * * * * * 1970-3000 WOY:*"] * 32),
        "@every " + "9" * 990 + "d",
        "E" + "9" * 990 + "Y",
        "E" + "0Y" * 499,
        "|" * 1000,
        "TZ:" + "A/" * 490 + "A",
    ]
    for pattern, verdict in zip(longest, in_sql(sql, longest), strict=True):
        assert comparable(verdict, pattern) == comparable(in_python(pattern), pattern), pattern
        if verdict.state is None:
            Cron(pattern)
            sql.execute("SELECT jcron.next_time(%s), jcron.prev_time(%s)", (pattern, pattern))
