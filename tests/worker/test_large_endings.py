"""Results that are too large for one statement, or for the server, which then closes the connection."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.chaos.proxy import Proxy
from tests.worker import conftest
from tests.worker.conftest import Workbench
from watchbill.postgres import arrays
from watchbill.store.node_connection import Disconnected
from watchbill.worker import settling

MEGABYTE = 1_000_000


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    workbench = Workbench(schema_database, max_result=100 * MEGABYTE)
    yield workbench
    workbench.app.close()


@pytest.fixture
def through_proxy(bench: Workbench) -> Iterator[dict[str, Any]]:
    """A server that refuses requests of more than two megabytes by closing the connection."""
    parts = urlsplit(bench.url)
    with Proxy(Path(parse_qs(parts.query)["host"][0], ".s.PGSQL.5432")) as proxy:
        proxy.largest_request = 2 * MEGABYTE
        url = proxy.url(parts.path.lstrip("/"))
        yield {"url": url, "listen_url": url}


async def end_together(bench: Workbench, sizes: list[int]) -> list[Any]:
    """Jobs with results of these sizes, which end at the same time."""
    gathered = asyncio.Barrier(len(sizes))

    @bench.app.task
    async def work(size: int) -> str:
        await gathered.wait()
        return "x" * size

    return await bench.app.aenqueue_many([work.bind(size) for size in sizes])


async def settled(bench: Workbench, jobs: list[Any]) -> list[Any]:
    await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(len(jobs),)])
    return [await job.aget() for job in jobs]


async def test_large_results_are_settled_in_several_statements(
    bench: Workbench, through_proxy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LARGEST_BATCH_BYTES", MEGABYTE)
    jobs = await end_together(bench, [400_000] * 12)
    async with bench.working(**through_proxy):
        assert {record.state for record in await settled(bench, jobs)} == {"succeeded"}
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])


async def test_a_result_that_breaks_its_connection_ends_dead_and_stops_no_other(
    bench: Workbench, through_proxy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "BREAK_PAUSE_SECONDS", 0.0)
    jobs = await end_together(bench, [10, 3 * MEGABYTE, 10, 900_000, 10])
    async with bench.working(**through_proxy):
        records = await settled(bench, jobs)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])
    assert [record.state for record in records] == ["succeeded", "dead", "succeeded", "succeeded", "succeeded"]
    error = records[1].error or {}
    assert error["type"] == "EndingRefused"
    assert "the connection broke 5 times" in error["message"]


async def test_an_outage_is_not_blamed_on_the_result(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it lasts, and although the connection breaks once while the result is sent."""
    monkeypatch.setattr(settling, "BREAK_PAUSE_SECONDS", 0.0)
    jobs = await end_together(bench, [10])
    parts = urlsplit(bench.url)
    with Proxy(Path(parse_qs(parts.query)["host"][0], ".s.PGSQL.5432")) as proxy:
        url = proxy.url(parts.path.lstrip("/"))
        async with bench.working(url=url, listen_url=url) as node:
            await bench.until(lambda: node._worker is not None and node.worker.registered.is_set())
            failures = itertools.count()
            settler, execute = node.worker.settler, node.worker.settler._connection.execute

            async def cut_before(query: str, params: Any = ()) -> Any:
                if next(failures) < 3 * settling.SINGLE_BREAKS:
                    proxy.cut()
                return await execute(query, params)

            monkeypatch.setattr(settler._connection, "execute", cut_before)
            assert [record.state for record in await settled(bench, jobs)] == ["succeeded"]


async def test_small_results_are_not_blamed_for_broken_connections(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bad network the connection may break several times by chance, and only while this result is sent."""
    monkeypatch.setattr(settling, "BREAK_PAUSE_SECONDS", 0.0)
    jobs = await end_together(bench, [10])
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and node.worker.registered.is_set())
        breaks = itertools.count()
        settler, execute = node.worker.settler, node.worker.settler._connection.execute

        async def break_settlements(query: str, params: Any = ()) -> Any:
            if query.startswith("settle_") and next(breaks) < 3 * settling.SINGLE_BREAKS:
                broken = Disconnected("server closed the connection unexpectedly")
                broken.may_be_too_large = True
                raise broken
            return await execute(query, params)

        monkeypatch.setattr(settler._connection, "execute", break_settlements)
        assert [record.state for record in await settled(bench, jobs)] == ["succeeded"]
        assert next(breaks) > 3 * settling.SINGLE_BREAKS


async def test_event_loop_does_not_wait_while_large_results_are_packed(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, threads = arrays.jsonbs, []

    def pack_and_note(values: Any) -> Any:
        threads.append(threading.get_ident())
        return pack(values)

    monkeypatch.setattr(settling, "jsonbs", pack_and_note)
    jobs = await end_together(bench, [2 * MEGABYTE])
    async with bench.working():
        assert [len(record.result) for record in await settled(bench, jobs)] == [2 * MEGABYTE]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_results_of_more_than_a_gigabyte_are_settled(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes a connection that sends a message of 1 GB. This needs about 4 GB of memory."""
    monkeypatch.setattr(conftest, "PATIENCE", 500)
    jobs = await end_together(bench, [95 * MEGABYTE] * 12)
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(len(jobs),)])
    assert bench.sql("SELECT state, count(*) FROM watchbill.finished_jobs GROUP BY 1") == [("succeeded", 12)]
