"""The scheduler inside a node: it wakes when it should, tells events, and runs commands."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from watchbill import App
from watchbill.postgres.connect import AsyncConnection
from watchbill.scheduler.scheduler import LONGEST_SLEEP, Scheduler
from watchbill.store.line import Line
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events

PATIENCE = 60
ENDED = """
    SELECT outcome, result, error FROM watchbill.slot WHERE name = %s AND finished_at IS NOT NULL ORDER BY slot LIMIT 1"""


class Bench:
    """An app with a node, and what its database says."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url, name="bench", drain_timeout=5)

    async def sql(self, query: str, *params: Any) -> list[Any]:
        async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), params or None)
            return await cursor.fetchall() if cursor.description else []

    async def until(self, query: str, *params: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not (rows := await self.sql(query, *params)):  # noqa: ASYNC110  (what it waits for is in the database)
                await asyncio.sleep(0.01)
        return rows[0]

    async def ended(self, name: str) -> Any:
        """(outcome, result, error) of the first slot of this schedule that has ended."""
        return await self.until(ENDED, name)


@pytest.fixture
def bench(schema_database: str) -> Bench:
    return Bench(schema_database)


def scheduler(bench: Bench, events: Events | None = None) -> tuple[Scheduler, Line]:
    line = Line(bench.url, queries("watchbill"), purpose="test", patience=60)
    return Scheduler(line, events or Events()), line


def test_it_sleeps_until_the_next_slot_and_no_longer(bench: Bench) -> None:
    async def check() -> None:
        ticking, line = scheduler(bench)
        assert await ticking.run() == LONGEST_SLEEP  # nothing is to come
        await bench.sql("SELECT watchbill.add_schedule('s', at => watchbill.now() + interval '30 seconds', type => 't')")
        assert 0 < await ticking.run() <= 30
        await bench.sql("SELECT watchbill.update_schedule('s', '{\"at\": \"2020-01-01 00:00+00\"}')")
        ticking.heard()
        await ticking.run_all()
        assert await ticking.run() == LONGEST_SLEEP
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(1,)]
        await line.close()

    asyncio.run(check())


def test_after_an_outage_it_looks_at_everything(bench: Bench) -> None:
    async def check() -> None:
        ticking, line = scheduler(bench)
        await ticking.run()
        await bench.sql("SELECT watchbill.add_schedule('s', '0 0 * * *', 't')")
        await bench.sql("UPDATE watchbill.timers SET next_run = watchbill.now() - interval '1 day'")
        await ticking.run()
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]  # it looks at the last minutes, mostly
        await line.close()  # as if the server had gone
        while await ticking.run() < 1:
            pass
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(1,)]
        await line.close()

    asyncio.run(check())


def test_it_tells_events(bench: Bench) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    events = Events()
    for name in ("schedule_fired", "schedule_overdue"):
        events.on(name, lambda name=name, **what: heard.append((name, what)))

    async def check() -> None:
        ticking, line = scheduler(bench, events)
        await bench.sql("SELECT watchbill.add_schedule('bell', at => '2026-01-01 00:00+00')")
        await bench.sql(
            "SELECT watchbill.add_schedule('late', at => '2026-01-02 00:00+00', type => 't', deadline => '1 h')"
        )
        await ticking.run_all()
        await line.close()

    asyncio.run(check())
    slot = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    late = {"slot": slot + timedelta(days=1), "due_by": slot + timedelta(days=1, hours=1)}
    assert heard == [
        ("schedule_fired", {"schedule": "bell", "tenant": "default", "slot": slot}),
        ("schedule_overdue", {"schedule": "late", "tenant": "default", **late}),
    ]


def test_a_new_schedule_wakes_a_sleeping_node(bench: Bench) -> None:
    @bench.app.task(type="t")
    async def task() -> str:
        return "ran"

    async def check() -> None:
        async with bench.app.node():
            await bench.until("SELECT 1 FROM pg_stat_activity WHERE query ~ 'LISTEN'")
            await bench.sql("SELECT watchbill.add_schedule('s', '* * * * * *', 't')")
            assert (await bench.ended("s"))[:2] == ("succeeded", "ran")
        await bench.app.aclose()

    asyncio.run(check())


COMMANDS: dict[str, tuple[str, str, Any, str | None]] = {
    "good": (
        "CREATE TABLE t (n int); INSERT INTO t VALUES (5 % 3), (3); SELECT n FROM t ORDER BY n",
        "succeeded", {"status": "SELECT 2", "rows": [[2], [3]]}, None,
    ),
    "bad": ("CREATE TABLE u (n int); SELECT 1 / 0", "failed", None, "division by zero"),
    "apart": ("VACUUM watchbill.jobs", "succeeded", {"status": "VACUUM"}, None),
    "roles": (
        "SELECT current_user, session_user",
        "succeeded", {"status": "SELECT 1", "rows": [["clerk", "postgres"]]}, None,
    ),
    "slow": ("SELECT pg_sleep(60)", "timed_out", None, None),
    "commits": ("SELECT 1; COMMIT; SELECT 2", "failed", None, "ended the transaction that it runs in"),
    "goes on": ("SELECT 1; COMMIT AND CHAIN; SELECT 2", "failed", None, "ended the transaction that it runs in"),
    "takes back": ("SELECT 1; ROLLBACK; SELECT 2", "failed", None, "ended the transaction that it runs in"),
}  # fmt: skip


def test_commands(bench: Bench) -> None:
    """Each in a transaction with its completion, or outside if it must be."""

    async def check() -> None:
        await bench.sql("DO $$ BEGIN CREATE ROLE clerk; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        for name, (command, *_) in COMMANDS.items():
            await bench.sql(
                """SELECT watchbill.add_schedule(%s, at => watchbill.now(), command => %s, role => %s, max_attempts => 1,
                  timeout => %s)""",
                *(name, command, "clerk" if name == "roles" else None, "1 s" if name == "slow" else None),
            )
        async with bench.app.node():
            for name, (_, outcome, result, error) in COMMANDS.items():
                found = await bench.ended(name)
                assert found[:2] == (outcome, result), name
                assert error is None or error in found[2]
        assert await bench.sql("SELECT to_regclass('u')") == [(None,)]
        await bench.app.aclose()

    asyncio.run(check())
