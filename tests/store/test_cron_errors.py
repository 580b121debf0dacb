"""Any text at all is read or refused in SQL as in Python: the same verdict, the same words, one SQLSTATE."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import pytest

from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import check_schedule
from tests.store.cron_sql import Connection
from tests.unit.cron.test_errors import WRONG
from tests.unit.cron.test_fuzz import shuffled

BATCH = 500
VERDICT = """
    CREATE OR REPLACE FUNCTION pg_temp.verdict(pattern text, tz text, OUT state text, OUT said text, OUT meant text)
    LANGUAGE plpgsql AS $$
    DECLARE
      cron watchbill.cron;
      at timestamptz := '2024-03-10 06:59:59+00';
    BEGIN
      cron := watchbill.parse_cron(pattern, tz);
      PERFORM watchbill.next_run(cron, at), watchbill.prev_run(cron, at), jcron.explain_pattern(pattern, tz);
    EXCEPTION WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, said = MESSAGE_TEXT, meant = PG_EXCEPTION_HINT;
    END $$
"""
ASK = """
    SELECT v.* FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY u(pattern, tz, i), pg_temp.verdict(pattern, tz) v
    ORDER BY i
"""


class Verdict(NamedTuple):
    """All empty for a pattern."""

    state: str | None
    said: str | None
    meant: str | None


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
    return [Verdict(*row) for row in rows]


def in_python(pattern: str, zone: str = "UTC") -> Verdict:
    try:
        check_schedule.__wrapped__(pattern, zone, "default")
    except InvalidPattern as error:
        said = str(error).removesuffix(f"\n{error.hint}")
        return Verdict("WB010", said, error.hint or "")
    return Verdict(None, None, None)


def comparable(verdict: Verdict) -> Verdict:
    """Macros that nobody has are guessed at in different ways; Python also spells what no terminal shows."""
    said, meant = verdict.said, verdict.meant
    if said is not None and "is not one of @yearly" in said:
        meant = ""
    if said is not None and (not said.isascii() or "\\" in said):
        said = said.partition(":")[0]
    return Verdict(verdict.state, said, meant)


def test_errors_are_pythons_word_for_word(sql: Connection) -> None:
    patterns = [pattern for pattern, *_ in WRONG if storable(pattern)]
    for pattern, verdict in zip(patterns, in_sql(sql, patterns), strict=True):
        assert verdict.state == "WB010"
        assert comparable(verdict) == comparable(in_python(pattern)), pattern


def test_a_macro_is_guessed(sql: Connection) -> None:
    assert [verdict.meant for verdict in in_sql(sql, ["@dayly", "@Daily"])] == ["Did you mean @daily?"] * 2


def test_zones_of_the_schedule_are_refused_alike(sql: Connection) -> None:
    zones = ["", "utc", "Mars/Olympus", "+1", "TZ:UTC", "a" * 5000, "Europe/Paris\n", "+24:00", "-00:60", "paris", "É"]
    for zone, verdict in zip(zones, in_sql(sql, ["0 9 * * *"] * len(zones), zones), strict=True):
        assert comparable(verdict) == comparable(in_python("0 9 * * *", zone)), zone


def test_a_policy_and_an_instant_that_there_are_none_of(sql: Connection) -> None:
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


def test_nothing_in_is_nothing_out(sql: Connection) -> None:
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
def test_any_text_gets_pythons_verdict_and_nothing_but_the_one_error(sql: Connection, count: int) -> None:
    draw = random.Random(count)
    accepted = 0
    for _ in range(count // BATCH):
        patterns = [text for text in (shuffled(draw) for _ in range(BATCH)) if storable(text)]
        for pattern, verdict in zip(patterns, in_sql(sql, patterns), strict=True):
            assert comparable(verdict) == comparable(in_python(pattern)), repr(pattern)
            accepted += verdict.state is None
    assert count * 0.005 < accepted < count * 0.5


def test_the_longest_patterns_are_read(sql: Connection) -> None:
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
        assert comparable(verdict) == comparable(in_python(pattern)), pattern
        if verdict.state is None:
            Cron(pattern)
            sql.execute("SELECT jcron.next_time(%s), jcron.prev_time(%s)", (pattern, pattern))
