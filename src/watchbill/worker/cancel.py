"""The end of tasks that run for as long as a worker does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN = 1.0


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Returns when they have ended. A cancellation may be lost on its way, where something else is raised in its place:
    whoever goes on is told again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
