"""Notifications from a role without any right on the schema: they may cost a worker little, and stop nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.worker.conftest import Workbench
from tests.worker.test_listening import LISTENERS, is_listening, listening
from watchbill.store.queries import queries
from watchbill.worker import notifications

FLOOD = "SELECT pg_notify(%s, 'ready ' || n) FROM generate_series(0, %s) n"


@pytest.fixture
def stranger(server: Server, bench: Workbench) -> Iterator[psycopg.Connection]:
    (((database,),)) = bench.sql("SELECT current_database()")
    role = f"stranger_{database}"
    server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    with psycopg.connect(server.url(database, role), autocommit=True) as connection:
        yield connection
    server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.fixture
def channel(bench: Workbench) -> str:
    ((name,),) = bench.sql("SELECT watchbill._wake_channel()")
    return str(name)


def flood(stranger: psycopg.Connection, channel: str) -> bool:
    return stranger.execute(FLOOD, (channel, 5000)).rowcount > 5000


async def test_a_worker_that_gets_too_many_notifications_polls_for_a_while(
    bench: Workbench, stranger: psycopg.Connection, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task
    async def task() -> str:
        return "ran"

    with caplog.at_level(logging.WARNING, "watchbill"):
        async with bench.working(poll_interval=1000.0, poll_max_interval=1000.0) as node:
            await bench.until(lambda: node._worker is not None and node.worker.notifications.is_locked)
            await bench.until(lambda: flood(stranger, channel) and not bench.sql(LISTENERS))
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"
            assert f"the last from server process {stranger.info.backend_pid}; polling instead" in caplog.text
            node.worker.notifications._flooded_until = 0.0  # half a minute later
            await bench.until(lambda: node.worker.notifications.is_locked)
            assert await (await task.aenqueue()).aresult(timeout=60) == "ran"


async def test_several_workers_poll_when_they_get_too_many_notifications(
    bench: Workbench, stranger: psycopg.Connection, channel: str
) -> None:
    """Those that do not hold the wakeup lock as well: each of them listens."""

    @bench.app.task
    async def task() -> str:
        return "ran"

    async with listening(bench, name="a", queues=("a",)) as a, listening(bench, name="b", queues=("b",)) as b:
        await bench.until(lambda: is_listening(a) and is_listening(b))
        await bench.until(lambda: flood(stranger, channel) and not bench.sql(LISTENERS))
        for queue in "ab":
            assert await (await task.using(queue=queue).aenqueue()).aresult(timeout=60) == "ran"


async def test_a_note_with_a_late_time_does_not_hide_one_with_an_early_time(bench: Workbench) -> None:
    """A stranger could send it all the time, and delay jobs that are due soon."""
    wakeups = notifications.Wakeups()
    wakeups.delayed.next_look = 10.0
    listener = notifications.Listener(wakeups, bench.url, queries("watchbill"))
    listener._handle_notes(["later +inf", "later 20"], 0)
    assert not wakeups.delayed.is_set()
    listener._handle_notes(["later +inf", "later 5", "later 20"], 0)
    assert wakeups.delayed.is_set()


@pytest.mark.parametrize(
    "note", ["stop {id}", "beat", "later nan", "later x", "schedules", "unblock", "awake", "ready", "", "\n", "{{}}"]
)
async def test_a_running_job_is_not_disturbed_by_the_notes_of_a_stranger(
    bench: Workbench, stranger: psycopg.Connection, channel: str, note: str
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def task() -> str:
        started.set()
        await go_on.wait()
        return "undisturbed"

    job = await task.aenqueue()
    async with bench.working() as node:
        await asyncio.wait_for(started.wait(), 60)
        await bench.until(lambda: node.worker.notifications.is_listening)
        stranger.execute("SELECT pg_notify(%s, %s)", (channel, note.format(id=job.id)))
        beats = "SELECT n FROM watchbill.beats"
        seen = bench.sql(beats)
        stranger.execute("SELECT pg_notify(%s, 'beat')", (channel,))
        await bench.until(lambda: bench.sql(beats) != seen)  # so it has read the notes before
        go_on.set()
        assert await job.aresult(timeout=60) == "undisturbed"
    assert bench.sql("SELECT count(*) FROM watchbill.cancels") == [(0,)]


async def test_notes_of_one_kind_that_are_read_together_are_handled_once(
    bench: Workbench, stranger: psycopg.Connection, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []
    monkeypatch.setattr(notifications.Wakeups, "handle_note", lambda _, note: handled.append(note))
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and node.worker.notifications.is_listening)
        stranger.execute(FLOOD, (channel, 500))
        stranger.execute("SELECT pg_notify(%s, 'the end')", (channel,))
        await bench.until(lambda: "the any" in handled)
    assert len(handled) < 100


async def test_a_worker_that_is_woken_in_vain_rests_between_its_claims(
    bench: Workbench, stranger: psycopg.Connection, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    really_wait = notifications.wait_for

    async def wait_for(event: Any, seconds: float) -> None:
        waits.append(seconds)
        await really_wait(event, seconds)

    monkeypatch.setattr(notifications, "wait_for", wait_for)
    monkeypatch.setattr(notifications, "QUIET_SECONDS", 60.0)
    async with bench.working() as node:
        await bench.until(lambda: node._worker is not None and node.worker.notifications.is_locked)

        def rests() -> bool:
            stranger.execute("SELECT pg_notify(%s, 'ready')", (channel,))
            return notifications.USELESS_WAKEUP_PAUSE_SECONDS in waits

        await bench.until(rests)
