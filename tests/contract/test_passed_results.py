"""Results of calls as arguments of others: what can be bound, what is refused, and what the handler gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from watchbill import App, Limit, Rate, Retry, Unique, chain, current_job, group
from watchbill.app.payload import InvalidPayload


@dataclass
class Receipt:
    number: int


@pytest.fixture
def app(schema_database: str, tmp_path: Path) -> Iterator[App]:
    app = App(schema_database, payload_store=str(tmp_path), payload_store_above=500)
    yield app
    app.close()


class Shop:
    def __init__(self, app: App) -> None:
        self.got: list[Any] = []

        @app.task(type="pay", retry=Retry(max_attempts=1))
        async def pay(order: int) -> Receipt:
            if order < 0:
                raise ValueError("no money")
            return Receipt(order * 10)

        @app.task(type="ship")
        async def ship(receipt: Receipt, note: str = "") -> str:
            self.got.append((receipt, len(note)))
            return f"shipped {receipt.number}"

        @app.task(type="total")
        def total(parts: list[Receipt], tax: int = 0) -> int:
            self.got.append(parts)
            return sum(part.number for part in parts) + tax

        @app.task(type="report")
        async def report(parts: Sequence[Receipt | None]) -> int:
            self.got.append(list(parts))
            return len(parts)

        self.pay, self.ship, self.total, self.report = pay, ship, total, report


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(app)


def test_chain_passes_a_result_on(app: App, shop: Shop) -> None:
    """The task that takes it does not know its predecessor. `pay` is a copy in the chain, because it waits too."""
    pay = shop.pay.bind(7)
    jobs = chain(shop.pay.bind(1), pay, shop.ship.bind(receipt=pay.result)).enqueue()
    with app.node():
        assert jobs[-1].result(timeout=60) == "shipped 70"
    assert shop.got == [(Receipt(70), 0)]
    assert app.jobs.get(jobs[-1].id).payload == {"receipt": {"number": 70}}


def test_group_passes_all_its_results_on(app: App, shop: Shop) -> None:
    parts = group(shop.pay.bind(1), shop.pay.bind(2), shop.pay.bind(3))
    jobs = chain(parts, shop.total.bind(parts=parts.results)).enqueue()
    with app.node():
        assert jobs[-1].result(timeout=60) == 60
    assert shop.got == [[Receipt(10), Receipt(20), Receipt(30)]]


def test_any_graph_passes_results_on_without_depends_on(app: App, shop: Shop) -> None:
    one, two = shop.pay.bind(1), shop.pay.bind(2)
    total = shop.total.bind([two.result, one.result], tax=5)
    jobs = app.enqueue_many([total, shop.ship.bind(one.result), two, one])
    with app.node():
        assert jobs[0].result(timeout=60) == 35
        assert jobs[1].result(timeout=60) == "shipped 10"
    assert [Receipt(20), Receipt(10)] in shop.got


def test_parent_that_failed_gives_none(app: App, shop: Shop) -> None:
    parts = group(shop.pay.bind(1), shop.pay.bind(-1))
    jobs = chain(parts, shop.report.using(run_if="all_finished").bind(parts.results)).enqueue()
    with app.node():
        assert jobs[-1].result(timeout=60) == 2
    assert shop.got == [[Receipt(10), None]]


def test_result_is_added_to_a_payload_in_the_store(app: App, shop: Shop) -> None:
    pay = shop.pay.bind(7)
    jobs = chain(pay, shop.ship.bind(receipt=pay.result, note="x" * 1000)).enqueue()
    with app.node():
        assert jobs[-1].result(timeout=60) == "shipped 70"
    assert shop.got == [(Receipt(70), 1000)]


def test_definition_of_a_flow_names_positions(app: App, shop: Shop) -> None:
    parts = group(shop.pay.bind(1), shop.pay.bind(2))
    pay = shop.pay.bind(3)
    definition = chain(parts, pay, shop.total.bind(parts=parts.results), shop.ship.bind(pay.result)).definition()
    assert [job.get("results") for job in definition] == [None, None, None, {"parts": [0, 1]}, {"receipt": 2}]
    assert definition[3]["payload"] == {}


def test_scheduled_chain_passes_results_on(app: App, shop: Shop) -> None:
    pay = shop.pay.bind(7)
    flow = chain(group(shop.pay.bind(1), pay), shop.ship.bind(receipt=pay.result))
    app.schedules.add("once", task=flow, at=datetime.now(UTC) - timedelta(seconds=1))
    with app.node():
        until(lambda: [job.state for job in app.jobs.list(type="ship")] == ["succeeded"])
    assert shop.got == [(Receipt(70), 0)]


def test_earlier_results_can_still_be_read(app: App) -> None:
    @app.task(type="one")
    async def one() -> int:
        return 1

    @app.task(type="two")
    async def two(number: int) -> int:
        return number + await current_job().aresult_of(one)

    call = one.bind()
    jobs = chain(call, two.bind(call.result)).enqueue()
    with app.node():
        assert jobs[-1].result(timeout=60) == 2


def test_types_are_compared_where_the_flow_is_built(app: App, shop: Shop) -> None:
    @app.task(type="count")
    def count(rows: int, names: list[str] | None = None) -> int:
        return rows

    pay, counted = shop.pay.bind(1), count.bind(1)
    count.bind(counted.result)
    with pytest.raises(InvalidPayload, match=r"ship: receipt is annotated as .*Receipt, and gets the result of count"):
        shop.ship.bind(counted.result)  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match="count: rows is annotated as int, and gets the result of pay"):
        count.bind(pay.result)  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match=r"count: names is annotated as str, and gets the result of count"):
        count.bind(1, names=[counted.result])  # type: ignore[list-item]
    with pytest.raises(InvalidPayload, match=r"ship: receipt is annotated as .*Receipt, and gets the result of pay"):
        shop.ship.bind(group(pay).results)  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match="gets None if pay does not succeed"):
        shop.ship.using(run_if="all_finished").bind(pay.result)
    with pytest.raises(InvalidPayload, match="note"):
        shop.ship.bind(pay.result, note=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"limits": [Limit(5, by="{account}")]},
        {"limits": [Rate(5, per="1m", by="{account}")]},
        {"ordered_by": "{account}"},
        {"unique": Unique(by="{account}")},
        {"unique": Unique()},
        {"unique": Unique(by=lambda account: str(account))},
        {"route_by": "{account}", "group": "g"},
    ],
)
def test_keys_are_not_made_of_results(app: App, options: dict[str, Any]) -> None:
    @app.task(type="account")
    def find_account() -> int:
        return 7

    def take(account: int) -> None: ...

    sync: Any = app.task(type="sync", **options)(take)
    with pytest.raises(InvalidPayload, match="account cannot be the result of another job, because a key"):
        sync.bind(find_account.bind().result)


def test_result_of_a_call_that_is_not_enqueued_is_refused(app: App, shop: Shop) -> None:
    pay = shop.pay.bind(1)
    with pytest.raises(ValueError, match="has not been enqueued"):
        app.enqueue_many([shop.ship.bind(pay.result), shop.pay.bind(2)])
    with pytest.raises(ValueError, match="which is not enqueued once in the same call"):
        app.enqueue_many([shop.ship.bind(pay.result), pay, pay])
    with pytest.raises(InvalidPayload, match="receipt"):
        shop.ship.enqueue(pay.result)
