"""TestSession: puts all Apps of the process, and the programs that a test starts, on the test database.

Its connections stay open between tests, since opening one takes longer than the rest of a short test. So a connection
is used on several event loops. psycopg allows that: it asks for the running loop whenever it waits. Only two tasks that
wait for the lock of one connection would tie it to a loop, and here only one task at a time uses a connection."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.pq import TransactionStatus

from watchbill.app.application import override_runtimes
from watchbill.app.runtime import Runtime
from watchbill.client.client import AsyncClient, Client
from watchbill.client.operations import Operation
from watchbill.model.tenant import acting_for
from watchbill.postgres import forks
from watchbill.postgres.connect import AsyncConnection
from watchbill.settings import Settings, make_child_environment
from watchbill.store.node_connection import NodeConnection
from watchbill.testing.database import Database

if TYPE_CHECKING:
    from watchbill.payloads import PayloadStore

R = TypeVar("R")


class IdleConnections:
    """Open connections that are not in use."""

    def __init__(self) -> None:
        self._idle: list[AsyncConnection] = []
        forks.call_in_child(self, IdleConnections._forget_parent)

    def _forget_parent(self) -> None:
        forks.inherited.append(self._idle)
        self._idle = []

    def take(self) -> AsyncConnection | None:
        return self._idle.pop() if self._idle else None

    async def put(self, connection: AsyncConnection) -> None:
        """Keeps a connection for its next use, unless it is broken or in a transaction."""
        if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await connection.close()

    def close(self) -> None:
        """Closes the sockets of all idle connections, without an event loop, because there may be none any more."""
        while connection := self.take():
            connection.pgconn.finish()


class ReusingConnection(NodeConnection):
    """A node's connection that is taken from the idle connections, and returned to them when it is closed."""

    def __init__(self, idle: IdleConnections, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._idle = idle

    async def _open_connection(self) -> AsyncConnection:
        return self._idle.take() or await super()._open_connection()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._idle.put(connection)


class TestClient(Client):
    """The client that all Apps and all tests share. Its `close` does nothing, so that a test can close its App."""

    __test__ = False  # tells pytest that this class has no tests
    after_enqueue: Callable[[], None] | None = None  # in a block of `inline`: runs the jobs that are ready

    def run_with_resend(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        answer = super().run_with_resend(make, in_transaction=in_transaction)
        if self.after_enqueue is not None:
            self.after_enqueue()
        return answer

    def close(self) -> None:
        pass

    def close_pool(self) -> None:
        super().close()


class TestAsyncClient(AsyncClient):
    """The client for asyncio that all Apps and tests share. Borrows a connection for each call, so that it works on any
    event loop."""

    __test__ = False
    after_enqueue: Callable[[], Awaitable[None]] | None = None

    def __init__(self, url: str, *, schema: str) -> None:
        super().__init__(url, schema=schema)
        self._idle = IdleConnections()

    async def run_with_resend(self, make: Callable[[bool], Operation[R]], *, in_transaction: bool = False) -> R:
        answer = await super().run_with_resend(make, in_transaction=in_transaction)
        if self.after_enqueue is not None:
            await self.after_enqueue()
        return answer

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        connection = self._idle.take() or await AsyncConnection.connect(self.url, autocommit=True)
        try:
            yield connection
        finally:
            await self._idle.put(connection)

    async def close(self) -> None:
        pass

    def close_idle_connections(self) -> None:
        self._idle.close()


class TestSession:
    """The test database of a pytest session, and the connections to it. While a test is in `active`, Apps use it."""

    __test__ = False  # tells pytest that this class has no tests

    def __init__(self, database: Database) -> None:
        self.database = database
        self.idle_connections = IdleConnections()

    @cached_property
    def client(self) -> TestClient:
        client = TestClient(self.database.url, schema=self.database.schema)
        client.installation = self.database.installation
        return client

    @cached_property
    def aclient(self) -> TestAsyncClient:
        client = TestAsyncClient(self.database.url, schema=self.database.schema)
        client.installation = self.database.installation
        return client

    def make_runtime(self, given: Mapping[str, Any], payload_store: PayloadStore | None) -> Runtime:
        return _TestRuntime(
            self, lambda: Settings.load(**{**given, **self._settings, "embedded": False}), payload_store
        )

    @property
    def _settings(self) -> dict[str, str]:
        url = self.database.url
        return {"database_url": url, "listen_url": url, "schema": self.database.schema, "cells": ""}

    def empty_database(self) -> None:
        """Empties the database. Called before each test."""
        with self.client.connection() as connection:
            self.database.sweeper.sweep(connection)

    @contextmanager
    def active(self, tenant: str | None = None) -> Iterator[None]:
        """Puts all Apps on the test database within this block. `tenant` is the tenant for which the test acts, as in a
        block of `app.tenant(...)`."""
        acting = nullcontext() if tenant is None else acting_for(tenant)
        with _change_environment(self._settings), override_runtimes(self.make_runtime), acting:
            yield

    def close(self) -> None:
        self.client.close_pool()
        self.aclient.close_idle_connections()
        self.idle_connections.close()


class _TestRuntime(Runtime):
    ignores_cells = True

    def __init__(self, session: TestSession, load: Callable[[], Settings], payload_store: PayloadStore | None) -> None:
        super().__init__(load, payload_store)
        self._session = session
        self.client, self.aclient = session.client, session.aclient

    @property
    def after_enqueue(self) -> Callable[[], None] | None:  # type: ignore[override]
        return self._session.client.after_enqueue


@contextmanager
def _change_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for programs that a test starts: a worker, the child of a process task, a command."""
    ours: dict[str, str | None] = {f"WATCHBILL_{name.upper()}": value for name, value in settings.items()}
    # These settings override those in the code of the program's App.
    ours |= make_child_environment("the test that started this", **settings)
    before = {name: os.environ.get(name) for name in ours}
    _set_variables(ours)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
