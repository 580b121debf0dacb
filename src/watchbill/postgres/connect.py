"""Opens connections whose session settings do not depend on a role's defaults or on a pooler.

Startup options override what a DBA may have set on a role or database (REPEATABLE READ, read-only, a statement_timeout,
a German DateStyle): they cost no round trip, and RESET returns to them. A pooler in transaction mode refuses such
options, because its server connections are shared; then we connect without them. BEGIN names isolation and access mode
in any case, so transactions are safe behind a pooler too. For single statements there the role's defaults apply, and
`watchbill doctor` lists those that do harm.

`Connection` and `AsyncConnection` are psycopg's with these options; a pool takes them as its `connection_class`.
`AsyncPool` is psycopg's pool, with tasks that end when they are canceled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from watchbill.postgres.address import explain_failure, parse_url

SESSION_DEFAULTS = {
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
}

# With these options a connection notices within half a minute, the default lease, that the network is cut.
_TRANSPORT = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
    "connect_timeout": "10",
    "client_encoding": "utf8",
    "fallback_application_name": "watchbill",
}


_opened: weakref.WeakSet[psycopg.BaseConnection[Any]] = weakref.WeakSet()


class Connection(psycopg.Connection[TupleRow]):
    """A blocking connection whose session settings do not depend on the defaults of its role."""

    is_pooled = False

    @cached_property
    def kept_cursor(self) -> psycopg.Cursor[TupleRow]:
        """A cursor that all statements reuse, because creating one for each statement is a third of the driver's
        work."""
        return self.cursor()

    @classmethod
    def connect(cls, conninfo: str = "", **more: Any) -> Self:
        """Opens a connection. `more` are psycopg's arguments, such as autocommit, and `session`: settings that replace
        SESSION_DEFAULTS."""
        parameters = startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more
        while True:
            try:
                connection = super().connect(**parameters)
                break
            except psycopg.OperationalError as error:
                parameters = _drop_refused_options(error, parameters)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        _mark_pooled(connection, parameters)
        _opened.add(connection)
        return connection


class AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection for asyncio whose session settings do not depend on the defaults of its role."""

    is_pooled = False

    @cached_property
    def kept_cursor(self) -> psycopg.AsyncCursor[TupleRow]:
        return self.cursor()

    @classmethod
    async def connect(cls, conninfo: str = "", **more: Any) -> Self:
        parameters = startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more
        while True:
            try:
                connection = await super().connect(**parameters)
                break
            except psycopg.OperationalError as error:
                parameters = _drop_refused_options(error, parameters)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await connection.set_read_only(False)
        _mark_pooled(connection, parameters)
        _opened.add(connection)
        return connection


class AsyncPool(AsyncConnectionPool[AsyncConnection]):
    """A pool for asyncio whose workers end when they are canceled.

    A worker of psycopg's pool catches CancelledError while it opens a connection, and then waits for its next task.
    `asyncio.run` cancels every task once and waits until all have ended, so it would never return.

    `close` waits for its workers with `asyncio.gather`. If it gives up, because a server does not answer, a worker that
    is canceled later leaves its error in the future of `gather`, and asyncio logs that nothing has retrieved it. So
    this pool gives `close` futures that have no error.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        tasks: Any = _TasksUntilCanceled(q)
        await super().worker(tasks)

    async def _signal_stop_worker(self) -> Any:
        return [_EndOfTask(task) for task in await super()._signal_stop_worker()]


class _EndOfTask(asyncio.Future[None]):
    """Is done when the task has ended, in whatever way."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        super().__init__(loop=task.get_loop())
        self.get_name = task.get_name  # for the warning of a pool that gives up waiting
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not self.done():
            self.set_result(None)


class _TasksUntilCanceled:
    """Wraps the queue of tasks that a worker of the pool reads, and ends that worker once it was canceled."""

    def __init__(self, tasks: asyncio.Queue[Any]) -> None:
        self._tasks = tasks

    async def get(self) -> Any:
        worker = asyncio.current_task()
        if worker is not None and worker.cancelling():
            raise asyncio.CancelledError
        return await self._tasks.get()


def _mark_pooled(connection: Connection | AsyncConnection, parameters: Mapping[str, Any]) -> None:
    """Marks the connection as pooled if the pooler refused our startup options. Such a pooler shares sessions between
    clients, so prepared statements are switched off: those of two clients would collide."""
    connection.is_pooled = "options" not in parameters
    if connection.is_pooled:
        connection.prepare_threshold = None


def detach_inherited_connections() -> None:
    """Must be called in a forked process. Makes sure that the fork sends nothing on the connections of its parent, not
    even the message that closes one."""
    null = os.open(os.devnull, os.O_RDWR)
    for connection in list(_opened):
        with contextlib.suppress(psycopg.Error, OSError):  # raised if the connection was closed before
            os.dup2(null, connection.fileno(), inheritable=False)
    os.close(null)


def startup_parameters(url: str, session: Mapping[str, str] = SESSION_DEFAULTS) -> dict[str, Any]:
    """Returns Watchbill's defaults for a connection, overridden by the URL and by libpq's environment variables."""
    given = parse_url(url)
    if "PGCONNECT_TIMEOUT" in os.environ:
        given.setdefault("connect_timeout", os.environ["PGCONNECT_TIMEOUT"])
    several_hosts = {"target_session_attrs": "primary"} if "," in str(given.get("host", "")) else {}
    defaults = (f"-c {name}={value}" for name, value in session.items())
    own_options = given.get("options") or os.environ.get("PGOPTIONS", "")
    return {**_TRANSPORT, **several_hosts, **given, "options": " ".join([*defaults, own_options]).strip()}


def _drop_refused_options(error: psycopg.OperationalError, parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters for another try, without our startup options, if the server refused these; otherwise
    raises. PgBouncer's error says "startup parameter", that of RDS Proxy "command-line options"."""
    refused = "startup parameter" in str(error) or "command-line options" in str(error)
    if not refused or "options" not in parameters:
        raise explain_failure(error, parameters) from error
    return {name: value for name, value in parameters.items() if name != "options"}
