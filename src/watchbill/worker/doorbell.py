"""The night porter: how an idle worker hears of new jobs at once, and why producers need not ring while nobody sleeps.

Whoever is idle tries to hold the porter's advisory lock on its own listening connection. Producers share that lock
until they commit; the one that cannot get it knows that somebody sleeps, and sends a NOTIFY. So a worker that holds
the lock and then finds nothing has missed nothing: no producer that kept silent is still uncommitted. Those who do
not get the lock because a porter has it sleep as well, hear the same bell, and look for themselves now and then. Those
who do not get it because a producer is about to commit must not sleep: that one will not ring.

A bell is only a hint. Without a direct connection (behind a pooler) there is none, and polling alone is correct.
"""

from __future__ import annotations

import asyncio
import logging

import psycopg

from watchbill.errors import NoDatabase
from watchbill.postgres.connect import AsyncConnection
from watchbill.store.deadline import deadline
from watchbill.store.line import raise_if_canceled
from watchbill.store.queries import Queries
from watchbill.worker.bell import Bell

logger = logging.getLogger("watchbill.worker")

PATIENCE = 5.0  # for an answer; a connection that does not give one is as good as lost
LOCK_CLASS = 1181707369  # "Foli" as four bytes; the second number is the oid of the schema's table jobs


class Doorbell(Bell):
    """A listening connection of one's own."""

    def __init__(self, url: str, queries: Queries, *, direct: bool = False) -> None:
        """`direct`: somebody said that this address leads to the server itself; else a pooler's refusals tell."""
        super().__init__()
        self._url, self._queries, self._direct = url, queries, direct
        self._connection: AsyncConnection | None = None
        self._key = 0
        self._watched: int | None = None  # the descriptor, since a broken connection does not tell it any more

    async def open(self) -> None:
        connection = await AsyncConnection.connect(
            self._url, autocommit=True, prepare_threshold=None, application_name="watchbill listener"
        )
        if connection.is_pooled and not self._direct:
            await connection.close()
            self.deaf = True
            logger.warning("Behind a pooler nothing rings: jobs are looked for now and then, or listen_url is set")
            return
        try:
            with deadline(connection, PATIENCE):
                cursor = await connection.execute(self._queries["doorbell"].encode())
                ((self._key, channel),) = await cursor.fetchall()
                await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
        except BaseException:
            await connection.close()
            raise
        connection.add_notify_handler(lambda notify: self.hear(notify.payload))
        self._connection, self.holding = connection, False
        self._watch()
        self.opened()

    @property
    def listening(self) -> bool:
        return self._connection is not None

    def _watch(self) -> None:
        if self._connection is not None:
            self._watched = self._connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched, self._readable)

    def _unwatch(self) -> None:
        """Before the descriptor is closed: the next connection may get the same number, and would not be heard."""
        descriptor, self._watched = self._watched, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)

    def _readable(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                self.hear(note.extra.decode())
        except psycopg.Error as error:
            self._lose(error)

    def _lose(self, error: BaseException) -> None:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        logger.warning("The listening connection was lost, polling until it is back: %s", why)
        self._unwatch()
        connection, self._connection, self.holding = self._connection, None, False
        if connection is not None:
            connection.pgconn.finish()
        self.lost()

    async def hold(self) -> bool:
        if self._connection is None or self.holding:
            return self.holding
        self.holding = await self._ask("SELECT pg_try_advisory_lock(%s, %s)") is True
        return self.holding

    async def has_porter(self) -> bool:
        return self._connection is None or await self._ask(self._queries["porter"]) is not False

    async def let_go(self) -> None:
        if self._connection is not None and self.holding:
            self.holding = False
            await self._ask("SELECT pg_advisory_unlock(%s, %s)")

    async def _ask(self, query: str) -> object:
        connection = self._connection
        assert connection is not None
        self._unwatch()  # psycopg watches the socket itself while it talks
        try:
            with deadline(connection, PATIENCE):
                row = await (await connection.execute(query.encode(), (LOCK_CLASS, self._key))).fetchone()
        except (psycopg.Error, OSError, NoDatabase) as error:
            self._lose(error)
            raise_if_canceled()
            return None
        self._watch()
        return row[0] if row else None

    async def close(self) -> None:
        self._unwatch()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
