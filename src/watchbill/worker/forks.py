"""Ends processes that a handler has forked, when the handler's code returns to the worker.

A forked process has a copy of all connections of the worker, or of the socket of a child process: two processes would
claim and settle on the same sockets. So the fork loses them at once, and ends when its code returns to the worker.
Until then the handler's code in the fork is not affected, and neither is a process that never returns, such as one
that `multiprocessing` starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("watchbill.worker")

is_fork = False  # whether a handler forked this process, so that the worker in it is a mere copy
_detachers: list[Callable[[], None]] = []  # of the workers that run in this process


@contextmanager
def guard_against_forks(detach: Callable[[], None]) -> Iterator[None]:
    """Makes sure, while a worker runs in this block, that a process that one of its handlers forks calls `detach` at
    once, and is known by `is_fork`. Such a fork may enter this block itself, to run a worker of its own."""
    global is_fork
    was_fork, is_fork = is_fork, False
    _detachers.append(detach)
    try:
        yield
    finally:
        is_fork = was_fork
        if detach in _detachers:
            _detachers.remove(detach)


def end_fork() -> None:
    """Called in a fork, where a handler's code returns to the worker."""
    logger.error(
        "A handler forked a process, and that process returned from the handler; Watchbill ends it now. "
        "In the handler, end such a process with os._exit()"
    )
    os._exit(1)


def _mark_fork() -> None:
    global is_fork
    if _detachers:
        is_fork = True
        for detach in _detachers:
            detach()
        _detachers.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=_mark_fork)
