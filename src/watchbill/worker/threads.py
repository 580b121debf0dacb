"""Runs `def` handlers in threads. Runs that end at about the same time reach the event loop in one call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from watchbill.worker.attempt import attempt, fail
from watchbill.worker.handlers import NotStarted
from watchbill.worker.run import Run
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.transactions import Transactions

logger = logging.getLogger("watchbill.worker")

Finish = Callable[[Run], None]


class Threads:
    """At most `size` threads that run handlers. Python cannot stop a thread, so a handler keeps its handler slot until
    it returns."""

    def __init__(self, size: int, finish: Finish, transactions: Transactions, steps: StepRunner) -> None:
        self._size, self._finish, self._transactions, self._steps = size, finish, transactions, steps
        self._loop = asyncio.get_running_loop()
        self._todo: SimpleQueue[Run | None] = SimpleQueue()
        self._ended: deque[Run] = deque()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._is_loop_called = False

    def submit(self, run: Run) -> None:
        self._under_way += 1
        if self._under_way > len(self._threads) and len(self._threads) < self._size:
            self._add_thread()
        if self._threads:
            self._todo.put(run)
        else:
            fail(run, NotStarted("this process cannot start a thread"))
            self._ended.append(run)
            self._loop.call_soon(self._finish_ended_runs)

    def _add_thread(self) -> None:
        thread = threading.Thread(
            target=self._run_handlers, name=f"watchbill-handler-{len(self._threads)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            logger.warning("Could not start another thread; handlers run in %d threads: %s", len(self._threads), error)
        else:
            self._threads.append(thread)

    def stop(self, run: Run) -> None:
        """Does nothing, because Python cannot stop a thread. The handler can read `current_job().canceled`, and the
        database refuses a late result because of its fence."""

    def stop_member(self, run: Run, place: int) -> None:
        """Does nothing, because Python cannot stop a thread. The handler can read `canceled` of each job in
        `current_job().batch`."""

    def close(self) -> None:
        for _ in self._threads:
            self._todo.put(None)

    def _run_handlers(self) -> None:
        while (run := self._todo.get()) is not None:
            assert run.context is not None
            run.context.run(attempt, run, self._transactions, self._steps)
            self._ended.append(run)
            if not self._is_loop_called:
                self._is_loop_called = True
                with contextlib.suppress(RuntimeError):  # raised if the event loop was closed while the handler ran
                    self._loop.call_soon_threadsafe(self._finish_ended_runs)

    def _finish_ended_runs(self) -> None:
        self._is_loop_called = False
        while self._ended:
            self._under_way -= 1
            self._finish(self._ended.popleft())
