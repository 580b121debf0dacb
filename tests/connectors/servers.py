"""Servers for tests, on loopback only: one that answers HTTP as a test wants, and a name server that may lie."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext

Respond = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: tuple[str, int]


@dataclass
class LocalServer:
    """What a server has seen."""

    port: int = 0
    connections: int = 0  # so far
    open_now: int = 0
    requests: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


def answer(status: int = 200, body: bytes = b"reached", **headers: str) -> bytes:
    """The bytes of an answer. A header `Content_Type` becomes `Content-Type`."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


async def reply(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(answer())


@asynccontextmanager
async def serve(
    respond: Respond = reply, *, host: str = "127.0.0.1", tls: SSLContext | None = None
) -> AsyncIterator[LocalServer]:
    """Serves HTTP/1.1 on a free port. `respond` writes whatever it likes."""
    server = LocalServer()
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.open_now += 1
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            while (received := await _read_request(reader, writer)) is not None:
                server.requests.append(received)
                server.arrived.set()
                await respond(received, writer)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            handlers.discard(task)
            server.open_now -= 1
            writer.close()

    listener = await asyncio.start_server(handle, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines):
        headers[name.lower()] = ", ".join([*filter(None, [headers.get(name.lower())]), value.strip()])
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, writer.get_extra_info("peername")[:2])


class NameServer:
    """A DNS server on loopback. Each name has a list of answers: one per question of a kind, the last one again and
    again. An answer is a list of addresses."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.questions: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(4096)
            if not question:  # the end of the test
                return
            self._socket.sendto(self._answer(question), asker)

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, kind = ".".join(labels), int.from_bytes(question[at + 1 : at + 3], "big")
        if kind == 1:
            self.questions.append(name)
        known = self.answers.get(name, [])
        asked = self.questions.count(name)
        addresses = known[min(asked, len(known)) - 1] if known else []
        found = [ip_address(each).packed for each in addresses if ip_address(each).version == {1: 4, 28: 6}[kind]]
        head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0) + question[12 : at + 5]
        return head + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(packed)) + packed for packed in found)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Asks this server over UDP for both kinds of addresses, as the machine's resolver asks its own."""
        return await asyncio.to_thread(self._ask, host)

    def _ask(self, host: str) -> list[str]:
        found: list[str] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(10)
            asking.connect(("127.0.0.1", self.port))
            for kind in (1, 28):
                name = b"".join(bytes([len(each)]) + each.encode() for each in host.split("."))
                asking.send(b"wb\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + name + b"\0" + struct.pack(">HH", kind, 1))
                found += _read_addresses(asking.recv(4096), len(name) + 17)
        if not found:
            raise OSError(f"no such name: {host}")
        return found


def _read_addresses(reply: bytes, at: int) -> Iterator[str]:
    for _ in range(int.from_bytes(reply[6:8], "big")):
        length = int.from_bytes(reply[at + 10 : at + 12], "big")
        yield str(ip_address(reply[at + 12 : at + 12 + length]))
        at += 12 + length


@contextmanager
def name_server(**answers: list[list[str]]) -> Iterator[NameServer]:
    server = NameServer()
    server.answers = answers
    server._thread.start()
    try:
        yield server
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waking:
            waking.sendto(b"", ("127.0.0.1", server.port))
        server._thread.join(10)
        server._socket.close()
