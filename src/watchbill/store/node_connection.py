"""A node's connection to the database, which opens again after a failure, runs named queries and classifies errors."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from watchbill.errors import NoDatabase, WatchbillError
from watchbill.postgres.connect import OWNER_SESSION, AsyncConnection
from watchbill.postgres.hosts import READ_ONLY, leave_standby, shut_down
from watchbill.store.queries import Queries
from watchbill.store.refusals import NodeLost as NodeLost
from watchbill.telemetry.outage import outage_of


class Disconnected(WatchbillError):
    """The connection is gone; the statement may or may not have been executed.

    `by_statement`: the server answers, but refused this statement, for lack of a resource for example. If False, the
    database does not answer, and NodeConnection has logged that (telemetry/outage.py).
    `may_be_too_large`: the statement may have broken the connection, because it is too large for the server.
    `is_unanswered`: the server did not answer in time, so this node closed the connection.
    """

    by_statement = False
    may_be_too_large = False
    is_unanswered = False


class NameTaken(WatchbillError):
    """Another living node has this name."""


class NodeDraining(WatchbillError):
    """An operator asked this node to drain."""


class Refused(WatchbillError):
    """The server refused this statement. `by_data`: because of a value in the statement, so a retry would fail too."""

    by_data = False


class Busy(Refused):
    """Another transaction holds a lock that this statement needs; nothing was done."""


_OWN_ERRORS: dict[str, type[WatchbillError]] = {"WB001": NodeLost, "WB002": NameTaken, "WB006": NodeDraining}
# How SQLSTATEs begin that a value in the statement causes: data exceptions, violated constraints, exceeded limits,
# errors that triggers raise, and Watchbill's own code for invalid data.
_DATA_CODES = ("21", "22", "23", "27", "44", "54", "P0", "WB003")
_LOCK_TIMEOUT = "55P03"
_OUT_OF_MEMORY = "53200"
_CONNECTION_CODES = ("08", "57P")
SLOW_FAILURE_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 1.0  # so that work goes on soon after a failover, however long it has taken

# Watchbill's own statements hold locks for milliseconds. A lock of two seconds belongs to a transaction left open.
_SESSION = OWNER_SESSION | {"lock_timeout": "2s"}  # some chores make partitions


class NodeConnection:
    """One connection to the database, opened at its first use and again after each failure."""

    def __init__(self, url: str, queries: Queries, *, purpose: str, timeout: float, prepare: bool = True) -> None:
        self._url, self._queries, self._purpose = url, queries, purpose
        self._timeout, self._prepare = timeout, prepare
        self._connection: AsyncConnection | None = None
        self._statements: dict[str, bytes] = {}
        self._failures = 0
        self._outage = outage_of(url)
        self._lock = asyncio.Lock()  # held during a statement, because a connection runs one statement at a time
        self.observe: Callable[[str, float, int], None] | None = None  # gets name, seconds and rows of each statement
        self.connections = 0  # how often it was opened; if this has not grown, the connection was never lost meanwhile

    async def execute(self, query: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        began, connections = time.monotonic(), self.connections
        try:
            async with self._lock:
                rows = await self._execute_on_connection(query, params)
        except (psycopg.Error, TimeoutError, OSError, NoDatabase) as error:
            classified = classify_error(error)
            if isinstance(classified, Disconnected):
                if isinstance(error, psycopg.Error) and self._connection is not None:
                    leave_standby(error, self._connection)
                await self.close()
            raise_if_canceled()
            if isinstance(classified, Disconnected | Refused | NameTaken):
                self._failures += 1
            # A connection that broke while it was idle is just opened again. The database counts as out only if the
            # next try fails too, or if no answer came at all.
            was_idle = self._failures == 1 and self.connections == connections > 0
            if is_outage(classified) and not (was_idle and time.monotonic() - began < SLOW_FAILURE_SECONDS):
                self._outage.note_failure(classified)
            raise classified from error
        if self.observe is not None:
            self.observe(query, time.monotonic() - began, len(rows))
        return rows

    async def _execute_on_connection(self, query: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            async with asyncio.timeout(self._timeout):
                self._connection = await self._open_connection()
            self.connections += 1
        statement = self._statements.get(query)
        if statement is None:
            statement = self._statements[query] = self._queries[query].encode()
        with Deadline(self._connection, self._timeout):
            cursor = self._connection.cursor(binary=True)
            await cursor.execute(statement, params, prepare=self._prepare)
            rows = await cursor.fetchall()
        if self._failures:
            self._failures = 0
            self._outage.note_answer()
        return rows

    async def _open_connection(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(
            self._url, session=_SESSION, autocommit=True, application_name=f"watchbill {self._purpose}"
        )
        if not self._prepare:
            connection.prepare_threshold = None
        for raw in ("uuid", "jsonb"):
            connection.adapters.register_loader(raw, ByteaBinaryLoader)
        connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
        return connection

    def retry_delay(self) -> float:
        """Returns the seconds to wait before the next try: more after each failure, and random, so that not all nodes
        retry at the same moment."""
        return random.uniform(0.5, 1) * min(LONGEST_RETRY_SECONDS, 0.05 * 2.0 ** min(self._failures, 10))  # noqa: S311

    async def wait_to_retry(self) -> None:
        await asyncio.sleep(self.retry_delay())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class DeadlinePassed(TimeoutError):
    """The server has not answered in time."""


class Deadline:
    """Shuts the connection down and raises DeadlinePassed if the block takes longer than so many seconds.

    If the network drops all packets, the connection stays open, and a read would wait for ever; a request to cancel the
    statement would need the same network. So this shuts down our end of the socket, which ends every wait on it.
    """

    __slots__ = ("_connection", "_has_passed", "_seconds", "_timer")

    def __init__(self, connection: psycopg.BaseConnection[Any], seconds: float) -> None:
        self._connection, self._seconds, self._has_passed = connection, seconds, False
        self._timer = asyncio.get_running_loop().call_later(seconds, self._shut_down)

    def _shut_down(self) -> None:
        self._has_passed = True
        shut_down(self._connection)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._timer.cancel()
        if self._has_passed and isinstance(error, psycopg.OperationalError):
            raise DeadlinePassed(f"the server has not answered within {self._seconds:g} s") from error


def raise_if_canceled() -> None:
    """Raises CancelledError if the current task was canceled. If a connection breaks while psycopg carries out a
    cancellation, psycopg raises its own error instead, and the canceled task would go on."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def classify_error(error: BaseException) -> WatchbillError:
    """Returns the exception for an error of psycopg. Checks Watchbill's own codes first, because psycopg takes them for
    operational errors."""
    code = getattr(error, "sqlstate", None) or ""
    if isinstance(error, psycopg.Error) and code == "WB002":
        return NameTaken(
            f"{first_line(error)} ({error.diag.message_detail})",
            hint="Give this node another name, stop the other one, or start this one with --take-over.",
        )
    if code in _OWN_ERRORS:
        return _OWN_ERRORS[code](first_line(error))
    if code == _LOCK_TIMEOUT:
        return Busy(first_line(error))
    if code.startswith((*_DATA_CODES, "WB")):
        refused = Refused(first_line(error))
        refused.by_data = code.startswith(_DATA_CODES)
        return refused
    is_database_error = isinstance(error, psycopg.DatabaseError)
    if is_database_error and not isinstance(error, psycopg.OperationalError) and code != READ_ONLY:
        return Refused(first_line(error))
    lost = Disconnected(first_line(error))
    lost.is_unanswered = isinstance(error, DeadlinePassed)
    lost.by_statement = bool(code) and code != READ_ONLY and not code.startswith(_CONNECTION_CODES)
    lost.may_be_too_large = not lost.by_statement or code == _OUT_OF_MEMORY
    return lost


def is_outage(error: BaseException) -> bool:
    """Whether the error means that the database does not answer at all. NodeConnection has logged that already."""
    return isinstance(error, Disconnected) and not error.by_statement


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
