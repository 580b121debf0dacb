"""Migrations on a real server: what they leave, how they fail, who they wait for."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.store.migration_sets import COLUMN, FUNCTION, INDEX, TABLE, read_set, source_of, write_set
from watchbill.errors import SchemaError
from watchbill.postgres.migrate import Patience, Source, Status, apply_functions, migrate, status
from watchbill.postgres.migration_plan import make_advisory_key
from watchbill.postgres.parameter_names import find_parameter_names
from watchbill.store.install import install

QUICK = Patience(lock_timeout=0.05, tries=3, pause=0)


def rows(database: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def applied(database: str, source: Source, schema: str = "watchbill") -> list[int]:
    return [row.version for row in status(database, schema, source).applied]


def test_an_empty_database_gets_schema_versions_and_functions(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, COLUMN, functions={"010_volume.sql": FUNCTION})
    result = migrate(database, "watchbill", source)
    assert (result.verdict, result.version) == ("ready", 2)
    assert rows(database, "SELECT watchbill.volume()") == [(None,)]
    assert rows(database, "SELECT version, name, oldest_compatible FROM watchbill.schema_version ORDER BY 1") == [
        (1, "0001_step.sql", 1),
        (2, "0002_step.sql", 1),
    ]


def test_second_migrate_does_nothing(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, functions={"010_volume.sql": FUNCTION})
    first = migrate(database, "watchbill", source)
    steps: list[str] = []
    assert migrate(database, "watchbill", source, report=steps.append) == first
    assert steps == []


def test_functions_are_applied_after_the_last_migration_has_released_its_locks(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, COLUMN, functions={"010_volume.sql": FUNCTION})
    migrate(database, "watchbill", source)
    [(first,), (second,)] = rows(database, "SELECT xmin::text FROM watchbill.schema_version ORDER BY version")
    [(functions,)] = rows(database, "SELECT xmin::text FROM watchbill.schema_functions")
    assert len({first, second, functions}) == 3


def test_failed_migration_is_rolled_back_and_names_its_line(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, "-- a comment\nCREATE TABLE lost ();\nSELECT nothing_like_it;")
    with pytest.raises(SchemaError, match=r'0002_step.sql, line 3: column "nothing_like_it" does not exist'):
        migrate(database, "watchbill", source)
    assert applied(database, source) == [1]
    assert rows(database, "SELECT to_regclass('watchbill.lost')") == [(None,)]


def test_failed_function_leaves_the_migrations_and_can_be_corrected(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, functions={"010_bad.sql": FUNCTION.replace("boxes", "nowhere")})
    with pytest.raises(SchemaError, match=r"010_bad.sql.*nowhere"):
        migrate(database, "watchbill", source)
    assert applied(database, source) == [1]
    assert status(database, "watchbill", source).verdict == "too old"
    corrected = source_of(tmp_path, TABLE, functions={"010_bad.sql": FUNCTION})
    assert migrate(database, "watchbill", corrected).verdict == "ready"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO notes VALUES ('100 %s {schema} $1 \\n')",
        "INSERT INTO notes VALUES ('100 %s {schema} $1 \\n'); -- no newline after this",
        "INSERT INTO notes VALUES ($x$100 %s {schema} $1 \\n$x$)\n/* ; */",
    ],
)
def test_migration_text_is_executed_literally(database: str, tmp_path: Path, text: str) -> None:
    migrate(database, "watchbill", source_of(tmp_path, "CREATE TABLE notes (text text)", text))
    assert rows(database, "SELECT text FROM watchbill.notes") == [("100 %s {schema} $1 \\n",)]


@pytest.mark.parametrize("schema", ["Weird-Name", 'quo"te', "größe", "per % cent {x}", "select"])
def test_migrate_accepts_any_schema_name(database: str, tmp_path: Path, schema: str) -> None:
    source = source_of(tmp_path, TABLE, INDEX, functions={"010_volume.sql": FUNCTION})
    assert migrate(database, schema, source).verdict == "ready"
    with psycopg.connect(database) as connection:
        connection.execute(sql.SQL("INSERT INTO {} VALUES (1, 7)").format(sql.Identifier(schema, "boxes")))
        volume = connection.execute(sql.SQL("SELECT {}()").format(sql.Identifier(schema, "volume"))).fetchone()
    assert volume == (7,)
    assert migrate(database, schema, source).verdict == "ready"


def test_two_installations_do_not_see_each_other(database: str, tmp_path: Path) -> None:
    one = source_of(tmp_path / "one", TABLE, functions={"010_volume.sql": FUNCTION})
    two = source_of(tmp_path / "two", TABLE, COLUMN, functions={"010_volume.sql": FUNCTION})
    migrate(database, "one", one)
    migrate(database, "two", two)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO two.boxes VALUES (1, 5)")
    assert rows(database, "SELECT one.volume(), two.volume()") == [(None, 5)]
    assert applied(database, one, "one") == [1]
    assert applied(database, two, "two") == [1, 2]


# Functions.


def test_changed_functions_are_applied_again_and_unchanged_ones_are_not(database: str, tmp_path: Path) -> None:
    before = migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"010_volume.sql": FUNCTION}))
    changed = FUNCTION.replace("sum(size)", "sum(size) + 100")
    after = migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"010_volume.sql": changed}))
    assert before.functions != after.functions
    assert rows(database, "SELECT prosrc FROM pg_proc WHERE proname = 'volume'") == [
        ("SELECT sum(size) + 100 FROM boxes",)
    ]


def test_apply_functions_recreates_a_dropped_function(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, functions={"010_volume.sql": FUNCTION})
    migrate(database, "watchbill", source)
    with psycopg.connect(database) as connection:
        connection.execute("DROP FUNCTION watchbill.volume()")
    apply_functions(database, "watchbill", source)
    assert rows(database, "SELECT watchbill.volume()") == [(None,)]


def test_migrate_drops_functions_removed_from_the_files(database: str, tmp_path: Path) -> None:
    made_by_migration = "CREATE FUNCTION keep() RETURNS int LANGUAGE sql AS 'SELECT 1';"
    first = source_of(tmp_path, TABLE, made_by_migration, functions={"010_volume.sql": FUNCTION, "020.sql": _other("")})
    migrate(database, "watchbill", first)
    second = source_of(tmp_path, TABLE, made_by_migration, functions={"020.sql": _other("factor int DEFAULT 1")})
    migrate(database, "watchbill", second)
    names = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace ORDER BY 1"
    assert rows(database, names) == [("watchbill.keep()",), ("watchbill.other(integer)",)]
    assert rows(database, "SELECT watchbill.other()") == [(1,)]


def test_migrate_replaces_a_function_whose_parameters_have_other_names(database: str, tmp_path: Path) -> None:
    def make_source(parameters: str) -> Source:
        return source_of(tmp_path, TABLE, functions={"010.sql": FUNCTION, "020.sql": _other(parameters)})

    migrate(database, "watchbill", make_source("factor int DEFAULT 1, \"end\" text DEFAULT ',('"))
    migrate(database, "watchbill", make_source("-- one, two\n times int DEFAULT 1, \"end\" text DEFAULT ''"))
    arguments = "SELECT proargnames FROM pg_proc WHERE proname = 'other'"
    assert rows(database, arguments) == [(["times", "end"],)]


def test_parameter_names_are_read_as_the_database_reads_them(schema_database: str) -> None:
    read = find_parameter_names(Source.of_package("watchbill.store").functions)
    stored = rows(
        schema_database,
        "SELECT proname, proargnames FROM pg_proc"
        " WHERE pronamespace = 'watchbill'::regnamespace AND proargnames IS NOT NULL",
    )
    assert [(name, names) for name, names in stored if names not in read.get(name, [])] == []


def test_migrate_drops_functions_that_call_each_other(database: str, tmp_path: Path) -> None:
    called = "CREATE OR REPLACE FUNCTION a_called() RETURNS int LANGUAGE sql RETURN 1;"
    calling = "CREATE OR REPLACE FUNCTION b_calling() RETURNS int LANGUAGE sql RETURN a_called();"
    functions = {"010.sql": called, "020.sql": calling, "030_volume.sql": FUNCTION}
    migrate(database, "watchbill", source_of(tmp_path, TABLE, functions=functions))
    migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"030_volume.sql": FUNCTION}))
    names = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace"
    assert rows(database, names) == [("watchbill.volume()",)]


def test_migrate_keeps_functions_created_in_a_do_block(database: str, tmp_path: Path) -> None:
    """A block with EXCEPTION is a transaction within the transaction; what it makes is as new as the rest."""
    block = f"DO $$ BEGIN {FUNCTION} EXCEPTION WHEN undefined_table THEN NULL; END $$;"
    migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"010_volume.sql": FUNCTION}))
    for text in (block, block + " -- again", FUNCTION):
        migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"010_volume.sql": text}))
        assert rows(database, "SELECT signatures FROM watchbill.schema_functions") == [(["volume()"],)]
        assert rows(database, "SELECT watchbill.volume()") == [(None,)]


def _other(arguments: str) -> str:
    return f"CREATE OR REPLACE FUNCTION other({arguments}) RETURNS int LANGUAGE sql AS 'SELECT 1';"


def test_older_program_does_not_replace_newer_functions(database: str, tmp_path: Path) -> None:
    functions = {"010_volume.sql": FUNCTION}
    newer = source_of(tmp_path, TABLE, functions=functions, watchbill_version="2.10.0")
    migrate(database, "watchbill", newer)
    older = source_of(tmp_path, TABLE, functions={"010.sql": _other("")}, watchbill_version="2.9.1")
    result = migrate(database, "watchbill", older)
    assert result.verdict == "ready"
    assert result.functions is not None
    assert result.functions.checksum == newer.functions_checksum


# Who may use what.


def verdict_of(database: str, source: Source) -> tuple[str, str]:
    found = status(database, "watchbill", source)
    try:
        found.ensure_usable()
    except SchemaError as error:
        return found.verdict, str(error)
    return found.verdict, ""


def test_missing_schema_error_names_the_migrate_command(database: str, tmp_path: Path) -> None:
    verdict, message = verdict_of(database, source_of(tmp_path, TABLE))
    assert verdict == "missing"
    assert message == 'The database has no Watchbill schema "watchbill".\nRun `watchbill db migrate`.'


def test_a_schema_without_the_newest_migration_is_too_old(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path / "old", TABLE))
    verdict, message = verdict_of(database, source_of(tmp_path / "new", TABLE, COLUMN))
    assert verdict == "too old"
    assert "it is at version 1 of 2" in message
    assert "watchbill db migrate" in message


def test_newer_schema_accepts_compatible_programs(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path / "new", TABLE, COLUMN))
    assert verdict_of(database, source_of(tmp_path / "old", TABLE)) == ("newer", "")


def test_newer_schema_refuses_incompatible_programs(database: str, tmp_path: Path) -> None:
    breaking = f"-- oldest_compatible: 2\n{COLUMN}"
    migrate(database, "watchbill", source_of(tmp_path / "new", TABLE, breaking, watchbill_version="3.0.0"))
    old = source_of(tmp_path / "old", TABLE, watchbill_version="2.9.0")
    verdict, message = verdict_of(database, old)
    assert verdict == "too new"
    assert "Install Watchbill 3.0.0 or newer." in message
    steps: list[str] = []
    migrate(database, "watchbill", old, report=steps.append)
    assert steps == []


def test_changed_functions_of_the_same_release_ask_for_a_migration(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path, TABLE, functions={"010_volume.sql": FUNCTION}))
    verdict, message = verdict_of(database, source_of(tmp_path, TABLE, functions={"010.sql": _other("")}))
    assert verdict == "too old"
    assert "functions" in message


def test_a_migration_that_was_edited_after_it_ran_is_refused(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    with pytest.raises(SchemaError, match=r'0001_step.sql was changed after it was applied to schema "watchbill"'):
        migrate(database, "watchbill", source_of(tmp_path, TABLE + "\n", COLUMN))


def test_a_schema_of_an_earlier_state_of_the_same_version_is_refused_with_what_to_do(schema_database: str) -> None:
    source = Source.of_package("watchbill.store")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("UPDATE watchbill.schema_version SET checksum = 'earlier' WHERE version = 1")
        connection.execute("UPDATE watchbill.schema_functions SET checksum = 'earlier'")
        with pytest.raises(SchemaError) as at_start:
            status(schema_database, "watchbill", source).ensure_usable()
        with pytest.raises(SchemaError) as at_migration:
            install(schema_database)
        assert str(at_start.value) == str(at_migration.value)
        assert at_start.value.hint is not None
        (advice,) = re.findall(r"`(DROP .*?)`", at_start.value.hint)
        connection.execute(advice.encode())
    assert install(schema_database).verdict == "ready"


# Locks.


def test_migrate_retries_while_a_table_is_locked(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    with psycopg.connect(database) as user:
        user.execute("SELECT * FROM watchbill.boxes")
        reports: list[str] = []

        def release(line: str) -> None:
            reports.append(line)
            user.rollback()

        result = migrate(database, "watchbill", source_of(tmp_path, TABLE, COLUMN), patience=QUICK, report=release)
    assert result.version == 2
    assert reports[0] == "waiting: a table is locked by another session; 2 tries left"


def test_migrate_gives_up_on_a_locked_table_with_a_hint(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    newer = source_of(tmp_path, TABLE, COLUMN)
    with psycopg.connect(database) as user:
        user.execute("SELECT * FROM watchbill.boxes")
        with pytest.raises(
            SchemaError, match=r"(?s)locked by another session through 3 tries.*pg_stat_activity"
        ) as caught:
            migrate(database, "watchbill", newer, patience=QUICK)
    assert caught.value.exit_code == 3
    assert applied(database, newer) == [1]


def test_migrate_waits_for_another_migrator_without_limit(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE)
    waiting = threading.Event()
    done: list[Status] = []

    def run() -> None:
        done.append(migrate(database, "watchbill", source, patience=QUICK, report=lambda line: waiting.set()))

    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", make_advisory_key("watchbill"))
        thread = threading.Thread(target=run)
        thread.start()
        assert waiting.wait(30)
        thread.join(QUICK.lock_timeout * 4)
        assert thread.is_alive()
    thread.join(30)
    assert done[0].verdict == "ready"


# Outside a transaction.


def test_an_index_is_built_outside_a_transaction(database: str, tmp_path: Path) -> None:
    source = source_of(tmp_path, TABLE, INDEX, functions={"010_volume.sql": FUNCTION})
    assert migrate(database, "watchbill", source).version == 2
    assert rows(database, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'watchbill.boxes_size'::regclass") == [
        (True,)
    ]


def test_an_index_that_a_killed_build_left_invalid_is_built_again(database: str, tmp_path: Path) -> None:
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    with psycopg.connect(database) as connection:
        connection.execute("CREATE INDEX boxes_size ON watchbill.boxes (size)")
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'watchbill.boxes_size'::regclass")
    migrate(database, "watchbill", source_of(tmp_path, TABLE, INDEX))
    assert rows(database, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'watchbill.boxes_size'::regclass") == [
        (True,)
    ]


def test_migration_without_transaction_is_repeated_after_a_failure(database: str, tmp_path: Path) -> None:
    several = (
        "-- no transaction\nCREATE TABLE IF NOT EXISTS first (); -- ; not an end\n"
        "DO $$ BEGIN PERFORM 1/count(*) FROM boxes; END $$;\nVACUUM boxes"
    )
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    broken = source_of(tmp_path, TABLE, several)
    with pytest.raises(SchemaError, match=r"0002_step.sql: division by zero"):
        migrate(database, "watchbill", broken)
    assert applied(database, broken) == [1]
    assert rows(database, "SELECT to_regclass('watchbill.first')::text") == [("watchbill.first",)]
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO watchbill.boxes VALUES (1)")
    assert migrate(database, "watchbill", broken).version == 2


# What others have set.


def test_migrate_ignores_role_defaults(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for setting in (
            "default_transaction_isolation TO 'serializable'",
            "default_transaction_read_only TO on",
            "statement_timeout TO '1ms'",
            "lock_timeout TO '1ms'",
            "search_path TO pg_catalog",
            "DateStyle TO 'German'",
            "IntervalStyle TO 'iso_8601'",
        ):
            connection.execute(f"ALTER ROLE postgres IN DATABASE {connection.info.dbname} SET {setting}".encode())
    source = source_of(tmp_path, TABLE, "DO $$ BEGIN PERFORM pg_sleep(0.01); END $$;", INDEX)
    assert migrate(database, "watchbill", source).verdict == "ready"


def test_owner_of_an_empty_schema_may_migrate_it(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("DROP ROLE IF EXISTS tenant")
        connection.execute("CREATE ROLE tenant LOGIN")
        connection.execute("CREATE SCHEMA watchbill AUTHORIZATION tenant")
    try:
        as_tenant = database.replace("postgres@", "tenant@")
        assert migrate(as_tenant, "watchbill", source_of(tmp_path, TABLE, INDEX)).verdict == "ready"
        with pytest.raises(SchemaError, match="permission denied for database"):
            migrate(as_tenant, "another", source_of(tmp_path, TABLE))
    finally:
        with psycopg.connect(database) as connection:
            connection.execute("DROP OWNED BY tenant; DROP ROLE tenant")


def test_the_real_schema_needs_no_superuser(server: Server, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO plain".encode())
    try:
        as_plain = database.replace("postgres@", "plain@")
        assert migrate(as_plain, "watchbill", Source.of_package("watchbill.store")).verdict == "ready"
    finally:
        with psycopg.connect(database) as connection:
            connection.execute("DROP OWNED BY plain CASCADE; DROP ROLE plain")


# The rules for files.


@pytest.mark.parametrize(
    ("name", "says"),
    [("0002_gap.sql", "expected 0001_name.sql"), ("1_short.sql", "expected 0001"), ("0001_Big.sql", "expected 0001")],
)
def test_migration_files_must_be_numbered_without_a_gap(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / name).write_text("SELECT 1")
    with pytest.raises(SchemaError, match=says):
        Source.of_directories(tmp_path / "migrations", tmp_path / "sql")


def test_oldest_compatible_must_not_decrease_or_exceed_its_version(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="oldest_compatible must be from 1 to 1, not 2"):
        source_of(tmp_path, "-- oldest_compatible: 2\nSELECT 1")
    carried = source_of(tmp_path, "SELECT 1", "-- oldest_compatible: 2\nSELECT 1", "SELECT 1")
    assert [migration.oldest_compatible for migration in carried.migrations] == [1, 2, 2]
    with pytest.raises(SchemaError, match="oldest_compatible must be from 2 to 3, not 1"):
        source_of(tmp_path, "SELECT 1", "-- oldest_compatible: 2\nSELECT 1", "-- oldest_compatible: 1\nSELECT 1")


@pytest.mark.parametrize(
    "statement", ["CREATE INDEX CONCURRENTLY x ON y (z)", "create unique index concurrently on y (z)"]
)
def test_an_index_built_concurrently_must_be_repeatable(tmp_path: Path, statement: str) -> None:
    with pytest.raises(SchemaError, match="needs IF NOT EXISTS and a plain name"):
        source_of(tmp_path, f"-- no transaction\n{statement}")


# Rooms: folders of function files.


def read_rooms(directory: Path, rooms: str, files: dict[str, str]) -> list[str]:
    """Writes these function files, and returns their names in the order in which they would be applied."""
    write_set(directory, "SELECT 1")
    (directory / "sql" / "rooms.txt").write_text(rooms)
    for name, text in files.items():
        (directory / "sql" / name).parent.mkdir(exist_ok=True)
        (directory / "sql" / name).write_text(text)
    return [file.name for file in read_set(directory).functions]


def test_rooms_are_applied_in_the_order_of_their_list_and_files_by_name(tmp_path: Path) -> None:
    files = {"upper/a.sql": "", "lower/b.sql": "", "lower/a.sql": ""}
    names = read_rooms(tmp_path, "lower  what others need\nupper  the rest\n", files)
    assert names == ["lower/a.sql", "lower/b.sql", "upper/a.sql"]


def test_file_is_applied_after_those_that_its_first_line_names(tmp_path: Path) -> None:
    files = {"room/a.sql": "-- after: b, d\n", "room/b.sql": "-- after: c\n", "room/c.sql": "", "room/d.sql": ""}
    assert read_rooms(tmp_path, "room\n", files) == ["room/c.sql", "room/b.sql", "room/d.sql", "room/a.sql"]


@pytest.mark.parametrize(
    ("rooms", "files", "says"),
    [
        (
            "room\n",
            {"room/a.sql": "-- after: b\n", "room/b.sql": "-- after: a\n"},
            "of a, b form a circle",
        ),
        ("room\n", {"room/a.sql": "-- after: nosuch\n"}, "a.sql is to come after nosuch, which is not in this room"),
        ("room\n", {"room/a.sql": "", "other/a.sql": ""}, "other: rooms.txt must list exactly"),
        ("room\ngone\n", {"room/a.sql": ""}, "gone: rooms.txt must list exactly"),
        ("room\n", {"room/a.sql": "", "stray.sql": ""}, "stray.sql: rooms.txt must list exactly"),
    ],
)
def test_rooms_that_cannot_be_ordered_are_refused(tmp_path: Path, rooms: str, files: dict[str, str], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        read_rooms(tmp_path, rooms, files)
