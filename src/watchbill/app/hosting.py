"""A node inside another process: `async with app.node():` on a web server's loop, `with app.node():` in a thread.

No signal is taken and nothing is printed. On the way out the node drains: running handlers may end, the rest goes back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Self

from watchbill.app.task import refuse_on_loop
from watchbill.errors import NoDatabase

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.node import Node
    from watchbill.postgres.schema_status import Status

logger = logging.getLogger("watchbill.node")


class HostedNode:
    """Enter it once, with `with` or with `async with`."""

    def __init__(self, app: App, **settings: Any) -> None:
        self._app, self._settings = app, settings
        self._node: Node | None = None
        self._running: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        if self._node is not None:
            raise _entered_before()
        await asyncio.to_thread(ensure_usable, self._app)
        self._node = make_node(self._app, **self._settings)
        self._running = asyncio.create_task(self._node.run())
        ready = asyncio.create_task(self._node.ready())
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._running
            raise NoDatabase("The node ended before it was ready.")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._node is not None
        assert self._running is not None
        self._node.drain()
        await self._running

    def __enter__(self) -> Self:
        refuse_on_loop("with app.node():", "`async with app.node():`")
        if self._thread is not None:
            raise _entered_before()
        self._thread = threading.Thread(target=self._run_in_thread, name="watchbill-node", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        assert self._thread is not None
        if self._loop is not None and self._node is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._node.drain)
        self._thread.join()
        if self._error is None:
            return
        if raised is None:
            raise self._error
        logger.error("The node has failed", exc_info=self._error)  # what the block raised is not to be hidden

    def _run_in_thread(self) -> None:
        try:
            asyncio.run(self._stay())
        except BaseException as error:  # noqa: BLE001  (told to whoever waits for the start, or leaves)
            self._error = error
        finally:
            self._started.set()

    async def _stay(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self:
            self._started.set()
            assert self._running is not None
            await asyncio.shield(self._running)


def _entered_before() -> RuntimeError:
    return RuntimeError("this node was entered before; app.node() makes another")


def ensure_usable(app: App) -> Status:
    """Raises when there is no database, or its schema is missing, too old or too new for this code."""
    from watchbill.postgres.migrate import Source, status

    found = status(app.settings.listen_url or app.database_url, app.settings.schema, Source.of_package("watchbill.store"))
    found.ensure_usable()
    return found


def make_node(app: App, *, once: bool = False, scheduler: bool = True, **settings: Any) -> Node:
    """A node for all tasks of an app, with its settings, changed as told."""
    from dataclasses import replace

    from watchbill.node import Node, plan_for

    chosen = replace(app.settings, **settings) if settings else app.settings
    handlers = app.handlers()
    queues = chosen.queues or tuple(sorted(app.queue_names()))
    plan = plan_for(
        chosen,
        app.database_url,
        handlers,
        app=app.name,
        queues=queues,
        once=once,
        scheduler=scheduler,
        declared=app.declared.as_json(),
    )
    return Node(
        plan,
        handlers,
        app.events,
        unknown_type_grace=chosen.unknown_type_grace,
        slot_retention=chosen.slot_retention,
        alive=app.alive,
        payload_store=app.stored.store,
    )
