"""What an idle worker hears, and what its sleep needs, whoever listens: itself, or a supervisor for several."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from watchbill.worker.pause import pause

logger = logging.getLogger("watchbill.worker")

RETRY = 1.0


class Bell(ABC):
    """Each note says what it rings for; `store/sql/030_wake.sql` lists them."""

    def __init__(self) -> None:
        self.deaf = False  # for good
        self.holding = False  # we are the porter
        self._rung = asyncio.Event()
        self.on_stop_request: Callable[[str], None] = lambda job_id: None
        self.on_later: Callable[[], None] = lambda: None
        self.on_unblock: Callable[[], None] = lambda: None
        self.on_schedules: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def listening(self) -> bool: ...

    @abstractmethod
    async def open(self) -> None:
        """Listens, or says why it cannot; may be called again after the connection was lost."""

    async def keep_open(self, while_: Callable[[], bool] = lambda: True) -> None:
        """Opens it again whenever it is not; meanwhile everybody polls."""
        while not self.deaf and while_():
            if not self.listening:
                try:
                    await self.open()
                except Exception as error:  # noqa: BLE001  (polling goes on, and so does trying)
                    logger.warning("No doorbell: %s", str(error).strip() or type(error).__name__)
            await asyncio.sleep(RETRY)

    @abstractmethod
    async def hold(self) -> bool:
        """Becomes the porter, if nobody is."""

    @abstractmethod
    async def has_porter(self) -> bool:
        """Whether somebody who sleeps keeps us from holding it, and not just producers who are about to commit."""

    @abstractmethod
    async def let_go(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    def ring(self) -> None:
        """From inside: something changed, look again."""
        self._rung.set()

    def opened(self) -> None:
        """What was enqueued before we listened rang for nobody."""
        self.ring()
        self.on_schedules()

    def lost(self) -> None:
        """Nobody will ring any more: whoever sleeps must look for himself."""
        self.ring()

    def hear(self, note: str) -> None:
        word, _, what = note.partition(" ")
        if word == "stop":
            self.on_stop_request(what)
        elif word == "schedules":
            self.on_schedules()
        elif word == "later":
            self.on_later()
        elif word == "unblock":
            self.on_unblock()
        elif word == "beat":
            self.on_beat()
        else:
            self._rung.set()
            if not what:  # many, or put back: perhaps for later
                self.on_later()

    async def wait(self, seconds: float) -> bool:
        """Until it rings or the time is up; whether it rang."""
        await pause(self._rung, seconds)
        rang = self._rung.is_set()
        self._rung.clear()
        return rang
