"""Says in a word how often a schedule runs.

It looks at a few hundred runs: the distance that most neighbours have counts, or else the mean distance.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from watchbill.cron.calendar import DAY
from watchbill.cron.instants import LATEST, Instants

_START = 946_684_800  # the runs that are looked at start at 2000-01-01 00:00:00 UTC
_RUNS = 401
_MAJORITY = 0.55  # more than half, so that of two distances that alternate neither counts as the usual one
_HOUR, _MINUTE = 3_600, 60
_DAYS = {
    "daily": range(1, 2),
    "weekly": range(7, 8),
    "monthly": range(26, 36),
    "quarterly": range(84, 99),
    "yearly": range(350, 381),
}


def frequency(instants: Instants) -> str:
    runs: list[int] = []
    at = instants.next(_START)
    while at is not None and at <= LATEST and len(runs) < _RUNS:
        runs.append(at)
        at = instants.next(at)
    if len(runs) < 2:
        return "rare"
    words = Counter(_name_distance(later - earlier) for earlier, later in pairwise(runs))
    word, count = words.most_common(1)[0]
    if count > _MAJORITY * (len(runs) - 1):
        return word
    return _name_rough_distance(_divide_rounded(runs[-1] - runs[0], len(runs) - 1))


def _name_distance(seconds: int) -> str:
    """Returns the word for a distance, in the largest unit of which it is a multiple."""
    for size in (DAY, _HOUR, _MINUTE):
        if seconds % size == 0:
            return _name_units(seconds // size, size)
    return _name_rough_distance(seconds)


def _name_rough_distance(seconds: int) -> str:
    """Returns the word for a distance, in the largest unit that is shorter than it."""
    for size in (DAY, _HOUR, _MINUTE):
        if seconds >= size:
            return _name_units(_divide_rounded(seconds, size), size)
    return "every-second" if seconds < 8 else "every-minute"  # as a ratio, 8 seconds are nearer to 60 than to 1


def _name_units(count: int, size: int) -> str:
    if size == _MINUTE:
        return "every-minute" if count == 1 else f"every-{count}-minutes"
    if size == _HOUR:
        return "hourly" if count == 1 else f"every-{count}-hours"
    if count > 380:
        return "rare"
    named = [word for word, days in _DAYS.items() if count in days]
    return named[0] if named else f"every-{count}-days"


def _divide_rounded(number: int, size: int) -> int:
    return (number + size // 2) // size
