"""A small pooler that behaves like PgBouncer where it matters: transaction or session mode, no startup options,
invented process numbers, prepared statements left in the shared sessions.

    with run_pooler(server) as pooler:
        psycopg.connect(pooler.url("test_1"))

The PostgreSQL protocol, as far as it is needed: a message is a type byte, a length and a body; `Z` (ready for query)
carries the state of the transaction, and `I` (idle) is when a session goes back to the pool.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_ENCRYPTION_REQUESTS = {80877103, 80877104}
_CANCEL_REQUEST = 80877102
_ENDS_WITH_READY = {b"Q", b"S", b"F"}


class Reached(Protocol):
    """A server, as far as one comes to it."""

    @property
    def socket_directory(self) -> str: ...


@dataclass
class Message:
    """`kind` is empty for the first message of a client, which has no type byte."""

    kind: bytes
    body: bytes

    def encode(self) -> bytes:
        return self.kind + struct.pack("!i", len(self.body) + 4) + self.body


@dataclass
class Peer:
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self, *, typed: bool = True) -> Message:
        kind = await self.reader.readexactly(1) if typed else b""
        (length,) = struct.unpack("!i", await self.reader.readexactly(4))
        return Message(kind, await self.reader.readexactly(length - 4))

    async def write(self, *messages: Message) -> None:
        self.writer.write(b"".join(message.encode() for message in messages))
        await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Pooler:
    """`told_version` replaces the server's version in what clients are told."""

    server: Reached
    shares: bool = True
    takes_options: bool = False
    told_version: str | None = None
    port: int = 0
    _idle: dict[bytes, list[Peer]] = field(default_factory=lambda: defaultdict(list))
    _greetings: dict[bytes, list[Message]] = field(default_factory=dict)
    _peers: list[Peer] = field(default_factory=list)

    def url(self, database: str, role: str = "postgres") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    async def serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        client = self._peer(client_reader, client_writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            startup = await self._greet(client)
            if startup is not None:
                await self._relay(client, startup)
        await client.close()

    def _peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer:
        self._peers.append(Peer(reader, writer))
        return self._peers[-1]

    async def shut(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for peer in self._peers:
            with suppress(asyncio.CancelledError):  # of the task that was closing it
                await peer.close()

    async def _greet(self, client: Peer) -> bytes | None:
        """Returns the startup parameters, which name user and database: sessions are shared among equal ones."""
        first = await client.read(typed=False)
        while struct.unpack("!i", first.body[:4])[0] in _ENCRYPTION_REQUESTS:
            client.writer.write(b"N")
            first = await client.read(typed=False)
        if struct.unpack("!i", first.body[:4])[0] == _CANCEL_REQUEST:
            return None
        words = first.body[4:].rstrip(b"\0").split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=True))
        if b"options" in given and not self.takes_options:
            error = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
            await client.write(Message(b"E", error))
            return None
        startup = b"user\0" + given[b"user"] + b"\0database\0" + given.get(b"database", given[b"user"]) + b"\0\0"
        self._idle[startup].append(await self._take(startup))
        invented = Message(b"K", struct.pack("!ii", len(self._peers), 4711))
        await client.write(*self._greetings[startup], invented, Message(b"Z", b"I"))
        return startup

    async def _take(self, startup: bytes) -> Peer:
        if self._idle[startup]:
            return self._idle[startup].pop()
        path = str(Path(self.server.socket_directory) / ".s.PGSQL.5432")
        session = self._peer(*await asyncio.open_unix_connection(path))
        await session.write(Message(b"", struct.pack("!i", 196608) + startup))
        greeting = []
        while (message := await session.read()).kind != b"Z":
            if message.kind == b"E":
                raise ConnectionError(message.body)
            if message.kind in (b"R", b"S"):
                greeting.append(self._told(message))
        self._greetings[startup] = greeting
        return session

    def _told(self, message: Message) -> Message:
        if self.told_version and message.body.startswith(b"server_version\0"):
            return Message(b"S", b"server_version\0" + self.told_version.encode() + b"\0")
        return message

    async def _relay(self, client: Peer, startup: bytes) -> None:
        """Takes a session for each transaction, and gives it back when the server says that it is idle."""
        session: Peer | None = None
        try:
            while (message := await client.read()).kind != b"X":
                session = session or await self._take(startup)
                await session.write(message)
                if message.kind in _ENDS_WITH_READY and await self._answer(client, session) and self.shares:
                    self._idle[startup].append(session)
                    session = None
        finally:
            if session is not None:
                await session.close()

    async def _answer(self, client: Peer, session: Peer) -> bool:
        while True:
            message = await session.read()
            await client.write(message)
            if message.kind == b"Z":
                return message.body == b"I"


@contextmanager
def run_pooler(server: Reached, **behaviour: object) -> Iterator[Pooler]:
    """Runs one in a thread with an event loop of its own."""
    pooler = Pooler(server, **behaviour)  # type: ignore[arg-type]
    loop = asyncio.new_event_loop()
    listener = loop.run_until_complete(asyncio.start_server(pooler.serve, "127.0.0.1", 0))
    pooler.port = listener.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield pooler
    finally:
        loop.call_soon_threadsafe(listener.close)
        asyncio.run_coroutine_threadsafe(pooler.shut(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
