"""Units of wall time, from seconds to years: where a period starts and ends, and what a modifier makes of a time."""

from __future__ import annotations

from watchbill.cron.calendar import DAY, month_number, month_start
from watchbill.cron.pattern import Modifier, Unit

_SECONDS: dict[Unit, int] = {"S": 1, "m": 60, "H": 3_600, "D": DAY, "W": 7 * DAY}
_MONTHS: dict[Unit, int] = {"M": 1, "Q": 3, "Y": 12}
_MONDAY = -3 * DAY  # 1970-01-01 was a Thursday
_LONGEST: dict[Unit, int] = {**_SECONDS, "M": 31 * DAY, "Q": 92 * DAY, "Y": 366 * DAY}


def apply(modifier: Modifier, wall: int) -> int:
    """Each step goes on by so many periods, then to the last second of the period or to its first."""
    for unit, count in modifier.steps:
        start, end = _period(wall, unit, count)
        wall = end - 1 if modifier.to_end else start
    return wall


def latest_before(modifier: Modifier, wall: int) -> int:
    """The last wall time from which a modifier leads no further than to this one: its steps, undone from the end."""
    for unit, count in reversed(modifier.steps):
        start, end = _period(wall + modifier.to_end, unit, -count)
        wall = (start if modifier.to_end else end) - 1
    return wall


def largest_unit(modifier: Modifier) -> Unit:
    return max((unit for unit, _ in modifier.steps), key=_LONGEST.__getitem__)


def moved_on(unit: Unit, wall: int, count: int) -> int:
    """The wall time so many units later; a day that the month does not have is its last."""
    if unit in _SECONDS:
        return wall + count * _SECONDS[unit]
    day, second = divmod(wall, DAY)
    month = month_number(day)
    target = month + count * _MONTHS[unit]
    same_day = month_start(target) + day - month_start(month)
    return min(same_day, month_start(target + 1) - 1) * DAY + second


def _period(wall: int, unit: Unit, count: int) -> tuple[int, int]:
    """Start and end of the period that is so many after the one that holds a wall time."""
    if unit in _SECONDS:
        size = _SECONDS[unit]
        start = wall - (wall - _MONDAY) % size + count * size
        return start, start + size
    months = _MONTHS[unit]
    first = month_number(wall // DAY) // months * months + count * months
    return month_start(first) * DAY, month_start(first + months) * DAY
