"""An App whose leader writes its term into a table of history, again and again."""

from __future__ import annotations

import asyncio
import os

from watchbill import App, Leadership, LockLost
from watchbill.postgres.connect import AsyncConnection

app = App(name="leaders")
WRITE = "INSERT INTO history (number, pid) VALUES (%s, %s)"


@app.leader_task(group="production")
async def lead(leadership: Leadership) -> None:
    # A frozen transaction that has checked its term keeps the next leader out, so the server must end it.
    given_up = "-c idle_in_transaction_session_timeout=3s"
    async with await AsyncConnection.connect(app.database_url, autocommit=True, options=given_up) as connection:
        while True:
            try:
                async with connection.transaction():
                    await leadership.acheck(connection)
                    await connection.execute(WRITE, (leadership.term, os.getpid()))
            except LockLost:
                return
            await asyncio.sleep(0.005)
