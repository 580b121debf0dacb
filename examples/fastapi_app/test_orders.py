"""Tests of the example, with Watchbill's fixture: `pytest` needs no database that is named."""

import asyncio
from collections.abc import Iterator

import pytest
import tasks
from create_tables import create_tables
from fastapi.testclient import TestClient
from main import api

from watchbill.testing import Watchbill


@pytest.fixture
def client(watchbill: Watchbill) -> Iterator[TestClient]:
    asyncio.run(create_tables())  # in the test's database: the App is there while the test runs
    with TestClient(api) as client:
        yield client


def test_an_order_is_shipped(watchbill: Watchbill, client: TestClient) -> None:
    placed = client.post("/orders", json={"item": "tea"}).json()
    watchbill.assert_enqueued(tasks.ship, order=placed["order"])
    watchbill.drain(raising=True)
    assert client.get(f"/jobs/{placed['job']}").json()["state"] == "succeeded"


def test_an_order_that_is_refused_ships_nothing(watchbill: Watchbill, client: TestClient) -> None:
    assert client.post("/orders", json={"item": "unicorn"}).status_code == 409
    watchbill.assert_not_enqueued(tasks.ship)
