"""Plans a migration: lists the steps that a schema still needs. `migrate.py` runs them, `plan_sql` prints them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from psycopg import sql

from watchbill.postgres.migration_files import Migration, Source, SqlFile
from watchbill.postgres.parameter_names import find_parameter_names
from watchbill.postgres.schema_status import Status

_ADVISORY_CLASS = int.from_bytes(b"WBMG", "big")


@dataclass(frozen=True)
class Patience:
    """How many seconds a migration waits for the lock on a table, while workers wait behind it, and how often it tries
    again; and how many seconds it waits for another migration."""

    lock_timeout: float = 2.0
    tries: int = 15
    pause: float = 1.0
    migration_timeout: float = 600.0


DEFAULT_PATIENCE = Patience()


@dataclass(frozen=True)
class Step:
    """One step of a migration: settings that are made first, the files to run, and the statement that records the
    step."""

    title: str
    before: str
    files: tuple[SqlFile, ...]
    after: str
    in_transaction: bool = True


def plan_migration(status: Status, patience: Patience = DEFAULT_PATIENCE) -> Iterator[Step]:
    """Yields the missing steps, in order: none if the schema is up to date, or newer than this program. Each is made
    when it is asked for, because the migrator asks for one at a time, and the functions take long to read."""
    schema, source = status.schema, status.source
    status.ensure_unchanged()
    if status.version > source.newest:
        return
    if not status.has_tables:
        yield _make_tables_step(status, patience)
    for migration in status.pending:
        yield _make_migration_step(schema, migration, source, patience)
    if status.functions_outdated:
        yield make_functions_step(schema, source, patience)


def plan_sql(status: Status, *, then: str = "") -> str:
    """Returns the plan as a script for psql, for a DBA who runs it by hand. `then` is SQL to append."""
    header = (
        f"-- Watchbill {status.source.watchbill_version}, schema {status.schema}. For psql; stops at the first error.\n"
    )
    script = "".join(_make_script(status.schema, step) for step in plan_migration(status)) + then
    return header + ("\\set ON_ERROR_STOP on\n" + script if script else "-- Nothing to do.\n")


def read_sql(name: str) -> str:
    return (resources.files("watchbill.postgres") / "sql" / name).read_text(encoding="utf-8")


def make_advisory_key(schema: str) -> tuple[int, int]:
    """Returns the two numbers of the advisory lock that a migration of this schema holds."""
    checksum = zlib.crc32(schema.encode())
    return _ADVISORY_CLASS, int.from_bytes(checksum.to_bytes(4, "big"), "big", signed=True)


def _make_tables_step(status: Status, patience: Patience) -> Step:
    create = "" if status.exists else f"CREATE SCHEMA {_quote_identifier(status.schema)};\n"
    tables = SqlFile("version_tables.sql", read_sql("version_tables.sql"))
    return Step(f"schema {status.schema}", create + _make_settings(status.schema, patience), (tables,), "")


def _make_migration_step(schema: str, migration: Migration, source: Source, patience: Patience) -> Step:
    record = sql.SQL(
        "INSERT INTO {table} (version, oldest_compatible, name, watchbill_version, checksum)"
        " VALUES ({version}, {oldest}, {name}, {watchbill}, {checksum});\n"
    ).format(
        table=sql.Identifier(schema, "schema_version"),
        version=migration.version,
        oldest=migration.oldest_compatible,
        name=migration.name,
        watchbill=source.watchbill_version,
        checksum=migration.checksum,
    )
    before = (
        _make_settings(schema, patience)
        if migration.in_transaction
        else f"SET search_path = {_make_search_path(schema)};\n"
    )
    return Step(f"migration {migration.name}", before, (migration,), record.as_string(None), migration.in_transaction)


def make_functions_step(schema: str, source: Source, patience: Patience) -> Step:
    before = sql.SQL(read_sql("before_functions.sql")).format(
        parameter_names=json.dumps(find_parameter_names(source.functions), separators=(",", ":"))
    )
    after = sql.SQL(read_sql("after_functions.sql")).format(
        checksum=source.functions_checksum, watchbill_version=source.watchbill_version
    )
    return Step(
        "functions", _make_settings(schema, patience) + before.as_string(None), source.functions, after.as_string(None)
    )


def _make_settings(schema: str, patience: Patience) -> str:
    act_as_owner = sql.SQL(read_sql("act_as_owner.sql")).format(schema=schema).as_string(None)
    return (
        f"{act_as_owner}SET LOCAL search_path = {_make_search_path(schema)};\n"
        f"SET LOCAL lock_timeout = {round(patience.lock_timeout * 1000)};\n"
        "SET LOCAL statement_timeout = 0;\n"
        "SET LOCAL client_min_messages = warning;\n"  # no notice about a function that a new schema does not have yet
    )


def _make_search_path(schema: str) -> str:
    return f"{_quote_identifier(schema)}, pg_temp"


def _quote_identifier(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _make_script(schema: str, step: Step) -> str:
    body = "".join(f"\n-- {file.name}\n{file.text.rstrip()}\n;\n" for file in step.files)
    if not step.in_transaction:
        return f"\n-- {step.title}\n{step.before}{body}{step.after}RESET search_path;\n"
    begin = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\n{make_lock_statement(schema)}"
    return f"\n-- {step.title}\n{begin}{step.before}{body}{step.after}COMMIT;\n"


def make_lock_statement(schema: str) -> str:
    """Returns SQL that takes the lock for migrations, or fails if another session holds it. It does not wait: a session
    that sleeps there holds a snapshot, for which an index build of the other migration would wait."""
    first, second = make_advisory_key(schema)
    return (
        f"DO $$ BEGIN IF NOT pg_try_advisory_xact_lock({first}, {second}) THEN\n"
        "  RAISE 'another migration of this schema is running';\nEND IF; END $$;\n"
    )
