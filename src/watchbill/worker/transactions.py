"""Transactional tasks: the handler gets a connection whose commit also completes the job.

What the handler writes through it, and the job's completion, become visible together or not at all: exactly once. A
node that lost the job meanwhile is refused by the completion, and its writes are rolled back. A frozen process must
not keep the job's row locked for longer than its lease, so the server ends a transaction that idles for that long.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.worker.handlers import NoConnection
from watchbill.worker.run import Run

_IDLE_LIMIT = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
PATIENCE = 10.0  # for a connection


class Transactions:
    """Connections for handlers, apart from the worker's own, opened when the first transactional job runs."""

    def __init__(self, url: str, *, lease: float, most: int, prepare: bool = True) -> None:
        self._url, self._most, self._prepare = url, most, prepare
        self._idle_limit = f"{int(lease * 1000)}ms"
        self._pool: ConnectionPool[Connection] | None = None
        self._async_pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening, self._opening_async = threading.Lock(), asyncio.Lock()

    def run(self, run: Run) -> Any:
        """In a handler's thread."""
        with ExitStack() as transaction:
            connection = self._begin(transaction)
            value = run.handler.function(connection, **run.arguments)
            run.complete(value, connection=connection)
        return value

    async def arun(self, run: Run) -> Any:
        async with AsyncExitStack() as transaction:
            connection = await self._abegin(transaction)
            value = await run.handler.function(connection, **run.arguments)
            await run.acomplete(value, connection=connection)
        return value

    def _begin(self, transaction: ExitStack) -> Connection:
        """The first statement finds out whether the server has closed a connection of the pool; then it is the next's
        turn. A handler has not begun yet, so the job is charged for nothing."""
        problem: Exception | None = None
        for _ in range(self._most + 1):
            try:
                with ExitStack() as attempt:
                    connection = attempt.enter_context(self._opened().connection(PATIENCE))
                    attempt.enter_context(connection.transaction())
                    connection.execute(_IDLE_LIMIT, (self._idle_limit,))
                    transaction.push(attempt.pop_all())
                    return connection
            except PoolTimeout as error:
                raise NoConnection(str(error)) from error
            except psycopg.OperationalError as error:
                problem = error
        raise NoConnection(str(problem)) from problem

    async def _abegin(self, transaction: AsyncExitStack) -> AsyncConnection:
        problem: Exception | None = None
        for _ in range(self._most + 1):
            try:
                async with AsyncExitStack() as attempt:
                    connection = await attempt.enter_async_context((await self._aopened()).connection(PATIENCE))
                    await attempt.enter_async_context(connection.transaction())
                    await connection.execute(_IDLE_LIMIT, (self._idle_limit,))
                    transaction.push_async_exit(attempt.pop_all())
                    return connection
            except PoolTimeout as error:
                raise NoConnection(str(error)) from error
            except psycopg.OperationalError as error:
                problem = error
        raise NoConnection(str(problem)) from problem

    def _opened(self) -> ConnectionPool[Connection]:
        with self._opening:
            if self._pool is None:
                self._pool = ConnectionPool(self._url, connection_class=Connection, open=True, **self._sizes())
            return self._pool

    async def _aopened(self) -> AsyncConnectionPool[AsyncConnection]:
        async with self._opening_async:
            if self._async_pool is None:
                pool = AsyncConnectionPool(self._url, connection_class=AsyncConnection, open=False, **self._sizes())
                await pool.open()
                self._async_pool = pool
            return self._async_pool

    def _sizes(self) -> dict[str, Any]:
        return {
            "min_size": 0,
            "max_size": self._most,
            "name": "watchbill handlers",
            "kwargs": {"application_name": "watchbill handler", "prepare_threshold": 5 if self._prepare else None},
        }

    async def close(self) -> None:
        if self._async_pool is not None:
            await self._async_pool.close()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)


def is_connection(annotation: object) -> bool:
    """Whether a task's first parameter asks for a transaction."""
    return isinstance(annotation, type) and issubclass(annotation, psycopg.BaseConnection)
