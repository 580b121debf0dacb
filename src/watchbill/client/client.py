"""Client and AsyncClient, the layer below App: they run operations over a pool that opens at first use.

An operation is written once, as a generator (`operations.py`); only what waits for the network is here twice.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq.abc import PGresult
from psycopg.types.json import set_json_loads
from psycopg_pool import PoolTimeout

import watchbill.postgres.arrays  # noqa: F401  (registers adapters, which connections copy when they open)
from watchbill.client.loop_pools import LoopPools, OnConnect
from watchbill.client.operations import Copy, Operation, Rows, Statement, Step, adrive, drive, installation
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.model.tenant import acting_tenant
from watchbill.postgres import forks
from watchbill.postgres.connect import AsyncConnection, AsyncPool, Connection, Pool, startup_parameters
from watchbill.postgres.hosts import leave_standby
from watchbill.postgres.readable_json import load_json
from watchbill.store.queries import Queries, queries
from watchbill.store.refusals import FunctionReplaced, StandbyRefused, is_function_replaced, translate
from watchbill.telemetry.outage import outage_of

TIMEOUT_SECONDS = 60.0  # the default of the setting client_timeout
R = TypeVar("R")


class NoReply(psycopg.OperationalError):
    """The server has not answered in time. The statement may have been carried out."""


class ClientConnection(Connection):
    """Gives up a server that does not answer: TCP notices a lost peer only after half a minute, and never one that
    accepts packets but is frozen."""

    reply_timeout = TIMEOUT_SECONDS  # for the reply to each statement

    @classmethod
    def connect(cls, conninfo: str = "", **more: Any) -> Self:
        reply_timeout = more.pop("reply_timeout", TIMEOUT_SECONDS)
        connection = super().connect(conninfo, **(_limit_connect(conninfo, reply_timeout) | more))
        connection.reply_timeout = reply_timeout
        set_json_loads(load_json, connection)
        return connection

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **more: Any) -> R:
        """psycopg sends every statement through this."""
        try:
            return super().wait(_give_up_after(self.reply_timeout, gen), *args, **more)
        except NoReply:
            self.pgconn.finish()
            raise


class AsyncClientConnection(AsyncConnection):
    """The same for asyncio."""

    reply_timeout = TIMEOUT_SECONDS

    @classmethod
    async def connect(cls, conninfo: str = "", **more: Any) -> Self:
        reply_timeout = more.pop("reply_timeout", TIMEOUT_SECONDS)
        connection = await super().connect(conninfo, **(_limit_connect(conninfo, reply_timeout) | more))
        connection.reply_timeout = reply_timeout
        set_json_loads(load_json, connection)
        return connection

    async def wait(self, gen: Generator[Any, Any, R], *args: Any, **more: Any) -> R:
        try:
            return await super().wait(_give_up_after(self.reply_timeout, gen), *args, **more)
        except NoReply:
            self.pgconn.finish()
            raise


def _give_up_after(seconds: float, waiting: Generator[Any, Any, R]) -> Generator[Any, Any, R]:
    """Raises NoReply when the time has passed. psycopg resumes a generator ten times a second, with a false value if
    nothing has arrived."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise NoReply(f"no reply within {seconds:g} s (client_timeout)")
            wanted = waiting.send(ready)
    except StopIteration as end:
        result: R = end.value
        return result


def _limit_connect(url: str, timeout: float) -> dict[str, Any]:
    longest = int(startup_parameters(url)["connect_timeout"]) or math.inf  # for libpq 0 means for ever
    return {"connect_timeout": min(longest, math.ceil(timeout))}


RESEND_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
IDENTIFY_TIMEOUT_SECONDS = 2
MAX_POOL_TIMEOUT_SECONDS = 30.0
MAX_ROWS_KEPT = 100  # a cursor keeps its last rows in memory; after more rows than this it is not used again
_opened_clients: WeakSet[Client] = WeakSet()


