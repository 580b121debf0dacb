"""Runs what is ready, here and now, through the worker's own claim, run and settle.

A retry, or a job with a delay, is ready when the test has moved the clock there. That a moment passes by itself makes
nothing ready, so that no chance (a retry's jitter, a slow machine) decides what a test sees. What handlers enqueue
meanwhile runs too. One job at a time, in the order of the queue, unless told otherwise.

A blocking drain keeps its event loop in a thread of its own, and `def` handlers run in the thread that called: a
debugger works there, and what belongs to the test's thread (Django's connections, a scoped_session) is the same. A
drain on the test's own loop runs `async def` handlers there, and `def` handlers in threads, as a node does. Handlers
with `executor="process"` run as `def` handlers do, so that a monkeypatch reaches them. No handler sees the test's
context variables, since in a worker it would not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NamedTuple

from watchbill.app import staging
from watchbill.app.application import App
from watchbill.client.plans import Plan, Statement
from watchbill.node import capacity_for, plan_for
from watchbill.testing.runs import Book
from watchbill.testing.stage import DatabaseStage
from watchbill.testing.worker import Calls, DrainWorker
from watchbill.worker.own_types import OWN_TYPES, own_handlers
from watchbill.worker.plan import default_name


class Share(NamedTuple):
    """What one App runs: all types that are its own, from the queues in which some of them wait."""

    app: App
    types: set[str]
    queues: set[str]


async def drain(stage: DatabaseStage, book: Book, concurrency: int, calls: Calls | None = None) -> None:
    while not book.full:
        before = len(book.ran)
        for share in _share_out(await stage.aclient.run(_ready())):
            await _work_off(stage, book, share, concurrency, calls)
        if len(book.ran) == before:
            return


async def drain_on_loop(stage: DatabaseStage, book: Book, concurrency: int) -> None:
    await asyncio.get_running_loop().create_task(drain(stage, book, concurrency), context=Context())


def drain_blocking(stage: DatabaseStage, book: Book, concurrency: int) -> None:
    calls: Calls = SimpleQueue()
    here = calls if concurrency == 1 else None  # several at once need several threads
    loop = _LoopThread(lambda: drain(stage, book, concurrency, here), ended=lambda: calls.put(None))
    try:
        loop.start()
        while (call := calls.get()) is not None:
            call()
    except BaseException:  # Ctrl-C, or a time-out of the test, at any point
        loop.cancel()
        raise
    finally:
        with suppress(RuntimeError):  # it was struck before it began
            loop.join()
    if loop.error is not None:
        raise loop.error


class _LoopThread(threading.Thread):
    """An event loop for one coroutine, beside the thread that waits for it. It begins with an empty context."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[], None]) -> None:
        super().__init__(name="watchbill-drain", daemon=True)
        self._make, self._ended = make, ended
        self._task: asyncio.Task[None] | None = None
        self._canceled = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            Context().run(asyncio.run, self._run())
        except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
            self.error = error
        finally:
            self._ended()

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        if not self._canceled:
            await self._make()

    def cancel(self) -> None:
        self._canceled = True
        if self._task is not None:
            with suppress(RuntimeError):  # its loop has ended meanwhile
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _ready() -> Plan[list[tuple[Any, ...]]]:
    """(type, version, queue) of all that could be claimed."""
    while (yield Statement("unblock_any", (1e9,))):  # jobs that waited for what had ended before they were enqueued
        pass
    return (yield Statement("ready"))


def _share_out(ready: list[tuple[Any, ...]]) -> list[Share]:
    """Of two Apps that know a type, the one made last: the other may be left over from an earlier test."""
    apps = staging.apps()
    known = {name: (app, task.version) for app in apps for name, task in app.tasks.items()}
    if apps:
        known |= dict.fromkeys(OWN_TYPES, (apps[-1], 1))
    queues: dict[App, set[str]] = {}
    for name, version, queue in ready:
        app, newest = known.get(name, (None, 0))
        if app is not None and version <= newest:
            queues.setdefault(app, set()).add(queue)
    return [Share(app, {name for name, (a, _) in known.items() if a is app}, found) for app, found in queues.items()]


async def _work_off(stage: DatabaseStage, book: Book, share: Share, concurrency: int, calls: Calls | None) -> None:
    app = share.app
    ours = {**app.handlers(), **own_handlers(app.database_url, app.settings.schema)}
    handlers = {name: handler for name, handler in ours.items() if name in share.types}
    queues = tuple(sorted(share.queues))
    plan = replace(
        plan_for(app.settings, app.database_url, handlers, app=app.name, queues=queues, once=True),
        name=default_name(),
        capacity=capacity_for(concurrency, cores=concurrency),
        stuck_after=1e9,
        poll_interval=0.001,
        poll_max_interval=0.02,
    )
    async with app.alive():
        await DrainWorker(plan, handlers, app.events, stage.lines, book, calls).run()
