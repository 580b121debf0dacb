"""Runs `def` handlers in threads. Ends are collected and brought to the loop together, however many there are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from watchbill.worker.handlers import NotStarted
from watchbill.worker.run import Run
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

Report = Callable[[Run, Any, BaseException | None], None]


class Threads:
    """A thread cannot be stopped: one that was told to keeps its slot until it returns (`current_job().canceled`)."""

    def __init__(self, most: int, report: Report, transactions: Transactions) -> None:
        self._most, self._report, self._transactions = most, report, transactions
        self._loop = asyncio.get_running_loop()
        self._todo: SimpleQueue[Run | None] = SimpleQueue()
        self._ended: deque[tuple[Run, Any, BaseException | None]] = deque()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._called = False

    def submit(self, run: Run) -> None:
        self._under_way += 1
        if self._under_way > len(self._threads) and len(self._threads) < self._most:
            self._add_thread()
        if self._threads:
            self._todo.put(run)
        else:
            self._ended.append((run, None, NotStarted("this process can start no thread")))
            self._loop.call_soon(self._bring)

    def _add_thread(self) -> None:
        """Where the system has no more of them, those that are there do all the work."""
        thread = threading.Thread(target=self._work, name=f"watchbill-handler-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("Handlers have %d threads, and there can be no more: %s", len(self._threads), error)
        else:
            self._threads.append(thread)

    def stop(self, run: Run) -> None:
        """Nothing to do: the handler sees `current_job().canceled`, and the fence refuses what it does too late."""

    def close(self) -> None:
        for _ in self._threads:
            self._todo.put(None)

    def _work(self) -> None:
        while (run := self._todo.get()) is not None:
            value, error = None, None
            try:
                value = self._call(run)
            except BaseException as raised:  # noqa: BLE001  (SystemExit and its like end the attempt, never the worker)
                error = raised
            self._ended.append((run, value, error))
            if not self._called:
                self._called = True
                with contextlib.suppress(RuntimeError):  # the loop has ended without waiting for us
                    self._loop.call_soon_threadsafe(self._bring)

    def _call(self, run: Run) -> Any:
        assert run.context is not None
        if run.handler.transactional:
            return run.context.run(self._transactions.run, run)
        return run.context.run(run.handler.function, **run.arguments)

    def _bring(self) -> None:
        self._called = False
        while self._ended:
            self._under_way -= 1
            self._report(*self._ended.popleft())
