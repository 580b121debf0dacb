"""No setting of a session, no collation and no search_path changes what the cron functions answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from tests.store.cron_sql import Connection, at

SETTINGS: list[dict[str, str]] = [
    {"TimeZone": "Pacific/Apia"},
    {"TimeZone": "America/New_York", "DateStyle": "German, DMY"},
    {"DateStyle": "SQL, MDY", "IntervalStyle": "sql_standard"},
    {"IntervalStyle": "iso_8601", "extra_float_digits": "-15"},
    {"search_path": "evil, pg_catalog, watchbill, jcron"},
    {"search_path": ""},
    {"lc_numeric": "C", "quote_all_identifiers": "on", "array_nulls": "off", "transform_null_equals": "on"},
    {"default_transaction_isolation": "serializable", "default_transaction_read_only": "on"},
    {"plan_cache_mode": "force_generic_plan"},
]
PATTERNS = [
    "30 2 * * *",
    "*/20 * * * *",
    "0 0 9 * * MON#2 WOY:*/3 TZ:Europe/Dublin",
    "0 0 12 L-3W,15W * 5L E1M2W",
    "E0W | @every 90m",
    "S1DT3H",
    "0 9 * * MONDAY",
    "0 9 * * * TZ:new_york",
    "@reboot",
]
ZONES = ["America/New_York", "+05:30"]
ASK: LiteralString = """
    SELECT jcron.next_time(%(p)s, %(t)s, %(z)s), jcron.prev_time(%(p)s, %(t)s, %(z)s, 'both'),
      ARRAY(SELECT jcron.next_n_times(%(p)s, 3, %(t)s, %(z)s, 'skip', %(t)s)),
      ARRAY(SELECT jcron.schedule_between(%(p)s, %(t)s, %(u)s, %(z)s)),
      jcron.is_match(%(p)s, %(t)s, %(z)s), jcron.get_duration(%(p)s, %(t)s, %(z)s),
      jcron.time_until_next(%(p)s, %(t)s, %(z)s), jcron.is_valid_pattern(%(p)s, %(z)s),
      jcron.parse_cron(%(p)s, %(z)s)::bigint[], jcron.fast_time_diff_ms(%(t)s, %(u)s)
