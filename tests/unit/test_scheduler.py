"""When the scheduler looks at everything that may be due, and when at the last minutes only. No database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from watchbill.scheduler.scheduler import ANY_TIME_SECONDS, RECENT_SECONDS, Scheduler, emit_tick_events
from watchbill.store.node_connection import NodeConnection
from watchbill.telemetry.events import Events


class FakeConnection:
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
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def scheduler(connection: FakeConnection) -> Scheduler:
    return Scheduler(cast("NodeConnection", connection), Events(), asyncio.Event())


def test_first_tick_scans_everything_and_later_ones_recent_slots(
    scheduler: Scheduler, connection: FakeConnection
) -> None:
    for _ in range(3):
        asyncio.run(scheduler.run())
    assert connection.looks == [ANY_TIME_SECONDS, RECENT_SECONDS, RECENT_SECONDS]


def test_notification_makes_the_next_tick_scan_everything(scheduler: Scheduler, connection: FakeConnection) -> None:
    asyncio.run(scheduler.run())
    scheduler.changed.set()
    for _ in range(2):
        asyncio.run(scheduler.run())
    assert connection.looks == [ANY_TIME_SECONDS, ANY_TIME_SECONDS, RECENT_SECONDS]


def test_notification_during_a_tick_is_not_lost(scheduler: Scheduler, connection: FakeConnection) -> None:
    """That look may have begun before the schedule was committed."""
    connection.during = scheduler.changed.set
    asyncio.run(scheduler.run())
    connection.during = lambda: None
    for _ in range(2):
        asyncio.run(scheduler.run())
    assert connection.looks == [ANY_TIME_SECONDS, ANY_TIME_SECONDS, RECENT_SECONDS]


def test_failed_full_scan_is_repeated(scheduler: Scheduler, connection: FakeConnection) -> None:
    def fail() -> None:
        raise RuntimeError("lost")

    asyncio.run(scheduler.run())
    scheduler.changed.set()
    connection.during = fail
    with pytest.raises(RuntimeError, match="lost"):
        asyncio.run(scheduler.run())
    connection.during = lambda: None
    asyncio.run(scheduler.run())
    assert connection.looks == [ANY_TIME_SECONDS, ANY_TIME_SECONDS, ANY_TIME_SECONDS]


def test_new_connection_makes_the_next_tick_scan_everything(scheduler: Scheduler, connection: FakeConnection) -> None:
    asyncio.run(scheduler.run())
    connection.connections = 2
    pauses = [asyncio.run(scheduler.run()) for _ in range(3)]
    assert connection.looks == [ANY_TIME_SECONDS, RECENT_SECONDS, ANY_TIME_SECONDS, RECENT_SECONDS]
    assert [pause == 0.0 for pause in pauses] == [True, False, False], "at once, when it is seen to be another one"


def test_event_with_a_time_that_python_cannot_hold_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    events, seen = Events(), []
    events.on("schedule_fired", lambda **what: seen.append(what["schedule"]))
    emit_tick_events(
        events,
        """[{"event": "schedule_fired", "schedule": "old", "tenant": "a", "slot": "4000-01-01T00:00:00+00:00 BC"},
            {"event": "schedule_fired", "schedule": "fine", "tenant": "b", "slot": "2026-01-01T00:00:00+00:00"}]""",
    )
    assert seen == ["fine"]
    assert "schedule_fired of schedule old of tenant a is skipped" in caplog.text
