"""How each driver's connection is recognised and spoken to."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from watchbill.client.plans import Copy, Rows, Statement
from watchbill.store.queries import Queries
from watchbill.store.refusals import WrongDatabase

SUPPORTED = """Supported are:
  psycopg 3: Connection, AsyncConnection
  psycopg2: connection
  asyncpg: Connection, also one of a pool
  SQLAlchemy: Connection, Session, scoped_session, AsyncConnection, AsyncSession, async_scoped_session
  Django: django.db.connection, django.db.connections[alias]
An engine, a pool or a session factory has no transaction: open a connection or session and give that."""

Step = Statement | Copy


@dataclass(frozen=True)
class Driver:
    """One kind of connection. `carry_out` returns rows; of an asynchronous kind, an awaitable of them."""

    carry_out: Callable[[Any, Step, Queries], Any]
    asynchronous: bool = False


# -- psycopg 3. A cursor of psycopg's own, since the connection's cursor_factory may speak another dialect.


def _psycopg(connection: psycopg.Connection[Any], step: Step, queries: Queries) -> Rows:
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(step, Copy):
            with cursor.copy(queries[step.query].encode()) as copy:
                copy.write(b"".join(step.rows))
            return []
        cursor.execute(queries[step.query].encode(), step.params)
        return cursor.fetchall() if _has_rows(cursor, connection) else []


async def _apsycopg(connection: psycopg.AsyncConnection[Any], step: Step, queries: Queries) -> Rows:
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(step, Copy):
            async with cursor.copy(queries[step.query].encode()) as copy:
                await copy.write(b"".join(step.rows))
            return []
        await cursor.execute(queries[step.query].encode(), step.params)
        return await cursor.fetchall() if _has_rows(cursor, connection) else []


def _has_rows(cursor: Any, connection: psycopg.BaseConnection[Any]) -> bool:
    """In a pipeline the description comes with the rows; what we send there always has some."""
    return cursor.description is not None or _in_pipeline(connection)


def _in_pipeline(connection: psycopg.BaseConnection[Any]) -> bool:
    return connection.pgconn.pipeline_status != PipelineStatus.OFF


def copies(connection: Any) -> bool:
    """Whether several statements, one of them COPY, are one there: psycopg 3, in a transaction, not in a pipeline."""
    if not isinstance(connection, psycopg.BaseConnection) or _in_pipeline(connection):
        return False
    return not connection.autocommit or connection.info.transaction_status == TransactionStatus.INTRANS


# -- psycopg2


def _psycopg2(connection: Any, step: Step, queries: Queries) -> Rows:
    if connection.async_:
        raise TypeError("connection= was given an asynchronous psycopg2 connection, which has no transactions")
    with connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        cursor.execute(queries[step.query], _params(step))
        return list(cursor.fetchall())


# -- asyncpg


async def _asyncpg(connection: Any, step: Step, queries: Queries) -> Rows:
    records = await connection.fetch(numbered(queries[step.query]), *_params(step))
    return [tuple(record) for record in records]


@lru_cache(maxsize=100)
def numbered(query: str) -> str:
    """`%s, %s` as `$1, $2`, and `%%` as `%`."""
    number = count(1)
    return re.sub("%[s%]", lambda found: "%" if found[0] == "%%" else f"${next(number)}", query)


# -- SQLAlchemy


def _sqlalchemy(connection: Any, step: Step, queries: Queries) -> Rows:
    cursor = connection.exec_driver_sql(_for_dialect(connection.dialect, queries[step.query]), _params(step))
    return [tuple(row) for row in cursor.fetchall()]


async def _asqlalchemy(connection: Any, step: Step, queries: Queries) -> Rows:
    cursor = await connection.exec_driver_sql(_for_dialect(connection.dialect, queries[step.query]), _params(step))
    return [tuple(row) for row in cursor.fetchall()]


def _session(session: Any, step: Step, queries: Queries) -> Rows:
    return _sqlalchemy(session.connection(), step, queries)


async def _asession(session: Any, step: Step, queries: Queries) -> Rows:
    return await _asqlalchemy(await session.connection(), step, queries)


def _for_dialect(dialect: Any, query: str) -> str:
    _refuse_other_than_postgresql(dialect.name)
    return numbered(query) if dialect.paramstyle == "numeric_dollar" else query


def _refuse_other_than_postgresql(name: str) -> None:
    if name != "postgresql":
        raise WrongDatabase(
            f"The connection that was given leads to {name}; jobs live in PostgreSQL.",
            hint="Give a connection to the App's own database, or leave connection= out: "
            "then the job is enqueued at once, whatever becomes of your transaction.",
        )


# -- Django


def _django(connection: Any, step: Step, queries: Queries) -> Rows:
    _refuse_other_than_postgresql(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(queries[step.query], _params(step))
        return list(cursor.fetchall())


# -- all of them

_DRIVERS = {
    "psycopg.Connection": Driver(_psycopg),
    "psycopg.AsyncConnection": Driver(_apsycopg, asynchronous=True),
    "psycopg2.extensions.connection": Driver(_psycopg2),
    "asyncpg.connection.Connection": Driver(_asyncpg, asynchronous=True),
    "asyncpg.pool.PoolConnectionProxy": Driver(_asyncpg, asynchronous=True),
    "sqlalchemy.engine.base.Connection": Driver(_sqlalchemy),
    "sqlalchemy.orm.session.Session": Driver(_session),
    "sqlalchemy.orm.scoping.scoped_session": Driver(_session),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Driver(_asqlalchemy, asynchronous=True),
    "sqlalchemy.ext.asyncio.session.AsyncSession": Driver(_asession, asynchronous=True),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Driver(_asession, asynchronous=True),
    "django.db.backends.base.base.BaseDatabaseWrapper": Driver(_django),
    "django.utils.connection.ConnectionProxy": Driver(_django),
}


def driver_of(connection: Any, call: str, *, asynchronous: bool) -> Driver:
    """The driver for this colour of call, or an error that names the other."""
    driver = _recognise(type(connection))
    if driver.asynchronous == asynchronous:
        return driver
    given = _name(type(connection))
    if driver.asynchronous:
        raise TypeError(f"{call}() was given an asynchronous connection ({given}); use `await a{call}()` with it")
    raise TypeError(
        f"a{call}() was given a blocking connection ({given}); use {call}() with it, in a thread if a loop is running"
    )


def _recognise(kind: type) -> Driver:
    for each in kind.__mro__:
        if driver := _DRIVERS.get(_name(each)):
            return driver
    raise TypeError(f"connection= takes a connection or session, not {_name(kind)}. {SUPPORTED}")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def belongs_to_loop(connection: Any) -> bool:
    """Asynchronous, or the blocking face that SQLAlchemy gives to one in `run_sync`: it does not block its loop."""
    driver = _recognise(type(connection))
    if driver.carry_out is _session:
        return bool(connection.get_bind().dialect.is_async)
    return driver.asynchronous or (driver.carry_out is _sqlalchemy and bool(connection.dialect.is_async))


def _params(step: Step) -> Sequence[Any]:
    assert isinstance(step, Statement)
    assert not isinstance(step.params, dict)
    return tuple(step.params)
