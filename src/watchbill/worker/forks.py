"""Ends processes that a handler has forked, when its code returns to the worker's event loop.

A forked process has a copy of the event loop and of all connections of the worker: two processes would claim and settle
on the same sockets. So the fork loses the connections at once, and ends when its code returns to the worker. Until then
the handler's code in the fork is not affected, and neither is a process that never returns, such as one that
`multiprocessing` starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from watchbill.postgres.connect import detach_inherited_connections

logger = logging.getLogger("watchbill.worker")

is_fork = False  # whether a handler forked this process, so that the worker in it is a mere copy
_loops: list[asyncio.AbstractEventLoop] = []  # the event loops of the workers that run in this process


@contextmanager
def guard_against_forks() -> Iterator[None]:
    """Makes sure, while a worker runs in this block, that a process that one of its handlers forks ends when its code
    returns to the worker. Such a fork may enter this block itself, to run a worker of its own."""
    global is_fork
    was_fork, is_fork, loop = is_fork, False, asyncio.get_running_loop()
    _loops.append(loop)
    try:
        yield
    finally:
        is_fork = was_fork
        if loop in _loops:
            _loops.remove(loop)


def end_fork() -> None:
    logger.error(
        "A handler forked a process, and that process returned from the handler; Watchbill ends it now. "
        "In the handler, end such a process with os._exit()"
    )
    os._exit(1)


def _mark_fork() -> None:
    global is_fork
    if _loops:
        is_fork = True
        detach_inherited_connections()
        for loop in _loops:  # stops the copied loops: an asyncio task of a handler may have forked
            with suppress(RuntimeError):  # the loop is closed, or belongs to a thread that a fork does not copy
                loop.call_soon(end_fork)
        _loops.clear()


os.register_at_fork(after_in_child=_mark_fork)
