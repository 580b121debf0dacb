"""How a caller waits for a lock: how long it pauses between two tries, and how it hears of a release.

A release sends a notification if a caller waits. That is only a hint: what it would announce is also found by trying
again, when the holder's ttl ends or after a pause that grows. Callers get a lock in no particular order.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any, Self

import psycopg
from psycopg import sql

from watchbill.client import lock_operations
from watchbill.client.client import AsyncClientConnection, ClientConnection, arun, run
from watchbill.errors import NoDatabase
from watchbill.model.clock import boot_seconds
from watchbill.model.lock import Try
from watchbill.store.queries import Queries

FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0  # without notifications, and while another transaction has the lock's row locked
LONGEST_LISTEN_SECONDS = 5.0
TRIES_BEFORE_LISTENING = 3  # a connection costs more than a few tries
CONNECT_TIMEOUT_SECONDS = 5.0


class Patience:
    """How long to pause before the next try. `wait` is in seconds; None: for ever."""

    def __init__(self, wait: float | None) -> None:
        self._deadline = None if wait is None else boot_seconds() + wait
        self._tries = 0

    def should_listen(self) -> bool:
        return self._tries > TRIES_BEFORE_LISTENING

    def next_pause(self, missed: Try, *, is_listening: bool) -> float | None:
        """Seconds; None if the time is up."""
        self._tries += 1
        left = LONGEST_LISTEN_SECONDS if self._deadline is None else self._deadline - boot_seconds()
        if left <= 0:
            return None
        if is_listening and missed.expires_in is not None:
            pause = min(missed.expires_in, LONGEST_LISTEN_SECONDS)
        else:
            growing = FIRST_PAUSE_SECONDS * 2 ** min(self._tries, 10) * random.uniform(0.5, 1)  # noqa: S311
            pause = min(growing, LONGEST_PAUSE_SECONDS)
        return max(0.001, min(pause, left))


class ReleaseListener:
    """Hears of releases on a connection of its own, opened at first use. Without it, behind a pooler, `wait` sleeps."""

    def __init__(self, url: str, queries: Queries, *, direct: bool) -> None:
        """`direct`: the address is known to lead to the server itself, not to a pooler."""
        self._url, self._queries, self._direct = url, queries, direct
        self._connection: ClientConnection | None = None
        self._has_tried = False

    @property
    def is_listening(self) -> bool:
        return self._connection is not None

    def open(self) -> bool:
        """Returns True if it has just begun to listen: then try again, for a release before that was not heard."""
        if self._has_tried:
            return False
        self._has_tried = True
        with contextlib.suppress(psycopg.Error, NoDatabase, OSError):
            connection = ClientConnection.connect(self._url, **_OPTIONS)
            if connection.is_pooled and not self._direct:
                connection.close()
                return False
            channel = run(lock_operations.channel(), connection, self._queries)
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._connection = connection
        return self.is_listening

    def wait(self, name: str, seconds: float) -> None:
        """Returns when the lock of this name was released, or the time is up."""
        if self._connection is None:
            time.sleep(seconds)
            return
        try:
            for note in self._connection.notifies(timeout=seconds):
                if note.payload == name:
                    return
        except (psycopg.Error, OSError):
            self.close()
            time.sleep(min(seconds, LONGEST_PAUSE_SECONDS))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncReleaseListener:
    """The same for asyncio."""

    def __init__(self, url: str, queries: Queries, *, direct: bool) -> None:
        self._url, self._queries, self._direct = url, queries, direct
        self._connection: AsyncClientConnection | None = None
        self._has_tried = False

    @property
    def is_listening(self) -> bool:
        return self._connection is not None

    async def open(self) -> bool:
        if self._has_tried:
            return False
        self._has_tried = True
        with contextlib.suppress(psycopg.Error, NoDatabase, OSError):
            connection = await AsyncClientConnection.connect(self._url, **_OPTIONS)
            if connection.is_pooled and not self._direct:
                await connection.close()
                return False
            channel = await arun(lock_operations.channel(), connection, self._queries)
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._connection = connection
        return self.is_listening

    async def wait(self, name: str, seconds: float) -> None:
        if self._connection is None:
            await asyncio.sleep(seconds)
            return
        try:
            async for note in self._connection.notifies(timeout=seconds):
                if note.payload == name:
                    return
        except (psycopg.Error, OSError):
            await self.close()
            await asyncio.sleep(min(seconds, LONGEST_PAUSE_SECONDS))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": None,
    "application_name": "watchbill lock waiter",
    "reply_timeout": CONNECT_TIMEOUT_SECONDS,
}
