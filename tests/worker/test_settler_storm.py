"""The settler among locks, cut connections, refusals and losses of its node: no claimed job loses its claim."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any

import psycopg
import pytest

from tests.store.test_claims_kept import NO_CLAIM, TRIGGER
from tests.worker.conftest import Workbench
from watchbill.postgres.arrays import int8s
from watchbill.store.node_connection import Disconnected, NodeConnection, NodeLost, Refused
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events
from watchbill.worker import settling
from watchbill.worker.claim_request import Request
from watchbill.worker.claiming import Claimer, Claiming
from watchbill.worker.endings import Ending
from watchbill.worker.notifications import Listener, Wakeups
from watchbill.worker.outcomes import OutcomeReporter
from watchbill.worker.run import Claimed, Outcome
from watchbill.worker.settling import Settler

JOBS = """
    SELECT count(watchbill.enqueue('task', CASE WHEN n %% 10 = 0 THEN '{"poison": 1}' ELSE '{}' END::jsonb,
      max_attempts => 9)) FROM generate_series(1, %s) n
"""
OUTCOMES = ["failed", "timed_out", "snoozed", "released", "skipped", "canceled"]


class Storm:
    """A node without handlers: jobs end when the dice say so, some of them long after the node was found lost."""

    def __init__(self, bench: Workbench, seed: int) -> None:
        self.bench, self.random = bench, random.Random(seed)
        known, wakeups = queries("watchbill"), Wakeups()
        self.connection = NodeConnection(bench.url, known, purpose="claims", timeout=30)
        settlements = NodeConnection(bench.url, known, purpose="settlements", timeout=30)
        self.settler = Settler(settlements, OutcomeReporter(Events()), wakeups)
        slots: Any = None
        listener = Listener(wakeups, bench.url, known)
        config = bench.node(queues=("default",)).config
        self.claimer = Claimer(self.connection, Claiming(["default"], {}), slots, self.settler, listener, config)
        self.eyes = psycopg.connect(bench.url, autocommit=True)
        self.operator: psycopg.AsyncConnection | None = None
        self.running: list[Claimed] = []
        self.lost = False

    async def run(self, steps: int) -> None:
        telling = asyncio.create_task(self.settler.run())
        actions = [self.claim, self.end, self.lock, self.cut, self.lose, self.release_unknown, self.reclaim, self.rest]
        weights = [6, 8, 2, 1, 1, 1, 2, 6]
        await self.register()
        for action in self.random.choices(actions, weights, k=steps):
            with contextlib.suppress(Disconnected, Refused, NodeLost):
                await action()
            self.look()
            assert not telling.done(), telling.exception()
        await self.finish()
        telling.cancel()
        self.eyes.close()
        for connection in (self.connection, self.settler._connection):
            await connection.close()

    def look(self) -> None:
        assert self.eyes.execute(NO_CLAIM).fetchall() == []

    async def register(self) -> None:
        ((epoch,),) = self.bench.sql("SELECT watchbill.register(%s)", f"storm-{self.random.random()}")
        self.settler.epoch = epoch
        self.claimer.begin_epoch(epoch)
        self.lost = False

    async def claim(self) -> None:
        if self.lost:
            await self.register()
        rows = await self.claimer.send(Request(self.random.randint(1, 8), 8))
        self.settler.add_claimed(rows)
        self.running += rows

    async def end(self) -> None:
        for row in self.random.sample(self.running, self.random.randint(0, len(self.running))):
            self.running.remove(row)
            if self.random.random() < 0.6:
                self.settler.add_success(row, time.monotonic(), self.random.choice([None, b'"result"']))
            else:
                outcome = Outcome(self.random.choice(OUTCOMES), error={"message": "broken"})
                self.settler.add_ending(Ending(row, outcome, time.monotonic()))

    async def lock(self) -> None:
        """Until the next time."""
        if self.operator is not None:
            await self.operator.close()
        self.operator = await psycopg.AsyncConnection.connect(self.bench.url)
        await self.operator.execute("SELECT FROM watchbill.jobs WHERE random() < 0.2 FOR UPDATE SKIP LOCKED")

    async def cut(self) -> None:
        self.bench.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            "watchbill settlements")  # fmt: skip

    async def lose(self) -> None:
        """What runs in threads goes on."""
        if not self.lost:
            self.bench.sql(
                "SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats WHERE epoch = %s", self.claimer.epoch
            )
            self.lost = True
            self.settler.discard_endings()
            self.running = [row for row in self.running if self.random.random() < 0.5]

    async def release_unknown(self) -> None:
        await self.claimer.release_unknown()

    async def reclaim(self) -> None:
        await self.connection.execute("reclaim", (int8s([]), int8s([])))

    async def rest(self) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.05))

    async def finish(self) -> None:
        """Nothing is in the way any more."""
        if self.operator is not None:
            await self.operator.close()
        self.bench.sql("DROP TRIGGER refuse ON watchbill.jobs")
        self.running, last = [], self.running
        for row in last:
            self.settler.add_success(row, time.monotonic(), None)
        await self.bench.until(lambda: self.settler.is_idle and not self.settler.unsettled)
        self.look()
        await self.reclaim()
        assert self.bench.sql("SELECT count(*) FROM watchbill.jobs WHERE fence <> 0") == [(0,)]
        await self.bench.until(lambda: self.bench.sql("SELECT count(*) FROM watchbill.claims") == [(0,)])


async def storm(bench: Workbench, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("LOCKED_RETRY_SECONDS", "REFUSED_RETRY_SECONDS"):
        monkeypatch.setattr(settling, pause, 0.02)
    bench.sql("ALTER FUNCTION watchbill.settle SET lock_timeout = '20ms'")
    for statement in TRIGGER.split(";\n"):
        bench.sql(statement)
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    bench.sql(JOBS, 2 * steps)
    await Storm(bench, seed).run(steps)


async def test_no_claimed_job_loses_its_claim_in_a_short_storm(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storm(bench, 150, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("repetition", range(10))
async def test_no_claimed_job_loses_its_claim_in_a_longer_storm(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, repetition: int
) -> None:
    await storm(bench, 1500, monkeypatch)