class Client:
    """Blocking. Safe to share between threads, and after a fork: the child opens a pool of its own."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "watchbill",
        pool_size: int = 4,
        prepare: bool = True,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url, self.queries = url, queries(schema)
        self.installation: str | None = None  # the id of the installation in the database, once it was read
        self._pool_size, self._prepare, self._timeout = pool_size, prepare, timeout
        self._pool: Pool | None = None
        self._opening = threading.Lock()
        forks.call_in_child(self, Client._forget_parent)

    def _forget_parent(self) -> None:
        forks.inherited.append(self._pool)
        self._pool, self._opening = None, threading.Lock()

    def run(self, operation: Operation[R]) -> R:
        """Runs an operation, each statement in a transaction of its own."""
        with self.connection() as own:
            return run(operation, own, self.queries)

    def run_in_transaction(self, operation: Operation[R]) -> R:
        """Runs an operation in one transaction."""
        with self.connection() as own:
            try:
                with own.transaction():
                    return drive(operation, execute, own, self.queries)
            except psycopg.Error as error:  # of BEGIN and COMMIT too
                leave_standby(error, own)
                raise translate(error, self.queries.schema, describe_caller(error, own, self.queries)) from error

    def run_with_resend(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        """Runs what `make(False)` returns, and `make(True)` again after each lost reply. `make(True)` must do nothing
        if the first one was carried out: the ids of jobs are made by the client, so SQL knows a job that it has."""
        return self.run_until_answered(make, in_transaction=in_transaction)

    def run_until_answered(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        """Does the same for operations that make no jobs, so that nothing hooks into them."""
        run_once = self.run_in_transaction if in_transaction else self.run
        began, tries = time.monotonic(), None
        while True:
            try:
                answer = run_once(make(tries is not None and tries.is_resend))
            except (FunctionReplaced, NoDatabase) as error:
                tries = tries or _Tries(self.url, self._pool_size, began + self._timeout)
                time.sleep(tries.choose_pause(error))
            else:
                if tries is not None:
                    tries.note_answer()
                return answer

    def connection(self) -> AbstractContextManager[Connection]:
        """Borrows a connection from the pool. It is in autocommit mode; open a transaction if you need one."""
        return _BorrowedConnection(self._open(), self._timeout)

    def _open(self) -> Pool:
        if self._pool is None:
            with self._opening:
                if self._pool is None:
                    self._identify()
                    options = _pool_options(self._pool_size, self._prepare, self._timeout)
                    self._pool = Pool(self.url, connection_class=ClientConnection, open=True, **options)
                    _opened_clients.add(self)
        return self._pool

    def read_installation(self) -> None:
        """Reads the id of the installation. Gives up after 2 s, because the caller may not need this database."""
        self._identify(connect_timeout=IDENTIFY_TIMEOUT_SECONDS)

    def _identify(self, **options: Any) -> None:
        """Reads the id of the installation, if there is one. Fails at once without a server; a pool would wait."""
        options = {"autocommit": True, "reply_timeout": self._timeout, **options}
        with ClientConnection.connect(self.url, **options) as own, suppress(WatchbillError, psycopg.Error):
            self.installation = run(installation(), own, self.queries)

    def close(self) -> None:
        """Closes the pool; the next call opens another."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """Like Client, for asyncio; it has a pool for each event loop."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "watchbill",
        pool_size: int = 4,
        prepare: bool = True,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url, self.queries = url, queries(schema)
        self.installation: str | None = None  # the id of the installation in the database, once it was read
        self._pool_size, self._prepare, self._timeout = pool_size, prepare, timeout
        self._pools = LoopPools(self._open_pool)

    async def run(self, operation: Operation[R]) -> R:
        async with self.connection() as own:
            return await arun(operation, own, self.queries)

    async def run_in_transaction(self, operation: Operation[R]) -> R:
        async with self.connection() as own:
            try:
                async with own.transaction():
                    return await adrive(operation, aexecute, own, self.queries)
            except psycopg.Error as error:
                leave_standby(error, own)
                caller = await adescribe_caller(error, own, self.queries)
                raise translate(error, self.queries.schema, caller) from error

    async def run_with_resend(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        return await self.run_until_answered(make, in_transaction=in_transaction)

    async def run_until_answered(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        """Does the same for operations that make no jobs, so that nothing hooks into them."""
        run_once = self.run_in_transaction if in_transaction else self.run
        began, tries = time.monotonic(), None
        while True:
            try:
                answer = await run_once(make(tries is not None and tries.is_resend))
            except (FunctionReplaced, NoDatabase) as error:
                tries = tries or _Tries(self.url, self._pool_size, began + self._timeout)
                await asyncio.sleep(tries.choose_pause(error))
            else:
                if tries is not None:
                    tries.note_answer()
                return answer

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        pool = await self._pools.get_for_running_loop()
        try:
            connection = await pool.getconn()
        except PoolTimeout as error:
            raise _make_no_connection_error(self._timeout) from error
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def _open_pool(self, on_connect: OnConnect) -> AsyncPool:
        await self._identify()
        pool = AsyncPool(
            self.url,
            connection_class=AsyncClientConnection,
            configure=on_connect,
            open=False,
            **_pool_options(self._pool_size, self._prepare, self._timeout),
        )
        await pool.open()
        return pool

    async def read_installation(self) -> None:
        await self._identify(connect_timeout=IDENTIFY_TIMEOUT_SECONDS)

    async def _identify(self, **options: Any) -> None:
        options = {"autocommit": True, "reply_timeout": self._timeout, **options}
        async with await AsyncClientConnection.connect(self.url, **options) as own:
            with suppress(WatchbillError, psycopg.Error):
                self.installation = await arun(installation(), own, self.queries)

    async def close(self) -> None:
        """Closes the pool of the running loop; the next call opens another."""
        await self._pools.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def run(operation: Operation[R], connection: Connection, queries: Queries) -> R:
    """Runs an operation on one of our own connections; the server's errors become ours."""
    try:
        return drive(operation, _execute_or_repeat, connection, queries)
    except psycopg.Error as error:
        leave_standby(error, connection)
        raise translate(error, queries.schema, describe_caller(error, connection, queries)) from error


async def arun(operation: Operation[R], connection: AsyncConnection, queries: Queries) -> R:
    try:
        return await adrive(operation, _aexecute_or_repeat, connection, queries)
    except psycopg.Error as error:
        leave_standby(error, connection)
        raise translate(error, queries.schema, await adescribe_caller(error, connection, queries)) from error


def describe_caller(error: psycopg.Error, connection: Connection, queries: Queries) -> str | None:
    """Returns who the caller of a refused statement is; None after other errors, or if the server does not say."""
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return None
    with contextlib.suppress(psycopg.Error):
        ((caller,),) = execute(connection, Statement("describe_caller"), queries)
        return str(caller)
    return None


async def adescribe_caller(error: psycopg.Error, connection: AsyncConnection, queries: Queries) -> str | None:
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return None
    with contextlib.suppress(psycopg.Error):
        ((caller,),) = await aexecute(connection, Statement("describe_caller"), queries)
        return str(caller)
    return None


# Sent together with a statement, in one round trip: until the next Sync both are one transaction, even in autocommit
# mode, so the setting ends with the statement and reaches no other user of a pooler's session.
_SET_TENANT = "SELECT set_config('watchbill.tenant', %s, true)"
# These pass the tenant as an argument, which sets it. It costs less than a second statement.
_SETS_TENANT = frozenset({"enqueue", "enqueue_plain"})


def _execute_or_repeat(connection: Connection, step: Step, queries: Queries) -> Rows:
    """Repeats a statement that was under way when a migration replaced the functions: the server undid it, because it
    is a transaction of its own."""
    try:
        return execute(connection, step, queries)
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InternalError_) as error:
        if not is_function_replaced(error) or isinstance(step, Copy):
            raise
        return execute(connection, step, queries)


async def _aexecute_or_repeat(connection: AsyncConnection, step: Step, queries: Queries) -> Rows:
    try:
        return await aexecute(connection, step, queries)
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InternalError_) as error:
        if not is_function_replaced(error) or isinstance(step, Copy):
            raise
        return await aexecute(connection, step, queries)


def execute(connection: Connection, step: Step, queries: Queries) -> Rows:
    cursor = connection.kept_cursor
    if isinstance(step, Copy):
        with cursor.copy(queries[step.query].encode()) as copy:
            copy.write(b"".join(step.rows))
        return []
    tenant = acting_tenant.get()
    if tenant is None or step.query in _SETS_TENANT:
        cursor.execute(queries[step.query].encode(), step.params)
    else:
        with connection.pipeline():
            connection.execute(_SET_TENANT, (tenant,))
            cursor.execute(queries[step.query].encode(), step.params)
    rows = cursor.fetchall() if _has_rows(cursor.pgresult) else []
    if len(rows) > MAX_ROWS_KEPT:
        del connection.kept_cursor
    return rows


async def aexecute(connection: AsyncConnection, step: Step, queries: Queries) -> Rows:
    cursor = connection.kept_cursor
    if isinstance(step, Copy):
        async with cursor.copy(queries[step.query].encode()) as copy:
            await copy.write(b"".join(step.rows))
        return []
    tenant = acting_tenant.get()
    if tenant is None or step.query in _SETS_TENANT:
        await cursor.execute(queries[step.query].encode(), step.params)
    else:
        async with connection.pipeline():
            await connection.execute(_SET_TENANT, (tenant,))
            await cursor.execute(queries[step.query].encode(), step.params)
    rows = await cursor.fetchall() if _has_rows(cursor.pgresult) else []
    if len(rows) > MAX_ROWS_KEPT:
        del connection.kept_cursor
    return rows


def _has_rows(result: PGresult | None) -> bool:
    """The cursor's `description` says the same, but builds a list of columns for every enqueue."""
    return result is not None and result.nfields > 0


class _BorrowedConnection:
    """A pool's connection during a `with` block; cheaper than the pool's own block, which also commits."""

    __slots__ = ("_connection", "_pool", "_timeout")

    def __init__(self, pool: Pool, timeout: float) -> None:
        self._pool, self._timeout = pool, timeout

    def __enter__(self) -> Connection:
        try:
            self._connection = self._pool.getconn()
        except PoolTimeout as error:
            raise _make_no_connection_error(self._timeout) from error
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._pool.putconn(self._connection)


def _pool_options(size: int, prepare: bool, timeout: float) -> dict[str, Any]:
    return {
        "min_size": 0,  # the first call opens a connection; with 1 it would open another beside the one of the pool
        "max_size": size,
        "timeout": _pool_timeout(timeout),
        "name": "watchbill",
        "kwargs": {"autocommit": True, "prepare_threshold": 5 if prepare else None, "reply_timeout": timeout},
    }


def _pool_timeout(timeout: float) -> float:
    return min(timeout, MAX_POOL_TIMEOUT_SECONDS)


class _Tries:
    """Decides how often a call tries again: until `gives_up_at` if the database does not answer, and a few times if a
    migration has replaced a function.

    A server that restarts closes every connection of the pool, and each try finds one of them: these tries do not
    pause.
    """

    __slots__ = ("_count", "_gives_up_at", "_has_logged", "_pool_size", "_replaced", "_standby", "_url", "is_resend")

    def __init__(self, url: str, pool_size: int, gives_up_at: float) -> None:
        self._url, self._pool_size, self._gives_up_at = url, pool_size, gives_up_at
        self._count = self._replaced = 0
        self._has_logged = self.is_resend = False
        self._standby: StandbyRefused | None = None

    def choose_pause(self, error: FunctionReplaced | NoDatabase) -> float:
        """Returns the seconds until the next try. Raises the error if there is none."""
        if isinstance(error, FunctionReplaced):
            self._replaced += 1
            if self._replaced > self._pool_size + len(RESEND_PAUSES_SECONDS):
                raise error
            return 0.0
        if isinstance(error, StandbyRefused):
            self._standby = error
        if not error.may_pass or time.monotonic() >= self._gives_up_at:
            raise self._standby or error  # which says more than that the next connection was closed
        self.is_resend = True
        number, self._count = self._count - self._pool_size + 1, self._count + 1
        if number < 0:
            return 0.0
        if number > 0:
            self._has_logged = True
            outage_of(self._url).note_failure(error.message)
        return random.uniform(0.6, 1) * RESEND_PAUSES_SECONDS[min(number, len(RESEND_PAUSES_SECONDS) - 1)]  # noqa: S311

    def note_answer(self) -> None:
        if self._has_logged:
            outage_of(self._url).note_answer()


@atexit.register
def _close_opened_clients() -> None:
    """psycopg warns about a pool whose threads still run when the interpreter ends."""
    for client in list(_opened_clients):
        client.close()


def _make_no_connection_error(timeout: float) -> NoDatabase:
    return NoDatabase(
        f"No connection to the database became free or could be opened within {_pool_timeout(timeout):g} s.",
        hint="Raise pool_size, or see `watchbill doctor`.",
    )
