"""Operations over the caller's own connection: they commit and roll back with everything else done there.

Watchbill does not import the libraries whose connections it takes. It recognises an object by the names of its classes
and calls the few methods that each library has (`_DRIVERS`). Enqueue uses only types that every driver reads and writes
alike: text, boolean, bigint and float8. All other statements are sent and read as text (`text_statements.py`).

When a statement fails, PostgreSQL has aborted the caller's transaction, so most errors are the caller's to handle: they
arrive as the driver raised them, and the caller's own retries work. Only two kinds become Watchbill's errors: what the
job state machine refuses, and a database without Watchbill.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from watchbill.client.operations import Copy, Operation, Rows, Statement, Step, adrive, drive
from watchbill.client.text_statements import as_text, read_rows
from watchbill.errors import SchemaError
from watchbill.store.queries import Queries
from watchbill.store.refusals import Invalid, WrongDatabase, refusal, role_refusal, schema_missing

R = TypeVar("R")

SUPPORTED = """Supported are:
  psycopg 3: Connection, AsyncConnection
  psycopg2: connection
  asyncpg: Connection, also one of a pool
  SQLAlchemy: Connection, Session, scoped_session, AsyncConnection, AsyncSession, async_scoped_session
  Django: django.db.connection, django.db.connections[alias]
An engine, a pool or a session factory has no transaction: open a connection or session and give that."""


def run(operation: Operation[R], connection: Any, queries: Queries, *, call: str | None = None) -> R:
    """Runs an operation over the caller's connection. `call` names the method that the caller used, for errors."""
    execute = _find_driver(connection, call, asynchronous=False).execute
    try:
        return drive(operation, _reading(execute), connection, queries)
    except Exception as error:
        if translated := _translate(error, queries.schema):
            raise translated from error
        raise


async def arun(operation: Operation[R], connection: Any, queries: Queries, *, call: str | None = None) -> R:
    execute = _find_driver(connection, call, asynchronous=True).execute
    try:
        return await adrive(operation, _areading(execute), connection, queries)
    except Exception as error:
        if translated := _translate(error, queries.schema):
            raise translated from error
        raise


def _reading(execute: Callable[[Any, Step, Queries], Rows]) -> Callable[[Any, Step, Queries], Rows]:
    def execute_and_read(connection: Any, step: Step, queries: Queries) -> Rows:
        rows = execute(connection, step, queries)
        return read_rows(step, rows) if isinstance(step, Statement) else rows

    return execute_and_read


def _areading(
    execute: Callable[[Any, Step, Queries], Awaitable[Rows]],
) -> Callable[[Any, Step, Queries], Awaitable[Rows]]:
    async def execute_and_read(connection: Any, step: Step, queries: Queries) -> Rows:
        rows = await execute(connection, step, queries)
        return read_rows(step, rows) if isinstance(step, Statement) else rows

    return execute_and_read


# -- These send a step over psycopg 3. They use psycopg's own cursor class, because the connection's cursor_factory may
# take other placeholders.


def _execute_psycopg(connection: psycopg.Connection[Any], step: Step, queries: Queries) -> Rows:
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(step, Copy):
            with cursor.copy(queries[step.query].encode()) as copy:
                copy.write(b"".join(step.rows))
            return []
        query, params = as_text(step, queries[step.query])
        cursor.execute(query.encode(), params)
        return cursor.fetchall() if _has_rows(cursor, connection) else []


async def _execute_psycopg_async(connection: psycopg.AsyncConnection[Any], step: Step, queries: Queries) -> Rows:
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        if isinstance(step, Copy):
            async with cursor.copy(queries[step.query].encode()) as copy:
                await copy.write(b"".join(step.rows))
            return []
        query, params = as_text(step, queries[step.query])
        await cursor.execute(query.encode(), params)
        return await cursor.fetchall() if _has_rows(cursor, connection) else []


