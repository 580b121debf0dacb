"""When a node stands for election."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
