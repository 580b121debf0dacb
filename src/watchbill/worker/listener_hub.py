"""One LISTEN connection for all worker processes of a supervisor, since a NOTIFY wakes every listener of a database.

The supervisor listens in a thread of its own and passes each notification on, through one socket per child. It holds
the advisory lock of a sleeping worker (`notifications.py`) as long as one of its children sleeps. The first child names
the database, because only children import the application. A message is a line of JSON. A child sends {"listen":
{...}}, {"do": "lock", "number": 7}, {"do": "has_sleeper", "number": 8} or {"do": "unlock"}; the hub sends {"note":
...}, {"is_listening": ...}, {"is_unavailable": true}, {"is_flooded": true} or {"answer": true, "number": 7}.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

import orjson

from watchbill.store.queries import queries
from watchbill.worker.notifications import ANSWER_TIMEOUT_SECONDS, Listener, Notifications, Wakeups

# If a child has so many bytes to read, the hub drops further messages: the child is awake, and will look for jobs.
UNREAD_LIMIT_BYTES = 2**20
Message = dict[str, Any]


class ListenerHub:
    """Receives notifications in the supervisor and passes them on to all its worker processes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._children: set[asyncio.StreamWriter] = set()
        self._sleepers: set[asyncio.StreamWriter] = set()
        self._lock = asyncio.Lock()  # held during a statement, because a connection runs one statement at a time
        self._listener: _HubListener | None = None
        self._address: Message = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="watchbill listener hub", daemon=True)
        self._thread.start()

    def connect_child(self) -> socket.socket:
        """Opens a socket to a new child process; returns the end that the child inherits."""
        ours, theirs = socket.socketpair()
        self._loop.call_soon_threadsafe(self._create_task, self._serve_child(ours))
        return theirs

    @property
    def has_listener(self) -> bool:
        """Whether a child process has sent the address of the database, so that the hub listens there."""
        return self._listener is not None

    def close(self) -> None:
        """Closes the LISTEN connection and ends the thread of the hub. Does not wait long for a server that is silent,
        because the thread ends with the supervisor anyway."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._close_connection(), self._loop).result(ANSWER_TIMEOUT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_TIMEOUT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def _create_task(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_child(self, end: socket.socket) -> None:
        reader, child = await asyncio.open_connection(sock=end)
        self._children.add(child)
        try:
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    await self._handle_message(child, orjson.loads(line))
        finally:
            self._children.discard(child)
            await self._unlock_unless_others_sleep(child)
            await _close_socket(child)

    async def _handle_message(self, child: asyncio.StreamWriter, message: Message) -> None:
        if "listen" in message:
            await self._listen_at(child, message["listen"])
        elif message["do"] == "unlock":
            await self._unlock_unless_others_sleep(child)
        else:
            answer = await (self._lock_for_sleep(child) if message["do"] == "lock" else self._has_sleeper())
            _send_or_drop(child, {"answer": answer, "number": message["number"]})

    async def _listen_at(self, child: asyncio.StreamWriter, address: Message) -> None:
        """Opens the LISTEN connection to this address, or tells the child that it is open already. The address may
        differ from the one before: a child that was restarted may use another database."""
        async with self._lock:
            if self._listener is None or address != self._address:
                if self._listener is not None:
                    await self._listener.close()
                self._address, self._listener = address, _HubListener(self, **address)
                self._create_task(self._keep_listening(self._listener))
            elif self._listener.is_unavailable:
                _send_or_drop(child, {"is_unavailable": True})
            else:
                _send_or_drop(child, {"is_listening": self._listener.is_listening})

    async def _keep_listening(self, listener: _HubListener) -> None:
        await listener.keep_open(lambda: listener is self._listener)
        if listener.is_unavailable:
            self.send_to_children({"is_unavailable": True})

    async def _lock_for_sleep(self, child: asyncio.StreamWriter) -> bool:
        async with self._lock:
            if self._listener is None or not await self._listener.lock_for_sleep():
                return False
            self._sleepers.add(child)
            return True

    async def _has_sleeper(self) -> bool:
        async with self._lock:
            return self._listener is None or await self._listener.has_sleeper()

    async def _unlock_unless_others_sleep(self, child: asyncio.StreamWriter) -> None:
        """Notes that this child is awake. Releases the wakeup lock if no other child sleeps."""
        async with self._lock:
            self._sleepers.discard(child)
            if not self._sleepers and self._listener is not None:
                await self._listener.unlock()

    def send_to_children(self, message: Message) -> None:
        for child in self._children:
            _send_or_drop(child, message)

    async def _close_connection(self) -> None:
        """Closes the LISTEN connection. The server then releases the wakeup lock, which that connection held."""
        if self._listener is not None:
            await self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _HubListener(Listener):
    """The LISTEN connection of the supervisor, which passes each notification on to the child processes."""

    def __init__(self, hub: ListenerHub, url: str, schema: str, direct: bool) -> None:
        super().__init__(Wakeups(), url, queries(schema), direct=direct)
        self._hub = hub

    def handle_note(self, note: str) -> None:
        self._hub.send_to_children({"note": note})

    def handle_flood(self) -> None:
        super().handle_flood()
        self._hub.send_to_children({"is_flooded": True})

    def handle_opened(self) -> None:
        self._hub.send_to_children({"is_listening": True})

    def handle_lost(self) -> None:
        self._hub.send_to_children({"is_listening": False})


class HubClient(Notifications):
    """Receives notifications in a worker process whose supervisor listens for it."""

    def __init__(self, wakeups: Wakeups, end: socket.socket, url: str, schema: str, *, direct: bool) -> None:
        super().__init__(wakeups)
        self._end, self._address = end, {"url": url, "schema": schema, "direct": direct}
        self._hub: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_listening = False
        self._questions: dict[int, asyncio.Future[bool]] = {}
        self._number = 0

    @property
    def is_listening(self) -> bool:
        return self._is_listening

    async def open(self) -> None:
        """Connects to the hub at the first call. Later calls do nothing: if the LISTEN connection is lost, the hub
        opens it again."""
        if self._hub is None:
            reader, self._hub = await asyncio.open_connection(sock=self._end)
            self._reading = asyncio.create_task(self._read_messages(reader))
            _send_or_drop(self._hub, {"listen": self._address})

    async def _read_messages(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    self._handle_message(orjson.loads(line))
        finally:
            self._set_listening(False)  # no notification will come, because the supervisor has died

    def _handle_message(self, message: Message) -> None:
        if "note" in message:
            self.handle_note(message["note"])
        elif "answer" in message:
            if (question := self._questions.pop(message["number"], None)) is not None and not question.done():
                question.set_result(message["answer"])
        elif "is_unavailable" in message:
            self.is_unavailable = True
        elif "is_flooded" in message:
            self.handle_flood()
        else:
            self._set_listening(message["is_listening"])

    def _set_listening(self, is_listening: bool) -> None:
        self._is_listening = is_listening
        if is_listening:
            self.handle_opened()
        else:
            self.is_locked = False
            self.handle_lost()

    async def lock_for_sleep(self) -> bool:
        self.is_locked = self.is_locked or (self._is_listening and await self._ask_hub("lock") is True)
        return self.is_locked

    async def has_sleeper(self) -> bool:
        return not self._is_listening or await self._ask_hub("has_sleeper") is not False

    async def unlock(self) -> None:
        if self.is_locked and self._hub is not None:
            self.is_locked = False
            _send_or_drop(self._hub, {"do": "unlock"})

    async def _ask_hub(self, what: str) -> bool | None:
        """Returns the hub's answer, or None if the hub does not answer in time."""
        assert self._hub is not None
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        _send_or_drop(self._hub, {"do": what, "number": number})
        try:
            async with asyncio.timeout(2 * ANSWER_TIMEOUT_SECONDS):
                return bool(await answer)
        except TimeoutError:
            return None
        finally:
            self._questions.pop(number, None)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._hub is not None:
            await _close_socket(self._hub)
        else:
            self._end.close()


async def _close_socket(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def _send_or_drop(writer: asyncio.StreamWriter, message: Message) -> None:
    """Sends the message, or drops it if the other process has UNREAD_LIMIT_BYTES of earlier messages still to read."""
    if not writer.is_closing() and writer.transport.get_write_buffer_size() < UNREAD_LIMIT_BYTES:
        writer.write(orjson.dumps(message) + b"\n")
