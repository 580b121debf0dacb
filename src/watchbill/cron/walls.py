"""Finds the wall times that a pattern's fields name, with bit masks. This module knows the calendar, but no time zones.

A wall time is what the clock on the wall shows, as seconds since 1970-01-01 00:00. The days of a year are one mask of
366 bits, which is made once for each kind of year and kept. The next day is the lowest set bit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache

from watchbill.cron.bits import bits, highest, lowest
from watchbill.cron.calendar import (
    CYCLE_YEARS,
    DAY,
    KIND_NUMBERS,
    YEAR_KINDS,
    YearKind,
    weeks_mask,
    year_of,
    year_start,
)
from watchbill.cron.clock import TimesOfDay
from watchbill.cron.days import kind_of_month, month_masks
from watchbill.cron.fields import YEAR
from watchbill.cron.pattern import Fields

_Year = tuple[int, int, int, int]  # number, first day, day after the last day, mask of days (bit 0 = 1 January)


class Walls:
    """A set of wall times. `after` and `before` find the next and the last one from any wall time."""

    def __init__(self, fields: Fields, weeks: int | None) -> None:
        self._fields = fields
        self._weeks = weeks
        self._year_masks: list[int | None] = [None] * len(YEAR_KINDS)
        self._year: _Year = (0, 0, 0, 0)  # the year of the last result, as a cache; zeros before the first one
        self._first_time = lowest(fields.hours) * 3600 + lowest(fields.minutes) * 60 + lowest(fields.seconds)
        self._last_time = highest(fields.hours) * 3600 + highest(fields.minutes) * 60 + highest(fields.seconds)

    @property
    def has_several_times_a_day(self) -> bool:
        return self._first_time < self._last_time

    @cached_property
    def times(self) -> TimesOfDay:
        return TimesOfDay(self._fields)

    @cached_property
    def _month_masks(self) -> tuple[int, ...]:
        return month_masks(self._fields.days)

    @cached_property
    def _named_years(self) -> list[int] | None:
        """The years that the pattern names, in order; None if it names none, so that every year is in the set."""
        years = self._fields.years
        return None if years is None else [YEAR.low + bit for bit in bits(years)]

    def after(self, wall: int) -> int | None:
        """Returns the first wall time of the set that is later than `wall`; None if there is none."""
        day, second = divmod(wall, DAY)
        number, first, end, days = self._year
        if not first <= day < end:
            number, first, end, days = self._year = self._load_year(year_of(day))
        days >>= day - first
        if days & 1 and second < self._last_time:
            return wall - second + self.times.after(second)
        days >>= 1
        if not days:
            following = self._find_year_from(number + 1)
            if following is None:
                return None
            self._year = following
            day, days = following[1] - 1, following[3]
        return (day + (days & -days).bit_length()) * DAY + self._first_time

    def before(self, wall: int) -> int | None:
        """Returns the last wall time of the set that is earlier than `wall`; None if there is none."""
        day, second = divmod(wall, DAY)
        number, first, end, days = self._year
        if not first <= day < end:
            number, first, end, days = self._year = self._load_year(year_of(day))
        today = 1 << (day - first)
        if days & today and second > self._first_time:
            return wall - second + self.times.before(second)
        days &= today - 1
        if not days:
            preceding = self._find_year_up_to(number - 1)
            if preceding is None:
                return None
            self._year = preceding
            _, first, _, days = preceding
        return (first + days.bit_length() - 1) * DAY + self._last_time

    def __contains__(self, wall: int) -> bool:
        return self.after(wall - 1) == wall

    def _load_year(self, number: int) -> _Year:
        first, end = year_start(number), year_start(number + 1)
        years = self._fields.years
        allowed = years is None or (number >= YEAR.low and years >> number - YEAR.low & 1)
        return number, first, end, self._get_days(number) if allowed else 0

    def _get_days(self, number: int) -> int:
        kind = KIND_NUMBERS[number % CYCLE_YEARS]
        days = self._year_masks[kind]
        if days is None:
            days = self._year_masks[kind] = self._make_year_mask(YEAR_KINDS[kind])
        return days

    def _make_year_mask(self, kind: YearKind) -> int:
        days = 0
        starts = kind.month_starts
        for month in bits(self._fields.months):
            start = starts[month - 1]
            days |= self._month_masks[kind_of_month(starts[month] - start, (kind.first_weekday + start) % 7)] << start
        return days if self._weeks is None else days & weeks_mask(self._weeks, kind)

    def _find_year_from(self, number: int) -> _Year | None:
        """Returns the first year, from this one on, that has a day of the set; None if there is none."""
        if (
            self._named_years is None
        ):  # the pattern names no years: the calendar repeats, so one cycle shows all of them
            return self._find_first_year_with_days(range(number, number + CYCLE_YEARS))
        return self._find_first_year_with_days(self._named_years[bisect_left(self._named_years, number) :])

    def _find_year_up_to(self, number: int) -> _Year | None:
        """Returns the last year, up to this one, that has a day of the set; None if there is none."""
        if self._named_years is None:
            return self._find_first_year_with_days(range(number, number - CYCLE_YEARS, -1))
        return self._find_first_year_with_days(self._named_years[: bisect_right(self._named_years, number)][::-1])

    def _find_first_year_with_days(self, numbers: Sequence[int]) -> _Year | None:
        for number in numbers:
            days = self._get_days(number)
            if days:
                return number, year_start(number), year_start(number + 1), days
        return None


@lru_cache(maxsize=4096)
def walls_of(fields: Fields, weeks: int | None) -> Walls:
    """Returns the set of wall times of these fields. Schedules with equal fields share one set, and so its caches."""
    return Walls(fields, weeks)
