"""What can be wrong with the options of a schedule, said before anything is written: which one, why, what would do.

The database checks it all again, for those who write there themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, get_args

import orjson

from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import Policy
from watchbill.errors import WatchbillError
from watchbill.model.retry import TEN_YEARS, Retry, seconds
from watchbill.model.schedule import Missed, Overlap

_WORDS = {"missed": get_args(Missed), "overlap": get_args(Overlap), "dst": get_args(Policy)}
_DURATIONS = {"every": 1.0, "timeout": 0.001, "grace": 0.0, "jitter": 0.0, "deadline": 0.001}
_COUNTS = ("max_runs", "catch_up")
_INSTANTS = ("at", "start", "end")
_OTHER_WORDS = {
    "timezone": "tz", "zone": "tz", "cron": "pattern", "schedule": "pattern", "interval": "every", "seconds": "every",
    "args": "arguments", "kwargs": "arguments", "payload": "arguments", "retries": "retry", "sql": "command",
}  # fmt: skip
_TEXTS = ("pattern", "tz", "queue", "description", "category", "command", "role")


class InvalidSchedule(WatchbillError, ValueError):
    """A schedule that cannot be: the message says which one, and what in it."""

    exit_code = 2


def wrong(name: str, what: str, hint: str | None = None) -> InvalidSchedule:
    return InvalidSchedule(f"Schedule {name!r}: {what}.", hint=hint)


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise InvalidSchedule(f"{name!r} cannot be a schedule's name.", hint="Give 1 to 200 printable characters.")


def check_known(name: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            near = _OTHER_WORDS.get(word) or next(iter(get_close_matches(word, known, n=1)), None)
            hint = f"Did you mean {near}?" if near else f"The options are {', '.join(sorted(known))}."
            raise wrong(name, f"there is no option {word}", hint)


def check_values(name: str, given: Mapping[str, Any]) -> None:
    """Each option by itself, then those that must fit each other. None stands for: without it."""
    for word, value in given.items():
        if value is not None:
            _check_value(name, word, value)
    start, end = given.get("start"), given.get("end")
    if start is not None and end is not None and end < start:
        raise wrong(name, f"it ends ({end}) before it starts ({start})", "Exchange them, or leave end out.")
    _check_when(name, given)


def _check_value(name: str, word: str, value: Any) -> None:
    if word in _WORDS and value not in _WORDS[word]:
        raise wrong(name, f"{word}={value!r} is unknown", f"It is one of {', '.join(_WORDS[word])}.")
    if word in _DURATIONS:
        _check_duration(name, word, value)
    if word in _COUNTS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise wrong(name, f"{word}={value!r} is no count", "Give a whole number from 1 on, or leave it out.")
    if word in _INSTANTS and (not isinstance(value, datetime) or value.tzinfo is None):
        hint = "Say in which zone it is meant: datetime(2030, 1, 1, 9, tzinfo=ZoneInfo('Europe/Paris'))."
        raise wrong(name, f"{word}={value!r} is no instant: it needs a time zone", hint)
    if word in _TEXTS and not isinstance(value, str):
        raise wrong(name, f"{word}={value!r} is no text")
    if word == "tags" and (isinstance(value, str) or not all(isinstance(tag, str) for tag in value)):
        raise wrong(name, f"tags={value!r} is no list of texts", "Give tags=['billing', 'eu'].")
    if word in ("arguments", "context") and not isinstance(value, Mapping):
        raise wrong(name, f"{word}={value!r} is no dict", f"Give {word}={{'name': value}}.")
    if word == "retry" and not isinstance(value, Retry):
        raise wrong(name, f"retry={value!r} is no Retry", "Give retry=Retry(max_attempts=3).")


def check_storable(name: str, definition: Mapping[str, Any]) -> None:
    """That JSON and PostgreSQL can hold it; what a task takes was checked before, by its own signature."""
    for word, value in definition.items():
        try:
            raw = orjson.dumps(value)
        except TypeError as error:
            raise wrong(name, f"its {word} cannot be stored as JSON: {error}", "Give plain values.") from None
        if b"\\u0000" in raw:
            raise wrong(name, f"its {word} has a NUL character, which PostgreSQL cannot store")


def _check_duration(name: str, word: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise wrong(name, f"{word}={value!r} is no duration", "Give seconds, or a timedelta.")
    least = _DURATIONS[word]
    if not math.isfinite(seconds(value)) or not least <= seconds(value) <= TEN_YEARS:
        raise wrong(name, f"{word}={value!r} is out of range", f"Give {least:g} s to ten years.")


def _check_when(name: str, given: Mapping[str, Any]) -> None:
    """The pattern in its zone; a zone or policy that is changed alone is tried with any pattern."""
    if not {"pattern", "tz", "dst"} & given.keys():
        return
    try:
        Cron(given.get("pattern") or "* * * * *", given.get("tz") or "UTC", given.get("dst") or "default")
    except InvalidPattern as error:
        raise InvalidSchedule(f"Schedule {name!r}: {error.message}", hint=error.hint) from None
