"""Transactional tasks: the handler gets a connection whose commit also completes the job.

What the handler writes through this connection and the job's completion become visible together or not at all, so the
handler has its effects exactly once. If the node has lost the job meanwhile, the completion fails and the writes are
rolled back.

A frozen process must not keep rows locked for longer than its lease, so the server ends a transaction that is idle for
that long. A handler may leave its connection idle for longer, while it waits for an API for example. So a thread sends
an empty query on such connections, as long as the process lives and the handler was not asked to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.generators import execute
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import PoolTimeout

from watchbill.model.batch import BatchFailed
from watchbill.postgres.connect import AsyncConnection, AsyncPool, Connection, Pool
from watchbill.postgres.hosts import is_standby_refusal, leave_standby, shut_down
from watchbill.store.node_connection import Deadline
from watchbill.worker.batch_run import BatchRun
from watchbill.worker.handlers import NotStarted
from watchbill.worker.run import Run

logger = logging.getLogger("watchbill.worker")

_IDLE_LIMIT = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
# The handler's transaction is rolled back, as if it had not run, so that its connection is free for other jobs.
LOCKED = "another transaction keeps the job locked that this one would complete"
CONNECT_SECONDS = 10.0  # a transactional job that gets no connection within this time is not started
NO_CONNECTION_DELAY_SECONDS = 0.5  # its next try waits for a connection again, so it need not be late


class Transactions:
    """Two pools of `size` connections each, for blocking handlers and for those on the event loop, opened when the
    first transactional job runs. `slots.py` starts no more handlers than that, so none waits here for another to
    end."""

    def __init__(self, url: str, *, lease: float, size: int, prepare: bool = True) -> None:
        self._size, self._idle_limit = size, f"{int(lease * 1000)}ms"
        self._keeper = _TransactionKeeper(lease / 3)
        options: dict[str, Any] = {
            "open": False,
            "min_size": 0,
            "max_size": size,
            "name": "watchbill handlers",
            "kwargs": {"application_name": "watchbill handler", "prepare_threshold": 5 if prepare else None},
        }
        self._pool = Pool(url, connection_class=Connection, **options)
        self._async_pool = AsyncPool(url, connection_class=AsyncConnection, **options)

    def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        """Calls the handler and completes its job, in one transaction."""
        with ExitStack() as transaction:
            connection = self._begin_transaction(transaction)
            with self._keeper.keep(run, connection):
                try:
                    value = run.handler.function(connection, **arguments)
                except BatchFailed as error:
                    value = _fail_some(run, error)
            try:
                run.end_transaction(value, connection)
            except psycopg.errors.LockNotAvailable as error:
                raise NotStarted(LOCKED) from error
        return value

    async def acall(self, run: Run, arguments: dict[str, Any]) -> Any:
        async with AsyncExitStack() as transaction:
            connection = await self._abegin_transaction(transaction, closes=run.handler.closes_connection)
            with self._keeper.keep(run, connection):
                try:
                    value = await run.handler.function(connection, **arguments)
                except BatchFailed as error:
                    value = _fail_some(run, error)
            try:
                await run.aend_transaction(value, connection)
            except psycopg.errors.LockNotAvailable as error:
                raise NotStarted(LOCKED) from error
        return value

    @contextmanager
    def begin(self, run: Run) -> Iterator[Connection]:
        """A transaction for a step of this run; it is committed at the end of the block."""
        with ExitStack() as transaction:
            connection = self._begin_transaction(transaction)
            with self._keeper.keep(run, connection):
                yield connection

    @asynccontextmanager
    async def abegin(self, run: Run) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as transaction:
            connection = await self._abegin_transaction(transaction, closes=False)
            with self._keeper.keep(run, connection):
                yield connection

    def _begin_transaction(self, transaction: ExitStack) -> Connection:
        """Begins a transaction on a connection of the pool. If the server has closed that connection meanwhile, tries
        the next one. Raises NotStarted if none works: the handler has not started, so that costs no attempt."""
        problem: Exception | None = None
        connection: Connection | None = None
        for _ in range(self._size + 1):
            try:
                with ExitStack() as stack:
                    self._pool.open()  # has no effect if the pool is open already
                    connection = stack.enter_context(self._pool.connection(CONNECT_SECONDS))
                    stack.enter_context(connection.transaction())
                    connection.execute(_IDLE_LIMIT, (self._idle_limit,))
                    transaction.push(stack.pop_all())
                    return connection
            except PoolTimeout as error:
                raise NotStarted(str(error), delay=NO_CONNECTION_DELAY_SECONDS) from error
            except psycopg.Error as error:
                if not isinstance(error, psycopg.OperationalError) and not is_standby_refusal(error):
                    raise
                if connection is not None:
                    leave_standby(error, connection)
                problem = error
        raise NotStarted(str(problem), delay=NO_CONNECTION_DELAY_SECONDS) from problem

    async def _abegin_transaction(self, transaction: AsyncExitStack, *, closes: bool) -> AsyncConnection:
        problem: Exception | None = None
        connection: AsyncConnection | None = None
        for _ in range(self._size + 1):
            try:
                async with AsyncExitStack() as stack:
                    await self._async_pool.open()
                    connection = await stack.enter_async_context(self._async_pool.connection(CONNECT_SECONDS))
                    if closes:
                        stack.push_async_callback(connection.close)
                    await stack.enter_async_context(connection.transaction())
                    await connection.execute(_IDLE_LIMIT, (self._idle_limit,))
                    transaction.push_async_exit(stack.pop_all())
                    return connection
            except PoolTimeout as error:
                raise NotStarted(str(error), delay=NO_CONNECTION_DELAY_SECONDS) from error
            except psycopg.Error as error:
                if not isinstance(error, psycopg.OperationalError) and not is_standby_refusal(error):
                    raise
                if connection is not None:
                    leave_standby(error, connection)
                problem = error
        raise NotStarted(str(problem), delay=NO_CONNECTION_DELAY_SECONDS) from problem

    async def close(self) -> None:
        self._keeper.stop()
        await self._async_pool.close()
        if not self._pool.closed:
            await asyncio.to_thread(self._pool.close)


def _fail_some(run: Run, error: BatchFailed) -> Any:
    """Fails the jobs of a batch that the handler names, so that the transaction completes the other jobs. Returns the
    results of those."""
    if not isinstance(run, BatchRun) or run.stopping is not None:
        raise error
    run.fail_some(error)
    return error.results


class _TransactionKeeper:
    """Keeps idle transactions of running handlers open, with a thread that sends empty queries. The thread starts with
    the first transactional job."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._open: dict[Connection | AsyncConnection, Run] = {}
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_over = threading.Event()

    @contextmanager
    def keep(self, run: Run, connection: Connection | AsyncConnection) -> Iterator[None]:
        self._open[connection] = run
        if self._thread is None:
            self._start_thread()
        try:
            yield
        finally:
            del self._open[connection]

    def _start_thread(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._keep_transactions_open, name="watchbill-transactions", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _keep_transactions_open(self) -> None:
        while not self._is_over.wait(self._interval):
            for connection, run in list(self._open.items()):
                if run.age < self._interval or run.stopping is not None:
                    continue
                try:
                    self._send_empty_query(connection)
                except Exception as error:  # noqa: BLE001  (the handler's next statement will raise the same error)
                    logger.debug(
                        "Could not keep the idle transaction of job %s open; its handler gets this error next: %s",
                        run.id,
                        error,
                    )

    def _send_empty_query(self, connection: Connection | AsyncConnection) -> None:
        if isinstance(connection, AsyncConnection):
            asyncio.run_coroutine_threadsafe(self._asend_empty_query(connection), self._loop)
        elif connection.lock.acquire(blocking=False):  # if the lock is taken, the handler runs a statement: not idle
            timer = threading.Timer(self._interval, shut_down, [connection])
            timer.start()
            try:
                if _is_idle(connection):
                    connection.pgconn.send_query(b"")
                    connection.wait(execute(connection.pgconn))
            finally:
                timer.cancel()
                connection.lock.release()

    async def _asend_empty_query(self, connection: AsyncConnection) -> None:
        if connection.lock.locked():
            return
        async with connection.lock:
            if _is_idle(connection):
                with contextlib.suppress(psycopg.Error, OSError), Deadline(connection, self._interval):
                    connection.pgconn.send_query(b"")
                    await connection.wait(execute(connection.pgconn))


def _is_idle(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the connection has an open transaction that runs no statement. The caller holds the connection's lock."""
    pgconn = connection.pgconn
    is_idle = pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    return is_idle and pgconn.pipeline_status == PipelineStatus.OFF


def is_connection(annotation: object) -> bool:
    """Whether this type, of a task's first parameter, is a connection. Such a task is transactional."""
    return isinstance(annotation, type) and issubclass(annotation, psycopg.BaseConnection)
