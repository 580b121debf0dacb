"""A database for the tests of one process: a copy on the project's embedded test server, or one that you name.

The test server is not the server of `watchbill up`. Its data stays in the project's `.watchbill/` between runs, since
making it takes longest of all. The server runs with fsync off, so its data is used only until the machine starts again.
A template database is migrated once for each version of our SQL; every process that runs tests copies the template and
drops its copy at the end. The next run drops databases that a killed run has left.

In a database that you name, only Watchbill's schema is changed, and only if it is missing or was made by a test. A run
leaves that schema empty, with its clock at the present. So if the next run finds a job or a schedule there, something
else may have stored it, and the run is refused.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from watchbill.errors import WatchbillError
from watchbill.postgres.address import parse_url
from watchbill.postgres.connect import Connection
from watchbill.postgres.embedded import EmbeddedServer, find_binaries, find_project
from watchbill.postgres.embedded.home import DATABASE, make_directory
from watchbill.postgres.migrate import Source, migrate, status
from watchbill.postgres.zones import make_zone_lines, refresh_zones
from watchbill.settings import Settings
from watchbill.store.made_by_tests import TEST_RUN_LOCK
from watchbill.store.queries import queries

LOCK_TIMEOUT = "5s"
SEED_TABLES = "Made by a test run. Not emptied between tests: "  # the comment on the schema, before names of tables


class NotATestSchema(WatchbillError):
    """The test run would empty this schema or database, but it was not made by a test run, so it is left alone."""


class HoldsOtherJobs(WatchbillError):
    """The schema was made by a test run, but holds jobs or schedules that no test run has removed, so it is left
    alone."""


class StillInUse(WatchbillError):
    """An earlier test left a transaction open, which keeps rows locked."""


def start_reading_zones() -> Callable[[], list[str]]:
    """Starts to read the time zones in a thread, which takes half a second, while PostgreSQL starts. Returns a function
    that waits for them and returns them."""
    with_one_thread = ThreadPoolExecutor(1)
    reading = with_one_thread.submit(make_zone_lines)
    with_one_thread.shutdown(wait=False)
    return reading.result


def make_schema(url: str, schema: str, zones: Callable[[], list[str]] | None = None) -> None:
    """Makes the schema. An older schema of that name is dropped, if a test run made it and nothing else has used it."""
    with Connection.connect(url, autocommit=True) as connection:
        _drop_test_schema(connection, schema)
        zones = zones or start_reading_zones()
        source = Source.of_package("watchbill.store")
        migrate(url, schema, replace(source, functions=()))
        connection.execute(queries(schema)["mark_test"].encode())
        # The functions come after the mark, because only in a schema that is marked as a test's can a test move the
        # clock.
        migrate(url, schema, source)
        refresh_zones(url, schema, lambda _: None, zones)
        Sweeper(connection, schema).write_comment(connection)


def prepare_schema(url: str, schema: str) -> None:
    """Prepares the schema of a database that may be kept between runs: empties the schema, or makes it again if it is
    outdated. Raises HoldsOtherJobs if something else has used it."""
    found = status(url, schema, Source.of_package("watchbill.store"))
    with Connection.connect(url, autocommit=True) as connection:
        if found.verdict == "ready" and _is_test(connection, schema):
            _refuse_rows_of_others(connection, schema)
    if found.verdict != "ready" or not empty_schema(url, schema):
        make_schema(url, schema)
    with Connection.connect(url, autocommit=True) as connection:
        _used_installations.add(_read_installation(connection, schema))


def empty_schema(url: str, schema: str) -> bool:
    """Empties a schema that a test run has made. For any other schema, does nothing and returns False."""
    with Connection.connect(url, autocommit=True) as connection:
        sweeper = Sweeper.from_comment(connection, schema) if _is_test(connection, schema) else None
        if sweeper is not None:
            sweeper.sweep(connection)
        return sweeper is not None


def _drop_test_schema(connection: Connection, schema: str) -> None:
    """Drops the schema, if there is one. Refuses one that is not a test run's own. The table is locked from the check
    to the end, so that no job is stored in between."""
    if not connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).rowcount:
        return
    _refuse_unless_test(connection, schema)
    with connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier(schema, "jobs")))
        _refuse_rows_of_others(connection, schema)
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def _is_test(connection: Connection, schema: str) -> bool:
    try:
        return connection.execute(queries(schema)["is_test"].encode()).fetchone() == (True,)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return False


def _read_installation(connection: Connection, schema: str) -> str:
    row = connection.execute(queries(schema)["installation"].encode()).fetchone()
    assert row is not None
    return str(row[0])


_used_installations: set[str] = set()  # what this run has made or emptied, so that all rows there are its own


def _refuse_rows_of_others(connection: Connection, schema: str) -> None:
    if _read_installation(connection, schema) in _used_installations:
        return
    rows = connection.execute(queries(schema)["kept_rows"].encode()).fetchall()
    if rows:
        raise HoldsOtherJobs(
            f"Schema {schema!r} of database {connection.info.dbname!r} was made by a test run, but it holds jobs or "
            f"schedules ({', '.join(name for (name,) in rows)}) that no test run has removed: something else has "
            "stored them, or an earlier test run was killed. Nothing was touched.",
            hint="To keep them, run `watchbill db keep`, and name another database for tests. To delete them, run in "
            f"psql: DROP SCHEMA {schema} CASCADE.",
        )


def _refuse_unless_test(connection: Connection, schema: str) -> None:
    if not _is_test(connection, schema):
        raise NotATestSchema(
            f"Schema {schema!r} of database {connection.info.dbname!r} was not made by a test run, and a test run "
            "would delete all jobs in it. Nothing was touched.",
            hint=f"Name another database, or drop the schema if you do not need it: DROP SCHEMA {schema} CASCADE.",
        )


class Sweeper:
    """Empties a schema, except the tables that its migrations have filled."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, seed_tables: list[str] | None = None) -> None:
        """Makes a sweeper. `seed_tables` are the tables that migrations fill, which are not emptied. Without them, all
        tables that have rows now count as such, so the schema must be new."""
        self._schema, self._queries = schema, queries(schema)
        self._seed_tables = seed_tables or [name for name, _ in self._find_filled_tables(connection, [])]

    @classmethod
    def from_comment(cls, connection: psycopg.Connection[Any], schema: str) -> Sweeper | None:
        """Makes a Sweeper for a schema that another process has made, from the comment on it. Returns None if the
        schema has no such comment."""
        row = connection.execute(queries(schema)["seed_tables"].encode(), (schema,)).fetchone()
        comment = str(row[0]) if row is not None and row[0] is not None else ""
        if not comment.startswith(SEED_TABLES):
            return None
        return cls(connection, schema, comment.removeprefix(SEED_TABLES).split())

    def write_comment(self, connection: psycopg.Connection[Any]) -> None:
        text = f"{SEED_TABLES}{' '.join(self._seed_tables)}"
        connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(self._schema), text))

    def _find_filled_tables(self, connection: psycopg.Connection[Any], but: list[str]) -> list[tuple[str, bool]]:
        return connection.execute(self._queries["tables_in_use"].encode(), (self._schema, but)).fetchall()

    def sweep(self, connection: psycopg.Connection[Any]) -> None:
        steps = [sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT)]
        for name, large in self._find_filled_tables(connection, self._seed_tables):
            verb = sql.SQL("TRUNCATE {}" if large else "DELETE FROM {}")
            steps.append(verb.format(sql.Identifier(self._schema, name)))
        try:
            with connection.transaction():
                connection.execute(sql.SQL(";").join(steps))
                connection.execute(self._queries["reset_clock"].encode())
        except psycopg.errors.LockNotAvailable as error:
            raise _make_still_in_use_error(connection) from error


