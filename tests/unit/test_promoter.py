"""When the promoter looks next: as the database says, or sooner, when this process puts a job back itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from watchbill.maintenance.promoter import LEAST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, DueEvent, Promoter
from watchbill.store.queries import queries
from watchbill.worker.notifications import Listener, Wakeups

SERVER_TIME = 1_800_000_000.0


class FakeConnection:
    """Answers with these waits, one per look, and always with the same time of the server."""

    def __init__(self, *waits: float | None, during: Callable[[], None] = lambda: None) -> None:
        self.waits, self.during = list(waits), during

    async def execute(self, query: str, params: Any) -> list[tuple[float | None, float]]:
        assert query == "promote"
        self.during()
        return [(self.waits.pop(0), SERVER_TIME)]


def promoter(connection: FakeConnection, **options: Any) -> tuple[Promoter, DueEvent]:
    woken = DueEvent()
    return Promoter(connection, woken, **options), woken  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wait", "pause"),
    [(None, LONGEST_WAIT_SECONDS), (1e6, LONGEST_WAIT_SECONDS), (0.4, 0.4), (0.0001, LEAST_WAIT_SECONDS), (-3.0, 0.0)],
)
def test_promoter_sleeps_until_the_next_job_is_due(wait: float | None, pause: float) -> None:
    async def story() -> float:
        chore, _ = promoter(FakeConnection(wait))
        return await chore.run()

    assert asyncio.run(story()) == pause


@pytest.mark.parametrize(("wait", "pause"), [(None, 5.0), (60.0, 5.0), (0.4, 0.4)])
def test_promoter_polls_while_no_notification_can_arrive(wait: float | None, pause: float) -> None:
    async def story() -> float:
        chore, _ = promoter(FakeConnection(wait), is_listening=lambda: False, poll_seconds=5.0)
        return await chore.run()

    assert asyncio.run(story()) == pause


@pytest.mark.parametrize(
    ("due", "is_woken"),
    [(f"{SERVER_TIME + 39}", True), (f"{SERVER_TIME + 41}", False), ("soon", True), ("", True), ("nan", True)],
)
def test_a_notification_wakes_the_promoter_only_before_its_next_look(due: str, is_woken: bool) -> None:
    async def story() -> bool:
        chore, woken = promoter(FakeConnection(40.0))
        await chore.run()
        woken.note_due(due)
        return woken.is_set()

    assert asyncio.run(story()) is is_woken


def test_promoter_does_not_miss_a_notification_during_its_run() -> None:
    async def story() -> bool:
        connection = FakeConnection(None)
        chore, woken = promoter(connection)
        connection.during = lambda: woken.note_due(f"{SERVER_TIME + 60}")
        await chore.run()
        return woken.is_set()

    assert asyncio.run(story())


def test_promoter_wakes_for_a_job_delayed_by_this_process() -> None:
    async def story() -> None:
        chore, woken = promoter(FakeConnection(None, 0.001))
        await chore.run()
        planned = chore.next_look
        chore.expect_due_job(3600)
        assert chore.next_look == planned, "there is a look before"
        chore.expect_due_job(0.5)
        assert chore.next_look < planned
        chore.expect_due_job(0.01)
        await woken.wait()
        assert await chore.run() == LEAST_WAIT_SECONDS

    asyncio.run(story())


def test_promoter_does_not_miss_a_job_delayed_during_its_run() -> None:
    async def story() -> None:
        connection = FakeConnection(None)
        chore, woken = promoter(connection)
        connection.during = lambda: chore.expect_due_job(0.01)
        assert await chore.run() == LONGEST_WAIT_SECONDS
        await woken.wait()

    asyncio.run(story())


def test_promoter_run_clears_earlier_expectations() -> None:
    async def story() -> None:
        chore, _ = promoter(FakeConnection(None, None))
        await chore.run()
        chore.expect_due_job(0.5)
        expected = chore.next_look
        await chore.run()
        assert chore.next_look > expected

    asyncio.run(story())


def test_a_freed_key_wakes_the_promoter_without_naming_the_key() -> None:
    wakeups = Wakeups()
    Listener(wakeups, "", queries("watchbill"))._handle_notes(["unpark", "ready sync", "unpark"], 1)
    assert wakeups.delayed.is_set()
