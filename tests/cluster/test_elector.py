"""When a node stands for election."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from watchbill.cluster import elector as elections
from watchbill.cluster.elector import Elector, Standing
from watchbill.telemetry.events import Events

VACANT = Standing("production", leader=None, term=None, expires_in=None, turn_in=None)


@pytest.mark.asyncio
async def test_surveys_do_not_put_off_the_election_for_a_vacant_group() -> None:
    """Each survey sets the timer anew, and with a short lease they come more often than attempts."""
    connection: Any = None
    elector = Elector(connection, Events(), "first", lease=1.0, wakeup=asyncio.Event())
    elector.begin_epoch(1)
    elector.wakeup.clear()

    async def survey() -> None:
        while True:
            elector.note_standings([VACANT])
            await asyncio.sleep(0.05)

    surveys = asyncio.create_task(survey())
    try:
        await asyncio.wait_for(elector.wakeup.wait(), 30)
    finally:
        surveys.cancel()


class SilentConnection:
    """Its server never answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def execute(self, query: str, _: object = ()) -> None:
        self.asked.append(query)
        await asyncio.Event().wait()


@pytest.mark.asyncio
async def test_a_node_leaves_although_the_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "RELEASE_SECONDS", 0.01)
    connection: Any = SilentConnection()
    elector = Elector(connection, Events(), "first", lease=30.0, wakeup=asyncio.Event())
    elector.begin_epoch(1)
    elector.note_standings([Standing("production", leader=1, term=7, expires_in=30.0, turn_in=None)])
    assert elector.find_term("production") == 7
    async with asyncio.timeout(30):
        await elector.close()
    assert (elector.find_term("production"), connection.asked) == (None, ["withdraw"])
