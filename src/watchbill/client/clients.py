"""Client and AsyncClient: the layer below App. The same calls in two colours, over a pool opened at first use."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from watchbill.client import plans
from watchbill.client.loop_pools import LoopPools, Pool, Remember
from watchbill.client.plans import Plan
from watchbill.client.runners import arun, run
from watchbill.errors import WatchbillError, NoDatabase
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.store.queries import queries

R = TypeVar("R")
_OPENED: WeakSet[Client] = WeakSet()  # with a pool, perhaps
PAUSES = (0.05, 0.2, 0.5, 1.0)  # seconds before an enqueue whose reply was lost is sent again
BRIEFLY = 2  # seconds


class Client:
    """Blocking. Safe to share between threads, and after a fork: the child opens a pool of its own."""

    def __init__(self, url: str, *, schema: str = "watchbill", pool_size: int = 4, prepare: bool = True) -> None:
        self.url, self.queries = url, queries(schema)
        self.installation: str | None = None  # the id of the one in that database, once seen
        self._pool_size, self._prepare = pool_size, prepare
        self._pool: ConnectionPool[Connection] | None = None
        self._pid = 0
        self._locks: dict[int, threading.Lock] = {}  # by process: a child must not wait for a thread of its parent's

    def run(self, plan: Plan[R]) -> R:
        """Carries out a plan; `watchbill.client.foreign` does so in a transaction of the caller's."""
        with self.connection() as own:
            return run(plan, own, self.queries)

    def run_surely(self, plan: Callable[[bool], Plan[R]], *, together: bool = False) -> R:
        """A plan that may be sent again after a lost reply; it is told whether this is the first time."""
        carry_out = self.run_together if together else self.run
        for pause in PAUSES:
            try:
                return carry_out(plan(pause != PAUSES[0]))
            except NoDatabase:
                time.sleep(pause)
        return carry_out(plan(True))

    def run_together(self, plan: Plan[R]) -> R:
        """In one transaction."""
        with self.connection() as own, own.transaction():
            return run(plan, own, self.queries)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """One of the pool, for a while. In autocommit mode there is no need of the pool's own block, which commits."""
        pool = self._opened()
        try:
            connection = pool.getconn()
        except PoolTimeout as error:
            raise _no_answer() from error
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def _opened(self) -> ConnectionPool[Connection]:
        if self._pool is None or self._pid != os.getpid():
            with self._locks.setdefault(os.getpid(), threading.Lock()):
                if self._pool is None or self._pid != os.getpid():
                    self._look()
                    self._pool, self._pid = self._new_pool(), os.getpid()
                    _OPENED.add(self)
        return self._pool

    def recognise(self) -> None:
        """Sees which installation is there, without a pool, and soon: he who waits has no need of this database."""
        self._look(connect_timeout=BRIEFLY)

    def _look(self, **more: Any) -> None:
        """Says what is wrong at once, where a pool would wait; and whose database it is, as far as it says so."""
        with Connection.connect(self.url, autocommit=True, **more) as own, suppress(WatchbillError, psycopg.Error):
            self.installation = run(plans.installation(), own, self.queries)

    def _new_pool(self) -> ConnectionPool[Connection]:
        return ConnectionPool(
            self.url,
            connection_class=Connection,
            min_size=1,
            max_size=self._pool_size,
            open=True,
            timeout=30,
            name="watchbill",
            kwargs={"autocommit": True, "prepare_threshold": 5 if self._prepare else None},
        )

    def close(self) -> None:
        """Closes the pool; the next call opens another."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """The same for asyncio, with a pool for each event loop."""

    def __init__(self, url: str, *, schema: str = "watchbill", pool_size: int = 4, prepare: bool = True) -> None:
        self.url, self.queries = url, queries(schema)
        self.installation: str | None = None  # the id of the one in that database, once seen
        self._pool_size, self._prepare = pool_size, prepare
        self._pools = LoopPools(self._open_pool)

    async def run(self, plan: Plan[R]) -> R:
        async with self.connection() as own:
            return await arun(plan, own, self.queries)

    async def run_surely(self, plan: Callable[[bool], Plan[R]], *, together: bool = False) -> R:
        carry_out = self.run_together if together else self.run
        for pause in PAUSES:
            try:
                return await carry_out(plan(pause != PAUSES[0]))
            except NoDatabase:
                await asyncio.sleep(pause)
        return await carry_out(plan(True))

    async def run_together(self, plan: Plan[R]) -> R:
        async with self.connection() as own, own.transaction():
            return await arun(plan, own, self.queries)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        pool = await self._pools.here()
        try:
            connection = await pool.getconn()
        except PoolTimeout as error:
            raise _no_answer() from error
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def _open_pool(self, remember: Remember) -> Pool:
        await self._look()
        pool = AsyncConnectionPool(
            self.url,
            connection_class=AsyncConnection,
            configure=remember,
            min_size=1,
            max_size=self._pool_size,
            open=False,
            timeout=30,
            name="watchbill",
            kwargs={"autocommit": True, "prepare_threshold": 5 if self._prepare else None},
        )
        await pool.open()
        return pool

    async def recognise(self) -> None:
        await self._look(connect_timeout=BRIEFLY)

    async def _look(self, **more: Any) -> None:
        async with await AsyncConnection.connect(self.url, autocommit=True, **more) as own:
            with suppress(WatchbillError, psycopg.Error):
                self.installation = await arun(plans.installation(), own, self.queries)

    async def close(self) -> None:
        """Closes the pool of the running loop; the next call opens another."""
        await self._pools.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@atexit.register
def _close_all() -> None:
    """A pool whose threads are still there when the interpreter ends waits for them, in vain, and complains."""
    for client in list(_OPENED):
        client.close()


def _no_answer() -> NoDatabase:
    return NoDatabase(
        "No connection to the database became free or could be opened within 30 s.",
        hint="Raise pool_size, or see `watchbill doctor`.",
    )
