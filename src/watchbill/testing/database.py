"""A database for the tests of one process: a copy on the project's embedded test server, or one that was named.

The test server is not that of `watchbill up`. Its data stays in the project's `.watchbill/` from run to run, since making it
takes longer than all else, and is kept with fsync off, so it is trusted only until the machine starts again. A template
in it is migrated once for each version of our SQL; every process that runs tests copies it and drops its copy at the
end. What a killed run has left is dropped by the next.

A database that was named is used as it is, and only its Watchbill schema is touched, if that is missing or a test's.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from watchbill.errors import WatchbillError
from watchbill.postgres.address import parse
from watchbill.postgres.connect import Connection
from watchbill.postgres.embedded import EmbeddedServer, find_binaries
from watchbill.postgres.embedded.home import DATABASE, make_directory
from watchbill.postgres.migrate import Source
from watchbill.store.queries import queries
from watchbill.testing.schema import NotATest, Sweeper, begin_to_read_zones, make_schema

_QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "128MB",
}
_LOCK = 1179603027  # "FOLS": one process at a time makes, copies and clears up
_MARK = "made by a test run of Watchbill"
_TEMPLATE = sql.Identifier(DATABASE)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class InUse(WatchbillError):
    """Another test run has this database."""


def _in_use(name: str) -> InUse:
    return InUse(
        f"Another test run uses database {name!r}, and each would delete the other's jobs.",
        hint="Wait until it has ended, or give this one another database.",
    )


@dataclass(frozen=True)
class Database:
    """Where tests keep their jobs. `url` may be given to whatever else a test connects."""

    url: str
    schema: str
    installation: str
    sweeper: Sweeper


def _opened(keeper: Connection, url: str, schema: str) -> Database:
    row = keeper.execute(queries(schema)["installation"].encode()).fetchone()
    assert row is not None
    return Database(url, schema, row[0], Sweeper(keeper, schema))


@contextmanager
def named_database(url: str, schema: str) -> Iterator[Database]:
    with Connection.connect(url, autocommit=True, application_name="watchbill tests") as keeper:
        if keeper.execute("SELECT pg_try_advisory_lock(%s, 0)", (_LOCK,)).fetchone() != (True,):
            raise _in_use(keeper.info.dbname)
        make_schema(url, schema)
        yield _opened(keeper, url, schema)


@contextmanager
def beside(url: str, suffix: str) -> Iterator[str]:
    """An empty database on the same server, for one of several processes that were given the same one."""
    name = f"{parse(url).get('dbname') or parse(url).get('user') or 'watchbill'}_{suffix}"
    with Connection.connect(url, autocommit=True, application_name="watchbill tests") as connection:
        _drop_if_ours(connection, name)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(name), _MARK))
        yield with_database(url, name)
        _drop(connection, name)


def _drop_if_ours(connection: Connection, name: str) -> None:
    if _comment(connection, name) not in (None, _MARK):
        raise NotATest(
            f"Database {name!r} was not made by a test run, so it is not replaced.",
            hint="Drop or rename it, or name another database for tests.",
        )
    try:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
    except psycopg.errors.ObjectInUse as error:
        raise _in_use(name) from error


@contextmanager
def embedded_database(project: Path, schema: str, binaries: str = "auto") -> Iterator[Database]:
    home = _home(project, find_binaries(binaries).major)
    zones = None if any(home.iterdir()) else begin_to_read_zones()
    settings = _QUICK if _BOOT.exists() else {}
    with EmbeddedServer.acquire(home, binaries=binaries, settings=settings) as server:
        name = f"run_{os.getpid()}_{secrets.token_hex(4)}"
        url = with_database(server.url, name)
        with _alone(server.url) as connection:
            _clear_up(connection)
            _make_template(connection, server.url, schema, zones)
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(copy.format(sql.Identifier(name), _TEMPLATE))
            keeper = Connection.connect(url, autocommit=True, application_name="watchbill tests")
        with keeper:
            keeper.execute(queries(schema)["mark_test"].encode())  # an installation of its own
            yield _opened(keeper, url, schema)
        with _connected(server.url) as connection:
            _drop(connection, name)


# -- the embedded test server


def _home(project: Path, major: int) -> Path:
    """Where its data is; what another start of the machine has left is removed."""
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


def _connected(url: str) -> Connection:
    """Not to the template, which cannot be copied while somebody is."""
    return Connection.connect(with_database(url, "postgres"), autocommit=True, application_name="watchbill tests")


@contextmanager
def _alone(url: str) -> Iterator[Connection]:
    with _connected(url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s, 1)", (_LOCK,))
        yield connection


def _make_template(connection: Connection, url: str, schema: str, zones: Callable[[], list[str]] | None) -> None:
    """In the database that every embedded server has. Its comment says what is in it; of a new one, nothing."""
    wanted, found = _fingerprint(schema), _comment(connection, DATABASE)
    if found == wanted:
        return
    if found != "":
        _drop(connection, DATABASE)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(_TEMPLATE))
    comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
    connection.execute(comment.format(_TEMPLATE, "unfinished"))
    make_schema(url, schema, zones)
    connection.execute(comment.format(_TEMPLATE, wanted))


def _fingerprint(schema: str) -> str:
    """Of our SQL, and of the day: a schema is made with partitions for the days to come."""
    source = Source.of_package("watchbill.store")
    parts = [schema, f"{datetime.now(UTC):%Y%m%d}", *(file.checksum for file in source.migrations)]
    return hashlib.sha256("".join([*parts, source.functions_checksum]).encode()).hexdigest()


def _clear_up(connection: Connection) -> None:
    """Databases that nobody is connected to: whoever makes one holds our lock until he is."""
    rows = connection.execute(
        "SELECT datname FROM pg_database d WHERE datname ~ '^run_[0-9]'"
        " AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid)"
    ).fetchall()
    for (name,) in rows:
        _drop(connection, name)


# -- databases


def _comment(connection: Connection, name: str) -> str | None:
    """None when there is no such database; empty when nothing is said of it."""
    query = "SELECT coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database WHERE datname = %s"
    row = connection.execute(query, (name,)).fetchone()
    return None if row is None else str(row[0])


def _drop(connection: Connection, name: str) -> None:
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    if "://" not in url:
        return make_conninfo(url, dbname=name)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{quote(name, safe='')}{parts.query and '?'}{parts.query}"
