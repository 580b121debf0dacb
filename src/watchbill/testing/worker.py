"""The worker of a drain: without a bell, on connections from the stock, with a book of what it ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any

from watchbill.store.line import Line
from watchbill.store.queries import queries
from watchbill.telemetry.events import Events
from watchbill.testing.connections import Stock, StockedLine
from watchbill.testing.runs import Book
from watchbill.worker.claimer import Claimer
from watchbill.worker.doorbell import Doorbell
from watchbill.worker.endings import Settled
from watchbill.worker.handlers import Handler, Handlers
from watchbill.worker.plan import Plan
from watchbill.worker.run import Claimed, Run
from watchbill.worker.settler import Settler
from watchbill.worker.threads import Report, Threads
from watchbill.worker.transactions import Transactions
from watchbill.worker.worker import Worker

Calls = SimpleQueue[Callable[[], None] | None]


class DrainWorker(Worker):
    """`calls` takes `def` handlers to the thread that waits for the drain."""

    def __init__(
        self, plan: Plan, handlers: Handlers, events: Events, stock: Stock, book: Book, calls: Calls | None
    ) -> None:
        self._stock, self._book, own = stock, book, queries(plan.schema)
        observed = {name: _observed(handler, book) for name, handler in handlers.items()}
        super().__init__(plan, own, observed, _Heard(events), Doorbell(plan.url, own))
        if calls is not None:
            self._threads = CallersThread(calls, self.engine.ended_elsewhere, self._transactions)
            self.engine.executors["thread"] = self._threads
        self._claimer = OneByOne(self._claims, plan.queues, self.settler, book)
        self._tell = self.settler.on_settled
        self.settler.on_settled = self._note

    async def run(self) -> None:
        try:
            await super().run()
        finally:  # given up: no handler goes on behind the test's back
            self.engine.stop_all("released")

    def _line(self, purpose: str) -> Line:
        plan = self._plan
        return StockedLine(self._stock, plan.url, self._queries, purpose=purpose, patience=30.0, prepare=plan.prepare)

    @property
    def _tick(self) -> float:
        """The loop's sign of life; in a debugger it may well stand still."""
        return time.monotonic()

    @_tick.setter
    def _tick(self, value: float) -> None:
        pass

    def _note(self, succeeded: list[Run], endings: list[Settled]) -> None:
        self._book.settled(succeeded, endings)
        self._tell(succeeded, endings)
        self.doorbell.ring()
        if self._book.full:
            self.drain()


class OneByOne(Claimer):
    """Takes nothing ahead, so that the order is that of the queue, and nothing at all once the book is full."""

    def __init__(self, line: Line, queues: Sequence[str], settler: Settler, book: Book) -> None:
        super().__init__(line, queues)
        self._settler, self._book = settler, book

    async def claim(self, wanted: int, free: int, without: list[str] | None = None) -> list[Claimed]:
        await self._settler.drained()
        if free <= 0 or self._book.full:
            return []
        return await super().claim(min(wanted, free), free, without)


class CallersThread(Threads):
    """Runs handlers in the thread that called drain(), one after the other."""

    def __init__(self, calls: Calls, report: Report, transactions: Transactions) -> None:
        super().__init__(1, report, transactions)
        self._calls = calls

    def submit(self, run: Run) -> None:
        self._under_way += 1
        self._calls.put(partial(self._serve, run))

    def _serve(self, run: Run) -> None:
        self._todo.put(run)
        self._todo.put(None)  # so that it returns
        self._work()


class _Heard(Events):
    """An App's events; of every success we want to know."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def heard(self, name: str) -> bool:
        return name == "job_completed" or self._events.heard(name)

    def tell(self, name: str, /, **what: Any) -> None:
        self._events.tell(name, **what)


def _observed(handler: Handler, book: Book) -> Handler:
    function = handler.function
    if handler.kind == "async":

        @wraps(function)
        async def aobserved(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                book.raised(error)
                raise

        return replace(handler, function=aobserved)

    @wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            book.raised(error)
            raise

    return replace(handler, function=observed, kind="thread")
