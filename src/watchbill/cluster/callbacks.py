"""Calls functions of the program in threads that never keep the process, or the event loop, from ending."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, ParamSpec

P = ParamSpec("P")


async def call_in_thread(function: Callable[P, Any], *arguments: P.args, **named: P.kwargs) -> Any:
    """As `asyncio.to_thread`, but in a daemon thread of its own.

    Closing an event loop waits for the threads of its executor. A function that does not return would keep a node that
    leaves from ending.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        try:
            result = context.run(function, *arguments, **named)
        except BaseException as error:  # noqa: BLE001  (raised where the answer is awaited)
            _call_soon(loop, _fail, answer, error)
        else:
            _call_soon(loop, _succeed, answer, result)

    name = getattr(function, "__name__", "callback")
    threading.Thread(target=call, name=f"watchbill-{name}", daemon=True).start()
    return await answer


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed without waiting for this thread
        loop.call_soon_threadsafe(function, *arguments)


def _succeed(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, StopIteration):  # a future does not take it
        error = RuntimeError("the function raised StopIteration")
    answer.set_exception(error)
