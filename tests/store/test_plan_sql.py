"""`watchbill db sql`: fed to psql, the printed plan does what `watchbill db migrate` does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.servers import Server
from tests.store.migration_sets import COLUMN, FUNCTION, INDEX, TABLE, source_of
from watchbill.postgres.migrate import Source, migrate, plan_sql, status

REAL = Source.of_package("watchbill.store")

CATALOG = """
SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull::text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'watchbill'::regnamespace
UNION ALL
SELECT 'function', p.oid::regprocedure::text, p.prosrc, p.proconfig::text
FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace
UNION ALL
SELECT 'version', v.name, v.checksum, v.oldest_compatible::text FROM watchbill.schema_version v
UNION ALL
SELECT 'functions', f.checksum, f.signatures::text, f.watchbill_version FROM watchbill.schema_functions f
ORDER BY 1, 2
"""


def psql(server: Server, database: str, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script without the notices of DROP IF EXISTS: a migration drops functions of earlier releases."""
    program, options = str(server.binaries.directory / "psql"), {"PGOPTIONS": "-c client_min_messages=warning"}
    return subprocess.run(
        [program, "-X", "-q", database],
        input=script,
        text=True,
        capture_output=True,
        check=False,
        env=os.environ | options,
    )


def catalog(database: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(CATALOG).fetchall()


@pytest.fixture
def other_database(server: Server) -> str:
    return server.url(server.create_database())


def assert_same_result(server: Server, source: Source, by_psql: str, by_us: str) -> None:
    answer = psql(server, by_psql, plan_sql(status(by_psql, "watchbill", source)))
    assert (answer.returncode, answer.stderr) == (0, "")
    migrate(by_us, "watchbill", source)
    assert catalog(by_psql) == catalog(by_us)
    assert status(by_psql, "watchbill", source).verdict == "ready"


def test_psql_reaches_the_same_schema(server: Server, database: str, other_database: str, tmp_path: Path) -> None:
    functions = {"010_volume.sql": FUNCTION}
    assert_same_result(server, source_of(tmp_path, TABLE, INDEX, functions=functions), database, other_database)
    changed = {"010_volume.sql": FUNCTION + " -- no newline", "020.sql": FUNCTION.replace("volume", "second")}
    assert_same_result(server, source_of(tmp_path, TABLE, INDEX, COLUMN, functions=changed), database, other_database)


def test_psql_reaches_the_same_schema_with_the_real_migrations(
    server: Server, database: str, other_database: str
) -> None:
    assert_same_result(server, REAL, database, other_database)


def test_second_run_of_the_script_stops_without_changes(server: Server, database: str, tmp_path: Path) -> None:
    script = plan_sql(status(database, "watchbill", source_of(tmp_path, TABLE, functions={"010.sql": FUNCTION})))
    assert psql(server, database, script).returncode == 0
    before = catalog(database)
    again = psql(server, database, script)
    assert again.returncode == 3
    assert "already exists" in again.stderr
    assert catalog(database) == before


def test_plan_says_when_there_is_nothing_to_do(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE)
    migrate(database, "watchbill", source)
    assert plan_sql(status(database, "watchbill", source)).endswith("-- Nothing to do.\n")


def test_a_schema_with_an_odd_name_is_quoted(server: Server, database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, INDEX, functions={"010.sql": FUNCTION})
    answer = psql(server, database, plan_sql(status(database, 'We"ird % {x}', source)))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert status(database, 'We"ird % {x}', source).verdict == "ready"
