"""Tests that act for a tenant."""

from __future__ import annotations

import asyncio

import pytest

from watchbill import App, current_job
from watchbill.testing import Watchbill

app = App("postgresql://nobody@nowhere.invalid/orders")


@app.task
def follow() -> None: ...


@app.task
def lead() -> str:
    follow.enqueue()
    return current_job().tenant


@pytest.fixture
def watchbill_tenant() -> str:
    return "green"


def test_tests_of_a_module_act_for_its_tenant(watchbill: Watchbill) -> None:
    follow.enqueue()
    app.enqueue_many([follow.bind(), follow.using(tenant="blue").bind()])
    app.schedules.add("nightly", "@daily", task=follow)
    assert [job.tenant for job in watchbill.jobs()] == ["green", "green", "blue"]
    assert app.schedules.get("nightly").tenant == "green"


def test_coroutines_act_for_it_too(watchbill: Watchbill) -> None:
    asyncio.run(enqueue())
    assert [job.tenant for job in watchbill.jobs()] == ["green"]


async def enqueue() -> None:
    await follow.aenqueue()


def test_block_acts_for_another_tenant(watchbill: Watchbill) -> None:
    with watchbill.tenant("red"):
        follow.enqueue()
    follow.enqueue()
    assert [job.tenant for job in watchbill.jobs()] == ["red", "green"]


def test_handler_acts_for_the_tenant_of_its_job(watchbill: Watchbill) -> None:
    """Not for that of the test, which is another program in production."""
    lead.using(tenant="blue").enqueue()
    watchbill.drain()
    assert [job.tenant for job in watchbill.jobs()] == ["blue", "blue"]


def test_advance_fires_the_schedules_of_all_tenants(watchbill: Watchbill) -> None:
    """As the nodes do in production, for which no tenant is set."""
    for tenant in ("blue", "green"):
        with watchbill.tenant(tenant):
            app.schedules.add("nightly", "@daily", task=follow)
    watchbill.advance(days=1)
    assert sorted(job.tenant for job in watchbill.jobs()) == ["blue", "green"]