def _make_still_in_use_error(connection: psycopg.Connection[Any]) -> StillInUse:
    rows = connection.execute(
        "SELECT pid, application_name, state, left(query, 200) FROM pg_stat_activity"
        " WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start"
    ).fetchall()
    lines = "\n".join(f"  pid {pid} {name!r}, {state}: {' '.join(query.split())}" for pid, name, state, query in rows)
    return StillInUse(
        f"The test database could not be emptied within {LOCK_TIMEOUT}: rows are locked by a transaction that is still "
        f"open. Open transactions:\n{lines}",
        hint="Roll back, commit or close each connection in the test or fixture that opened it.",
    )


_FAST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "128MB",
}
_MARK = "made by a test run of Watchbill"
_TEMPLATE = sql.Identifier(DATABASE)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class InUse(WatchbillError):
    """Another test run uses this database."""


def _make_in_use_error(name: str) -> InUse:
    return InUse(
        f"Another test run uses database {name!r}, and each would delete the other's jobs.",
        hint="Wait until it has ended, or give this one another database.",
    )


@dataclass(frozen=True)
class Database:
    """The database of a test run. If a test starts other programs that use the database, give them its `url`."""

    url: str
    schema: str
    installation: str
    sweeper: Sweeper


def _make_database(keeper: Connection, url: str, schema: str) -> Database:
    return Database(url, schema, _read_installation(keeper, schema), Sweeper(keeper, schema))


