"""Finds the start and end of periods of wall time, from seconds to years, and moves wall times by modifiers."""

from __future__ import annotations

from watchbill.cron.calendar import DAY, month_number, month_start
from watchbill.cron.pattern import Modifier, Unit

_SECONDS: dict[Unit, int] = {"S": 1, "m": 60, "H": 3_600, "D": DAY, "W": 7 * DAY}
_MONTHS: dict[Unit, int] = {"M": 1, "Q": 3, "Y": 12}
_MONDAY = -3 * DAY  # the Monday before 1970-01-01, which was a Thursday
_LONGEST: dict[Unit, int] = {**_SECONDS, "M": 31 * DAY, "Q": 92 * DAY, "Y": 366 * DAY}


def apply_modifier(modifier: Modifier, wall: int) -> int:
    """Moves a wall time by the steps of a modifier. Each step goes on by `count` periods, and then to the last second
    of that period, or to its first."""
    for unit, count in modifier.steps:
        start, end = _find_period(wall, unit, count)
        wall = end - 1 if modifier.to_end else start
    return wall


def undo_modifier(modifier: Modifier, wall: int) -> int:
    """Returns the last wall time that the modifier moves to `wall` or earlier. Undoes the modifier's steps, the last
    one first."""
    for unit, count in reversed(modifier.steps):
        start, end = _find_period(wall + modifier.to_end, unit, -count)
        wall = (start if modifier.to_end else end) - 1
    return wall


def largest_unit(modifier: Modifier) -> Unit:
    return max((unit for unit, _ in modifier.steps), key=_LONGEST.__getitem__)


def add_units(unit: Unit, wall: int, count: int) -> int:
    """Returns the wall time `count` units later. A day that the month does not have becomes its last day."""
    if unit in _SECONDS:
        return wall + count * _SECONDS[unit]
    day, second = divmod(wall, DAY)
    month = month_number(day)
    target = month + count * _MONTHS[unit]
    same_day = month_start(target) + day - month_start(month)
    return min(same_day, month_start(target + 1) - 1) * DAY + second


def _find_period(wall: int, unit: Unit, count: int) -> tuple[int, int]:
    """Returns start and end of the period that is `count` periods after the period of a wall time."""
    if unit in _SECONDS:
        size = _SECONDS[unit]
        start = wall - (wall - _MONDAY) % size + count * size
        return start, start + size
    months = _MONTHS[unit]
    first = month_number(wall // DAY) // months * months + count * months
    return month_start(first) * DAY, month_start(first + months) * DAY
