"""The Gregorian calendar as arithmetic on whole days, counted from 1970-01-01.

The calendar repeats every 400 years, and a year is one of few kinds: what matters is its first weekday, whether it is a
leap year and, as ISO weeks reach over the new year, whether the year before was a leap year. Everything here holds for
any integer, before year 1 too. Weekdays count from Sunday = 0, as in cron.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

DAY = 86_400
CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
CYCLE = CYCLE_DAYS * DAY

MONTH_STARTS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
LEAP_MONTH_STARTS = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366)

_BASE_YEAR = 2000
_BASE_DAY = 10_957  # the day 2000-01-01, counted from 1970-01-01


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _make_year_starts() -> tuple[int, ...]:
    starts = [0]
    for year in range(_BASE_YEAR, _BASE_YEAR + CYCLE_YEARS):
        starts.append(starts[-1] + 365 + is_leap(year))
    return tuple(starts)


_YEAR_STARTS = _make_year_starts()


def year_start(year: int) -> int:
    """Returns the number of the day 1 January of a year."""
    cycles, index = divmod(year - _BASE_YEAR, CYCLE_YEARS)
    return _BASE_DAY + cycles * CYCLE_DAYS + _YEAR_STARTS[index]


def year_of(day: int) -> int:
    cycles, rest = divmod(day - _BASE_DAY, CYCLE_DAYS)
    return _BASE_YEAR + cycles * CYCLE_YEARS + bisect_right(_YEAR_STARTS, rest) - 1


def weekday(day: int) -> int:
    return (day + 4) % 7


class YearKind(NamedTuple):
    """What a pattern must know of a year to find its days there: years of one kind have the same days."""

    first_weekday: int
    leap: bool
    after_leap: bool

    @property
    def month_starts(self) -> tuple[int, ...]:
        return LEAP_MONTH_STARTS if self.leap else MONTH_STARTS

    @property
    def days(self) -> int:
        return 365 + self.leap


def _make_kinds() -> tuple[YearKind, ...]:
    years = range(_BASE_YEAR, _BASE_YEAR + CYCLE_YEARS)
    return tuple(YearKind(weekday(year_start(year)), is_leap(year), is_leap(year - 1)) for year in years)


_KINDS = _make_kinds()
YEAR_KINDS = tuple(sorted(set(_KINDS)))
KIND_NUMBERS = tuple(YEAR_KINDS.index(kind) for kind in _KINDS)  # the kind of each year, by the year modulo 400


def year_kind(year: int) -> YearKind:
    return _KINDS[(year - _BASE_YEAR) % CYCLE_YEARS]


def month_number(day: int) -> int:
    """Returns how many months lie between January of year 0 and the month of a day."""
    year = year_of(day)
    starts = LEAP_MONTH_STARTS if is_leap(year) else MONTH_STARTS
    return year * 12 + bisect_right(starts, day - year_start(year)) - 1


def month_start(number: int) -> int:
    """Returns the first day of the month with this `month_number`."""
    year, index = divmod(number, 12)
    return year_start(year) + (LEAP_MONTH_STARTS if is_leap(year) else MONTH_STARTS)[index]


def weeks_mask(weeks: int, kind: YearKind) -> int:
    """Returns the days of a year (bit 0 = 1 January) that lie in the given ISO weeks (bit w = week w)."""
    after_monday = (kind.first_weekday - 1) % 7
    first_monday = -after_monday if after_monday <= 3 else 7 - after_monday  # week 1 is the one with the first Thursday
    previous_year_has_53 = after_monday == 4 or (after_monday == 5 and kind.after_leap)
    mask = 0
    start, week = (first_monday - 7, 53 if previous_year_has_53 else 52) if first_monday > 0 else (first_monday, 1)
    while start < kind.days:
        if weeks >> week & 1:
            mask |= 0b1111111 << start if start >= 0 else 0b1111111 >> -start
        start += 7
        week = 1 if start == first_monday or _belongs_to_next_year(start, kind) else week + 1
    return mask & ((1 << kind.days) - 1)


def _belongs_to_next_year(start: int, kind: YearKind) -> bool:
    """Whether the week that starts on this day of the year has its Thursday in the next year, and so belongs to it."""
    return start + 3 >= kind.days
