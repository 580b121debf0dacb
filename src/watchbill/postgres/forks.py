"""What a forked child has of its parent: sockets that both would use, and locks that threads of the parent hold.

An object that has such things registers a method, which forgets them in the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
# What the child has forgotten, kept for ever: to destroy a pool is to wait for its threads, which the child has not.
inherited: list[object] = []
_methods: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def call_in_child(owner: T, method: Callable[[T], None]) -> None:
    """Lets a child call this method of `owner` as soon as it is forked."""
    _methods[owner] = method


def _forget() -> None:
    for owner, method in list(_methods.items()):
        method(owner)


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=_forget)
