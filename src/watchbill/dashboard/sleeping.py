"""How requests of workers wait for a job: as an idle worker does (`worker/notifications.py`), once per process.

The first request that finds no job opens a connection that listens and takes the wakeup lock, and only then asks for
jobs once more: producers notify only while a sleeper holds the lock. The last one that leaves closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakKeyDictionary

from watchbill.app.runtime import Runtime
from watchbill.worker.notifications import Listener, Wakeups

SHORT_PAUSE_SECONDS = 0.02
POLL_SECONDS = 1.0  # between two questions without a connection that listens
SLEEP_SECONDS = 10.0  # between two questions with one, in case a notification was lost


class Bell(Wakeups):
    """Wakes all that wait, at each notification about jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.ringing = asyncio.Event()

    def handle_note(self, note: str) -> None:
        super().handle_note(note)
        if self.jobs.is_set() or note.startswith(("later", "unpark")):
            self.ring()

    def ring(self) -> None:
        self.jobs.clear()
        self.ringing.set()
        self.ringing = asyncio.Event()


class Sleeper:
    """The sleep of all requests of one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._bell = Bell()
        self._listener: Listener | None = None
        self._sleeping = 0
        self._changing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def sleeping(self) -> AsyncIterator[None]:
        """Inside, this process listens."""
        self._sleeping += 1
        try:
            yield
        finally:
            self._sleeping -= 1
            async with self._changing:
                if not self._sleeping:
                    await self._close()

    async def prepare(self) -> asyncio.Event | None:
        """Call this, then ask for jobs, and give the result to `wait`: so no notification is missed."""
        async with self._changing:
            return self._bell.ringing if await self._listen() else None

    async def wait(self, bell: asyncio.Event | None, seconds: float) -> None:
        """Returns when a job may be ready, or the time is up."""
        if bell is None:
            await asyncio.sleep(min(seconds, SHORT_PAUSE_SECONDS))
            return
        hears = self._listener is not None and self._listener.is_listening
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, SLEEP_SECONDS if hears else POLL_SECONDS)):
                await bell.wait()

    async def _listen(self) -> bool:
        """Returns whether it may sleep. It may not while a producer is about to commit that will not notify."""
        if self._listener is None:
            settings = self._runtime.settings
            self._listener = Listener(
                self._bell,
                settings.listen_url or self._runtime.database_url,
                self._runtime.queries,
                direct=settings.listen_url is not None,
            )
        listener = self._listener
        if not listener.is_listening and not listener.is_unavailable:
            with contextlib.suppress(Exception):  # without it the requests poll
                await listener.open()
        if not listener.is_listening:
            return True
        return await listener.lock_for_sleep() or await listener.has_sleeper()

    async def _close(self) -> None:
        """The end of the session releases the lock. Another sleeping worker may take it, if it is woken."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.announce_awake()
            await listener.close()


class Sleepers:
    """One Sleeper for each event loop."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Sleeper] = WeakKeyDictionary()

    def for_running_loop(self, runtime: Runtime) -> Sleeper:
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = Sleeper(runtime)
        return self._by_loop[loop]
