"""The callers: psycopg 3, psycopg2, asyncpg, SQLAlchemy over each of them, Django over both psycopgs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

import asyncpg  # type: ignore[import-untyped]
import django.conf
import django.db
import psycopg
import psycopg2.extensions  # type: ignore[import-untyped]
import psycopg2.extras  # type: ignore[import-untyped]
import psycopg2.pool  # type: ignore[import-untyped]
import psycopg_pool
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.integrations.callers import AsyncCaller, Caller, Pool

_BACKEND = "SELECT pg_backend_pid() AS pid"
_BEGIN = "SET LOCAL lock_timeout = 0"  # a statement before which the isolation level may still be chosen


class Psycopg(Caller):
    conflict = psycopg.errors.SerializationFailure
    options: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        self.connection = psycopg.connect(self.url, **self.options)

    def execute(self, statement: str) -> None:
        psycopg.Cursor(self.connection).execute(statement.encode())

    def backend(self) -> int:
        return int(self.connection.info.backend_pid)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As it begins by itself, with the first statement."""
        self.execute(_BEGIN)
        try:
            yield
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.connection.transaction()  # type: ignore[no-any-return]

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        self.connection.autocommit = True
        yield
        self.connection.autocommit = False

    def pool(self) -> Pool:
        pool = psycopg_pool.ConnectionPool(self.url, min_size=1, max_size=1, open=True, kwargs=self.options)
        return Pool(self, pool.getconn, pool.putconn, pool.close)


class PsycopgOtherwise(Psycopg):
    """In the ways of somebody else: rows are dicts, placeholders are $1, uuids and booleans are words."""

    options: ClassVar[dict[str, Any]] = {"row_factory": dict_row, "cursor_factory": psycopg.RawCursor}

    def open(self) -> None:
        super().open()
        self.connection.adapters.register_loader("uuid", psycopg.types.string.TextLoader)
        self.connection.adapters.register_dumper(str, psycopg.types.string.StrDumperVarchar)


class PsycopgBlock(Psycopg):
    """An autocommit connection, with transactions as blocks."""

    options: ClassVar[dict[str, Any]] = {"autocommit": True}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            yield

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        yield


class PsycopgPipeline(PsycopgBlock):
    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection.transaction(), self.connection.pipeline():
            yield


class PsycopgAsync(AsyncCaller):
    conflict = psycopg.errors.SerializationFailure

    def open(self) -> None:
        self.connection = self.wait(psycopg.AsyncConnection.connect(self.url))

    def execute(self, statement: str) -> None:
        self.wait(self.connection.execute(statement.encode()))

    def backend(self) -> int:
        return int(self.connection.info.backend_pid)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute(_BEGIN)
        try:
            yield
        except BaseException:
            self.wait(self.connection.rollback())
            raise
        self.wait(self.connection.commit())

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.transaction())

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        self.wait(self.connection.set_autocommit(True))
        yield
        self.wait(self.connection.set_autocommit(False))

    def pool(self) -> Pool:
        pool = psycopg_pool.AsyncConnectionPool(self.url, min_size=1, max_size=1, open=False)
        self.wait(pool.open())
        return Pool(
            self,
            lambda: self.wait(pool.getconn()),
            lambda taken: self.wait(pool.putconn(taken)),
            lambda: self.wait(pool.close()),
        )


class Psycopg2(Caller):
    conflict = psycopg2.errors.SerializationFailure
    options: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        self.connection = psycopg2.connect(self.url, **self.options)

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def backend(self) -> int:
        return int(self.connection.info.backend_pid)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection:
            yield

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.execute("SAVEPOINT here")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK TO SAVEPOINT here")
            raise
        self.execute("RELEASE SAVEPOINT here")

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        self.connection.autocommit = True
        yield
        self.connection.autocommit = False

    def pool(self) -> Pool:
        pool = psycopg2.pool.SimpleConnectionPool(1, 1, self.url, **self.options)
        return Pool(self, pool.getconn, pool.putconn, pool.closeall)


