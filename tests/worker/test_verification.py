"""The daily verification: one node does it at its time of day, and damage raises the alert."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, time, timedelta

import psycopg
import pytest

from tests.worker.conftest import Workbench
from watchbill.maintenance.verification import DailyVerification, find_last_instant
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries
from watchbill.verify.look import Finding, Verifier

SIX = time(6, 0)
MORNING = datetime(2021, 3, 14, 6, 0, 5).astimezone()


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def verification(bench: Workbench, clock: Clock) -> AsyncIterator[DailyVerification]:
    """That of a node which has started an hour before."""
    connection = NodeConnection(bench.url, queries("watchbill"), purpose="test", timeout=30)
    started = Clock(clock.now - timedelta(hours=1))
    made = DailyVerification(connection, bench.url, "watchbill", SIX, clock=started, second_look=0.0)
    made._clock = clock
    try:
        yield made
    finally:
        await connection.close()


def read_mark(bench: Workbench) -> tuple[bool, str | None] | None:
    """Whether the last one has ended, and what it has found."""
    with psycopg.connect(bench.url) as connection:
        return connection.execute(
            "SELECT took IS NOT NULL, error FROM watchbill.chore_marks WHERE chore = 'verify'"
        ).fetchone()


def change(bench: Workbench, statement: str) -> None:
    with psycopg.connect(bench.url) as connection:
        connection.execute(statement.encode())


async def test_it_waits_for_its_time_of_day(bench: Workbench) -> None:
    clock = Clock(MORNING - timedelta(seconds=65))
    async with verification(bench, clock) as daily:
        assert await daily.run() == pytest.approx(60, abs=1)
        assert read_mark(bench) is None
        clock.now = MORNING
        assert await daily.run() == 900
        assert read_mark(bench) == (True, None)


async def test_damage_raises_the_alert_and_a_sound_day_clears_it(bench: Workbench) -> None:
    job = await bench.app.aenqueue("send")
    change(bench, "UPDATE watchbill.jobs SET policy = 99")
    clock = Clock(MORNING)
    async with verification(bench, clock) as daily:
        await daily.run()
        assert read_mark(bench) == (True, f"known_policy: job {job.id}: there is no policy 99")
        with psycopg.connect(bench.url) as connection:
            connection.execute("SELECT watchbill._evaluate_alerts(clock_timestamp())")
            found = connection.execute("SELECT rule, severity, state FROM watchbill.alerts").fetchall()
            assert found == [("verify", "critical", "firing")]
        change(bench, "UPDATE watchbill.jobs SET policy = 1; UPDATE watchbill.chore_marks SET last_at = NULL")
        clock.now += timedelta(days=1)
        await daily.run()
        assert read_mark(bench) == (True, None)


async def test_one_of_two_nodes_does_it(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Verifier] = []
    look = Verifier.look_quickly

    def count_and_look(verifier: Verifier) -> Iterator[Finding]:
        looks.append(verifier)
        return look(verifier)

    monkeypatch.setattr(Verifier, "look_quickly", count_and_look)
    async with verification(bench, Clock(MORNING)) as one, verification(bench, Clock(MORNING)) as other:
        await asyncio.gather(one.run(), other.run())
        await one.run()
    assert len(looks) == 1


async def test_another_node_replaces_one_that_has_died(bench: Workbench) -> None:
    with psycopg.connect(bench.url) as connection:
        connection.execute("SELECT watchbill._begin_verification(%s)", (MORNING,))
    async with verification(bench, Clock(MORNING)) as daily:
        await daily.run()
        assert read_mark(bench) == (False, None)
        change(bench, "UPDATE watchbill.chore_marks SET last_at = now() - interval '11 minutes' WHERE chore = 'verify'")
        await daily.run()
        assert read_mark(bench) == (True, None)


async def test_a_node_that_starts_later_leaves_it_to_the_next_day(bench: Workbench) -> None:
    clock = Clock(MORNING + timedelta(hours=2))
    async with verification(bench, clock) as daily:
        await daily.run()
    assert read_mark(bench) is None


def test_the_mark_is_never_due_for_the_observer(bench: Workbench) -> None:
    change(bench, "SELECT watchbill._begin_verification(now())")
    change(bench, "SELECT watchbill._observe()")
    assert read_mark(bench) == (False, None)


def test_last_instant_of_a_time_of_day() -> None:
    assert find_last_instant(SIX, MORNING) == MORNING.replace(second=0)
    assert find_last_instant(SIX, MORNING.replace(hour=5)) == MORNING.replace(second=0) - timedelta(days=1)