def _has_rows(cursor: Any, connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether a statement returns rows. In a pipeline this is not known yet, but each statement there does."""
    return cursor.description is not None or _is_in_pipeline(connection)


def _is_in_pipeline(connection: psycopg.BaseConnection[Any]) -> bool:
    return connection.pgconn.pipeline_status != PipelineStatus.OFF


def can_copy(connection: Any) -> bool:
    """Whether several statements, COPY among them, are atomic here: psycopg 3, in a transaction, not in a pipeline."""
    if not isinstance(connection, psycopg.BaseConnection) or _is_in_pipeline(connection):
        return False
    return not connection.autocommit or connection.info.transaction_status == TransactionStatus.INTRANS


def _autocommits_psycopg(connection: psycopg.BaseConnection[Any]) -> bool:
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


# -- These send a step over psycopg2.


def _execute_psycopg2(connection: Any, step: Step, queries: Queries) -> Rows:
    if connection.async_:
        raise TypeError("connection= was given an asynchronous psycopg2 connection, which has no transactions")
    with connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        cursor.execute(*_statement_as_text(step, queries))
        return list(cursor.fetchall())


def _autocommits_psycopg2(connection: Any) -> bool:
    idle: int = sys.modules["psycopg2.extensions"].TRANSACTION_STATUS_IDLE
    return bool(connection.autocommit and connection.get_transaction_status() == idle)


# -- These send a step over asyncpg.


async def _execute_asyncpg(connection: Any, step: Step, queries: Queries) -> Rows:
    query, params = _statement_as_text(step, queries)
    records = await connection.fetch(number_placeholders(query), *params)
    return [tuple(record) for record in records]


def _autocommits_asyncpg(connection: Any) -> bool:
    return not connection.is_in_transaction()


@lru_cache(maxsize=100)
def number_placeholders(query: str) -> str:
    """`%s, %s` as `$1, $2`, and `%%` as `%`."""
    number = count(1)
    return re.sub("%[s%]", lambda found: "%" if found[0] == "%%" else f"${next(number)}", query)


# -- These send a step over SQLAlchemy.


def _execute_sqlalchemy(connection: Any, step: Step, queries: Queries) -> Rows:
    query, params = _statement_as_text(step, queries)
    cursor = connection.exec_driver_sql(_adapt_to_dialect(connection.dialect, query), params)
    return [tuple(row) for row in cursor.fetchall()]


async def _execute_sqlalchemy_async(connection: Any, step: Step, queries: Queries) -> Rows:
    query, params = _statement_as_text(step, queries)
    cursor = await connection.exec_driver_sql(_adapt_to_dialect(connection.dialect, query), params)
    return [tuple(row) for row in cursor.fetchall()]


def _execute_session(session: Any, step: Step, queries: Queries) -> Rows:
    return _execute_sqlalchemy(session.connection(), step, queries)


async def _execute_session_async(session: Any, step: Step, queries: Queries) -> Rows:
    return await _execute_sqlalchemy_async(await session.connection(), step, queries)


def _autocommits_sqlalchemy(connection: Any) -> bool:
    """Of a connection or an engine. Otherwise SQLAlchemy begins a transaction with the first statement."""
    blocking = getattr(connection, "sync_connection", connection)
    level = blocking.get_execution_options().get("isolation_level")
    return (level or getattr(blocking.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT"


def _autocommits_session(session: Any) -> bool:
    return _autocommits_sqlalchemy(session.get_bind())


def _adapt_to_dialect(dialect: Any, query: str) -> str:
    _refuse_other_than_postgresql(dialect.name)
    return number_placeholders(query) if dialect.paramstyle == "numeric_dollar" else query


def _refuse_other_than_postgresql(name: str) -> None:
    if name != "postgresql":
        raise WrongDatabase(
            f"The given connection leads to {name}, but jobs are stored in PostgreSQL.",
            hint="Give a connection to the App's own database, or leave connection= out: "
            "then the call takes effect at once, even if your transaction rolls back.",
        )


# -- These send a step over Django.


def _execute_django(connection: Any, step: Step, queries: Queries) -> Rows:
    _refuse_other_than_postgresql(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(*_statement_as_text(step, queries))
        return list(cursor.fetchall())


def _autocommits_django(connection: Any) -> bool:
    return not connection.in_atomic_block and bool(connection.get_autocommit())


# -- These find the driver of a connection.


class Driver(NamedTuple):
    """How to use one kind of connection. `execute` returns rows; of an asynchronous kind, an awaitable of them.
    `autocommits` says whether the connection is in autocommit mode, and no transaction has begun."""

    execute: Callable[[Any, Step, Queries], Any]
    autocommits: Callable[[Any], bool]
    asynchronous: bool = False


_DRIVERS = {
    "psycopg.Connection": Driver(_execute_psycopg, _autocommits_psycopg),
    "psycopg.AsyncConnection": Driver(_execute_psycopg_async, _autocommits_psycopg, asynchronous=True),
    "psycopg2.extensions.connection": Driver(_execute_psycopg2, _autocommits_psycopg2),
    "asyncpg.connection.Connection": Driver(_execute_asyncpg, _autocommits_asyncpg, asynchronous=True),
    "asyncpg.pool.PoolConnectionProxy": Driver(_execute_asyncpg, _autocommits_asyncpg, asynchronous=True),
    "sqlalchemy.engine.base.Connection": Driver(_execute_sqlalchemy, _autocommits_sqlalchemy),
    "sqlalchemy.orm.session.Session": Driver(_execute_session, _autocommits_session),
    "sqlalchemy.orm.scoping.scoped_session": Driver(_execute_session, _autocommits_session),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Driver(
        _execute_sqlalchemy_async, _autocommits_sqlalchemy, asynchronous=True
    ),
    "sqlalchemy.ext.asyncio.session.AsyncSession": Driver(
        _execute_session_async, _autocommits_session, asynchronous=True
    ),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Driver(
        _execute_session_async, _autocommits_session, asynchronous=True
    ),
    "django.db.backends.base.base.BaseDatabaseWrapper": Driver(_execute_django, _autocommits_django),
    "django.utils.connection.ConnectionProxy": Driver(_execute_django, _autocommits_django),
}


def refuse_without_transaction(connection: Any, call: str, *, asynchronous: bool) -> None:
    """For a check, which protects what follows it in the same transaction: alone it would pass and protect nothing."""
    if _find_driver(connection, call, asynchronous=asynchronous).autocommits(connection):
        name = f"a{call}" if asynchronous else call
        raise Invalid(
            f"{name}() would protect nothing: the given connection is in autocommit mode, outside of a transaction.",
            hint="Begin a transaction on it, call this first, and write in the same transaction.",
        )


def _find_driver(connection: Any, call: str | None, *, asynchronous: bool) -> Driver:
    driver = _recognize_driver(type(connection))
    if driver.asynchronous == asynchronous:
        return driver
    given = _qualified_name(type(connection))
    blocking = f"{call}()" if call else "its twin without the `a`, as in `app.jobs.get()`,"
    awaited = f"`await a{call}()`" if call else "its twin with an `a` before the name, as in `await app.jobs.aget()`,"
    if driver.asynchronous:
        name = f"{call}()" if call else "A blocking call"
        raise TypeError(f"{name} was given an asynchronous connection ({given}); use {awaited} with it")
    name = f"a{call}()" if call else "An asynchronous call"
    raise TypeError(
        f"{name} was given a blocking connection ({given}); use {blocking} with it, in a thread if a loop is running"
    )


def _recognize_driver(kind: type) -> Driver:
    for each in kind.__mro__:
        if driver := _DRIVERS.get(_qualified_name(each)):
            return driver
    raise TypeError(f"connection= takes a connection or session, not {_qualified_name(kind)}. {SUPPORTED}")


def _qualified_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def belongs_to_loop(connection: Any) -> bool:
    """Whether a connection is asynchronous; also if SQLAlchemy shows it as a blocking one, as in `run_sync`."""
    driver = _recognize_driver(type(connection))
    if driver.execute is _execute_session:
        return bool(connection.get_bind().dialect.is_async)
    return driver.asynchronous or (driver.execute is _execute_sqlalchemy and bool(connection.dialect.is_async))


def _statement_as_text(step: Step, queries: Queries) -> tuple[str, Sequence[Any]]:
    assert isinstance(step, Statement)  # only psycopg 3 is given a Copy: can_copy()
    return as_text(step, queries[step.query])


# -- These turn the errors of any driver into ours.


def _translate(error: Exception, schema: str) -> Exception | None:
    """Watchbill's own error, if its SQL refused the call or is not installed; None for every other error."""
    for each in _unwrap_error(error):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if state in ("3F000", "42P01"):  # no such schema or table
            return schema_missing(schema)
        message, hint, detail = _read_diagnosis(each)
        if state == "42883":  # no such function
            return SchemaError(
                f"Schema {schema!r} is too old: {message}.", hint="Run `watchbill db migrate` for this database."
            )
        if refused := refusal(state, message, hint, detail):
            return refused
        if (
            state == "42501"
        ):  # no right on a function; in a failed transaction the server does not say who the caller is
            return role_refusal(message)
    return None


def _unwrap_error(error: BaseException) -> Iterator[BaseException]:
    """The driver's own error first, then those that SQLAlchemy or Django wrapped around it."""
    inner = getattr(error, "orig", None) or error.__cause__
    if isinstance(inner, BaseException):
        yield from _unwrap_error(inner)
    yield error


def _read_diagnosis(error: BaseException) -> tuple[str, str | None, str | None]:
    """The server's message, hint and detail: psycopg has them in `diag`, asyncpg on the error itself."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is not None:
        return diagnosis.message_primary or str(error), diagnosis.message_hint, diagnosis.message_detail
    message = getattr(error, "message", None) or str(error)
    return message, getattr(error, "hint", None), getattr(error, "detail", None)
