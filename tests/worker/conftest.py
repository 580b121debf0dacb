"""A worker in the test's own process, on a database of its own, driven until nothing is left to do."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from watchbill import App
from watchbill.node import Node

PATIENCE = 60


class Workbench:
    """An app, its database, and ways to let a node work."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = App(url, drain_timeout=5, poll_interval=0.01, poll_max_interval=0.05, **settings)
        self.url = url
        self._kept: psycopg.Connection[Any] | None = None
        self._waiting_thread: int | None = None

    def node(self, **changes: Any) -> Node:
        node = self.app.make_node()
        node.config = replace(node.config, **changes)
        return node

    async def work_off(self, **changes: Any) -> None:
        """Until nothing is ready."""
        async with asyncio.timeout(PATIENCE):
            await self.node(once=True, **changes).run()

    @asynccontextmanager
    async def working(self, **changes: Any) -> AsyncIterator[Node]:
        node = self.node(**changes)
        running = asyncio.create_task(node.run())
        try:
            yield node
        finally:
            node.stop()
            async with asyncio.timeout(PATIENCE):
                await running

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        if self._waiting_thread == threading.get_ident():
            with suppress(psycopg.OperationalError):  # the test may cut it; a new connection decides
                self._kept = self._kept or psycopg.connect(self.url, autocommit=True)
                return _fetch(self._kept, query, params)
            self._close_kept()
        with psycopg.connect(self.url, autocommit=True) as connection:
            return _fetch(connection, query, params)

    async def until(self, what: Callable[[], Any]) -> Any:
        """Asks again and again, without a guess at how long it takes; on one connection, since a new one each time
        would keep a processor busy."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (answer := what()):
                    self._waiting_thread = threading.get_ident()
                    await asyncio.sleep(0.005)
        finally:
            self._waiting_thread = None
            self._close_kept()
        return answer

    def _close_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _fetch(connection: psycopg.Connection[Any], query: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(query.encode(), params)
    return [] if cursor.description is None else cursor.fetchall()  # a row without columns is a row too


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    workbench = Workbench(schema_database)
    yield workbench
    workbench.app.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`on_both_loops`: also on uvloop, which `watchbill worker` takes when it is installed. Those without it are run on
    both by `make test-long`."""
    if metafunc.module.__name__.endswith("test_running"):
        marked = metafunc.definition.get_closest_marker("on_both_loops") is not None
        other = pytest.param("uvloop", marks=[] if marked else [pytest.mark.long])
        metafunc.fixturenames.append("loop")
        metafunc.parametrize("loop", ["asyncio", other])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests, and closes the app's connections on the loop that opened them."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    test = _and_close(pyfuncitem.obj(**arguments), pyfuncitem.funcargs["bench"])
    if pyfuncitem.funcargs.get("loop") == "uvloop":
        pytest.importorskip("uvloop").run(test)
    else:
        asyncio.run(test)
    return True


async def _and_close(test: Coroutine[Any, Any, None], bench: Any) -> None:
    try:
        await test
    finally:
        await bench.app.aclose()
