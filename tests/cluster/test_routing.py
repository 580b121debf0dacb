"""Jobs that run on the owner of their key, or where labels match."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Bench
from tests.cluster.routed_program import declare
from watchbill import App
from watchbill.errors import WatchbillError


def make_app(bench: Bench, ran: dict[str, list[tuple[int, str]]], name: str) -> App:
    """An app whose task records which node ran which key; each node is a process of its own in real life."""
    app = App(bench.url, name="shop", lease=30, node_name=name, poll_max_interval=0.2)
    app.cluster.group("production", tokens=20, handover_timeout=20)

    @app.task(type="score", queue="score", route_by="{customer}", group="production")
    async def score(customer: int, number: int) -> None:
        ran[name].append((customer, str(number)))

    return app


async def run_routed(bench: Bench) -> None:
    ran: dict[str, list[tuple[int, str]]] = defaultdict(list)
    first, second = make_app(bench, ran, "a"), make_app(bench, ran, "b")
    producer = first.tasks["score"]
    early = [await producer.aenqueue(customer, 0) for customer in range(40)]  # before any node has joined
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first.node())
        for job in early:
            await job.aresult(timeout=60)
        assert len(ran["a"]) == 40
        await stack.enter_async_context(second.node())
        group = first.cluster.group("production", tokens=20, handover_timeout=20)
        while [owner.tokens for owner in await group.aowners()] != [10, 10]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        ran.clear()
        jobs = [await producer.aenqueue(customer, number) for number in range(3) for customer in range(40)]
        for job in jobs:
            await job.aresult(timeout=60)
        assert set(ran) == {"a", "b"}
        assert {customer for customer, _ in ran["a"]}.isdisjoint({customer for customer, _ in ran["b"]})
        assert len(ran["a"]) + len(ran["b"]) == 120
    assert bench.sql("SELECT count(*) FROM watchbill.attempts WHERE outcome = 'released'") == [(0,)]
    for app in (first, second):
        await app.aclose()


def test_jobs_run_on_the_owner_of_their_key_and_none_is_released(bench: Bench) -> None:
    asyncio.run(run_routed(bench))


async def run_across_a_move(bench: Bench) -> None:
    """A second node joins while the jobs of 30 keys run on the first. Nobody waits for the move: it happens among the
    jobs, and each job is enqueued after the one before was stored."""
    ran: list[tuple[str, int, str]] = []

    def make_ordered_app(name: str) -> App:
        app = App(bench.url, name="shop", lease=30, node_name=name, poll_max_interval=0.2)
        app.cluster.group("production", tokens=20, handover_timeout=20)

        @app.task(type="score", queue="score", route_by="{key}", ordered_by="{key}", group="production")
        async def score(key: str, number: int) -> None:
            ran.append((key, number, name))

        return app

    first, second = make_ordered_app("a"), make_ordered_app("b")
    keys = [f"key-{number}" for number in range(30)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first.node())
        for key in keys:
            await first.tasks["score"].aenqueue(key, 0)
        await wait_until(lambda: len(ran) == 30)
        joining = asyncio.create_task(stack.enter_async_context(second.node()))
        count = 1
        while {node for _, _, node in ran} != {"a", "b"}:
            for key in keys:
                await first.tasks["score"].aenqueue(key, count)
            count += 1
        await joining
        await wait_until(lambda: len(ran) == count * 30)
    for key in keys:
        assert [number for ran_key, number, _ in ran if ran_key == key] == list(range(count))
        nodes = [node for ran_key, _, node in ran if ran_key == key]
        assert nodes in (["a"] * count, sorted(nodes)), "it runs on the first node, then on the second, and not again"
    # Each claim raises `run`: so no node has claimed a job and returned it.
    assert bench.sql("SELECT DISTINCT run FROM watchbill.finished_jobs") == [(1,)]
    for app in (first, second):
        await app.aclose()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_jobs_of_a_key_keep_their_order_across_a_move_and_none_is_released(bench: Bench) -> None:
    asyncio.run(run_across_a_move(bench))


@pytest.mark.timeout(200)
def test_the_jobs_of_an_owner_that_was_killed_run_on_the_next_owner_in_order(bench: Bench) -> None:
    bench.sql("CREATE TABLE public.ran (id bigserial, key text, number int, node text)")
    app = App(bench.url, name="shop", lease=30, node_name="b")
    score = declare(app, "b", stuck=False)
    for number in range(3):
        for key in range(6):
            score.enqueue(str(key), number)
    command = [sys.executable, "-m", "tests.cluster.routed_program", bench.url, "a"]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL) as process:
        bench.until(lambda: bench.sql("SELECT count(*) FROM public.ran") >= [(2,)])
        process.kill()
    bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
    with app.node():
        bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(18,)])
    app.close()
    for key in range(6):
        ran = bench.sql("SELECT number, node FROM public.ran WHERE key = %s ORDER BY id", str(key))
        assert [row for row in ran if row[1] == "b"] == [(0, "b"), (1, "b"), (2, "b")]
        assert [row for row in ran if row[1] == "a"] in ([], [(0, "a")])


async def run_labelled(bench: Bench) -> None:
    app = App(bench.url, lease=30, poll_max_interval=0.2)
    threads: list[str] = []

    @app.task(type="train", runs_on={"gpu": "a100"})
    async def train() -> str:
        threads.append(threading.current_thread().name)
        return "trained"

    job = await train.aenqueue()
    async with app.node(node_name="plain"):
        other = await app.aenqueue("train", {})
        assert (await app.jobs.aget(job.id)).state == "queued"
        async with app.node(node_name="gpu", labels={"gpu": "a100"}):
            assert await job.aresult(timeout=60) == "trained"
            assert await other.aresult(timeout=60) == "trained"
    assert bench.sql(
        "SELECT DISTINCT n.name FROM watchbill.finished_jobs f JOIN watchbill.nodes n ON n.epoch = f.epoch"
    ) == [("gpu",)]
    await app.aclose()


def test_jobs_with_labels_wait_for_a_node_that_has_them(bench: Bench) -> None:
    asyncio.run(run_labelled(bench))


async def run_late(bench: Bench) -> None:
    """The node runs already when a task with a group is declared, and then one more in another queue."""
    app = App(bench.url, name="shop", lease=30, node_name="a", poll_max_interval=0.2)
    app.cluster.group("production", tokens=20, handover_timeout=20)
    async with app.node():

        @app.task(type="score", queue="score", route_by="{customer}", group="production")
        async def score(customer: int) -> int:
            return customer

        jobs = [await score.aenqueue(customer) for customer in range(5)]
        assert [await job.aresult(timeout=60) for job in jobs] == [0, 1, 2, 3, 4]

        @app.task(type="rate", queue="rate", route_by="{customer}", group="production")
        async def rate(customer: int) -> int:
            return -customer

        jobs = [await rate.aenqueue(customer) for customer in range(5)]
        assert [await job.aresult(timeout=60) for job in jobs] == [0, -1, -2, -3, -4]
        (group,) = await app.cluster.agroups()
        assert (group.members, group.queues, group.owned) == (["a"], ["rate", "score"], 20)
    await app.aclose()


def test_a_node_joins_the_group_of_a_task_that_is_declared_late(bench: Bench) -> None:
    asyncio.run(run_late(bench))


async def run_beside_a_refused_group(bench: Bench) -> None:
    app = App(bench.url, name="shop", lease=30, node_name="a", poll_max_interval=0.2)
    app.cluster.group("another size", tokens=30)

    @app.task(type="refused", queue="refused", route_by="{customer}", group="another size")
    async def refused(customer: int) -> None: ...

    @app.task(type="score", queue="score", route_by="{customer}", group="production")
    async def score(customer: int) -> int:
        return customer

    async with app.node():
        assert await (await score.aenqueue(7)).aresult(timeout=60) == 7
    await app.aclose()


def test_a_group_that_refuses_a_node_does_not_keep_it_from_its_other_groups(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with bench.app.cluster.group("another size", tokens=20).join("b"):
        asyncio.run(run_beside_a_refused_group(bench))
    assert "Group another size refuses this node" in caplog.text


def test_a_task_of_another_group_is_refused_in_a_routed_queue(bench: Bench) -> None:
    bench.sql("SELECT watchbill.declare_group('g'), watchbill.route_queue('score', 'g')")
    with closing(App(bench.url)) as app:
        task = app.task(type="score", queue="score", route_by="{x}", group="h")(lambda x: None)
        for send in (
            lambda: task.enqueue(1),
            lambda: app.enqueue_many([task.bind(1)]),
            lambda: app.enqueue("late", {"x": 1}, queue="score", route_by="{x}", group="h"),
        ):
            with pytest.raises(WatchbillError, match="queue 'score' is routed by group 'g', not by 'h'"):
                send()
        assert task.using(group="g").enqueue(1).created
        assert task.using(route_by=None).enqueue(1).created


def test_wrong_declarations_are_refused() -> None:
    app = App("postgresql://nowhere")
    with pytest.raises(ValueError, match="without one of the two"):
        app.task(type="a", route_by="{x}")(lambda x: None)
    with pytest.raises(ValueError, match="without one of the two"):
        app.task(type="a", group="g")(lambda x: None)
    with pytest.raises(ValueError, match="pin the key to labels"):
        app.task(type="a", route_by="{x}", group="g", runs_on={"gpu": "a100"})(lambda x: None)
    for group in ("", 7, app.cluster.group("g")):
        with pytest.raises(ValueError, match="give the name of a token group"):
            app.task(type="a", route_by="{x}", group=group)(lambda x: None)  # type: ignore[arg-type]
    wrong: tuple[Any, ...] = ({"gpu": 1}, {1: "gpu"}, {"gpu": None}, "gpu")
    for labels in wrong:
        with pytest.raises(WatchbillError, match="give a dictionary of labels, which are texts"):
            app.task(type="a", runs_on=labels)(lambda: None)
    app.task(type="b", route_by="{x}", group="g")(lambda x: None)
    with pytest.raises((ValueError, WatchbillError), match="by two groups"):
        app.task(type="c", route_by="{x}", group="h")(lambda x: None)
