"""Reads the two day fields, whose items may be more than numbers: `L-3W`, `15W`, `MON#2`, `5L`, `1W2`."""

from __future__ import annotations

import re

from watchbill.cron.days import DayRule, LastDay, MonthDays, NearestWorkday, NthWeekday, RowWeekday, WeekDays
from watchbill.cron.errors import InvalidPattern
from watchbill.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, Field, parse_item, parse_value
from watchbill.cron.tokens import Token

_OF_MONTH = re.compile(r"L(?:-(?P<before>[0-9]+))?(?P<workday>W)?|(?P<day>[0-9]+)W")
_OF_WEEK = re.compile(r"(?P<weekday>[0-9]+|[A-Za-z]{3})(?:#?L|#(?P<sign>-?)(?P<nth>[0-9]+)|W(?P<row>[0-9]+))")
_BEFORE_LAST = Field.of(DAY_OF_MONTH.name, 1, 30)
_NTH = Field.of(DAY_OF_WEEK.name, 1, 5)
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
        if match := _OF_MONTH.fullmatch(item.text):
            specials.add(_parse_month_special(item, match))
        else:
            days |= _parse_plain_item(item, DAY_OF_MONTH, _OF_MONTH) >> 1
    return MonthDays(days, tuple(sorted(specials, key=_make_sort_key)) if specials else ())


def _make_sort_key(special: LastDay | NearestWorkday) -> tuple[bool, LastDay | NearestWorkday]:
    return isinstance(special, LastDay), special


def _parse_month_special(item: Token, match: re.Match[str]) -> LastDay | NearestWorkday:
    if match["day"]:
        return NearestWorkday(parse_value(item, match, "day", DAY_OF_MONTH))
    before = parse_value(item, match, "before", _BEFORE_LAST) if match["before"] else 0
    return LastDay(before, workday=match["workday"] is not None)


def _parse_week_days(token: Token) -> WeekDays:
    weekdays, nth, rows = 0, set(), set()
    for item in token.split(","):
        if (match := _OF_WEEK.fullmatch(item.text)) is None:
            weekdays |= _parse_plain_item(item, DAY_OF_WEEK, _OF_WEEK)
        elif match["row"]:
            rows.add(_parse_row_weekday(item, match))
        else:
            nth.add(_parse_nth_weekday(item, match))
    return WeekDays(weekdays, tuple(sorted(nth)) if nth else (), tuple(sorted(rows)) if rows else ())


def _parse_nth_weekday(item: Token, match: re.Match[str]) -> NthWeekday:
    weekday = parse_value(item, match, "weekday", DAY_OF_WEEK) % 7
    if match["nth"] is None:
        return NthWeekday(weekday, -1)
    nth = parse_value(item, match, "nth", _NTH)
    return NthWeekday(weekday, -nth if match["sign"] else nth)


def _parse_row_weekday(item: Token, match: re.Match[str]) -> RowWeekday:
    weekday = parse_value(item, match, "weekday", DAY_OF_WEEK)
    if weekday == 7:
        suggestion = f"0{item.text[match.end('weekday') :]}"
        raise item.error(DAY_OF_WEEK.name, "in a row of the month Sunday is 0, not 7", suggestion)
    return RowWeekday(weekday, parse_value(item, match, "row", _NTH))


def _parse_plain_item(item: Token, field: Field, special: re.Pattern[str]) -> int:
    try:
        return parse_item(item, field)
    except InvalidPattern:
        if special.fullmatch(item.text.upper()):
            raise item.error(field.name, "L and W are written in capitals", item.text.upper()) from None
        raise
