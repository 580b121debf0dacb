"""One rule for colours: whatever is reached from App has a sync name and an `a`-twin with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from watchbill import App, AsyncClient, Client, Job, Lock, Task
from watchbill.app.alerts import Alerts
from watchbill.app.groups import Group
from watchbill.app.members import Item
from watchbill.app.operations import Cluster, Jobs, Limits, Queues
from watchbill.app.schedules import Schedules

# What needs no twin: it talks to nobody.
_QUIET = {
    App: {
        "on",
        "use",
        "make_node",
        "ensure_usable",
        "include",
        "handlers",
        "queue_names",
        "node",
        "around_run",
        "around_enqueue",
        "lifespan",
        "alive",
        "override",
        "lock",
        "leader_task",
        "endpoint",
        "secret_resolver",
        "tenant",
        "cell",
        "find_cell",
        "withdraw_schedule",
    },
    Task: {
        "using",
        "bind",
        "upgrade",
        "new_job",
        "check",
        "describe_payload",
        "encode_payload",
        "decode",
        "decode_result",
        "encode_result",
        "find_hint",
        "handler",
    },
    Job: {"decode_result"},
    Lock: set[str](),
    Jobs: set[str](),
    Queues: set[str](),
    Limits: set[str](),
    Alerts: set[str](),
    Cluster: {"group"},
    Group: {"join"},
    Item: set[str](),
    Schedules: set[str](),
}


def methods(owner: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in _QUIET.get(owner, set())
    }


@pytest.mark.parametrize("owner", list(_QUIET), ids=lambda owner: owner.__name__)
def test_every_sync_method_has_an_async_counterpart(owner: type) -> None:
    found = methods(owner)
    sync = {name for name, value in found.items() if not inspect.iscoroutinefunction(value)}
    assert {f"a{name}" for name in sync} == {name for name, value in found.items() if name not in sync}


@pytest.mark.parametrize("owner", list(_QUIET), ids=lambda owner: owner.__name__)
def test_async_counterparts_take_the_same_arguments(owner: type) -> None:
    found = methods(owner)
    for name, value in found.items():
        if not inspect.iscoroutinefunction(value):
            ours, theirs = inspect.signature(value), inspect.signature(found[f"a{name}"])
            assert ours == theirs, name


def test_client_and_async_client_have_the_same_methods() -> None:
    names = {name for name in vars(Client) if not name.startswith("_")}
    assert names == {name for name in vars(AsyncClient) if not name.startswith("_")}
    assert inspect.signature(Client) == inspect.signature(AsyncClient)
    for name in names:
        mine, other = getattr(Client, name), getattr(AsyncClient, name)
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(other).parameters), name


def test_blocking_call_on_a_loop_names_the_async_method() -> None:
    import asyncio

    app = App("postgresql://nowhere/x")

    @app.task
    async def t() -> None: ...

    async def call() -> None:
        t.enqueue()

    with pytest.raises(RuntimeError, match=r"await aenqueue\(\)"):
        asyncio.run(call())
