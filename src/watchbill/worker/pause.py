"""A pause that an event ends before its time."""

from __future__ import annotations

import asyncio
import contextlib


async def pause(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
