"""Dependencies in a drain, and fakes in their place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from watchbill import App, Connection, Depends
from watchbill.testing import Watchbill

steps: list[str] = []
app = App()


def engine() -> Iterator[str]:
    steps.append("engine opened")
    yield "engine"
    steps.append("engine closed")


async def client(engine: str = Depends(engine)) -> AsyncIterator[str]:
    steps.append("client opened")
    yield f"client of {engine}"
    steps.append("client closed")


@app.task
async def on_loop(*, client: str = Depends(client)) -> str:
    return client


@app.task
def in_thread(*, engine: str = Depends(engine)) -> str:
    return engine


@app.task(executor="process")
def in_child(*, engine: str = Depends(engine, per="attempt")) -> str:
    return engine


@app.task
def in_transaction(connection: Connection, *, engine: str = Depends(engine)) -> str:
    return f"{engine} {connection.closed}"


def test_drain_makes_and_closes_dependencies(watchbill: Watchbill) -> None:
    steps.clear()
    jobs = [task.enqueue() for task in (on_loop, in_thread, in_transaction)]
    watchbill.drain(raising=True)
    assert [job.result(timeout=0) for job in jobs] == ["client of engine", "engine", "engine False"]
    assert steps == ["engine opened", "client opened", "client closed", "engine closed"]


async def drain_on_loop(watchbill: Watchbill) -> None:
    await on_loop.aenqueue()
    await watchbill.adrain(raising=True)


def test_drain_on_the_loop_of_the_test_makes_dependencies(watchbill: Watchbill) -> None:
    steps.clear()
    asyncio.run(drain_on_loop(watchbill))
    assert steps == ["engine opened", "client opened", "client closed", "engine closed"]


def test_override_replaces_a_dependency_and_those_below_it(watchbill: Watchbill) -> None:
    steps.clear()
    jobs = [task.enqueue() for task in (on_loop, in_thread, in_child, in_transaction)]
    with app.override(engine, "fake"), app.override(engine, "another"):
        watchbill.drain(raising=True)
    assert [job.result(timeout=0) for job in jobs] == ["client of another", "another", "another", "another False"]
    assert steps == ["client opened", "client closed"]
    job = on_loop.enqueue()
    with app.override(client, "fake client"):
        watchbill.drain(raising=True)
    assert job.result(timeout=0) == "fake client"
    job = in_thread.enqueue()
    watchbill.drain(raising=True)
    assert job.result(timeout=0) == "engine"
