"""Opens connections whose session settings do not depend on a role's defaults or on a pooler.

Startup options override what a DBA may have set on a role or database (REPEATABLE READ, read-only, a statement_timeout,
a German DateStyle): they cost no round trip, and RESET returns to them. A pooler in transaction mode refuses such
options, because its server connections are shared; then we connect without them. BEGIN names isolation and access mode
in any case, so transactions are safe behind a pooler too. For single statements there the role's defaults apply, and
`watchbill doctor` lists those that do harm.

`Connection` and `AsyncConnection` are psycopg's with these options; a pool takes them as its `connection_class`.
`Pool` and `AsyncPool` are psycopg's pools with shorter pauses, which open these connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Self

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from watchbill.errors import NoDatabase
from watchbill.postgres.address import explain_failures, parse_url
from watchbill.postgres.hosts import hosts_of, split_hosts
from watchbill.telemetry.context import current
from watchbill.telemetry.outage import outage_of

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

# For statements that make or change tables, functions and rights. Citus would send them to its other servers, which do
# not have our tables. A server without Citus ignores this setting.
OWNER_SESSION = SESSION_DEFAULTS | {"citus.enable_ddl_propagation": "off"}

# With these options a connection, idle or not, notices within about 11 s that the network is cut.
_TRANSPORT = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "connect_timeout": "10",
    "client_encoding": "utf8",
    "fallback_application_name": "watchbill",
}

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0  # between two tries of a pool to open a connection

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
        search = _Search(startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more)
        for tried in search:
            try:
                connection = super().connect(**tried)
            except psycopg.OperationalError as error:
                search.note_failure(error)
            else:
                search.note_success(connection)
                break
        else:
            raise search.explain()
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        _mark_pooled(connection, tried)
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
        search = _Search(startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more)
        for tried in search:
            try:
                connection = await super().connect(**tried)
            except psycopg.OperationalError as error:
                search.note_failure(error)
            else:
                search.note_success(connection)
                break
        else:
            raise search.explain()
        try:
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            await connection.set_read_only(False)
        except BaseException:  # such as a cancellation: psycopg lets other tasks run here from time to time
            await connection.close()
            raise
        _mark_pooled(connection, tried)
        _opened.add(connection)
        return connection


class _SteadyAttempt:
    """When a pool tries again to open a connection. It goes on every second, for as long as the pool says. psycopg's
    own doubles the pause each time, so that a pool would find a new primary as long after the outage as the outage has
    taken."""

    def __init__(self, timeout: float) -> None:
        self.delay, self._give_up_at = 0.0, time.monotonic() + timeout

    def update_delay(self, now: float) -> None:
        longest = min(2 * self.delay or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self.delay = longest * random.uniform(0.6, 1)  # noqa: S311  (random, so that not all processes try at once)

    def time_to_give_up(self, now: float) -> bool:
        return now >= self._give_up_at


class Pool(ConnectionPool[Connection]):
    """A pool that tries again every second while the database does not answer, and logs one line for the outage."""

    def _add_connection(self, attempt: Any, growing: bool = False) -> None:
        super()._add_connection(attempt or _SteadyAttempt(self.reconnect_timeout), growing)  # type: ignore[arg-type]

    def _connect(self, timeout: float | None = None) -> Connection:
        outage = outage_of(str(self.conninfo))
        try:
            connection = super()._connect(timeout)
        except (psycopg.OperationalError, NoDatabase) as error:
            outage.note_failure(error)
            raise
        outage.note_answer()
        return connection


class AsyncPool(AsyncConnectionPool[AsyncConnection]):
    """The same for asyncio, with workers that end when they are canceled.

    A worker of psycopg's pool catches CancelledError while it opens a connection, and then waits for its next task.
    `asyncio.run` cancels every task once and waits until all have ended, so it would never return.

    `close` waits for its workers with `asyncio.gather`. If it gives up, because a server does not answer, a worker that
    is canceled later leaves its error in the future of `gather`, and asyncio logs that nothing has retrieved it. So
    this pool gives `close` futures that have no error.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        current.set(None)  # a handler may have opened the pool, but what its workers log is not about that job
        tasks: Any = _TasksUntilCanceled(q)
        await super().worker(tasks)

    async def _signal_stop_worker(self) -> Any:
        return [_EndOfTask(task) for task in await super()._signal_stop_worker()]

    async def _add_connection(self, attempt: Any, growing: bool = False) -> None:
        attempt = attempt or _SteadyAttempt(self.reconnect_timeout)
        await super()._add_connection(attempt, growing)

    async def _connect(self, timeout: float | None = None) -> AsyncConnection:  # noqa: ASYNC109  (psycopg's own)
        outage = outage_of(str(self.conninfo))
        try:
            connection = await super()._connect(timeout)
        except (psycopg.OperationalError, NoDatabase) as error:
            outage.note_failure(error)
            raise
        outage.note_answer()
        return connection


def _demote(record: logging.LogRecord) -> bool:
    """Makes a line of psycopg about one of these pools a debug line: the line for the outage says the same, once."""
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    is_ours = isinstance(about, Connection | AsyncConnection) or str(about).startswith("watchbill")
    if is_ours and record.levelno > logging.DEBUG:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    return True


logging.getLogger("psycopg.pool").addFilter(_demote)


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
    has_several = "," in str(given.get("host") or given.get("hostaddr") or "")
    several_hosts = {"target_session_attrs": "primary"} if has_several else {}
    defaults = (f"-c {name}={value}" for name, value in session.items())
    own_options = given.get("options") or os.environ.get("PGOPTIONS", "")
    return {**_TRANSPORT, **several_hosts, **given, "options": " ".join([*defaults, own_options]).strip()}


class _Search:
    """Iterates over the parameters of the tries to open one connection: one for each host. If a host refuses our
    startup options, because it is a pooler, it is tried once more without them."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters, self._hosts = parameters, hosts_of(parameters)
        self._left = list(self._hosts.choose(split_hosts(parameters)))
        self._tried: dict[str, Any] = {}
        self._errors: list[tuple[dict[str, Any], psycopg.OperationalError]] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self._left:
            self._tried = self._left.pop(0)
            yield self._tried

    def note_failure(self, error: psycopg.OperationalError) -> None:
        tried = self._tried
        if _refuses_options(error) and "options" in tried:
            self._left.insert(0, {name: value for name, value in tried.items() if name != "options"})
        else:
            self._hosts.note_failure(tried, error)
            self._errors.append((tried, error))

    def note_success(self, connection: Connection | AsyncConnection) -> None:
        self._hosts.note_success(self._tried, connection)

    def explain(self) -> NoDatabase:
        return explain_failures(self._errors, self._parameters)


def _refuses_options(error: psycopg.OperationalError) -> bool:
    """PgBouncer's error says "startup parameter", that of RDS Proxy "command-line options"."""
    return "startup parameter" in str(error) or "command-line options" in str(error)