"""


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def answers(connection: Connection) -> list[Any]:
    """In binary form, so that only the answers themselves can differ."""
    found: list[Any] = []
    with connection.cursor(binary=True) as cursor:
        found.append(cursor.execute("SELECT jcron.get_frequency('*/20 9-17 * * *', 'Europe/Dublin')").fetchall())
        for pattern in PATTERNS:
            for zone in ZONES:
                parameters = {"p": pattern, "z": zone, "t": at("2024-03-10 05:30:00"), "u": at("2024-03-12 05:30:00")}
                try:
                    found.append(cursor.execute(ASK, parameters).fetchall())
                except psycopg.Error as error:
                    found.append((error.sqlstate, error.diag.message_primary, error.diag.message_hint))
    return found


def test_session_settings_do_not_change_cron_answers(sql: Connection) -> None:
    expected = answers(sql)
    assert {type(answer) for answer in expected} == {list, tuple}, "some patterns are to be refused"
    sql.execute("CREATE SCHEMA evil")
    sql.execute("CREATE FUNCTION evil.width_bucket(bigint, bigint[]) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    sql.execute("CREATE FUNCTION evil.to_timestamp(bigint) RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'")
    sql.execute("CREATE FUNCTION evil.parse_cron(text) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    sql.execute("CREATE TABLE evil.zones (number int)")
    for settings in SETTINGS:
        with psycopg.connect(sql.info.dsn, autocommit=True) as other:
            for name, value in settings.items():
                other.execute("SELECT set_config(%s, %s, false)", (name, value))
            assert answers(other) == expected, settings


def test_nonstandard_string_literals_do_not_change_cron_answers(sql: Connection) -> None:
    expected = answers(sql)
    with psycopg.connect(sql.info.dsn, autocommit=True) as other:
        try:
            other.execute("SET standard_conforming_strings = off")
            other.execute("SET escape_string_warning = off")
        except psycopg.Error:
            pytest.skip("this PostgreSQL refuses standard_conforming_strings = off, so it cannot change cron answers")
        assert answers(other) == expected


def test_case_insensitive_collation_does_not_change_parsing(sql: Connection) -> None:
    try:
        sql.execute("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL was built without ICU, so it has no collation that ignores case")
    sql.execute("CREATE TABLE t (pattern text COLLATE any_case, tz text COLLATE any_case, dst text COLLATE any_case)")
    rows = [("E1M", "UTC", "default"), ("E1m", "UTC", "skip"), ("0 9 * * mon-fri", "Europe/Paris", "both")]
    with sql.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", rows)
    moment = at("2025-01-15 10:00:00")
    found = sql.execute("SELECT jcron.next_time(pattern, %s, tz, dst) FROM t", (moment,)).fetchall()
    expected = [
        sql.execute("SELECT jcron.next_time(%s, %s, %s, %s)", (pattern, moment, tz, dst)).fetchone()
        for pattern, tz, dst in rows
    ]
    assert found == expected
    assert len(set(found)) == 3
    for wrong in ("('0 9 * * *', 'europe/paris', 'default')", "('0 9 L * *|', 'UTC', 'default')"):
        sql.execute("TRUNCATE t")
        sql.execute(f"INSERT INTO t VALUES {wrong}".encode())
        with pytest.raises(psycopg.Error) as raised:
            sql.execute("SELECT jcron.next_time(pattern, now(), tz, dst) FROM t")
        assert raised.value.sqlstate == "WB010"


def test_check_constraint_rejects_an_invalid_pattern(sql: Connection) -> None:
    for function, state in (("is_valid_pattern", "23514"), ("validate_pattern", "23514"), ("check_pattern", "WB010")):
        sql.execute(f"CREATE TABLE {function} (pattern text CHECK (jcron.{function}(pattern)))".encode())
        sql.execute(f"INSERT INTO {function} VALUES ('0 9 * * MON TZ:Europe/Paris'), (NULL)".encode())
        with pytest.raises(psycopg.Error) as raised:
            sql.execute(f"INSERT INTO {function} VALUES ('0 9 * * MONDAY')".encode())
        assert raised.value.sqlstate == state


def test_a_dump_with_checks_and_parsed_columns_is_restored(sql: Connection) -> None:
    """Rows come before the table of zones is filled: names and numbers stand in the functions themselves."""
    sql.execute("""
        CREATE TABLE t (pattern text CHECK (jcron.is_valid_pattern(pattern, tz)), tz text,
          parsed watchbill.cron GENERATED ALWAYS AS (watchbill.parse_cron(pattern, tz)) STORED)
    """)
    sql.execute("INSERT INTO t VALUES ('0 9 * * MON', 'Europe/Paris')")
    before = sql.execute("SELECT parsed::bigint[] FROM t").fetchall()
    sql.execute("TRUNCATE watchbill.zones, t")
    sql.execute("INSERT INTO t VALUES ('0 9 * * MON', 'Europe/Paris')")
    assert sql.execute("SELECT parsed::bigint[] FROM t").fetchall() == before
    with pytest.raises(psycopg.Error) as raised:
        sql.execute("SELECT jcron.next_run(parsed, '1950-01-01 00:00:00+00') FROM t")
    assert (raised.value.sqlstate, raised.value.diag.message_hint) == (
        "WB003",
        "run `watchbill db migrate`, which fills it",
    )


def test_cron_functions_work_read_only_and_in_parallel_workers(sql: Connection) -> None:
    sql.execute("SET default_transaction_read_only = on")
    sql.execute(
        "SET debug_parallel_query = on" if sql.info.server_version >= 160_000 else "SET force_parallel_mode = on"
    )
    query = "SELECT jcron.next_time(p, '2025-01-01 00:00:00+00', 'Europe/Paris') FROM (VALUES ('0 9 * * MON')) v(p)"
    assert sql.execute(query).fetchone() == (at("2025-01-06 08:00:00"),)
