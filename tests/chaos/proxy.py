"""A TCP proxy before PostgreSQL's socket that can be told to misbehave: to cut, to delay, to swallow everything, and
to refuse large requests as PostgreSQL does with those over 1 GB, by closing the connection.

It listens on 127.0.0.1 and runs on a thread of its own. What a client has sent before it gave up is still delivered
when the hole closes, as a kernel would: a statement may reach the server long after its sender has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, Self, TypeVar

R = TypeVar("R")


class Proxy:
    def __init__(self, socket: Path, *, late: bool = True) -> None:
        self._socket, self._late = socket, late
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._connections: set[_Connection] = set()
        self._delay = 0.0
        self.largest_request = math.inf  # bytes; a connection that sends more before it gets an answer is cut
        self.port = 0
        self.accepted = 0  # connections so far

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._ask(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self._open = self._ask(_opened())
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._ask(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    # -- misbehaviour, from any thread

    def cut(self, random: Random | None = None, share: float = 1.0) -> int:
        """Resets connections: all, or each with this chance."""
        chosen = [c for c in list(self._connections) if random is None or random.random() < share]
        for connection in chosen:
            self._call(connection.abort)
        return len(chosen)

    def swallow(self) -> None:
        """From now on nothing comes through, and nobody is told."""
        self._call(self._open.clear)

    def delay(self, seconds: float) -> None:
        self._delay = seconds

    def behave(self) -> None:
        self._delay = 0.0
        self._call(self._open.set)

    # -- on its thread

    def _call(self, function: Callable[..., object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def _ask(self, question: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        self._open.set()
        for connection in list(self._connections):
            connection.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            await self._open.wait()
            there = await asyncio.open_unix_connection(str(self._socket))
            connection.writers.append(there[1])
            to_server = asyncio.create_task(self._pump(reader, there[1], connection.count_sent, late=self._late))
            await self._pump(there[0], writer, connection.count_answered, late=False)
            if not self._late:
                to_server.cancel()
            await asyncio.wait([to_server])
        except OSError:
            pass  # the server is down: so is this connection
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], int], *, late: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if count(len(data)) > self.largest_request:
                    break
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._open.wait()
                if reader.at_eof() and not late:
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                writer.close()


class _Connection:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self._unanswered = 0  # bytes

    def count_sent(self, sent: int) -> int:
        """Returns how much was sent since the last answer."""
        self._unanswered += sent
        return self._unanswered

    def count_answered(self, _: int) -> int:
        self._unanswered = 0
        return 0

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


async def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
