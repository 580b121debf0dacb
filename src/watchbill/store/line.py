"""A node's connection: it reopens itself, speaks in named queries, and tells those errors apart that a node acts on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from watchbill.errors import WatchbillError, NoDatabase
from watchbill.postgres.connect import SESSION_DEFAULTS, AsyncConnection
from watchbill.store.deadline import deadline
from watchbill.store.queries import Queries


class Disconnected(WatchbillError):
    """The statement may or may not have been carried out; the connection is gone. `by_statement`: the server was there,
    and refused this one for want of a resource, say, which it might do again."""

    by_statement = False


class NodeLost(WatchbillError):
    """This node's epoch is not alive any more."""


class NameTaken(WatchbillError):
    """Another living node has this name."""


class NodeDraining(WatchbillError):
    """An operator asked this node to drain."""


class Refused(WatchbillError):
    """The server refused this statement; `by_data`: because of a value in it, so that it would refuse it again."""

    by_data = False


class Busy(Refused):
    """An open transaction kept locked what this statement needs; nothing was done."""


_OURS: dict[str, type[WatchbillError]] = {"WB001": NodeLost, "WB002": NameTaken, "WB006": NodeDraining}
# Classes: data exceptions and violations, limits, what a trigger raises; and our own.
_OF_DATA = ("21", "22", "23", "27", "44", "54", "P0", "WB003")
_OF_LOCKS = "55P03"
_OF_THE_CONNECTION = ("08", "57P")
_OF_A_STANDBY = "25006"  # read-only: the primary is elsewhere by now, so look for it again


# Our own statements lock for milliseconds; whoever keeps something locked for longer has left a transaction open.
_PATIENT_WITH_LOCKS = SESSION_DEFAULTS | {"lock_timeout": "2s"}


class Line:
    """One connection, opened at first use and again after each failure."""

    def __init__(self, url: str, queries: Queries, *, purpose: str, patience: float, prepare: bool = True) -> None:
        self._url, self._queries, self._purpose = url, queries, purpose
        self._patience, self._prepare = patience, prepare
        self._connection: AsyncConnection | None = None
        self._failures = 0
        self._turn = asyncio.Lock()  # one statement at a time, and one opener
        self.connections = 0  # opened so far: two equal readings mean that it was connected all the time between

    async def execute(self, query: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        try:
            async with self._turn:
                return await self._execute(query, params)
        except (psycopg.Error, TimeoutError, OSError, NoDatabase) as error:
            told = _told(error)
            if isinstance(told, Disconnected):
                await self.close()
            raise_if_canceled()
            if isinstance(told, Disconnected | Refused | NameTaken):
                self._failures += 1
            raise told from error

    async def _execute(self, query: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            async with asyncio.timeout(self._patience):
                self._connection = await self._open()
            self.connections += 1
        with deadline(self._connection, self._patience):
            cursor = self._connection.cursor(binary=True)
            await cursor.execute(self._queries[query].encode(), params, prepare=self._prepare)
            rows = await cursor.fetchall()
        self._failures = 0
        return rows

    async def _open(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(
            self._url, session=_PATIENT_WITH_LOCKS, autocommit=True, application_name=f"watchbill {self._purpose}"
        )
        if not self._prepare:
            connection.prepare_threshold = None
        for raw in ("uuid", "jsonb"):
            connection.adapters.register_loader(raw, ByteaBinaryLoader)
        connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
        return connection

    def pause(self) -> float:
        """Seconds before the next try: more after each failure, never in step with the other nodes."""
        return random.uniform(0.5, 1) * min(5.0, 0.05 * 2.0 ** min(self._failures, 10))  # noqa: S311

    async def recover(self) -> None:
        await asyncio.sleep(self.pause())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def raise_if_canceled() -> None:
    """A connection that breaks while psycopg carries out a cancellation raises that instead; who was canceled must hear
    of it, or would go on."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _told(error: BaseException) -> WatchbillError:
    """Our own codes first: psycopg takes them for operational errors, by their first letter."""
    code = getattr(error, "sqlstate", None) or ""
    if code in _OURS:
        return _OURS[code](_first_line(error))
    if code.startswith(_OF_DATA):
        refused = Refused(_first_line(error))
        refused.by_data = True
        return refused
    if code.startswith("FO"):
        return Refused(_first_line(error))
    if code == _OF_LOCKS:
        return Busy(_first_line(error))
    if isinstance(error, psycopg.OperationalError) or not isinstance(error, psycopg.DatabaseError):
        lost = Disconnected(_first_line(error))
        lost.by_statement = bool(code) and not code.startswith(_OF_THE_CONNECTION)
        return lost
    return Disconnected(_first_line(error)) if code == _OF_A_STANDBY else Refused(_first_line(error))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
