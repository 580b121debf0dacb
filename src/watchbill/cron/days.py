"""Finds the days of a month that a pattern names. A month is one of 28 kinds, by its length and its first weekday.

A set of days is a mask with bit 0 for the 1st. Weekdays count from Sunday = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SATURDAY, SUNDAY = 6, 0
ALL_WEEKDAYS = 0b1111111


class LastDay(NamedTuple):
    """`L`: the last day of the month; `L-3`: three days before it; `LW` and `L-3W`: the working day nearest to that."""

    before: int
    workday: bool

    def make_mask(self, length: int, first_weekday: int) -> int:
        day = length - self.before
        if day < 1:
            return 0
        return 1 << (_find_nearest_workday(day, length, first_weekday) if self.workday else day) - 1


class NearestWorkday(NamedTuple):
    """`15W`: the working day nearest to the 15th, in the same month."""

    day: int

    def make_mask(self, length: int, first_weekday: int) -> int:
        return 1 << _find_nearest_workday(self.day, length, first_weekday) - 1 if self.day <= length else 0


class NthWeekday(NamedTuple):
    """`MON#2`: the second Monday of the month; `MON#-2`: the second from the end; `MONL` and `MON#L`: the last one."""

    weekday: int
    nth: int

    def make_mask(self, length: int, first_weekday: int) -> int:
        earliest = 1 + (self.weekday - first_weekday) % 7
        count = (length - earliest) // 7 + 1
        nth = self.nth if self.nth > 0 else count + 1 + self.nth
        return 1 << earliest + 7 * (nth - 1) - 1 if 1 <= nth <= count else 0


class RowWeekday(NamedTuple):
    """`1W2`: Monday in the second row of the month's calendar, whose rows begin on Monday."""

    weekday: int
    row: int

    def make_mask(self, length: int, first_weekday: int) -> int:
        day = 1 - (first_weekday - 1) % 7 + 7 * (self.row - 1) + (self.weekday - 1) % 7
        return 1 << day - 1 if 1 <= day <= length else 0


class MonthDays(NamedTuple):
    """The day-of-month field: numbers of days, and specials such as `L` and `15W`."""

    days: int
    specials: tuple[LastDay | NearestWorkday, ...] = ()

    def make_mask(self, length: int, first_weekday: int) -> int:
        return (self.days | _union_masks(self.specials, length, first_weekday)) & ((1 << length) - 1)


class WeekDays(NamedTuple):
    """The day-of-week field: weekdays (bit 0 = Sunday), and specials such as `MON#2` and `1W2`."""

    weekdays: int
    nth: tuple[NthWeekday, ...] = ()
    rows: tuple[RowWeekday, ...] = ()  # not in one tuple with the others: a RowWeekday may equal an NthWeekday

    @property
    def specials(self) -> tuple[NthWeekday | RowWeekday, ...]:
        return self.nth + self.rows

    def make_mask(self, length: int, first_weekday: int) -> int:
        # The mask of weekdays, rotated so that bit 0 is the weekday of the 1st.
        week = (self.weekdays >> first_weekday | self.weekdays << 7 - first_weekday) & ALL_WEEKDAYS
        plain = sum(week << start for start in range(0, length, 7))
        return (plain | _union_masks(self.specials, length, first_weekday)) & ((1 << length) - 1)


class DayRule(NamedTuple):
    """Both day fields. A field that is None does not restrict the days. If both do, a day must match one of them, or
    with `both` both of them."""

    of_month: MonthDays | None
    of_week: WeekDays | None
    both: bool = False

    def make_mask(self, length: int, first_weekday: int) -> int:
        masks = [field.make_mask(length, first_weekday) for field in (self.of_month, self.of_week) if field is not None]
        if len(masks) == 2:
            return masks[0] & masks[1] if self.both else masks[0] | masks[1]
        return masks[0] if masks else (1 << length) - 1


def month_masks(rule: DayRule) -> tuple[int, ...]:
    """Returns the days that the rule names in each kind of month. The index is `kind_of_month`."""
    return tuple(rule.make_mask(length, first_weekday) for length in range(28, 32) for first_weekday in range(7))


def kind_of_month(length: int, first_weekday: int) -> int:
    return (length - 28) * 7 + first_weekday


_Special = LastDay | NearestWorkday | NthWeekday | RowWeekday


def _union_masks(specials: Iterable[_Special], length: int, first_weekday: int) -> int:
    mask = 0
    for special in specials:
        mask |= special.make_mask(length, first_weekday)
    return mask


def _find_nearest_workday(day: int, length: int, first_weekday: int) -> int:
    """Returns the day from Monday to Friday that is nearest to a day, in the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < length else day - 2
    return day
