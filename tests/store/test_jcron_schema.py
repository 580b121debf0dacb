"""Who writes the schema jcron, and who leaves it alone."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.servers import Server
from tests.store.cron_sql import Connection
from tests.store.test_plan_sql import psql
from watchbill.errors import SettingsError
from watchbill.store.install import install, install_script

OWNER = "SELECT obj_description('jcron'::regnamespace, 'pg_namespace')"
ASK = "SELECT jcron.next_time('0 9 * * MON', '2025-01-01 00:00:00+00', 'Europe/Paris') = '2025-01-06 08:00:00+00'"


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def installed(url: str, schema: str = "watchbill", jcron_schema: str = "jcron") -> list[str]:
    said: list[str] = []
    install(url, schema, jcron_schema, said.append)
    return [line for line in said if "jcron" in line]


def owner(sql: Connection) -> str:
    [(comment,)] = sql.execute(OWNER)
    return str(comment).partition("schema ")[2].partition(";")[0]


def works(sql: Connection) -> bool:
    return sql.execute(ASK).fetchone() == (True,)


def test_install_changes_nothing_if_jcron_is_current(sql: Connection) -> None:
    assert (owner(sql), works(sql), installed(sql.info.dsn)) == ("watchbill", True, [])


def test_second_installation_does_not_change_jcron(sql: Connection) -> None:
    said = installed(sql.info.dsn, "second")
    assert said == ["schema jcron is left alone: it belongs to the installation in schema watchbill"]
    assert owner(sql) == "watchbill"
    assert installed(sql.info.dsn, "second", "jcron_of_second") == ["schema jcron_of_second"]
    sql.execute("DROP SCHEMA watchbill CASCADE")
    assert installed(sql.info.dsn, "second") == ["schema jcron"], "its owner is gone"
    assert (owner(sql), works(sql)) == ("second", True)


def test_install_recreates_functions_dropped_with_their_owner(sql: Connection) -> None:
    sql.execute("DROP SCHEMA watchbill CASCADE")
    assert installed(sql.info.dsn) == ["schema jcron"]
    assert works(sql)


def test_install_replaces_an_older_version_that_is_in_use(sql: Connection) -> None:
    sql.execute("CREATE TABLE t (pattern text CHECK (jcron.is_valid_pattern(pattern)))")
    sql.execute(
        "COMMENT ON SCHEMA jcron IS "
        "'Watchbill''s cron functions, written by the installation in schema watchbill; version 0'"
    )
    assert installed(sql.info.dsn) == ["schema jcron"]
    assert works(sql)


def test_install_does_not_change_a_foreign_schema_named_jcron(sql: Connection) -> None:
    sql.execute("DROP SCHEMA jcron CASCADE")
    sql.execute("CREATE SCHEMA jcron")
    assert installed(sql.info.dsn) == [
        "schema jcron is left alone: it is not Watchbill's; set jcron_schema to another name"
    ]
    assert sql.execute("SELECT count(*) FROM pg_proc WHERE pronamespace = 'jcron'::regnamespace").fetchone() == (0,)


def test_install_refuses_one_name_for_both_schemas(sql: Connection) -> None:
    with pytest.raises(SettingsError, match="jcron_schema and schema are both watchbill"):
        install(sql.info.dsn, "watchbill", "watchbill")


def test_role_that_may_not_create_jcron_gets_everything_else(server: Server, sql: Connection) -> None:
    sql.execute("DROP SCHEMA jcron CASCADE")
    role = f"owner_{sql.info.dbname}"
    sql.execute(f"CREATE ROLE {role} LOGIN".encode())
    sql.execute(f"CREATE SCHEMA own AUTHORIZATION {role}".encode())
    try:
        url = server.url(sql.info.dbname, role)
        assert installed(url, "own") == ["no schema jcron: this role may not create schemas in this database"]
        assert "CREATE SCHEMA" in install_script(url, "own", "jcron"), "a DBA may be allowed to"
        [(found,)] = sql.execute("SELECT own.next_run(own.parse_cron('@daily'), '2025-01-01 00:00:00+00')::date::text")
        assert found == "2025-01-02"
    finally:
        sql.execute(f"DROP OWNED BY {role}".encode())
        sql.execute(f"DROP ROLE {role}".encode())


def test_psql_script_installs_the_same_schema(server: Server, database: str) -> None:
    answer = psql(server, database, install_script(None, "watchbill", "jcron"))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert install_script(database, "watchbill", "jcron").endswith("-- Nothing to do.\n")
    with psycopg.connect(database, autocommit=True) as sql:
        assert works(sql)
        sql.execute("UPDATE watchbill.zones SET tzdata = '1999a.1'")
        sql.execute("DROP SCHEMA jcron CASCADE")
        script = install_script(database, "watchbill", "jcron")
        assert "-- functions" not in script
        answer = psql(server, database, script)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert works(sql)
    assert installed(database) == []