class Psycopg2Otherwise(Psycopg2):
    """Rows are dicts, and uuids are objects."""

    options: ClassVar[dict[str, Any]] = {"cursor_factory": psycopg2.extras.RealDictCursor}

    def open(self) -> None:
        super().open()
        psycopg2.extras.register_uuid(conn_or_curs=self.connection)


class Asyncpg(AsyncCaller):
    conflict = asyncpg.SerializationError

    def open(self) -> None:
        self.connection = self.wait(asyncpg.connect(self.url))

    def execute(self, statement: str) -> None:
        self.wait(self.connection.execute(statement))

    def backend(self) -> int:
        return int(self.connection.get_server_pid())

    def transaction(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.transaction())

    savepoint = transaction

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        yield

    def pool(self) -> Pool:
        pool = self.wait(asyncpg.create_pool(self.url, min_size=1, max_size=1))
        return Pool(
            self,
            lambda: self.wait(pool.acquire()),
            lambda taken: self.wait(pool.release(taken)),
            lambda: self.wait(pool.close()),
        )


class AsyncpgOtherwise(Asyncpg):
    """As many set it up: JSON is encoded by the driver, and uuids are text."""

    def open(self) -> None:
        super().open()
        codec = {"encoder": json.dumps, "decoder": json.loads, "schema": "pg_catalog"}
        self.wait(self.connection.set_type_codec("jsonb", **codec))
        self.wait(self.connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog"))


class SqlAlchemy(Caller):
    """A Connection; `driver` stands in the URL."""

    conflict = sa.exc.OperationalError
    driver = "psycopg"

    def open(self) -> None:
        self.engine = sa.create_engine(_url(self.url, self.driver), pool_size=1)
        self.connection = self.connect(self.engine)

    def connect(self, engine: sa.Engine) -> Any:
        return engine.connect()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def execute(self, statement: str) -> None:
        self.connection.execute(sa.text(statement))

    def backend(self) -> int:
        return int(self.connection.scalar(sa.text(_BACKEND)))

    def transaction(self) -> AbstractContextManager[Any]:
        return self.connection.begin()  # type: ignore[no-any-return]

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.connection.begin_nested()  # type: ignore[no-any-return]

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        before = self.connection
        self.connection = self.connect(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        yield
        self.connection.close()
        self.connection = before

    def pool(self) -> Pool:
        return Pool(self, lambda: self.connect(self.engine), lambda taken: taken.close(), lambda: None)


class SqlAlchemyPsycopg2(SqlAlchemy):
    driver = "psycopg2"


class SqlAlchemySession(SqlAlchemy):
    def connect(self, engine: sa.Engine) -> Any:
        return Session(engine)


class SqlAlchemySessionPsycopg2(SqlAlchemySession):
    driver = "psycopg2"


class SqlAlchemyScopedSession(SqlAlchemy):
    def connect(self, engine: sa.Engine) -> Any:
        return scoped_session(sessionmaker(engine))


class SqlAlchemyAsync(AsyncCaller):
    """An AsyncConnection."""

    conflict = sa.exc.DBAPIError
    driver = "asyncpg"

    def open(self) -> None:
        self.engine = create_async_engine(_url(self.url, self.driver), pool_size=1)
        self.connection = self.connect(self.engine)

    def connect(self, engine: Any) -> Any:
        connection: AsyncConnection = engine.connect()
        return self.wait(connection.start())

    def close(self) -> None:
        self.wait(self.connection.close())
        self.wait(self.engine.dispose())
        self.runner.close()

    def execute(self, statement: str) -> None:
        self.wait(self.connection.execute(sa.text(statement)))

    def backend(self) -> int:
        return int(self.wait(self.connection.scalar(sa.text(_BACKEND))))

    def transaction(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.begin())

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.begin_nested())

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        before = self.connection
        self.connection = self.connect(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        yield
        self.wait(self.connection.close())
        self.connection = before

    def pool(self) -> Pool:
        give = lambda taken: self.wait(taken.close())  # noqa: E731
        return Pool(self, lambda: self.connect(self.engine), give, lambda: None)


class SqlAlchemyAsyncPsycopg(SqlAlchemyAsync):
    driver = "psycopg"


class SqlAlchemyAsyncSession(SqlAlchemyAsync):
    def connect(self, engine: Any) -> Any:
        return AsyncSession(engine)


class SqlAlchemyAsyncSessionPsycopg(SqlAlchemyAsyncSession):
    driver = "psycopg"


class SqlAlchemyAsyncScopedSession(SqlAlchemyAsync):
    def connect(self, engine: Any) -> Any:
        return async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)


class Django(Caller):
    """connections["default"]."""

    module = "psycopg"
    kept: int | None = 0  # seconds

    conflict = django.db.OperationalError

    def open(self) -> None:
        self.connections = _django()
        self.connect({})

    def connect(self, options: dict[str, Any]) -> None:
        parts = conninfo_to_dict(self.url)
        self.connections.settings["default"].update(
            NAME=parts["dbname"], USER=parts["user"], HOST=parts["host"], OPTIONS=options
        )
        settings = {**self.connections.settings["default"], "CONN_MAX_AGE": self.kept}
        self.connections["default"] = _django_wrapper(self.module)(settings, "default")
        self.connection = self.connections["default"]

    def close(self) -> None:
        self.connection.close()
        del self.connections["default"]

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def backend(self) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(_BACKEND)
            return int(cursor.fetchone()[0])

    def transaction(self) -> AbstractContextManager[Any]:
        return django.db.transaction.atomic()  # type: ignore[no-any-return]

    savepoint = transaction

    @contextmanager
    def autocommit(self) -> Iterator[None]:
        yield

    def pool(self) -> Pool:
        """Django's own: closing gives the connection back. Before 5.1 it has none, and keeps the connection."""
        if django.VERSION < (5, 1):
            return Pool(self, lambda: self.connection, lambda taken: None, lambda: None)
        self.close()
        self.connect({"pool": {"min_size": 1, "max_size": 1}})
        wrapper = self.connection
        return Pool(self, lambda: wrapper, lambda taken: taken.close(), wrapper.close_pool)


class DjangoServerSide(Django):
    """django.db.connection, which is a proxy, with parameters bound by the server."""

    def connect(self, options: dict[str, Any]) -> None:
        super().connect({**options, "server_side_binding": True})
        self.connection = django.db.connection


class DjangoPsycopg2(Django):
    module = "psycopg2"
    kept = None  # for ever

    def pool(self) -> Pool:
        """Kept open from request to request."""
        return Pool(self, lambda: self.connection, lambda taken: taken.close_if_unusable_or_obsolete(), lambda: None)


def set_up_django() -> None:
    """Once per process, for all tests that use Django in it."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
        django.setup()


def _django() -> Any:
    set_up_django()
    return django.db.connections


def _django_wrapper(module: str) -> Any:
    """Django takes psycopg 3 when it can be imported; for psycopg2 its backend is imported as if it could not."""
    if module == "psycopg":
        from django.db.backends.postgresql.base import DatabaseWrapper
    else:
        ours = [name for name in sys.modules if name.startswith("django.db.backends.postgresql")]
        with patch.dict(sys.modules):
            for name in ours:
                del sys.modules[name]
            sys.modules["psycopg"] = None  # type: ignore[assignment]
            from django.db.backends.postgresql.base import DatabaseWrapper
    assert DatabaseWrapper.Database.__name__ == module
    return DatabaseWrapper


def _url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


CALLERS: list[type[Caller]] = [
    Psycopg, PsycopgOtherwise, PsycopgBlock, PsycopgPipeline, PsycopgAsync, Psycopg2, Psycopg2Otherwise,
    Asyncpg, AsyncpgOtherwise,
    SqlAlchemy, SqlAlchemyPsycopg2, SqlAlchemySession, SqlAlchemySessionPsycopg2, SqlAlchemyScopedSession,
    SqlAlchemyAsync, SqlAlchemyAsyncPsycopg, SqlAlchemyAsyncSession, SqlAlchemyAsyncSessionPsycopg,
    SqlAlchemyAsyncScopedSession,
    Django, DjangoServerSide, DjangoPsycopg2,
]  # fmt: skip
