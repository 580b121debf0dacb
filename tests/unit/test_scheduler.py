"""When the scheduler looks at everything that may be due, and when at the last minutes only. No database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from watchbill.scheduler.scheduler import FOREVER, RECENT, Scheduler
from watchbill.store.line import Line
from watchbill.telemetry.events import Events


class FakeLine:
    """Nothing is ever due. `during` is called while a tick is under way."""

    connections = 1

    def __init__(self) -> None:
        self.looks: list[float] = []
        self.during: Callable[[], None] = lambda: None

    async def execute(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        self.looks.append(params[1])
        self.during()
        return [(0, 0, 0, None, "[]")]


@pytest.fixture
def line() -> FakeLine:
    return FakeLine()


@pytest.fixture
def scheduler(line: FakeLine) -> Scheduler:
    return Scheduler(cast("Line", line), Events())


def test_the_first_look_is_at_everything_and_the_next_at_the_last_minutes(scheduler: Scheduler, line: FakeLine) -> None:
    for _ in range(3):
        asyncio.run(scheduler.run())
    assert line.looks == [FOREVER, RECENT, RECENT]


def test_what_was_written_may_be_due_since_any_time(scheduler: Scheduler, line: FakeLine) -> None:
    asyncio.run(scheduler.run())
    scheduler.heard()
    for _ in range(2):
        asyncio.run(scheduler.run())
    assert line.looks == [FOREVER, FOREVER, RECENT]


def test_what_is_heard_during_a_look_is_not_forgotten(scheduler: Scheduler, line: FakeLine) -> None:
    """That look may have begun before the schedule was committed."""
    line.during = scheduler.heard
    asyncio.run(scheduler.run())
    line.during = lambda: None
    for _ in range(2):
        asyncio.run(scheduler.run())
    assert line.looks == [FOREVER, FOREVER, RECENT]


def test_a_look_that_failed_is_made_again(scheduler: Scheduler, line: FakeLine) -> None:
    def fail() -> None:
        raise RuntimeError("lost")

    asyncio.run(scheduler.run())
    scheduler.heard()
    line.during = fail
    with pytest.raises(RuntimeError, match="lost"):
        asyncio.run(scheduler.run())
    line.during = lambda: None
    asyncio.run(scheduler.run())
    assert line.looks == [FOREVER, FOREVER, FOREVER]


def test_a_new_connection_is_a_reason_to_look_at_everything(scheduler: Scheduler, line: FakeLine) -> None:
    asyncio.run(scheduler.run())
    line.connections = 2
    pauses = [asyncio.run(scheduler.run()) for _ in range(3)]
    assert line.looks == [FOREVER, RECENT, FOREVER, RECENT]
    assert [pause == 0.0 for pause in pauses] == [True, False, False], "at once, when it is seen to be another one"
