"""Connections that outlive a test's event loop: to open one costs more than all the rest of a short test.

psycopg ties an asyncio connection to no loop; it asks for the running one whenever it waits. What could tie it is its
lock, once two tasks wait for that; but whoever takes a connection from the stock has it alone until it is given back.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from psycopg.pq import TransactionStatus

from watchbill.client.clients import AsyncClient, Client
from watchbill.client.plans import Plan
from watchbill.postgres.connect import AsyncConnection
from watchbill.store.line import Line

R = TypeVar("R")


class Stock:
    """Idle connections of one kind."""

    def __init__(self) -> None:
        self._idle: list[AsyncConnection] = []
        self._of_parent: list[AsyncConnection] = []
        self._pid = os.getpid()

    def take(self) -> AsyncConnection | None:
        if self._pid != os.getpid():  # after a fork; closing them here would end the parent's sessions
            self._idle, self._of_parent, self._pid = [], self._idle, os.getpid()
        return self._idle.pop() if self._idle else None

    async def give_back(self, connection: AsyncConnection) -> None:
        if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await connection.close()

    def close(self) -> None:
        """Without a loop: there may be none any more."""
        while connection := self.take():
            connection.pgconn.finish()


class StockedLine(Line):
    """A node's connection, from the stock and back."""

    def __init__(self, stock: Stock, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stock = stock

    async def _open(self) -> AsyncConnection:
        return self._stock.take() or await super()._open()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._stock.give_back(connection)


class StagedClient(Client):
    """One for all Apps and all tests; an App that a test closes must not close it for the others."""

    on_sent: Callable[[], None] | None = None  # inline mode

    def run_surely(self, plan: Callable[[bool], Plan[R]], *, together: bool = False) -> R:
        answer = super().run_surely(plan, together=together)
        if self.on_sent is not None:
            self.on_sent()
        return answer

    def close(self) -> None:
        pass

    def hang_up(self) -> None:
        super().close()


class StagedAsyncClient(AsyncClient):
    """The same for asyncio, on whatever loop: it takes a connection for each call and keeps none."""

    on_sent: Callable[[], Awaitable[None]] | None = None

    def __init__(self, url: str, *, schema: str) -> None:
        super().__init__(url, schema=schema)
        self._stock = Stock()

    async def run_surely(self, plan: Callable[[bool], Plan[R]], *, together: bool = False) -> R:
        answer = await super().run_surely(plan, together=together)
        if self.on_sent is not None:
            await self.on_sent()
        return answer

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        connection = self._stock.take() or await AsyncConnection.connect(self.url, autocommit=True)
        try:
            yield connection
        finally:
            await self._stock.give_back(connection)

    async def close(self) -> None:
        pass

    def hang_up(self) -> None:
        self._stock.close()
