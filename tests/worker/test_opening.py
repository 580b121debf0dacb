"""Connections for asyncio that are given up while they are being opened."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from watchbill.postgres.connect import AsyncConnection


def test_a_connection_whose_opening_is_canceled_is_closed(
    schema_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg sometimes lets other tasks run in set_isolation_level(), when there is a connection already."""

    async def cancel_while_opening() -> AsyncConnection:
        opened: asyncio.Future[AsyncConnection] = asyncio.get_running_loop().create_future()

        async def wait_for_ever(connection: Any, level: object) -> None:
            opened.set_result(connection)
            await asyncio.Event().wait()

        monkeypatch.setattr(psycopg.AsyncConnection, "set_isolation_level", wait_for_ever)
        opening = asyncio.create_task(AsyncConnection.connect(schema_database))
        connection = await opened
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return connection

    assert asyncio.run(cancel_while_opening()).closed
