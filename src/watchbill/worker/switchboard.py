"""One listening connection for all the children of a supervisor: every listener of a database is woken by every NOTIFY.

The supervisor listens in a thread of its own and passes each note on, down a socket per child; it is the porter as long
as one of its children sleeps. Which database that is, the first child tells: only children read the application.
A message is a line of JSON: {"listen": {...}}, {"do": "hold", "as": 7}, {"do": "let_go"} from a child;
{"note": ...}, {"listening": ...}, {"deaf": true}, {"answer": true, "to": 7} to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

import orjson

from watchbill.store.queries import queries
from watchbill.worker.bell import Bell
from watchbill.worker.doorbell import PATIENCE, Doorbell

MOST_UNREAD = 2**20  # bytes that a child leaves lying; it has been rung for long ago, and a note is only a hint
Message = dict[str, Any]


class Switchboard:
    """The supervisor's side."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._children: set[asyncio.StreamWriter] = set()
        self._sleepers: set[asyncio.StreamWriter] = set()
        self._turn = asyncio.Lock()  # one question at a time on the one connection
        self._bell: _Relay | None = None
        self._address: Message = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="watchbill switchboard", daemon=True)
        self._thread.start()

    def plug(self) -> socket.socket:
        """The end that a new child is to inherit."""
        ours, theirs = socket.socketpair()
        self._loop.call_soon_threadsafe(self._start, self._serve(ours))
        return theirs

    @property
    def called(self) -> bool:
        """Whether a child has come so far as to listen."""
        return self._bell is not None

    def close(self) -> None:
        """A server that does not answer must not change how the supervisor ends: the thread dies with it."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, plug: socket.socket) -> None:
        reader, child = await asyncio.open_connection(sock=plug)
        self._children.add(child)
        try:
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    await self._obey(child, orjson.loads(line))
        finally:
            self._children.discard(child)
            await self._let_go(child)
            await _close(child)

    async def _obey(self, child: asyncio.StreamWriter, message: Message) -> None:
        if "listen" in message:
            await self._listen(child, message["listen"])
        elif message["do"] == "let_go":
            await self._let_go(child)
        else:
            answer = await (self._hold(child) if message["do"] == "hold" else self._has_porter())
            _say(child, {"answer": answer, "to": message["as"]})

    async def _listen(self, child: asyncio.StreamWriter, address: Message) -> None:
        """A child started anew may have been told of another database."""
        async with self._turn:
            if self._bell is None or address != self._address:
                if self._bell is not None:
                    await self._bell.close()
                self._address, self._bell = address, _Relay(self, **address)
                self._start(self._keep_open(self._bell))
            elif self._bell.deaf:
                _say(child, {"deaf": True})
            else:
                _say(child, {"listening": self._bell.listening})

    async def _keep_open(self, bell: _Relay) -> None:
        await bell.keep_open(while_=lambda: bell is self._bell)
        if bell.deaf:
            self.tell({"deaf": True})

    async def _hold(self, child: asyncio.StreamWriter) -> bool:
        async with self._turn:
            if self._bell is None or not await self._bell.hold():
                return False
            self._sleepers.add(child)
            return True

    async def _has_porter(self) -> bool:
        async with self._turn:
            return self._bell is None or await self._bell.has_porter()

    async def _let_go(self, child: asyncio.StreamWriter) -> None:
        async with self._turn:
            self._sleepers.discard(child)
            if not self._sleepers and self._bell is not None:
                await self._bell.let_go()

    def tell(self, message: Message) -> None:
        for child in self._children:
            _say(child, message)

    async def _hang_up(self) -> None:
        """The connection first: nobody asks it anything any more, and its lock goes with it."""
        if self._bell is not None:
            await self._bell.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Relay(Doorbell):
    """Passes on whatever it hears."""

    def __init__(self, switchboard: Switchboard, url: str, schema: str, direct: bool) -> None:
        super().__init__(url, queries(schema), direct=direct)
        self._switchboard = switchboard

    def hear(self, note: str) -> None:
        self._switchboard.tell({"note": note})

    def opened(self) -> None:
        self._switchboard.tell({"listening": True})

    def lost(self) -> None:
        self._switchboard.tell({"listening": False})


class SharedBell(Bell):
    """A child's side: the bell that its supervisor hears for it."""

    def __init__(self, plug: socket.socket, url: str, schema: str, *, direct: bool) -> None:
        super().__init__()
        self._plug, self._address = plug, {"url": url, "schema": schema, "direct": direct}
        self._supervisor: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._listening = False
        self._asked: dict[int, asyncio.Future[bool]] = {}
        self._number = 0

    @property
    def listening(self) -> bool:
        return self._listening

    async def open(self) -> None:
        """Once; the supervisor itself connects again after a loss."""
        if self._supervisor is None:
            reader, self._supervisor = await asyncio.open_connection(sock=self._plug)
            self._reading = asyncio.create_task(self._read(reader))
            _say(self._supervisor, {"listen": self._address})

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    self._take(orjson.loads(line))
        finally:
            self._become(listening=False)  # the supervisor has died, and we shall soon hear of it

    def _take(self, message: Message) -> None:
        if "note" in message:
            self.hear(message["note"])
        elif "answer" in message:
            if (asked := self._asked.pop(message["to"], None)) is not None and not asked.done():
                asked.set_result(message["answer"])
        elif "deaf" in message:
            self.deaf = True
        else:
            self._become(listening=message["listening"])

    def _become(self, *, listening: bool) -> None:
        self._listening = listening
        if listening:
            self.opened()
        else:
            self.holding = False
            self.lost()

    async def hold(self) -> bool:
        self.holding = self.holding or (self._listening and await self._ask("hold") is True)
        return self.holding

    async def has_porter(self) -> bool:
        return not self._listening or await self._ask("has_porter") is not False

    async def let_go(self) -> None:
        if self.holding and self._supervisor is not None:
            self.holding = False
            _say(self._supervisor, {"do": "let_go"})

    async def _ask(self, what: str) -> bool | None:
        """None: no answer, as from a connection that was lost."""
        assert self._supervisor is not None
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        _say(self._supervisor, {"do": what, "as": number})
        try:
            async with asyncio.timeout(2 * PATIENCE):
                return bool(await answer)
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._supervisor is not None:
            await _close(self._supervisor)
        else:
            self._plug.close()


async def _close(plug: asyncio.StreamWriter) -> None:
    plug.close()
    with contextlib.suppress(ConnectionError):
        await plug.wait_closed()


def _say(whom: asyncio.StreamWriter, message: Message) -> None:
    if not whom.is_closing() and whom.transport.get_write_buffer_size() < MOST_UNREAD:
        whom.write(orjson.dumps(message) + b"\n")
