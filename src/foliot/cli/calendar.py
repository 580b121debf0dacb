"""Draws months: how often a pattern fires on each day, and where the clocks change."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from foliot.cron import Cron

_WIDTH = 6
_MOST = 20_000  # runs that are counted; a pattern that fires each second would take minutes


def draw(cron: Cron, start: datetime, months: int) -> str:
    first = _local(cron, start).replace(day=1)
    runs, complete_until = _count(cron, start, _after(first, months))
    pictures = [_month(_after(first, n), cron, runs, complete_until) for n in range(months)]
    legend = "below each day: how often it fires    +: not counted any more    *: the clocks change on that day"
    return "\n\n".join([*pictures, typer.style(legend, dim=True)])


def _local(cron: Cron, moment: datetime) -> date:
    later = cron.next(moment)
    return (moment.astimezone(later.tzinfo) if later else moment).date()


def _after(first: date, months: int) -> date:
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return date(year, month + 1, 1)


def _count(cron: Cron, start: datetime, end: date) -> tuple[Counter[date], date]:
    """Runs per local day, and the first day that was not counted any more."""
    runs: Counter[date] = Counter()
    last = datetime(end.year, end.month, end.day, tzinfo=UTC) + timedelta(days=2)
    for number, moment in enumerate(cron.between(start, last)):
        if number >= _MOST:
            return runs, moment.date()
        runs[moment.date()] += 1
    return runs, end


def _month(first: date, cron: Cron, runs: Counter[date], complete_until: date) -> str:
    """Two lines a week: the days, and below each how often it fires."""
    changes = set(_clock_changes(cron, first))
    lines = [typer.style(f"{first:%B %Y}".center(7 * _WIDTH), bold=True), "".join(map(_cell, calendar.day_abbr))]
    for week in calendar.Calendar().monthdatescalendar(first.year, first.month):
        days = [day if day.month == first.month else None for day in week]
        lines.append("".join(_cell("" if day is None else f"{day.day}{'*' * (day in changes)}") for day in days))
        lines.append("".join("".rjust(_WIDTH) if day is None else _runs(day, runs, complete_until) for day in days))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return typer.style(text.rjust(_WIDTH), dim=True)


def _runs(day: date, runs: Counter[date], complete_until: date) -> str:
    if day >= complete_until:
        return "+".rjust(_WIDTH)
    count = runs[day]
    return typer.style(str(count).rjust(_WIDTH), fg="green", bold=True) if count else ".".rjust(_WIDTH)


def _clock_changes(cron: Cron, first: date) -> Iterator[date]:
    """Days of this month that begin and end at different offsets."""
    later = cron.next(datetime(first.year, first.month, 1, tzinfo=UTC))
    zone = later.tzinfo if later else UTC
    day = datetime(first.year, first.month, 1, tzinfo=zone)
    while day.month == first.month:
        tomorrow = day + timedelta(days=1)
        if day.utcoffset() != tomorrow.utcoffset():
            yield day.date()
        day = tomorrow
