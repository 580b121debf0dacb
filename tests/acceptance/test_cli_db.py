"""`watchbill db`: make, upgrade and inspect the schema, and what it says when it cannot."""

from __future__ import annotations

import json
import signal
import subprocess

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.servers import Server
from watchbill.postgres.migration_plan import make_advisory_key


def run_sql(database: str, statement: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(statement.encode())


def test_migrate_creates_the_schema_and_prints_each_step(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("db", "migrate", "--database-url", database)
    assert (answer.returncode, answer.stderr) == (0, "")
    first, *_, last = answer.stdout.splitlines()
    assert first == "schema watchbill"
    assert last.startswith("Schema watchbill is at version ")
    assert last.endswith(": ready.")
    assert watchbill.here("db", "migrate", "--database-url", database).stdout.splitlines() == [last]


def test_db_without_a_verb_prints_the_status(watchbill: Watchbill, schema_database: str) -> None:
    bare = watchbill.here("db", WATCHBILL_DATABASE_URL=schema_database)
    assert bare.stdout == watchbill.here("db", "status", WATCHBILL_DATABASE_URL=schema_database).stdout
    assert bare.returncode == 0
    assert "(from WATCHBILL_DATABASE_URL)" in bare.stdout
    assert ": ready" in bare.stdout


def test_status_exits_with_3_if_the_schema_is_missing(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("db", "status", "--database-url", database)
    assert answer.returncode == 3
    assert "missing" in answer.stdout
    assert "Run `watchbill db migrate`." in answer.stdout


def test_status_exits_with_1_if_the_schema_is_too_old(watchbill: Watchbill, schema_database: str) -> None:
    run_sql(schema_database, "UPDATE watchbill.schema_functions SET checksum = 'other'")
    answer = watchbill.here("db", "status", "--database-url", schema_database)
    assert answer.returncode == 1
    assert "too old" in answer.stdout
    assert "functions  outdated" in answer.stdout


def test_status_exits_with_1_if_the_schema_is_too_new(watchbill: Watchbill, schema_database: str) -> None:
    columns = "version, oldest_compatible, name, watchbill_version, checksum"
    run_sql(schema_database, f"INSERT INTO watchbill.schema_version ({columns}) VALUES (9999, 9999, 'x', '99.0', 'x')")
    answer = watchbill.here("db", "status", "--database-url", schema_database)
    assert answer.returncode == 1
    assert "9999" in answer.stdout
    assert "too new" in answer.stdout
    assert "Install a newer Watchbill." in answer.stdout
    assert "too new" in watchbill.here("db", "migrate", "--database-url", schema_database).stdout


def test_status_prints_json(watchbill: Watchbill, schema_database: str) -> None:
    answer = watchbill.here("db", "status", "--json", "--database-url", schema_database)
    found = json.loads(answer.stdout)
    assert (found["schema"], found["verdict"], found["pending"]) == ("watchbill", "ready", [])
    assert found["applied"][0]["name"] == "0001_jobs.sql"


def test_each_schema_name_is_a_separate_installation(watchbill: Watchbill, schema_database: str) -> None:
    address = {"DATABASE_URL": schema_database}
    assert watchbill.here("db", "status", "--schema", "second", **address).returncode == 3
    assert watchbill.here("db", "migrate", "--schema=second", **address).returncode == 0
    assert watchbill.here("--schema", "second", "db", "status", **address).returncode == 0


def test_psql_runs_the_script_that_db_sql_prints(watchbill: Watchbill, server: Server, database: str) -> None:
    script = watchbill.here("db", "sql", "--database-url", database).stdout
    psql = [str(server.binaries.directory / "psql"), "-X", "-q", database]
    assert subprocess.run(psql, input=script, text=True, check=False, capture_output=True).returncode == 0
    assert watchbill.here("db", "status", "--database-url", database).returncode == 0
    assert watchbill.here("db", "sql", "--database-url", database).stdout.endswith("-- Nothing to do.\n")


def test_db_sql_all_needs_no_database(watchbill: Watchbill) -> None:
    answer = watchbill.here("db", "sql", "--all", "--schema", "mine")
    assert answer.returncode == 0
    assert 'CREATE SCHEMA "mine"' in answer.stdout


def test_migrate_connects_to_listen_url(watchbill: Watchbill, database: str) -> None:
    nowhere = "postgresql://kai@127.0.0.1:1/x"
    assert watchbill.here("db", "migrate", "--database-url", nowhere, WATCHBILL_LISTEN_URL=database).returncode == 0
    assert "(from WATCHBILL_LISTEN_URL)" in watchbill.here("db", WATCHBILL_LISTEN_URL=database).stdout


def test_adopt_skips_fences_of_the_old_server(watchbill: Watchbill, schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        before = connection.execute("SELECT watchbill._next_fence()").fetchall()
        answer = watchbill.here("db", "adopt", "--database-url", schema_database)
        after = connection.execute("SELECT watchbill._next_fence()").fetchall()
    assert answer.stdout.startswith("Schema watchbill continues here as generation ")
    assert after[0][0] - before[0][0] >= 2**40
    assert watchbill.here("db", "adopt", "--schema", "nothing", "--database-url", schema_database).returncode == 3


# When it cannot.


def assert_one_message(answer: subprocess.CompletedProcess[str], exit_code: int, *says: str) -> None:
    assert answer.returncode == exit_code
    assert answer.stdout == ""
    assert answer.stderr.startswith("Error: ")
    assert "Traceback" not in answer.stderr
    for words in says:
        assert words in answer.stderr


def test_missing_address_prints_one_message(watchbill: Watchbill) -> None:
    assert_one_message(watchbill("db"), 3, "No database address is set.", "WATCHBILL_DATABASE_URL", "watchbill up")


def test_unreachable_server_prints_one_message(watchbill: Watchbill) -> None:
    answer = watchbill("db", "migrate", "--database-url", "postgresql://kai:secret@127.0.0.1:1/shop")
    assert_one_message(answer, 3, 'database "shop" at 127.0.0.1:1 as user "kai"', "nothing listens there")
    assert "secret" not in answer.stderr


def test_unknown_database_prints_one_message(watchbill: Watchbill, server: Server) -> None:
    answer = watchbill.here("db", "--database-url", server.url("nowhere"))
    assert_one_message(answer, 3, 'database "nowhere" does not exist')


@pytest.mark.parametrize("url", ["postgres//kai:secret@h/x", "postgresql://kai:100%secret@h/x", "secret"])
def test_malformed_address_is_not_printed(watchbill: Watchbill, url: str) -> None:
    answer = watchbill.here("db", "--database-url", url)
    assert_one_message(answer, 3, "The database URL is invalid", "percent-encode")
    assert "secret" not in answer.stderr


def test_debug_option_prints_the_traceback(watchbill: Watchbill) -> None:
    answer = watchbill("db", "--database-url", "postgresql://kai:secret@127.0.0.1:1/shop", "--debug")
    assert "Traceback" in answer.stderr
    assert "NoDatabase" in answer.stderr
    assert "secret" not in answer.stderr


def test_role_without_rights_prints_one_message(watchbill: Watchbill, server: Server, schema_database: str) -> None:
    run_sql(schema_database, "CREATE ROLE stranger LOGIN")
    try:
        answer = watchbill.here("db", "--database-url", schema_database.replace("postgres@", "stranger@"))
        assert_one_message(answer, 3, "permission denied for schema watchbill")
    finally:
        run_sql(schema_database, "DROP ROLE stranger")


def test_invalid_setting_prints_one_message(watchbill: Watchbill) -> None:
    answer = watchbill.here("db", WATCHBILL_SCHEMA="Weird-Name")
    assert_one_message(answer, 2, "Setting schema='Weird-Name' is invalid (in WATCHBILL_SCHEMA).", "Allowed for schema")


def test_settings_in_two_files_print_one_message(watchbill: Watchbill) -> None:
    (watchbill.directory / "watchbill.toml").write_text("")
    (watchbill.directory / "pyproject.toml").write_text("[tool.watchbill]")
    assert_one_message(watchbill.here("db"), 2, "There are settings in two files")


def test_invalid_settings_file_prints_one_message(watchbill: Watchbill) -> None:
    (watchbill.directory / "watchbill.toml").write_bytes(b"\xff")
    assert_one_message(watchbill.here("db"), 2, "watchbill.toml is not valid TOML")


def test_settings_file_address_wins_over_database_url(watchbill: Watchbill, schema_database: str) -> None:
    (watchbill.directory / "watchbill.toml").write_text(f'database_url = "{schema_database}"')
    answer = watchbill.here("db", DATABASE_URL="postgresql://127.0.0.1:1/other")
    assert answer.returncode == 0
    assert f"(from {watchbill.directory / 'watchbill.toml'}:1)" in answer.stdout


def test_ctrl_c_exits_with_130_and_changes_nothing(watchbill: Watchbill, database: str) -> None:
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", make_advisory_key("watchbill"))
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
                assert process.stdout.readline().startswith("waiting: the lock for migrations")
                process.send_signal(signal.SIGINT)
                _, said = process.communicate()
            finally:
                process.kill()  # or the end of this block would wait for it
    assert process.returncode == 130
    assert "Traceback" not in said
    assert watchbill.here("db", "--database-url", database).returncode == 3


@pytest.mark.parametrize("columns", ["x text", "version int", "version int, oldest_compatible int"])
def test_db_commands_refuse_a_schema_of_another_program(watchbill: Watchbill, database: str, columns: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA watchbill")
        connection.execute(f"CREATE TABLE watchbill.schema_version ({columns})".encode())
        connection.execute("INSERT INTO watchbill.schema_version DEFAULT VALUES")
    for words in (["db", "status"], ["db", "migrate"], ["db", "sql"]):
        answer = watchbill.here(*words, "--database-url", database)
        assert (answer.returncode, "is not Watchbill's own" in answer.stderr) == (3, True), answer.stderr


def test_roles_are_created_granted_shown_and_revoked(
    watchbill: Watchbill, server: Server, schema_database: str
) -> None:
    prefix = f"{psycopg.conninfo.conninfo_to_dict(schema_database)['dbname']}_cli"
    watchbill = Watchbill(watchbill.directory, {"WATCHBILL_DATABASE_URL": schema_database})
    assert "There are no roles" in watchbill.here("db", "roles", "show").stdout
    try:
        answer = watchbill.here("db", "roles", "create", "--prefix", prefix)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert f"role {prefix}_producer" in answer.stdout.splitlines()
        run_sql(schema_database, f"CREATE ROLE {prefix} LOGIN")
        assert watchbill.here("db", "roles", "grant", prefix, "producer").returncode == 0
        shown = json.loads(watchbill.here("db", "roles", "show", "--json").stdout)
        assert {row["kind"]: row["members"] for row in shown["roles"]}["producer"] == [prefix]
        url = server.url(str(psycopg.conninfo.conninfo_to_dict(schema_database)["dbname"]), prefix)
        run_sql(url, "SELECT watchbill.enqueue('t')")
        assert f"Role {prefix} acts as producer." in watchbill("doctor", WATCHBILL_DATABASE_URL=url).stdout
        assert watchbill.here("db", "roles", "revoke", prefix, "producer").returncode == 0
        assert "kind 'boss' is invalid" in watchbill.here("db", "roles", "grant", prefix, "boss").stderr
    finally:
        for role in (prefix, *(f"{prefix}_{kind}" for kind in ("owner", "worker", "producer", "operator", "reader"))):
            run_sql(schema_database, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_facades_are_installed_into_the_schema_that_is_named_last(watchbill: Watchbill, schema_database: str) -> None:
    watchbill = Watchbill(watchbill.directory, {"WATCHBILL_DATABASE_URL": schema_database})
    answer = watchbill.here("--schema", "watchbill", "db", "install", "jcron", "--schema", "cron", "--prefix", "my_")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "facade jcron in schema cron\n", "")
    run_sql(schema_database, "SELECT cron.my_add_job('a', '0 0 9 * * *')")
    again = watchbill.here("db", "install", "jcron", "--schema=cron", "--prefix", "my_")
    assert again.stdout == "facade jcron in schema cron: already installed\n"
    elsewhere = watchbill.here("db", "install", "jcron")
    assert elsewhere.returncode == 3
    assert "Run `watchbill db uninstall jcron` first." in elsewhere.stderr
    assert watchbill.here("db", "uninstall", "jcron").stdout == "facade jcron removed\n"
    unknown = watchbill.here("db", "install", "cron")
    assert (unknown.returncode, "'cron' is not a facade" in unknown.stderr) == (2, True)


def test_schema_of_tests_says_so_until_it_is_kept(watchbill: Watchbill, schema_database: str) -> None:
    """The schema is only marked, since making one takes seconds."""
    run_sql(schema_database, "UPDATE watchbill.installation SET test = true, clock_offset = '30 s'")
    (watchbill.directory / "tasks.py").write_text("import watchbill\n\napp = watchbill.App()\n")
    url = ("--database-url", schema_database)

    def run_commands() -> list[str]:
        return [watchbill.here(*command, *url).stdout for command in (("db", "migrate"), ("db", "status"), ("doctor",))]

    for answer in (*run_commands(), watchbill("worker", "tasks:app", "--once", *url).stdout):
        assert "made by tests" in answer
        assert "`watchbill db keep`" in answer
    kept = watchbill.here("db", "keep", *url)
    assert (kept.returncode, kept.stdout) == (0, "Schema watchbill is a real one now: no test run uses it any more.\n")
    assert not any("made by tests" in answer for answer in run_commands())
    assert "already" in watchbill.here("db", "keep", *url).stdout
