"""Limits and queues that an App declares: they exist before its first job, and their keys travel with each job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from watchbill import App, Batch, Limit, Queue, Rate, Unique
from watchbill.model.limit_records import RateRecord


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database, name="shop")
    yield app
    app.close()


def sql(app: App, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(app.database_url) as connection:
        return connection.execute(query.encode()).fetchall()


KEYS = "SELECT limit_keys, order_key FROM watchbill.jobs ORDER BY seq"


def test_keys_travel_with_each_job_before_any_node_has_started(app: App) -> None:
    @app.task(
        type="sync",
        limits=[Limit(1, name="account", by="{account}"), Rate(100, per="1m", name="crm-api"), Limit(5)],
        ordered_by="{account}",
    )
    def sync(account: int, note: str = "") -> None: ...

    @app.task(type="shard", limits=[Limit(1, name="shard", by=lambda account: str(account % 4))])
    def shard(account: int) -> None: ...

    sync.enqueue(7)
    app.enqueue_many([sync.using(tenant="acme").bind(8), shard.bind(7)])
    assert sql(app, KEYS) == [
        (["key:account:7", "key:crm-api", "order:sync:7", "task:sync"], "order:sync:7"),
        (["key:account:8", "key:crm-api", "order:sync:8", "task:sync"], "order:sync:8"),
        (["key:shard:3"], None),
    ]
    assert sql(app, "SELECT name, max, owner FROM watchbill.limits ORDER BY name") == [
        ("account", 1, "shop"), ("crm-api", None, "shop"), ("shard", 1, "shop"), ("task:sync", 5, "shop"),
    ]  # fmt: skip


def test_enqueue_by_name_gives_a_declared_task_its_keys(app: App) -> None:
    """Also those that a function or a default argument makes, and those of the call itself."""

    @app.task(
        type="sync",
        aliases=["old.sync"],
        limits=[Limit(1, name="account", by="{account}"), Limit(1, name="shard", by=lambda account: str(account % 4))],
        ordered_by="{region}",
        unique=Unique(by="{account}"),
    )
    def sync(account: int, region: str = "eu") -> None: ...

    first = app.enqueue("sync", {"account": 7})
    second = sync.enqueue(7)
    assert second.id == first.id
    app.enqueue("old.sync", {"account": 8})
    app.enqueue("sync", {"account": 9}, ordered_by="{account}", limit_keys=None, unique=None)
    app.enqueue("other", {"account": 9}, limit_keys=["account:{account}"])
    assert sql(app, KEYS) == [
        (["key:account:7", "key:shard:3", "order:sync:eu"], "order:sync:eu"),
        (["key:account:8", "key:shard:0", "order:sync:eu"], "order:sync:eu"),
        (["order:sync:9"], "order:sync:9"),
        (["key:account:9"], None),
    ]
    assert sql(app, "SELECT DISTINCT type FROM watchbill.jobs ORDER BY 1") == [("other",), ("sync",)]


def test_an_operator_shows_sets_and_clears_limits(app: App) -> None:
    @app.task(type="sync", limits=[Limit(0, name="account", by="{account}")])
    def sync(account: int) -> None: ...

    sync.enqueue(7)
    (declared,) = app.limits.list()
    assert (declared.name, declared.max, declared.owner, declared.changed) == ("account", 0, "shop", False)
    changed = app.limits.set("account", max=3, rates=[Rate(10, per="1m"), Rate(100, per="1d", evenly=True)])
    assert changed is not None
    assert changed.max == 3
    assert changed.rates == [
        RateRecord(10, timedelta(minutes=1), evenly=False), RateRecord(100, timedelta(days=1), evenly=True),
    ]  # fmt: skip
    assert changed.changed
    assert app.limits.set("account", rates=[]) == replace(changed, rates=[])
    with pytest.raises(ValueError, match="is invalid for limit 'account': give only count, per and evenly"):
        app.limits.set("account", rates=[Rate(5, per=1, name="crm")])
    app.limits.set("account", rates=[Rate(10, per="1m"), Rate(100, per="1d", evenly=True)])
    found = app.limits.show("account")
    assert found is not None
    assert (found.limit, found.keys, found.holders) == (changed, [], [])
    assert app.limits.show("unknown") is None
    assert app.limits.clear("account") is True
    assert app.limits.clear("account") is False
    assert app.limits.list() == [declared]


def test_limits_change_in_the_transaction_of_the_caller(app: App) -> None:
    with psycopg.connect(app.database_url) as connection:
        assert app.limits.set("queue:sync", max=2, connection=connection) is not None
        assert app.limits.list() == []
        connection.rollback()
    assert app.limits.list() == []


def test_limits_have_asynchronous_twins(app: App) -> None:
    async def story() -> None:
        try:
            assert await app.limits.aset("queue:sync", max=2) == (await app.limits.alist())[0]
            found = await app.limits.ashow("queue:sync")
            assert found is not None
            assert found.holders == []
            assert await app.limits.aclear("queue:sync") is True
        finally:
            await app.aclose()

    asyncio.run(story())


def test_rules_exist_before_a_job_of_the_callers_transaction(app: App) -> None:
    @app.task(limits=[Limit(1)])
    def work() -> None: ...

    with psycopg.connect(app.database_url) as connection:
        work.using(connection=connection).enqueue()
        connection.rollback()
    assert sql(app, "SELECT max FROM watchbill.limits") == [(1,)]
    assert sql(app, "SELECT count(*) FROM watchbill.jobs") == [(0,)]


def test_jobs_of_a_fair_queue_have_the_lane_of_their_share(app: App) -> None:
    app.queue(Queue("sync", fair_by="{account}", shares={"7": 3}))

    @app.task(queue="sync")
    def sync(account: int) -> None: ...

    for account in (7, 8, 7):
        sync.enqueue(account)
    (first,), (second,), (third,) = sql(app, "SELECT lane FROM watchbill.jobs ORDER BY seq")
    assert first == third != second
    assert sql(app, "SELECT lane, share, weight FROM watchbill.shares") == [(first, "7", 3)]


def test_a_limit_that_is_declared_later_exists_before_its_first_job(app: App) -> None:
    @app.task(limits=[Limit(1, name="a")])
    def one() -> None: ...

    one.enqueue()

    @app.task(limits=[Limit(1, name="b")])
    def two() -> None: ...

    two.enqueue()
    assert sql(app, "SELECT name FROM watchbill.limits ORDER BY name") == [("a",), ("b",)]


def test_batches_may_have_limits_by_their_item(app: App) -> None:
    @app.task(batch=Batch(size=5), limits=[Limit(1, name="doc", by="{docs}")])
    def index(docs: list[int]) -> None: ...

    index.enqueue(7)
    assert sql(app, KEYS) == [(["key:doc:7"], None)]
