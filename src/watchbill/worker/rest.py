"""The second half of a coroutine that was driven to its first suspension by hand."""

from __future__ import annotations

import contextvars
from collections.abc import Generator
from typing import Any


class Rest:
    """What is left of a coroutine that has yielded a future, each step in the job's own context."""

    __slots__ = ("_context", "_coroutine", "_future")

    def __init__(self, coroutine: Any, future: Any, context: contextvars.Context) -> None:
        self._coroutine, self._future, self._context = coroutine, future, context

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, future, run = self._coroutine, self._future, self._context.run
        try:
            while True:
                try:
                    value = yield future
                except BaseException as error:  # noqa: BLE001  (thrown in by the Task, for the handler)
                    future = run(coroutine.throw, error)
                else:
                    future = run(coroutine.send, value)
        except StopIteration as stop:
            return stop.value
