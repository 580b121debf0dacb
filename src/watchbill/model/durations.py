"""Reads durations such as `30s`, in the same way for Python, the command line, settings and environment variables."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = int | float | timedelta | str
LONGEST_TIMEOUT_SECONDS = 365 * 86_400.0  # as _is_over_a_year() in the database
DURATION_WORDS = "seconds, a timedelta, or a text such as 500ms, 30s, 5m, 1h30m or 2d"

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PART = re.compile(rf"({_NUMBER.pattern})(ms|[smhdw])")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")


def seconds(value: Duration) -> float:
    """Returns a duration as a number of seconds. Raises ValueError for a value that is not a duration."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return float(text)
        if _PARTS.fullmatch(text):
            return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    raise ValueError(f"{value!r} is not a duration: give {DURATION_WORDS}")


def show_duration(value: timedelta) -> str:
    """Returns a duration as a text that `seconds` can read: `1m30s` for 90 seconds, `100ms` for a tenth of a second."""
    length = value.total_seconds()
    if length < 1:
        return f"{length * 1000:.0f}ms"
    if length < 60:
        return f"{length:.3g}s"
    parts, rest = [], round(length)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] * bool(count)
    return "".join(parts)
