"""Reads the two day fields, whose items may be more than numbers: `L-3W`, `15W`, `MON#2`, `5L`, `1W2`."""

from __future__ import annotations

import re

from foliot.cron.days import DayRule, LastDay, MonthDays, NearestWorkday, NthWeekday, RowWeekday, WeekDays
from foliot.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, Field, parse_item, parse_number, parse_value
from foliot.cron.tokens import Token

_LAST = re.compile(r"L(?:-(?P<before>[0-9]+))?(?P<workday>W)?")
_WORKDAY = re.compile(r"(?P<day>[0-9]+)W")
_NTH = re.compile(r"(?P<weekday>[0-9]+|[A-Za-z]{3})(?:#?L|#(?P<sign>-?)(?P<nth>[0-9]+))")
_ROW = re.compile(r"(?P<weekday>[0-9]+|[A-Za-z]{3})W(?P<row>[0-9]+)")
_UNRESTRICTED = ("*", "?")


def parse_days(of_month: Token, of_week: Token) -> DayRule:
    both = of_week.text.startswith("+")
    return DayRule(
        None if of_month.text in _UNRESTRICTED else _parse_month_days(of_month),
        None if of_week.text in _UNRESTRICTED else _parse_week_days(of_week.after("+") if both else of_week),
        both,
    )


def _parse_month_days(token: Token) -> MonthDays:
    days, specials = 0, set()
    for item in token.split(","):
        if special := _month_special(item):
            specials.add(special)
        else:
            days |= _parse_plain(item, DAY_OF_MONTH, (_LAST, _WORKDAY)) >> 1
    return MonthDays(days, tuple(sorted(specials, key=lambda special: (isinstance(special, LastDay), special))))


def _month_special(item: Token) -> LastDay | NearestWorkday | None:
    if match := _LAST.fullmatch(item.text):
        before = parse_number(item.part(match, "before"), DAY_OF_MONTH.name, 1, 30) if match["before"] else 0
        return LastDay(before, workday=match["workday"] is not None)
    if match := _WORKDAY.fullmatch(item.text):
        return NearestWorkday(parse_value(item.part(match, "day"), DAY_OF_MONTH))
    return None


def _parse_week_days(token: Token) -> WeekDays:
    weekdays, nth, rows = 0, set(), set()
    for item in token.split(","):
        if match := _NTH.fullmatch(item.text):
            nth.add(_nth_weekday(item, match))
        elif match := _ROW.fullmatch(item.text):
            rows.add(_row_weekday(item, match))
        else:
            weekdays |= _parse_plain(item, DAY_OF_WEEK, (_NTH, _ROW))
    return WeekDays(weekdays, tuple(sorted(nth)), tuple(sorted(rows)))


def _nth_weekday(item: Token, match: re.Match[str]) -> NthWeekday:
    weekday = parse_value(item.part(match, "weekday"), DAY_OF_WEEK) % 7
    if match["nth"] is None:
        return NthWeekday(weekday, -1)
    nth = parse_number(item.part(match, "nth"), DAY_OF_WEEK.name, 1, 5)
    return NthWeekday(weekday, -nth if match["sign"] else nth)


def _row_weekday(item: Token, match: re.Match[str]) -> RowWeekday:
    weekday = parse_value(item.part(match, "weekday"), DAY_OF_WEEK)
    if weekday == 7:
        suggestion = f"0{item.text[match.end('weekday') :]}"
        raise item.error(DAY_OF_WEEK.name, "in a row of the month Sunday is 0, not 7", suggestion)
    return RowWeekday(weekday, parse_number(item.part(match, "row"), DAY_OF_WEEK.name, 1, 5))


def _parse_plain(item: Token, field: Field, specials: tuple[re.Pattern[str], ...]) -> int:
    upper = item.text.upper()
    if upper != item.text and any(special.fullmatch(upper) for special in specials):
        raise item.error(field.name, "L and W are written in capitals", upper)
    return parse_item(item, field)
