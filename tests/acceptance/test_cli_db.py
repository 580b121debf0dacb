"""`watchbill db`: make, upgrade and inspect the schema, and what it says when it cannot."""

from __future__ import annotations

import json
import signal
import subprocess

import psycopg
import pytest

from watchbill.postgres.migration_plan import advisory_key
from tests.acceptance.command import Watchbill
from tests.servers import Server


def run_sql(database: str, statement: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(statement.encode())


def test_migrate_makes_the_schema_and_says_each_step(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("db", "migrate", "--database-url", database)
    assert (answer.returncode, answer.stderr) == (0, "")
    first, *_, last = answer.stdout.splitlines()
    assert first == "schema watchbill"
    assert last.startswith("Schema watchbill is at version ")
    assert last.endswith(": ready.")
    assert watchbill("db", "migrate", "--database-url", database).stdout.splitlines() == [last]


def test_the_bare_noun_shows_the_status(watchbill: Watchbill, schema_database: str) -> None:
    bare = watchbill("db", WATCHBILL_DATABASE_URL=schema_database)
    assert bare.stdout == watchbill("db", "status", WATCHBILL_DATABASE_URL=schema_database).stdout
    assert bare.returncode == 0
    assert "(from WATCHBILL_DATABASE_URL)" in bare.stdout
    assert ": ready" in bare.stdout


def test_a_missing_schema_ends_with_3(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("db", "status", "--database-url", database)
    assert answer.returncode == 3
    assert "missing" in answer.stdout
    assert "Run `watchbill db migrate`." in answer.stdout


def test_a_schema_that_is_too_old_ends_with_1(watchbill: Watchbill, schema_database: str) -> None:
    run_sql(schema_database, "UPDATE watchbill.schema_functions SET checksum = 'other'")
    answer = watchbill("db", "status", "--database-url", schema_database)
    assert answer.returncode == 1
    assert "too old" in answer.stdout
    assert "functions  outdated" in answer.stdout


def test_a_schema_that_is_too_new_ends_with_1(watchbill: Watchbill, schema_database: str) -> None:
    columns = "version, oldest_compatible, name, watchbill_version, checksum"
    run_sql(schema_database, f"INSERT INTO watchbill.schema_version ({columns}) VALUES (9999, 9999, 'x', '99.0', 'x')")
    answer = watchbill("db", "status", "--database-url", schema_database)
    assert answer.returncode == 1
    assert "9999" in answer.stdout
    assert "too new" in answer.stdout
    assert "Install a newer Watchbill." in answer.stdout
    assert "too new" in watchbill("db", "migrate", "--database-url", schema_database).stdout


def test_the_status_as_json(watchbill: Watchbill, schema_database: str) -> None:
    answer = watchbill("db", "status", "--json", "--database-url", schema_database)
    found = json.loads(answer.stdout)
    assert (found["schema"], found["verdict"], found["pending"]) == ("watchbill", "ready", [])
    assert found["applied"][0]["name"] == "0001_jobs.sql"


def test_another_schema_is_another_installation(watchbill: Watchbill, schema_database: str) -> None:
    address = {"DATABASE_URL": schema_database}
    assert watchbill("db", "status", "--schema", "second", **address).returncode == 3
    assert watchbill("db", "migrate", "--schema=second", **address).returncode == 0
    assert watchbill("--schema", "second", "db", "status", **address).returncode == 0


def test_the_printed_plan_is_for_psql(watchbill: Watchbill, server: Server, database: str) -> None:
    script = watchbill("db", "sql", "--database-url", database).stdout
    psql = [str(server.binaries.directory / "psql"), "-X", "-q", database]
    assert subprocess.run(psql, input=script, text=True, check=False, capture_output=True).returncode == 0
    assert watchbill("db", "status", "--database-url", database).returncode == 0
    assert watchbill("db", "sql", "--database-url", database).stdout.endswith("-- Nothing to do.\n")


def test_the_whole_plan_needs_no_database(watchbill: Watchbill) -> None:
    answer = watchbill("db", "sql", "--all", "--schema", "mine")
    assert answer.returncode == 0
    assert 'CREATE SCHEMA "mine"' in answer.stdout


def test_migrations_use_the_direct_address(watchbill: Watchbill, database: str) -> None:
    nowhere = "postgresql://kai@127.0.0.1:1/x"
    assert watchbill("db", "migrate", "--database-url", nowhere, WATCHBILL_LISTEN_URL=database).returncode == 0
    assert "(from WATCHBILL_LISTEN_URL)" in watchbill("db", WATCHBILL_LISTEN_URL=database).stdout


def test_adopt_steps_over_what_the_old_server_issued(watchbill: Watchbill, schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        before = connection.execute("SELECT watchbill.next_fence()").fetchall()
        answer = watchbill("db", "adopt", "--database-url", schema_database)
        after = connection.execute("SELECT watchbill.next_fence()").fetchall()
    assert answer.stdout.startswith("Schema watchbill goes on here as generation ")
    assert after[0][0] - before[0][0] >= 2**40
    assert watchbill("db", "adopt", "--schema", "nothing", "--database-url", schema_database).returncode == 3


# When it cannot.


def assert_one_message(answer: subprocess.CompletedProcess[str], exit_code: int, *says: str) -> None:
    assert answer.returncode == exit_code
    assert answer.stdout == ""
    assert answer.stderr.startswith("Error: ")
    assert "Traceback" not in answer.stderr
    for words in says:
        assert words in answer.stderr


def test_no_address(watchbill: Watchbill) -> None:
    assert_one_message(watchbill("db"), 3, "No database is known.", "WATCHBILL_DATABASE_URL", "watchbill up")


def test_an_unreachable_server(watchbill: Watchbill) -> None:
    answer = watchbill("db", "migrate", "--database-url", "postgresql://kai:secret@127.0.0.1:1/shop")
    assert_one_message(answer, 3, 'database "shop" at 127.0.0.1:1 as user "kai"', "nothing listens there")
    assert "secret" not in answer.stderr


def test_an_unknown_database(watchbill: Watchbill, server: Server) -> None:
    answer = watchbill("db", "--database-url", server.url("nowhere"))
    assert_one_message(answer, 3, 'database "nowhere" does not exist')


@pytest.mark.parametrize("url", ["postgres//kai:secret@h/x", "postgresql://kai:100%secret@h/x", "secret"])
def test_an_address_that_cannot_be_read_is_not_shown(watchbill: Watchbill, url: str) -> None:
    answer = watchbill("db", "--database-url", url)
    assert_one_message(answer, 3, "The database URL cannot be read", "percent-encode")
    assert "secret" not in answer.stderr


def test_debug_shows_the_traceback(watchbill: Watchbill) -> None:
    answer = watchbill("db", "--database-url", "postgresql://kai:secret@127.0.0.1:1/shop", "--debug")
    assert "Traceback" in answer.stderr
    assert "NoDatabase" in answer.stderr
    assert "secret" not in answer.stderr


def test_a_role_without_rights(watchbill: Watchbill, server: Server, schema_database: str) -> None:
    run_sql(schema_database, "CREATE ROLE stranger LOGIN")
    try:
        answer = watchbill("db", "--database-url", schema_database.replace("postgres@", "stranger@"))
        assert_one_message(answer, 3, "permission denied for schema watchbill")
    finally:
        run_sql(schema_database, "DROP ROLE stranger")


def test_a_wrong_setting(watchbill: Watchbill) -> None:
    answer = watchbill("db", WATCHBILL_SCHEMA="Weird-Name")
    assert_one_message(answer, 2, "Setting schema cannot be 'Weird-Name' (in WATCHBILL_SCHEMA).", "Allowed for schema")


def test_both_settings_files(watchbill: Watchbill) -> None:
    (watchbill.directory / "watchbill.toml").write_text("")
    (watchbill.directory / "pyproject.toml").write_text("[tool.watchbill]")
    assert_one_message(watchbill("db"), 2, "Settings stand in two files")


def test_an_unreadable_settings_file(watchbill: Watchbill) -> None:
    (watchbill.directory / "watchbill.toml").write_bytes(b"\xff")
    assert_one_message(watchbill("db"), 2, "watchbill.toml is not valid TOML")


def test_the_address_in_the_settings_file(watchbill: Watchbill, schema_database: str) -> None:
    (watchbill.directory / "watchbill.toml").write_text(f'database_url = "{schema_database}"')
    answer = watchbill("db", DATABASE_URL="postgresql://127.0.0.1:1/other")
    assert answer.returncode == 0
    assert f"(from {watchbill.directory / 'watchbill.toml'}:1)" in answer.stdout


def test_ctrl_c_ends_with_130_and_leaves_nothing(watchbill: Watchbill, database: str) -> None:
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", advisory_key("watchbill"))
        command = watchbill.command("db", "migrate", "--database-url", database)
        with subprocess.Popen(
            command,
            cwd=watchbill.directory,
            env=watchbill.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline().startswith("waiting: another migration")
                process.send_signal(signal.SIGINT)
                _, said = process.communicate()
            finally:
                process.kill()  # or the end of this block would wait for it
    assert process.returncode == 130
    assert "Traceback" not in said
    assert watchbill("db", "--database-url", database).returncode == 3


@pytest.mark.parametrize("columns", ["x text", "version int", "version int, oldest_compatible int"])
def test_a_schema_of_somebody_else_is_left_alone(watchbill: Watchbill, database: str, columns: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA watchbill")
        connection.execute(f"CREATE TABLE watchbill.schema_version ({columns})".encode())
        connection.execute("INSERT INTO watchbill.schema_version DEFAULT VALUES")
    for words in (["db", "status"], ["db", "migrate"], ["db", "sql"]):
        answer = watchbill.here(*words, "--database-url", database)
        assert (answer.returncode, "is not Watchbill's own" in answer.stderr) == (3, True), answer.stderr
