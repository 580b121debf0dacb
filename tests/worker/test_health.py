"""Health and metrics of a worker, asked over HTTP from outside of its event loop."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import time

import pytest

from tests.worker.conftest import Workbench
from watchbill.errors import WatchbillError
from watchbill.node import Node

OF_WORKERS = (
    "watchbill_attempts_total", "watchbill_ended_jobs_total", "watchbill_running", "watchbill_slots_by_kind",
    "watchbill_waiting", "watchbill_slots", "watchbill_loop_lag_seconds", "watchbill_ready",
    "watchbill_beat_age_seconds", "watchbill_build_info",
)  # fmt: skip

SERIES = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def ask(node: Node, page: str) -> tuple[int, str]:
    assert node.health is not None
    connection = http.client.HTTPConnection(*node.health.address, timeout=10)
    try:
        connection.request("GET", page)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def read_metrics(text: str) -> dict[tuple[str, str], float]:
    """Checks that every line is one of the format, and returns the series."""
    found = {}
    for line in text.splitlines():
        if not re.fullmatch(r"# (HELP|TYPE) watchbill_\w+ .+", line):
            series = SERIES.fullmatch(line)
            assert series, line
            assert (series[1], series[2] or "") not in found
            found[series[1], series[2] or ""] = float(series[3])
    return found


async def test_a_node_says_that_it_lives_and_is_ready_until_it_drains(bench: Workbench) -> None:
    release = asyncio.Event()

    @bench.app.task
    async def hold() -> None:
        await release.wait()

    await hold.aenqueue()
    async with bench.working(health_port=0) as node:
        await bench.until(lambda: node.worker.slots.runs if node.health else None)
        assert await asyncio.to_thread(ask, node, "/health/live") == (200, "ok\n")
        assert await asyncio.to_thread(ask, node, "/health/ready") == (200, "ok\n")
        assert (await asyncio.to_thread(ask, node, "/other"))[0] == 404
        node.drain()
        assert await asyncio.to_thread(ask, node, "/health/ready") == (503, "the node drains\n")
        assert (await asyncio.to_thread(ask, node, "/health/live"))[0] == 200
        release.set()


async def test_a_hung_event_loop_is_seen(bench: Workbench) -> None:
    """The handler asks while it blocks the event loop, so no coroutine could answer."""
    found: list[tuple[int, str]] = []
    nodes: list[Node] = []

    @bench.app.task
    async def block() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found.append(ask(nodes[0], "/health/live"))
            if found[-1][0] != 200:
                break

    async with bench.working(health_port=0, stuck_after=1.0, watches_loop=False) as node:
        nodes.append(node)
        await bench.until(lambda: node.health)
        await block.aenqueue()
        await bench.until(lambda: found and found[-1][0] == 503)
        assert "the event loop has not turned for" in found[-1][1]
        await bench.until(lambda: ask_again(node))


def ask_again(node: Node) -> bool:
    """The loop turns again. Asked on the loop itself: the answer comes from another thread."""
    return ask(node, "/health/live")[0] == 200


async def test_metrics_count_runs_by_outcome(bench: Workbench) -> None:
    @bench.app.task(type='odd "name"\\')
    async def good() -> None: ...

    @bench.app.task(retry=1)
    async def bad() -> None:
        raise ValueError

    for task in (good, good, bad):
        await task.aenqueue()
    async with bench.working(health_port=0, lease=1.5) as node:
        await bench.until(lambda: node.health and node.finished == 3 and node.worker.settler.is_idle)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.rollups WHERE grain = 'hour'") != [(0,)])
        await bad.aenqueue()  # counted after a report was sent: counters go on
        await bench.until(lambda: node.finished == 4 and node.worker.settler.is_idle)
        status, text = await asyncio.to_thread(ask, node, "/metrics")
    assert status == 200
    found = read_metrics(text)
    name = '''queue="default",type="odd \\"name\\"\\\\"'''
    assert found["watchbill_attempts_total", f'{name},outcome="succeeded"'] == 2
    bad_name = f'queue="default",type="{bad.type}"'
    assert found["watchbill_attempts_total", f'{bad_name},outcome="failed"'] == 2
    assert found["watchbill_ended_jobs_total", f'{bad_name},state="dead"'] == 2
    assert found["watchbill_ready", ""] == 1
    assert found["watchbill_attempt_seconds_count", name] == 2
    assert found["watchbill_attempt_seconds_sum", name] > 0
    assert found["watchbill_wait_seconds_count", 'queue="default"'] == 4
    assert found["watchbill_claimed_total", ""] == 4
    assert found["watchbill_settle_seconds_count", ""] >= 2
    assert found["watchbill_heartbeats_total", 'result="ok"'] >= 1
    assert found["watchbill_running", 'kind="async"'] == 0
    assert found["watchbill_slots", ""] == node.config.capacity.total
    assert found["watchbill_chore_seconds_count", 'chore="survey"'] >= 1
    assert set(OF_WORKERS) <= {name for name, _ in found}


async def test_jobs_that_handlers_enqueue_are_counted(bench: Workbench) -> None:
    @bench.app.task
    async def child() -> None: ...

    @bench.app.task
    async def parent() -> None:
        await child.aenqueue()

    await parent.aenqueue()
    async with bench.working(health_port=0) as node:
        await bench.until(lambda: node.health and node.finished == 2)
        _, text = await asyncio.to_thread(ask, node, "/metrics")
    assert read_metrics(text)["watchbill_enqueued_total", ""] == 1
    assert not bench.app.events.has_observer("job_enqueued"), "nothing is left when the node has ended"


async def test_a_port_in_use_is_an_error_that_says_so(bench: Workbench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WatchbillError, match=f"health_port {port} on 127.0.0.1 cannot be used: another program"):
            await bench.work_off(health_port=port)


async def test_without_a_port_nothing_is_served(bench: Workbench) -> None:
    async with bench.working() as node:
        await node.wait_until_ready()
        assert node.health is None
