"""Pools of connections for asyncio: one per event loop, and none of another process.

A program may run several loops, one after the other (`asyncio.run` in a script) or at once (in threads), and fork. A
pool serves the loop that opened it; its connections are sockets that a child of the process has as well, where to use
them would mix up both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from weakref import WeakSet

from psycopg_pool import AsyncConnectionPool

from watchbill.postgres.connect import AsyncConnection

Pool = AsyncConnectionPool[AsyncConnection]
Remember = Callable[[AsyncConnection], Awaitable[None]]


@dataclass
class _OfLoop:
    pool: Pool | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    connections: WeakSet[AsyncConnection] = field(default_factory=WeakSet)

    async def remember(self, connection: AsyncConnection) -> None:
        self.connections.add(connection)


class LoopPools:
    """`open_pool` makes one; it is to call what it is given with each new connection."""

    def __init__(self, open_pool: Callable[[Remember], Awaitable[Pool]]) -> None:
        self._open_pool = open_pool
        self._pools: dict[asyncio.AbstractEventLoop, _OfLoop] = {}
        self._of_parent: object = None  # kept: what is collected is closed
        self._pid = os.getpid()

    async def here(self) -> Pool:
        ours = self._of_running_loop()
        if ours.pool is None:
            async with ours.opening:
                if ours.pool is None:
                    ours.pool = await self._open_pool(ours.remember)
        return ours.pool

    async def close(self) -> None:
        """That of the running loop, and what loops that have ended left behind."""
        ours = self._of_running_loop()
        pool, ours.pool = ours.pool, None
        if pool is not None:
            await pool.close()
        self._hang_up()

    def _of_running_loop(self) -> _OfLoop:
        if self._pid != os.getpid():
            self._pools, self._of_parent, self._pid = {}, self._pools, os.getpid()
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._hang_up()
            self._pools[loop] = _OfLoop()
        return self._pools[loop]

    def _hang_up(self) -> None:
        """Without its loop a pool cannot be closed in order; the sockets can."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            for connection in self._pools.pop(loop).connections:
                connection.pgconn.finish()