def existing_database(url: str, schema: str) -> Database:
    """Returns the database that a framework has made for its tests, with Watchbill's schema in it."""
    with Connection.connect(url, autocommit=True, application_name="watchbill tests") as connection:
        _refuse_unless_test(connection, schema)
        sweeper = Sweeper.from_comment(connection, schema)
        assert sweeper is not None
        return Database(url, schema, _read_installation(connection, schema), sweeper)


@contextmanager
def open_database(url: str | None, directory: Path | None = None) -> Iterator[Database]:
    """Opens the database at this address, or without an address a new one on the project's embedded test server."""
    project = find_project(directory)
    settings = Settings.load(project=project)
    with (
        embedded_database(project, settings.schema, settings.embedded_binaries)
        if url is None
        else named_database(url, settings.schema)
    ) as database:
        yield database


@contextmanager
def named_database(url: str, schema: str) -> Iterator[Database]:
    """Makes the schema in this database. At the end, also of a run that failed, the schema is emptied and its clock is
    reset."""
    with Connection.connect(url, autocommit=True, application_name="watchbill tests") as keeper:
        if keeper.execute("SELECT pg_try_advisory_lock(%s, 0)", (TEST_RUN_LOCK,)).fetchone() != (True,):
            raise _make_in_use_error(keeper.info.dbname)
        make_schema(url, schema)
        database = _make_database(keeper, url, schema)
        try:
            yield database
        finally:
            with suppress(psycopg.errors.UndefinedTable, psycopg.OperationalError):  # the tests have dropped it
                database.sweeper.sweep(keeper)


@contextmanager
def beside(url: str, suffix: str) -> Iterator[str]:
    """Makes an empty database on the same server, because each process of pytest-xdist needs its own."""
    name = f"{parse_url(url).get('dbname') or parse_url(url).get('user') or 'watchbill'}_{suffix}"
    with Connection.connect(url, autocommit=True, application_name="watchbill tests") as connection:
        _drop_test_database(connection, name)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(name), _MARK))
        yield with_database(url, name)
        _drop_database(connection, name)


def _drop_test_database(connection: Connection, name: str) -> None:
    if _read_comment(connection, name) not in (None, _MARK):
        raise NotATestSchema(
            f"Database {name!r} was not made by a test run, so it is not replaced.",
            hint="Drop or rename it, or name another database for tests.",
        )
    try:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
    except psycopg.errors.ObjectInUse as error:
        raise _make_in_use_error(name) from error


