"""A node inside another process: `async with app.node():` on a web server's loop, `with app.node():` in a thread.

It installs no signal handler and prints nothing. At the end of the block the node drains: running handlers may end,
claimed jobs that have not started return to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Self

from watchbill.app.producer import refuse_on_loop
from watchbill.errors import NoDatabase
from watchbill.model.cell import home_cell

if TYPE_CHECKING:
    from watchbill.node import Node
    from watchbill.postgres.schema_status import Status

logger = logging.getLogger("watchbill.node")


class InProcessNode:
    """Enter it once, with `with` or with `async with`."""

    def __init__(
        self, make_node: Callable[[], Node], ensure_usable: Callable[[], Status], cell: str | None = None
    ) -> None:
        self._make_node, self._ensure_usable, self._cell = make_node, ensure_usable, cell
        self._node: Node | None = None
        self._running: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._is_over = False

    @property
    def epoch(self) -> int:
        """The number of its registration now; a node that was lost and returns has another one."""
        assert self._node is not None, "the node has not been entered"
        epoch = self._node.worker.epoch
        assert epoch is not None, "the node is not registered"
        return epoch

    @property
    def node(self) -> Node:
        """The node, once the block was entered."""
        assert self._node is not None, "the node has not been started"
        return self._node

    async def __aenter__(self) -> Self:
        if self._node is not None:
            raise _make_entered_error()
        context = copy_context()  # handlers run in copies of it
        if self._cell is not None:
            context.run(home_cell.set, self._cell)
        await asyncio.get_running_loop().run_in_executor(None, context.copy().run, self._ensure_usable)
        self._node = context.run(self._make_node)
        if self._is_over:
            self._node.drain()
        self._running = asyncio.create_task(self._node.run(), context=context)
        ready = asyncio.create_task(self._node.wait_until_ready())
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._running
            raise NoDatabase("The node ended before it was ready.", hint="The log above says why.")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._node is not None
        assert self._running is not None
        self._node.drain()
        await self._running

    def __enter__(self) -> Self:
        refuse_on_loop("with app.node():", "`async with app.node():`")
        if self._thread is not None:
            raise _make_entered_error()
        self._thread = threading.Thread(target=self._run_in_thread, name="watchbill-node", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        """May be called again, and before the node has started: a signal handler may do so."""
        assert self._thread is not None
        self._is_over = True
        if self._loop is not None and self._node is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
                self._loop.call_soon_threadsafe(self._node.drain)
        self._thread.join()
        if self._error is None:
            return
        if raised is None:
            raise self._error
        logger.error(
            "The node in this process failed; it runs no more jobs", exc_info=self._error
        )  # logged, so as not to hide what the block raised

    def _run_in_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  (raised by __enter__ or __exit__)
            self._error = error
        finally:
            self._started.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self:
            self._started.set()
            assert self._running is not None
            await asyncio.shield(self._running)


def _make_entered_error() -> RuntimeError:
    return RuntimeError("this node was entered before; call app.node() again to make another")
