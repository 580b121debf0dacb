"""Limits, rates, order and fairness with real nodes: what starts, beside what, and in which order."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.conftest import Workbench
from watchbill import (
    Batch,
    Debounce,
    JobFailed,
    Limit,
    Permanent,
    Queue,
    Rate,
    Retry,
    Unique,
)
from watchbill.worker.config import Capacity

ONE = Capacity({"async": 1, "thread": 1, "process": 1}, 1)
FOUR = Capacity({"async": 4, "thread": 4, "process": 1}, 4)


class Running:
    """Counts what runs at once, by key."""

    def __init__(self) -> None:
        self.now, self.most, self.done = Counter[Any](), Counter[Any](), Counter[Any]()

    async def run(self, *keys: Any) -> None:
        for key in keys:
            self.now[key] += 1
            self.most[key] = max(self.most[key], self.now[key])
        await asyncio.sleep(0.002)
        for key in keys:
            self.now[key] -= 1
            self.done[key] += 1


async def test_the_example_of_the_guide_runs(bench: Workbench) -> None:
    """Every kind of flow control in one App."""
    app, running, applied, indexed = bench.app, Running(), [], []
    app.queue(Queue("sync", limit=20, fair_by="{account}"))

    @app.task(
        queue="sync",
        limits=[
            Limit(1, name="account", by="{account}"),
            Limit(10, name="crm-api"),
            Rate(1000, per="1m", name="crm-api"),
        ],
        unique=Unique(by="{account}", until="started", on_duplicate="keep"),
    )
    async def sync(account: int) -> None:
        await running.run(account, "all")

    @app.task(ordered_by="{order_id}")
    async def apply_event(order_id: int, event: dict[str, int]) -> None:
        applied.append((order_id, event["n"]))

    @app.task(unique=Debounce(by="{doc}", wait="50ms", max_wait="5m"))
    async def reindex(doc: int) -> None:
        indexed.append(doc)

    @app.task(batch=Batch(size=200, wait="10ms"))
    def index(docs: list[int]) -> None:
        indexed.extend(docs)

    first, second = [await sync.aenqueue(7) for _ in range(2)]
    assert first.id == second.id  # one of an account waits
    jobs: list[Any] = [first, *[await sync.aenqueue(account) for account in range(5)]]
    jobs += [await apply_event.aenqueue(order % 2, {"n": order}) for order in range(10)]
    jobs += [await reindex.aenqueue(1000), *[await index.aenqueue(doc) for doc in range(10)]]
    async with bench.working(capacity=FOUR):
        for job in jobs:
            await job.aresult(timeout=60)
    assert running.done["all"] == 6
    assert [n for order, n in applied if order == 0] == [0, 2, 4, 6, 8]
    assert [n for order, n in applied if order == 1] == [1, 3, 5, 7, 9]
    assert sorted(indexed) == [*range(10), 1000]
    ((declared,),) = bench.sql("SELECT count(*) FROM watchbill.limits")
    assert declared == 2


async def test_limits_hold_across_two_nodes(bench: Workbench) -> None:
    running = Running()

    @bench.app.task(limits=[Limit(1, name="account", by="{account}"), Limit(3)])
    async def sync(account: int) -> None:
        await running.run(account, "all")

    await bench.app.aenqueue_many([sync.bind(n % 5) for n in range(60)])
    async with bench.working(name="a", capacity=FOUR), bench.working(name="b", capacity=FOUR):
        await bench.until(lambda: running.done["all"] == 60)
    assert running.most["all"] == 3
    assert max(running.most[account] for account in range(5)) == 1
    await_idle = "SELECT (SELECT count(*) FROM watchbill.holds), (SELECT count(*) FROM watchbill.jobs)"
    await bench.until(lambda: bench.sql(await_idle) == [(0, 0)])


async def test_a_newcomer_of_a_fair_queue_does_not_wait_behind_a_backlog(bench: Workbench) -> None:
    """Beyond what runs or is claimed, at most one job of each other account starts before it."""
    bench.app.queue(Queue("sync", limit=4, fair_by="{account}"))
    started: list[int] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task(queue="sync")
    async def sync(account: int) -> None:
        started.append(account)
        began.set()
        await go_on.wait()

    await bench.app.aenqueue_many([sync.bind(1) for _ in range(10_000)])
    async with bench.working(capacity=FOUR):
        await began.wait()
        await bench.until(lambda: len(started) == 4)
        newcomer = await sync.aenqueue(2)
        go_on.set()
        await newcomer.aresult(timeout=60)
        place = started.index(2)
        await bench.app.queues.apause("sync")
    claimed_before, one_turn = 4, 1
    assert place <= claimed_before + one_turn


async def test_a_failing_head_holds_its_ordered_key(bench: Workbench) -> None:
    tries: list[tuple[int, int]] = []

    @bench.app.task(ordered_by="{order_id}", retry=Retry(max_attempts=3, base=0.05, jitter=0))
    async def apply_event(order_id: int, event: int) -> None:
        tries.append((order_id, event))
        if event == 0 and order_id == 1 and len([each for each in tries if each == (1, 0)]) < 3:
            raise ValueError("not yet")

    jobs = [await apply_event.aenqueue(order, event) for event in range(3) for order in (1, 2)]
    async with bench.working(capacity=FOUR):
        for job in jobs:
            await job.aresult(timeout=60)
    assert [event for order, event in tries if order == 1] == [0, 0, 0, 1, 2]
    assert [event for order, event in tries if order == 2] == [0, 1, 2]


async def test_a_dead_job_pauses_its_key_until_it_is_cleared(bench: Workbench) -> None:
    ran: list[int] = []

    @bench.app.task(type="post", ordered_by="{account}", when_dead="pause")
    async def post(account: int, amount: int) -> None:
        ran.append(amount)
        if amount < 0:
            raise Permanent("an amount is never negative")

    first, second = await post.aenqueue(7, -1), await post.aenqueue(7, 1)
    other = await post.aenqueue(8, 2)
    async with bench.working():
        with pytest.raises(JobFailed):
            await first.aresult(timeout=60)
        await other.aresult(timeout=60)
        assert ran.count(1) == 0
        assert bench.sql("SELECT watchbill.clear_limit('order:post:7')") == [(True,)]
        await second.aresult(timeout=60)


async def test_a_rate_starts_no_more_than_it_allows(bench: Workbench) -> None:
    """By the times of the claims on the database's clock, not by when handlers began."""
    calls = 8

    @bench.app.task(type="call", limits=[Rate(3, per="400ms")])
    async def call(n: int) -> None: ...

    bench.sql("CREATE TABLE claimed (at timestamptz)")
    bench.sql("""
        CREATE FUNCTION log_claim() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.claimed SELECT NEW.at FROM unnest(NEW.job_ids); RETURN NULL; END $$""")
    bench.sql("CREATE TRIGGER log_claim AFTER INSERT ON watchbill.claims FOR EACH ROW EXECUTE FUNCTION log_claim()")
    await bench.app.aenqueue_many([call.bind(n) for n in range(calls)])
    async with bench.working(name="a"), bench.working(name="b"):
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.finished_jobs") == [(calls,)])
    times = sorted(at for (at,) in bench.sql("SELECT at FROM public.claimed"))
    assert len(times) == calls
    assert all(last - first >= timedelta(milliseconds=400) for first, last in zip(times, times[3:], strict=False))


