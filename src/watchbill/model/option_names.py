"""Refuses options that a call does not have, and suggests the right ones."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

# How other libraries name an option. The first of our names that the call has is suggested.
_SYNONYMS = {
    "name": ("type",), "task": ("type",), "retries": ("retry", "max_attempts"), "max_attempts": ("retry",),
    "max_retries": ("retry", "max_attempts"), "attempts": ("retry", "max_attempts"),
    "tries": ("retry", "max_attempts"), "max_tries": ("retry", "max_attempts"), "times": ("max_attempts",),
    "retry_policy": ("retry",), "autoretry_for": ("retry", "on"), "exceptions": ("on",), "wait": ("base",),
    "delay": ("base",), "max_delay": ("cap",), "max_wait": ("cap",), "max_backoff": ("cap",),
    "time_limit": ("timeout",), "soft_time_limit": ("timeout",), "max_time": ("timeout",), "countdown": ("delay",),
    "schedule_in": ("delay",), "eta": ("run_at",), "schedule_at": ("run_at",), "run_after": ("run_at",),
    "key": ("idempotency_key", "by"), "queueing_lock": ("unique",), "debounce": ("unique",), "lock": ("ordered_by",),
    "after": ("depends_on",), "session": ("connection",), "queue_name": ("queue",), "pool": ("executor",),
    "max": ("count",), "limit": ("count",), "period": ("per",), "interval": ("per",), "window": ("per",),
    "max_size": ("size",),
}  # fmt: skip


# Options that a call had in an earlier release, and what to write now.
_REMOVED = {
    ("Rate", "burst"): 'With Rate(10, per="1m") ten jobs may start at once, and the eleventh when the first start is a '
    'minute old. Rate(10, per="1m", evenly=True) spaces the starts.',
}


def refuse_unknown(call: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raises TypeError for the first name that is not an option of this call; it suggests the right one."""
    for name in given:
        if name not in known and (call, name) in _REMOVED:
            raise TypeError(f"{call}() has no option {name} any more. {_REMOVED[call, name]}")
        if name not in known:
            guesses = [*_SYNONYMS.get(name, ()), *get_close_matches(name, known, n=1)]
            guess = next((f" Did you mean {guess}?" for guess in guesses if guess in known), "")
            raise TypeError(f"{call}() has no option {name}.{guess} The options are {', '.join(known)}.")


def suggest_options(cls: C) -> C:
    """Lets a dataclass refuse an unknown option with a suggestion. Python's own message names no option that exists."""
    make: Any = cls.__init__  # type: ignore[misc]
    known = tuple(inspect.signature(make).parameters)[1:]

    @wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  (it becomes the class's own)
        refuse_unknown(cls.__name__, options, known)
        make(self, *args, **options)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls
