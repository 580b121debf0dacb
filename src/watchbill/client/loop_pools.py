"""The pools of an AsyncClient: a connection belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from weakref import WeakSet

from watchbill.postgres import forks
from watchbill.postgres.connect import AsyncConnection, AsyncPool

OnConnect = Callable[[AsyncConnection], Awaitable[None]]


@dataclass
class _LoopPool:
    pool: AsyncPool | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    connections: WeakSet[AsyncConnection] = field(default_factory=WeakSet)

    async def remember(self, connection: AsyncConnection) -> None:
        self.connections.add(connection)


class LoopPools:
    """One pool for each event loop. `open_pool(on_connect)` makes one that calls `on_connect` for each connection."""

    def __init__(self, open_pool: Callable[[OnConnect], Awaitable[AsyncPool]]) -> None:
        self._open_pool = open_pool
        self._pools: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        forks.call_in_child(self, LoopPools._forget_parent)

    def _forget_parent(self) -> None:
        forks.inherited.append(self._pools)
        self._pools = {}

    async def get_for_running_loop(self) -> AsyncPool:
        own = self._get_loop_pool()
        if own.pool is None:
            async with own.opening:
                if own.pool is None:
                    own.pool = await self._open_pool(own.remember)
        return own.pool

    async def close(self) -> None:
        """Closes the running loop's pool, and the connections of loops that have ended."""
        own = self._get_loop_pool()
        pool, own.pool = own.pool, None
        if pool is not None:
            await pool.close()
        self._close_ended_loops()

    def _get_loop_pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._close_ended_loops()
            self._pools[loop] = _LoopPool()
        return self._pools[loop]

    def _close_ended_loops(self) -> None:
        """Closes the sockets of pools whose event loop has ended: the pools themselves cannot be closed without it."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            for connection in self._pools.pop(loop).connections:
                connection.pgconn.finish()