async def test_an_operators_change_of_a_limit_takes_effect_at_once(bench: Workbench) -> None:
    running, go_on = Running(), asyncio.Event()

    @bench.app.task(limits=[Limit(0, name="api")])
    async def call(n: int) -> None:
        await running.run("all")
        go_on.set()

    jobs = await bench.app.aenqueue_many([call.bind(n) for n in range(4)])
    async with bench.working(capacity=FOUR):
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.jobs WHERE wait = 'parked'") == [(4,)])
        bench.sql("SELECT watchbill.set_limit('api', max => 1)")
        for job in jobs:
            await job.aresult(timeout=60)
    assert running.most["all"] == 1
    assert (await jobs[0].aget()).state == "succeeded"


async def test_a_rate_that_an_operator_makes_faster_takes_effect_at_once(bench: Workbench) -> None:
    @bench.app.task(limits=[Rate(1, per="1d", name="api")])
    async def call(n: int) -> None: ...

    jobs = await bench.app.aenqueue_many([call.bind(n) for n in range(2)])
    async with bench.working(capacity=FOUR):
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.jobs WHERE wait = 'parked'") == [(1,)])
        bench.sql("""SELECT watchbill.set_limit('api', rates => '[{"count": 100, "per": "1 second"}]')""")
        for job in jobs:
            await job.aresult(timeout=60)


async def test_batches_keep_limits(bench: Workbench) -> None:
    sizes: list[int] = []

    @bench.app.task(batch=Batch(size=50, wait="5ms"), limits=[Limit(7)])
    async def index(docs: list[int]) -> None:
        sizes.append(len(docs))

    await bench.app.aenqueue_many([index.bind(n) for n in range(70)])
    async with bench.working(capacity=FOUR):
        await bench.until(lambda: sum(sizes) == 70)
    assert max(sizes) <= 7
