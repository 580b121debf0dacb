"""A node inside another process, and what it leaves alone there."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator

import pytest

from tests.worker.conftest import Workbench
from watchbill import App
from watchbill.errors import NoDatabase, SchemaError


async def test_a_node_works_on_the_loop_of_a_web_server(bench: Workbench) -> None:
    @bench.app.task
    async def work() -> str:
        return "done"

    before = signal.getsignal(signal.SIGTERM)
    async with bench.app.node():
        job = await work.aenqueue()
        assert await job.aresult(timeout=60) == "done"
        assert signal.getsignal(signal.SIGTERM) is before
    assert bench.sql("SELECT state FROM watchbill.nodes") == [("left",)]


def test_a_node_works_in_a_thread_beside_blocking_code(bench: Workbench) -> None:
    @bench.app.task
    def work() -> str:
        return "done"

    with bench.app.node(concurrency=2):
        assert work.enqueue().result(timeout=60) == "done"
    assert bench.sql("SELECT state FROM watchbill.nodes") == [("left",)]


def test_a_node_that_cannot_start_raises_the_reason_on_entry(bench: Workbench) -> None:
    bench.sql("DROP SCHEMA watchbill CASCADE")
    with pytest.raises(SchemaError, match="watchbill db migrate"), bench.app.node():
        pass


async def test_node_without_a_database_raises_no_database(bench: Workbench) -> None:
    with pytest.raises(NoDatabase, match="nothing listens"):
        async with App("postgresql://127.0.0.1:1/x", lease=1).node():
            pass


def test_error_of_a_node_is_raised_at_the_end_of_its_block(bench: Workbench) -> None:
    @bench.app.lifespan
    async def cannot_close(app: App) -> AsyncGenerator[None, None]:
        yield
        raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"), bench.app.node():
        pass
    with pytest.raises(LookupError, match="of the block"), bench.app.node():
        raise LookupError("of the block")


def test_node_cannot_be_entered_twice(bench: Workbench) -> None:
    node = bench.app.node()
    with node:
        pass
    with pytest.raises(RuntimeError, match="to make another"), node:
        pass


async def test_blocking_node_on_a_loop_names_async_with(bench: Workbench) -> None:
    with pytest.raises(RuntimeError, match=r"use `async with app.node\(\):` here"), bench.app.node():
        pass
