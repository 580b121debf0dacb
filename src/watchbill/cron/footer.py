"""Reads the footer of a TZif file: a POSIX rule such as `EST5EDT,M3.2.0,M11.1.0`, which holds for every year after the
last transition in the file."""

from __future__ import annotations

import re
from typing import NamedTuple

from watchbill.cron.calendar import DAY, YearKind, year_kind, year_start

_NAME = r"(?:<[A-Za-z0-9+-]+>|[A-Za-z]+)"
_TIME = r"[+-]?\d{1,3}(?::\d{1,2}(?::\d{1,2})?)?"
_FOOTER = re.compile(
    rf"{_NAME}(?P<standard>{_TIME})(?:{_NAME}(?P<daylight>{_TIME})?,(?P<starts>[^,/]+)(?:/(?P<start_time>{_TIME}))?"
    rf",(?P<ends>[^,/]+)(?:/(?P<end_time>{_TIME}))?)?"
)
_DATE = re.compile(
    r"M(?P<month>\d{1,2})\.(?P<week>[1-5])\.(?P<weekday>[0-6])|J(?P<no_leap_day>\d{1,3})|(?P<day>\d{1,3})"
)


class Change(NamedTuple):
    """A change of the clocks: its date as POSIX writes it, its time by the old clock, the offsets before and after."""

    date: str
    time: int
    before: int
    after: int


class Rule(NamedTuple):
    """The offset of standard time and the yearly changes, none or two: to summer time and back."""

    standard: int
    changes: tuple[Change, ...]

    def transitions(self, first_year: int, last_year: int) -> list[tuple[int, int]]:
        """Returns the clock changes of some years, in order: the instant, and the offset from then on."""
        by_kind: dict[YearKind, list[tuple[int, int]]] = {}
        found = []
        for year in range(first_year, last_year + 1):
            kind = year_kind(year)
            if kind not in by_kind:
                by_kind[kind] = self._find_transitions(kind)
            start = year_start(year) * DAY
            found += [(start + second, offset) for second, offset in by_kind[kind]]
        found.sort(key=lambda transition: transition[0])  # needed, because in UTC 1 January may be in the year before
        return found

    def _find_transitions(self, kind: YearKind) -> list[tuple[int, int]]:
        """Returns the clock changes of a year of this kind: seconds since its start in UTC, and the offset from then
        on."""
        changes = self.changes
        return sorted(
            (_parse_day(change.date, kind) * DAY + change.time - change.before, change.after) for change in changes
        )


def parse_footer(text: str) -> Rule:
    match = _FOOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a POSIX zone rule, such as CET-1CEST,M3.5.0,M10.5.0/3")
    standard = -_parse_seconds(match["standard"])  # negated, because in POSIX rules west of Greenwich is positive
    if match["starts"] is None:
        return Rule(standard, ())
    summer = -_parse_seconds(match["daylight"]) if match["daylight"] else standard + 3600
    start = Change(match["starts"], _parse_seconds(match["start_time"] or "2"), standard, summer)
    end = Change(match["ends"], _parse_seconds(match["end_time"] or "2"), summer, standard)
    return Rule(standard, (start, end))


def _parse_seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = (*map(int, text.lstrip("+-").split(":")), 0, 0)[:3]
    return sign * (hours * 3600 + minutes * 60 + seconds)


def _parse_day(date: str, kind: YearKind) -> int:
    """Returns a date of a POSIX rule as a day of the year; 1 January is 0."""
    match = _DATE.fullmatch(date)
    if match is None:
        raise ValueError(f"not a date of a zone rule: {date!r}")
    if match["month"]:
        return _find_nth_weekday(kind, int(match["month"]), int(match["week"]), int(match["weekday"]))
    if match["no_leap_day"]:
        number = int(match["no_leap_day"])  # from 1 to 365, without 29 February: 60 is always 1 March
        return number - 1 + (kind.leap and number >= 60)
    return int(match["day"])


def _find_nth_weekday(kind: YearKind, month: int, week: int, weekday: int) -> int:
    """Returns the nth such weekday of a month, as a day of the year. The fifth means the last."""
    month_first, next_month = kind.month_starts[month - 1 : month + 1]
    nth = month_first + (weekday - kind.first_weekday - month_first) % 7 + 7 * (week - 1)
    return nth if nth < next_month else nth - 7
