"""The scheduler inside a node: it wakes when it should, tells events, and runs commands."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from watchbill import App
from watchbill.postgres.connect import AsyncConnection
from watchbill.scheduler.scheduler import LONGEST_SLEEP_SECONDS, Scheduler
from watchbill.store.node_connection import Disconnected, NodeConnection
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events

PATIENCE = 60
ENDED = """
    SELECT outcome, result, error FROM watchbill.slot WHERE name = %s AND finished_at IS NOT NULL
    ORDER BY slot LIMIT 1"""


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


def scheduler(
    bench: Bench, events: Events | None = None, *, options: str = "", timeout: float = 60
) -> tuple[Scheduler, NodeConnection]:
    url = make_conninfo(bench.url, options=options)
    connection = NodeConnection(url, queries("watchbill"), purpose="test", timeout=timeout)
    return Scheduler(connection, events or Events(), asyncio.Event()), connection


def test_scheduler_sleeps_until_the_next_slot(bench: Bench) -> None:
    async def check() -> None:
        ticking, connection = scheduler(bench)
        assert await ticking.run() == LONGEST_SLEEP_SECONDS  # nothing is to come
        await bench.sql(
            "SELECT watchbill.add_schedule('s', at => watchbill.now() + interval '30 seconds', type => 't')"
        )
        assert 0 < await ticking.run() <= 30
        await bench.sql("SELECT watchbill.update_schedule('s', '{\"at\": \"2020-01-01 00:00+00\"}')")
        ticking.changed.set()
        await ticking.tick_until_nothing_is_due()
        assert await ticking.run() == LONGEST_SLEEP_SECONDS
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(1,)]
        await connection.close()

    asyncio.run(check())


def test_scheduler_scans_everything_after_an_outage(bench: Bench) -> None:
    async def check() -> None:
        ticking, connection = scheduler(bench)
        await ticking.run()
        await bench.sql("SELECT watchbill.add_schedule('s', '0 0 * * *', 't')")
        await bench.sql("UPDATE watchbill.timers SET next_run = watchbill.now() - interval '1 day'")
        await ticking.run()
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]  # it looks at the last minutes, mostly
        await connection.close()  # as if the server had gone
        while await ticking.run() < 1:
            pass
        assert await bench.sql("SELECT count(*) FROM watchbill.jobs") == [(1,)]
        await connection.close()

    asyncio.run(check())


SLOW_SLOTS = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(%s); RETURN NEW; END $$;
    CREATE TRIGGER wait BEFORE INSERT ON watchbill.slots_default FOR EACH ROW EXECUTE FUNCTION wait()"""


def test_a_tick_that_is_given_up_is_logged_and_tried_with_fewer_slots(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server rolls back a tick whose client is gone, so a tick of the same size would never end."""

    monkeypatch.setattr("watchbill.scheduler.scheduler.BATCH", 40)

    async def check() -> None:
        ticking, connection = scheduler(bench, options="-c client_connection_check_interval=50", timeout=3)
        await bench.sql(SLOW_SLOTS % 0.1)
        await bench.sql(
            "SELECT watchbill.add_schedule(s::text, at => '2000-01-01 00:00+00', type => 't')"
            " FROM generate_series(1, 40) s"
        )
        while await bench.sql("SELECT 1 FROM watchbill.timers WHERE next_run IS NOT NULL"):
            with contextlib.suppress(Disconnected):
                await ticking.run()
        await connection.close()

    asyncio.run(check())
    line, *_ = [record.getMessage() for record in caplog.records if record.name == "watchbill.scheduler"]
    assert line == (
        "A tick was given up: the server has not answered within 3 s; the next one had at most 10 slots."
        " Is the server overloaded?"
    )
    assert asyncio.run(bench.sql("SELECT count(*) FROM watchbill.jobs")) == [(40,)]


def test_a_long_tick_holds_up_no_other_chore(bench: Bench) -> None:
    app = App(bench.url, lease=600, drain_timeout=5)

    @app.task(type="later")
    async def later() -> None: ...

    sleeping = "SELECT pid, xact_start FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

    async def check() -> None:
        await bench.sql(SLOW_SLOTS % 3600)
        async with app.node():
            await bench.sql("SELECT watchbill.add_schedule('s', at => '2000-01-01 00:00+00', type => 't')")
            tick = await bench.until(sleeping)
            await later.using(delay=0.1).aenqueue()
            await bench.until("SELECT 1 FROM watchbill.finished_jobs")
            assert await bench.sql(sleeping) == [tick], "the same tick still runs"
        await app.aclose()

    asyncio.run(check())


def test_scheduler_emits_fired_and_overdue_events(bench: Bench) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    events = Events()
    for name in ("schedule_fired", "schedule_overdue"):
        events.on(name, lambda name=name, **what: heard.append((name, what)))

    async def check() -> None:
        ticking, connection = scheduler(bench, events)
        await bench.sql("SELECT watchbill.add_schedule('bell', at => '2026-01-01 00:00+00')")
        await bench.sql(
            "SELECT watchbill.add_schedule('late', at => '2026-01-02 00:00+00', type => 't', deadline => '1 h')"
        )
        await ticking.tick_until_nothing_is_due()
        await connection.close()

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


def test_worker_runs_each_kind_of_sql_command(bench: Bench) -> None:
    """Each in a transaction with its completion, or outside if it must be."""

    async def check() -> None:
        await bench.sql("DO $$ BEGIN CREATE ROLE clerk; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        for name, (command, *_) in COMMANDS.items():
            await bench.sql(
                """SELECT watchbill.add_schedule(%s, at => watchbill.now(), command => %s, role => %s,
                max_attempts => 1,
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
