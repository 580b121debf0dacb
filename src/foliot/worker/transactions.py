"""Transactional tasks: the handler gets a connection whose commit also completes the job.

What the handler writes through it, and the job's completion, become visible together or not at all: exactly once. A
node that lost the job meanwhile is refused by the completion, and its writes are rolled back. A frozen process must
not keep the job's row locked for longer than its lease, so the server ends a transaction that idles for that long.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from foliot.postgres.connect import AsyncConnection, Connection
from foliot.worker.run import Run

_IDLE_LIMIT = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"


class Transactions:
    """Connections for handlers, apart from the worker's own, opened when the first transactional job runs."""

    def __init__(self, url: str, *, lease: float, most: int) -> None:
        self._url, self._most = url, most
        self._idle_limit = f"{int(lease * 1000)}ms"
        self._pool: ConnectionPool[Connection] | None = None
        self._async_pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening = asyncio.Lock()

    def run(self, run: Run) -> Any:
        """In a handler's thread."""
        if self._pool is None:
            self._pool = ConnectionPool(
                self._url,
                connection_class=Connection,
                min_size=0,
                max_size=self._most,
                open=True,
                name="foliot handlers",
            )
        with self._pool.connection() as connection, connection.transaction():
            connection.execute(_IDLE_LIMIT, (self._idle_limit,))
            value = run.handler.function(connection, **run.arguments)
            run.complete(value, connection=connection)
        return value

    async def arun(self, run: Run) -> Any:
        async with self._opening:
            if self._async_pool is None:
                self._async_pool = AsyncConnectionPool(
                    self._url,
                    connection_class=AsyncConnection,
                    min_size=0,
                    max_size=self._most,
                    open=False,
                    name="foliot handlers",
                )
                await self._async_pool.open()
        async with self._async_pool.connection() as connection, connection.transaction():
            await connection.execute(_IDLE_LIMIT, (self._idle_limit,))
            value = await run.handler.function(connection, **run.arguments)
            await run.acomplete(value, connection=connection)
        return value

    async def close(self) -> None:
        if self._async_pool is not None:
            await self._async_pool.close()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)


def takes_connection(annotation: object) -> bool:
    """Whether a task's first parameter asks for a transaction."""
    return isinstance(annotation, type) and issubclass(annotation, psycopg.BaseConnection)
