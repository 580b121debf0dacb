"""When the promoter looks next: as the database says, or sooner, when this process puts a job back itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from watchbill.maintenance.promoter import LEAST_WAIT, LONGEST_WAIT, Promoter


class Line:
    """Answers with these waits, one per look."""

    def __init__(self, *waits: float | None, during: Callable[[], None] = lambda: None) -> None:
        self.waits, self.during = list(waits), during

    async def execute(self, query: str, params: Any) -> list[tuple[float | None]]:
        assert query == "promote"
        self.during()
        return [(self.waits.pop(0),)]


def promoter(line: Line) -> tuple[Promoter, asyncio.Event]:
    woken = asyncio.Event()
    return Promoter(line, woken), woken  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wait", "pause"), [(None, LONGEST_WAIT), (60.0, LONGEST_WAIT), (0.4, 0.4), (0.0001, LEAST_WAIT), (-3.0, 0.0)]
)
def test_it_looks_when_the_next_job_is_due_and_once_a_second(wait: float | None, pause: float) -> None:
    async def story() -> float:
        chore, _ = promoter(Line(wait))
        return await chore.run()

    assert asyncio.run(story()) == pause


def test_what_is_put_back_here_is_looked_at_in_time() -> None:
    async def story() -> None:
        chore, woken = promoter(Line(None, 0.001))
        await chore.run()
        planned = chore.next_look
        chore.expect(3600)
        assert chore.next_look == planned, "there is a look before"
        chore.expect(0.5)
        assert chore.next_look < planned
        chore.expect(0.01)
        await woken.wait()
        assert await chore.run() == LEAST_WAIT

    asyncio.run(story())


def test_what_is_put_back_while_it_looks_is_not_missed() -> None:
    async def story() -> None:
        line = Line(None)
        chore, woken = promoter(line)
        line.during = lambda: chore.expect(0.01)
        assert await chore.run() == LONGEST_WAIT
        await woken.wait()

    asyncio.run(story())


def test_a_look_makes_earlier_expectations_obsolete() -> None:
    async def story() -> None:
        chore, _ = promoter(Line(None, None))
        await chore.run()
        chore.expect(0.5)
        expected = chore.next_look
        await chore.run()
        assert chore.next_look > expected

    asyncio.run(story())
