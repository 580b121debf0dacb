"""Unique, Debounce and the other keys of jobs, as Python sends them: options, functions, defaults, COPY, stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.waiting import until
from watchbill import App, Debounce, DuplicateJob, Unique, chain
from watchbill.app.payload import InvalidPayload
from watchbill.client.operations import MIN_JOBS_TO_COPY
from watchbill.errors import WatchbillError


@pytest.fixture
def app(schema_database: str, tmp_path: Path) -> Iterator[App]:
    app = App(schema_database, payload_store=str(tmp_path), payload_store_above=500)
    yield app
    app.close()


def rows(app: App) -> list[dict[str, Any]]:
    with psycopg.connect(app.database_url, row_factory=dict_row) as connection:
        return connection.execute("SELECT * FROM watchbill.jobs ORDER BY seq").fetchall()


def keys(app: App) -> list[str]:
    with psycopg.connect(app.database_url) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM watchbill.uniques ORDER BY key").fetchall()]


def declare_limits(app: App) -> None:
    with psycopg.connect(app.database_url) as connection:
        connection.execute("INSERT INTO watchbill.limits (name, max) VALUES ('account', 1), ('crm', 1)")


def test_duplicate_is_the_job_that_waits(app: App) -> None:
    @app.task(type="sync", unique=Unique(by="{account}"))
    def sync(account: int, full: bool = False) -> None: ...

    first, second = sync.enqueue(7), sync.enqueue(7, full=True)
    assert (second.id, second.created) == (first.id, False)
    assert asyncio.run(sync.aenqueue(7)).id == first.id
    assert sync.using(unique=None).enqueue(7).created
    assert app.enqueue("sync", {"account": 7}).id == first.id


def test_rejected_duplicate_raises(app: App) -> None:
    @app.task(type="build", unique=Unique(until="finished", on_duplicate="reject"))
    def build(report: str) -> None: ...

    build.enqueue("sales")
    build.enqueue("stock")
    with pytest.raises(DuplicateJob, match="has the same arguments, which are the unique key"):
        build.enqueue("sales")
    with pytest.raises(DuplicateJob):
        app.enqueue_many([build.bind("new"), build.bind("sales")])
    assert len(rows(app)) == 2


def test_duplicate_in_the_callers_transaction_follows_its_rollback(app: App) -> None:
    @app.task(type="sync", unique=Unique(by="{account}"))
    def sync(account: int) -> None: ...

    with psycopg.connect(app.database_url) as connection:
        assert sync.using(connection=connection).enqueue(7).created
        assert not sync.using(connection=connection).enqueue(7).created
        connection.rollback()
    assert sync.enqueue(7).created


def test_key_function_gets_the_arguments_that_it_takes(app: App) -> None:
    @app.task(type="sync", unique=Unique(by=lambda account: f"shard {{{account % 10}}}"))
    def sync(account: int, full: bool = False) -> None: ...

    assert sync.enqueue(17).id == sync.enqueue(27, full=True).id
    assert sync.enqueue(18).created
    assert keys(app) == ["shard {7}", "shard {8}"]


def test_key_may_name_an_argument_that_the_caller_leaves_out(app: App) -> None:
    @app.task(type="sync", unique=Unique(by="{account}-{full}"))
    def sync(account: int, full: bool = False) -> None: ...

    assert sync.enqueue(7).id == sync.enqueue(7, False).id == app.enqueue("sync", {"account": 7}).id
    assert sync.enqueue(7, full=True).created
    assert keys(app) == ["7-false", "7-true"]


def test_key_of_a_payload_in_a_store_is_that_of_its_arguments(app: App) -> None:
    @app.task(type="load", unique=Unique(by="{tenant}:{name}{{}}"), queue="large")
    def load(name: str, text: str) -> None: ...

    small, large = load.enqueue("a", text="x"), load.enqueue("a", text="x" * 1000)
    assert large.id == small.id
    assert keys(app) == ["default:a{}"]
    with pytest.raises(InvalidPayload, match="needs the parameter 'nothing'"):
        load.using(unique=Unique(by="{nothing}")).enqueue("a", text="x" * 1000)


def test_debounced_job_has_the_arguments_of_the_last_call(app: App) -> None:
    @app.task(type="index", unique=Debounce(by="{doc}", wait="30s", max_wait="5m"))
    def index(doc: int, revision: int) -> None: ...

    first = index.enqueue(1, 1)
    (last,) = app.enqueue_many([index.bind(1, 2)])
    assert last.id == first.id
    (row,) = rows(app)
    assert (row["payload"], row["wait"]) == ({"doc": 1, "revision": 2}, "delayed")


def test_step_after_a_duplicate_waits_for_the_earlier_job(app: App) -> None:
    @app.task(type="sync", unique=Unique(by="{account}"))
    def sync(account: int) -> None: ...

    @app.task(type="after")
    def after() -> None: ...

    first = sync.enqueue(7)
    step, last = chain(sync.bind(7), after.bind()).enqueue()
    assert step.id == first.id
    assert last.get().state == "blocked"


def test_all_keys_reach_the_database_on_every_way(app: App) -> None:
    declare_limits(app)

    @app.task(type="work")
    def work(account: int) -> None: ...

    options: dict[str, Any] = {"limit_keys": ["account:{account}", 'crm:"\\{{\t'], "ordered_by": "{account}"}
    keyed, routed = work.using(**options), work.using(route_by="{account}")
    labeled = work.using(runs_on={"gpu": "yes"})
    calls = [each.bind(7) for each in (keyed, routed, labeled)]
    for call in calls:
        call.task.enqueue(7)
    app.enqueue_many(calls)
    app.enqueue_many([*calls, *[work.bind(7)] * MIN_JOBS_TO_COPY])  # by COPY
    with psycopg.connect(app.database_url) as connection:
        app.enqueue_many(calls, connection=connection)
    wanted = {
        ("order:work:7", ("key:account:7", 'key:crm:"\\{\t', "order:work:7"), None, 0),
        (None, None, "7", 0),
        (None, None, None, rows(app)[2]["lane"]),
        (None, None, None, 0),
    }
    found = [
        (row["order_key"], row["limit_keys"] and tuple(row["limit_keys"]), row["route_key"], row["lane"])
        for row in rows(app)
    ]
    assert set(found) == wanted
    assert len(found) == 12 + MIN_JOBS_TO_COPY
    assert rows(app)[2]["lane"] < 0


def test_schedule_of_a_unique_task_makes_no_second_job(app: App) -> None:
    """It starts a chain of one step, which is enqueued like any other job."""

    @app.task(type="sync", unique=Unique(by="{account}"))
    async def sync(account: int) -> None: ...

    first = sync.using(delay=3600).enqueue(7)
    app.schedules.add("nightly", task=sync, arguments={"account": 7}, priority=3)
    start = app.schedules.run_now("nightly")
    with app.node(poll_interval=0.01):
        until(lambda: start.get().state == "succeeded")  # its result is that of the last step
    assert start.get().result["jobs"] == [str(first.id)]
    kinds = [(row["type"], row["wait"]) for row in rows(app)]
    assert kinds == [("sync", "delayed"), ("watchbill.flow_end", "blocked")]


def test_unknown_limit_is_refused(app: App) -> None:
    with pytest.raises(WatchbillError, match="limit 'crm' is unknown"):
        app.enqueue("t", limit_keys=["crm"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Unique(by=7), "give a format such as '{account}', or a function"),  # type: ignore[arg-type]
        (lambda: Unique(until="soon"), "give 'started', 'finished', or seconds"),
        (lambda: Unique(until=0), "at most 365 days"),
        (lambda: Unique(on_duplicate="drop"), "give 'keep', 'replace' or 'reject'"),  # type: ignore[arg-type]
        (lambda: Unique(on_duplicate="replace", until="finished"), "until must be 'started'"),
        (lambda: Debounce(wait="soon"), r"Debounce\(wait='soon'\) is invalid"),
        (lambda: Debounce(wait=10, max_wait=5), "max_wait must be at least wait"),
    ],
)
def test_invalid_declarations_say_what_would_be_right(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_unique_takes_a_unique_or_a_debounce(app: App) -> None:
    with pytest.raises(WatchbillError, match="give a Unique or a Debounce"):
        app.task(unique="account")(lambda account: None)  # type: ignore[call-overload]