@contextmanager
def embedded_database(project: Path, schema: str, binaries: str = "auto") -> Iterator[Database]:
    home = _make_home(project, find_binaries(binaries).major)
    zones = None if any(home.iterdir()) else start_reading_zones()
    settings = _FAST_SETTINGS if _BOOT.exists() else {}
    with EmbeddedServer.acquire(home, binaries=binaries, settings=settings) as server:
        name = f"run_{os.getpid()}_{secrets.token_hex(4)}"
        url = with_database(server.url, name)
        with _connect_and_lock(server.url) as connection:
            _drop_leftovers(connection)
            _make_template(connection, server.url, schema, zones)
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(copy.format(sql.Identifier(name), _TEMPLATE))
            keeper = Connection.connect(url, autocommit=True, application_name="watchbill tests")
        with keeper:
            keeper.execute(queries(schema)["mark_test"].encode())  # makes each copy an installation of its own
            yield _make_database(keeper, url, schema)
        with _connect_beside_template(server.url) as connection:
            _drop_database(connection, name)


# -- databases on the embedded test server


def _make_home(project: Path, major: int) -> Path:
    """Makes the directory for the data of the test server. Removes data from before the last start of the machine,
    which may be damaged because fsync is off."""
    boot = _BOOT.read_text().strip()[:8] if _BOOT.exists() else "always"
    place = project / ".watchbill"
    if not os.access(place if place.exists() else project, os.W_OK):
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        place = Path(tempfile.gettempdir()) / f"watchbill-tests-{os.getuid()}-{name}"
    for other in place.glob("tests-*"):
        if not other.name.endswith(f"-{boot}"):
            shutil.rmtree(other, ignore_errors=True)
    home = place / f"tests-{major}-{boot}"
    make_directory(home)
    return home


def _connect_beside_template(url: str) -> Connection:
    """Connects to another database than the template, because PostgreSQL does not copy a database with connections."""
    return Connection.connect(with_database(url, "postgres"), autocommit=True, application_name="watchbill tests")


@contextmanager
def _connect_and_lock(url: str) -> Iterator[Connection]:
    with _connect_beside_template(url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s, 1)", (TEST_RUN_LOCK,))
        yield connection


def _make_template(connection: Connection, url: str, schema: str, zones: Callable[[], list[str]] | None) -> None:
    """Makes the schema in the template database, unless its comment says that the schema is up to date. The comment is
    a fingerprint of the SQL files."""
    wanted, found = _make_fingerprint(schema), _read_comment(connection, DATABASE)
    if found == wanted:
        return
    if found != "":
        _drop_database(connection, DATABASE)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(_TEMPLATE))
    comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
    connection.execute(comment.format(_TEMPLATE, "unfinished"))
    make_schema(url, schema, zones)
    connection.execute(comment.format(_TEMPLATE, wanted))


def _make_fingerprint(schema: str) -> str:
    """Returns a hash of the SQL files and of the day, because a schema is made with partitions for the next days."""
    source = Source.of_package("watchbill.store")
    parts = [schema, f"{datetime.now(UTC):%Y%m%d}", *(file.checksum for file in source.migrations)]
    return hashlib.sha256("".join([*parts, source.functions_checksum]).encode()).hexdigest()


def _drop_leftovers(connection: Connection) -> None:
    """Drops test databases to which no process is connected: a killed test run has left them. A process that makes a
    database holds the lock until it has connected, so its database is not dropped."""
    rows = connection.execute(
        "SELECT datname FROM pg_database d WHERE datname ~ '^run_[0-9]'"
        " AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid)"
    ).fetchall()
    for (name,) in rows:
        _drop_database(connection, name)


# -- functions for any database


def _read_comment(connection: Connection, name: str) -> str | None:
    """Returns the comment on a database: None if there is no such database, empty if it has no comment."""
    query = "SELECT coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database WHERE datname = %s"
    row = connection.execute(query, (name,)).fetchone()
    return None if row is None else str(row[0])


def _drop_database(connection: Connection, name: str) -> None:
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def with_database(url: str, name: str) -> str:
    """Returns the address of another database on the same server."""
    if "://" not in url:
        return make_conninfo(url, dbname=name)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{quote(name, safe='')}{parts.query and '?'}{parts.query}"
