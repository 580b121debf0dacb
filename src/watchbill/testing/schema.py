"""The schema of a test database: made anew for each run, marked test, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from watchbill.errors import WatchbillError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import Source, migrate, status
from watchbill.postgres.zones import refresh_zones, zone_lines
from watchbill.store.queries import queries

PATIENCE = "5s"
FURNITURE = "Made by a test run. Not emptied between tests: "


class NotATest(WatchbillError):
    """The schema is in use for something else, and would be emptied."""


class StillInUse(WatchbillError):
    """An earlier test has left a transaction open, which keeps rows locked."""


def begin_to_read_zones() -> Callable[[], list[str]]:
    """Half a second of work, while PostgreSQL is busy with its own."""
    with_one_thread = ThreadPoolExecutor(1)
    reading = with_one_thread.submit(zone_lines)
    with_one_thread.shutdown(wait=False)
    return reading.result


def make_schema(url: str, schema: str, zones: Callable[[], list[str]] | None = None) -> None:
    """From nothing. One that is there is dropped, if it is a test's."""
    with Connection.connect(url, autocommit=True) as connection:
        _refuse_unless_test(connection, schema)
        zones = zones or begin_to_read_zones()
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        source = Source.of_package("watchbill.store")
        migrate(url, schema, replace(source, functions=()))
        connection.execute(queries(schema)["mark_test"].encode())
        migrate(url, schema, source)  # the functions, last: in a test's schema they have a clock that can be moved
        refresh_zones(url, schema, lambda _: None, zones)
        Sweeper(connection, schema).remember(connection)


def ready_schema(url: str, schema: str) -> None:
    """For a test database that may be kept from run to run: one that is as it should be is only emptied."""
    found = status(url, schema, Source.of_package("watchbill.store"))
    if found.verdict == "ready" and not found.functions_outdated and empty_schema(url, schema):
        return
    make_schema(url, schema)


def empty_schema(url: str, schema: str) -> bool:
    """False, and nothing done, if it was not made by a test run."""
    with Connection.connect(url, autocommit=True) as connection:
        row = connection.execute(queries(schema)["is_test"].encode()).fetchone()
        sweeper = Sweeper.remembered(connection, schema) if row == (True,) else None
        if sweeper is not None:
            sweeper.sweep(connection)
        return sweeper is not None


def _refuse_unless_test(connection: Connection, schema: str) -> None:
    try:
        row = connection.execute(queries(schema)["is_test"].encode()).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).rowcount
        row = (not found,)
    if row != (True,):
        raise NotATest(
            f"Schema {schema!r} of database {connection.info.dbname!r} was not made by a test run, and a test run "
            "would delete all jobs in it. Nothing was touched.",
            hint=f"Name another database, or drop the schema if it is of no use: DROP SCHEMA {schema} CASCADE.",
        )


class Sweeper:
    """Empties a schema, but for what its migrations have put there."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, furniture: list[str] | None = None) -> None:
        """To be made while the schema is as new, unless it is told what was in it then."""
        self._schema, self._queries = schema, queries(schema)
        self._furniture = furniture or [name for name, _ in self._in_use(connection, [])]

    @classmethod
    def remembered(cls, connection: psycopg.Connection[Any], schema: str) -> Sweeper | None:
        """For a schema that another process has made."""
        row = connection.execute(queries(schema)["furniture"].encode(), (schema,)).fetchone()
        told = str(row[0]) if row is not None and row[0] is not None else ""
        return cls(connection, schema, told.removeprefix(FURNITURE).split()) if told.startswith(FURNITURE) else None

    def remember(self, connection: psycopg.Connection[Any]) -> None:
        text = f"{FURNITURE}{' '.join(self._furniture)}"
        connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(self._schema), text))

    def _in_use(self, connection: psycopg.Connection[Any], but: list[str]) -> list[tuple[str, bool]]:
        return connection.execute(self._queries["tables_in_use"].encode(), (self._schema, but)).fetchall()

    def sweep(self, connection: psycopg.Connection[Any]) -> None:
        steps = [sql.SQL("SET LOCAL lock_timeout = {}").format(PATIENCE)]
        for name, large in self._in_use(connection, self._furniture):
            verb = sql.SQL("TRUNCATE {}" if large else "DELETE FROM {}")
            steps.append(verb.format(sql.Identifier(self._schema, name)))
        try:
            with connection.transaction():
                connection.execute(sql.SQL(";").join(steps))
                connection.execute(self._queries["reset_clock"].encode())
        except psycopg.errors.LockNotAvailable as error:
            raise _still_in_use(connection) from error


def _still_in_use(connection: psycopg.Connection[Any]) -> StillInUse:
    rows = connection.execute(
        "SELECT pid, application_name, state, left(query, 200) FROM pg_stat_activity"
        " WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start"
    ).fetchall()
    lines = "\n".join(f"  pid {pid} {name!r}, {state}: {' '.join(query.split())}" for pid, name, state, query in rows)
    return StillInUse(
        f"The test database could not be emptied within {PATIENCE}: rows are locked by a transaction that is still "
        f"open. Open transactions:\n{lines}",
        hint="Roll back, commit or close each connection in the test or fixture that opened it.",
    )
