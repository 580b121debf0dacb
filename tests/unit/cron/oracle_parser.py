"""The oracle's own reading of a pattern: plain sets, and a question per day. Expects a pattern that is valid.

Shares nothing with `watchbill.cron`, not even a way of thinking: no masks, no kinds of years, a day is simply asked.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, cached_property

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
EVERY_DAY = "0 0 0 * * *"
PRESETS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


@dataclass
class Alternative:
    """One side of a `|`."""

    zone: str
    weeks: set[int] | None = None
    modifier: str = ""
    every: int = 0
    at_start: bool = False
    fields: list[str] = field(default_factory=list)  # always seven, or none

    @property
    def is_bare(self) -> bool:
        return not self.fields and not self.every and not self.at_start

    @property
    def follows_elapsed_time(self) -> bool:
        return any(text.startswith("*") for text in self.fields[:3])

    @cached_property
    def times(self) -> tuple[list[int], list[int], list[int]]:
        second, minute, hour = self.fields[:3]
        return (
            sorted(numbers(hour, 0, 23, 24)),
            sorted(numbers(minute, 0, 59, 60)),
            sorted(numbers(second, 0, 59, 60)),
        )

    @cached_property
    def years(self) -> set[int] | None:
        return None if self.fields[6] == "*" else numbers(self.fields[6], 1970, 3000, 0)

    @cached_property
    def months(self) -> set[int]:
        return numbers(self.fields[4], 1, 12, 12, MONTHS, 1)


def is_named(of_month: str, of_week: str, day: date) -> bool:
    """Whether the two day fields name this day."""
    if of_month in "*?":
        return of_week in "*?" or in_days_of_week(of_week.lstrip("+"), day)
    if of_week in "*?":
        return in_days_of_month(of_month, day)
    if of_week.startswith("+"):
        return in_days_of_month(of_month, day) and in_days_of_week(of_week[1:], day)
    return in_days_of_month(of_month, day) or in_days_of_week(of_week, day)


def read(pattern: str, zone: str) -> list[Alternative]:
    return [read_alternative(text, zone) for text in pattern.split("|")]


def read_alternative(text: str, zone: str) -> Alternative:
    found = Alternative(zone)
    rest = []
    for word in re.split(r"[ \t]+", text.strip(" \t")):
        if word.startswith(("TZ:", "TZ=", "CRON_TZ=")):
            found.zone = re.split("[:=]", word, maxsplit=1)[1]
        elif re.match(r"[A-Za-z]+/[A-Za-z]", word):
            found.zone = word
        elif word.startswith("WOY:"):
            found.weeks = numbers(word[4:], 1, 53, 53)
        elif re.match(r"([ES]OD:)?[ES]\d", word):
            found.modifier = word.split(":")[-1]
        else:
            rest.append(word)
    if rest == ["@reboot"]:
        found.at_start = True
    elif rest and rest[0] == "@every":
        found.every = sum(
            int(number) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit]
            for number, unit in re.findall(r"(\d+)([dhms])", rest[1])
        )
    elif rest or found.weeks is not None:
        fields = (PRESETS.get(rest[0]) or " ".join(rest)).split() if rest else EVERY_DAY.split()
        found.fields = [*(["0"] if len(fields) == 5 else []), *fields, *(["*"] if len(fields) < 7 else [])]
    return found


@cache
def numbers(text: str, low: int, high: int, cycle: int, names: tuple[str, ...] = (), first: int = 0) -> set[int]:
    """The numbers of a list of values, ranges and steps."""
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        start, _, end = span.partition("-")
        if start == "*":
            bounds = [low, high]
        else:
            bounds = [value(start, names, first)]
            bounds.append(value(end, names, first) if end else high if step else bounds[0])
        at, last = bounds
        if last < at:
            last += cycle
        while at <= last:
            found.add(at if at <= high else at - cycle)
            at += int(step or 1)
    return found


def value(text: str, names: tuple[str, ...], first: int) -> int:
    return int(text) if text.isdigit() else names.index(text.upper()) + first


def in_days_of_month(text: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    for item in text.split(","):
        special = re.fullmatch(r"L(?:-(\d+))?(W?)|(\d+)(W)", item)
        if special is None:
            if day.day in numbers(item, 1, 31, 0):
                return True
            continue
        before, last_workday, number, _ = special.groups()
        wanted = int(number) if number else last - int(before or 0)
        if not 1 <= wanted <= last:
            continue
        target = day.replace(day=wanted)
        if number or last_workday:
            target = nearest_workday(target)
        if target == day:
            return True
    return False


def nearest_workday(day: date) -> date:
    """Looks to both sides, nearest first, for a Monday to Friday of the same month."""
    for distance in (0, -1, 1, -2, 2):
        other = day + timedelta(days=distance)
        if other.month == day.month and other.isoweekday() <= 5:
            return other
    raise AssertionError("a week without working days")


def in_days_of_week(text: str, day: date) -> bool:
    return any(is_day_of_week(item, day) for item in text.split(","))


def is_day_of_week(item: str, day: date) -> bool:
    weekday = day.isoweekday() % 7
    special = re.fullmatch(r"(\d+|[A-Za-z]{3})(L|#L|#-\d+|#\d+|W\d+)", item)
    if special is None:
        return weekday in {number % 7 for number in numbers(item, 0, 7, 7, DAYS)}
    name, kind = special.groups()
    if weekday != value(name, DAYS, 0) % 7:
        return False
    last = calendar.monthrange(day.year, day.month)[1]
    if kind in ("L", "#L"):
        return day.day + 7 > last
    if kind.startswith("#-"):
        return (last - day.day) // 7 + 1 == int(kind[2:])
    if kind.startswith("#"):
        return (day.day - 1) // 7 + 1 == int(kind[1:])
    rows = calendar.Calendar(firstweekday=0).monthdayscalendar(day.year, day.month)
    row = int(kind[1:])
    return row <= len(rows) and day.day in rows[row - 1]
