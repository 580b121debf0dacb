"""A migration replaces functions while nodes call them: a node tries again, and goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.worker.conftest import Workbench

RENAME = """
  DO $$
  DECLARE f record;
  BEGIN
    FOR f IN
      SELECT p.oid::regprocedure AS signature FROM pg_proc p
      WHERE p.pronamespace = 'watchbill'::regnamespace AND p.proname = '{old}'
    LOOP
      EXECUTE format('ALTER FUNCTION %%s RENAME TO {new}', f.signature);
    END LOOP;
  END $$"""
CALLED = ("claim", "settle", "heartbeat", "_survey", "promote", "tick")


async def test_a_node_goes_on_when_functions_that_were_away_are_back(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    has_started, go_on = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def wait() -> str:
        has_started.set()
        await go_on.wait()
        return "done"

    @bench.app.task
    async def other() -> str:
        return "done"

    running = await wait.aenqueue()
    with caplog.at_level(logging.WARNING, "watchbill"):
        async with bench.working():
            await has_started.wait()
            for name in CALLED:
                bench.sql(RENAME.format(old=name, new=f"{name}_away"))
            waiting = await other.aenqueue()
            go_on.set()
            await bench.until(lambda: "settle" in caplog.text and "does not exist" in caplog.text)
            for name in CALLED:
                bench.sql(RENAME.format(old=f"{name}_away", new=name))
            assert await running.aresult(timeout=60) == "done"
            assert await waiting.aresult(timeout=60) == "done"
    assert (await running.aget()).attempt == 1
