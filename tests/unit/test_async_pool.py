"""Our pool for asyncio, where it differs from psycopg's."""

from __future__ import annotations

import asyncio
import gc
import socket

from psycopg_pool import PoolClosed

from watchbill.postgres.connect import AsyncConnection, AsyncPool


def test_pool_that_is_closed_while_it_connects_leaves_no_error_behind() -> None:
    """The server accepts the connection and never answers. So the pool gives up waiting for its workers, and the end
    of the program cancels them."""
    errors: list[str] = []

    async def use_pool(server: socket.socket) -> socket.socket:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context["message"]))
        host, port = server.getsockname()
        url = f"postgresql://nobody@{host}:{port}/nothing?sslmode=disable&gssencmode=disable"
        pool = AsyncPool(url, connection_class=AsyncConnection, open=False, min_size=0, max_size=1)
        await pool.open()
        borrowing = asyncio.create_task(pool.getconn())
        accepted, _ = await loop.sock_accept(server)
        await pool.close(timeout=0)
        await asyncio.wait([borrowing])
        assert isinstance(borrowing.exception(), PoolClosed)
        return accepted

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        asyncio.run(use_pool(server)).close()
    gc.collect()
    assert errors == []
