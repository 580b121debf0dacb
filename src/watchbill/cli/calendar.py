"""Draws months: how often a pattern fires on each day, and where the clocks change."""

from __future__ import annotations

import calendar
from collections import Counter
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import typer

from watchbill.cron.compiler import check_schedule
from watchbill.cron.zones import Zone, load_zone

if TYPE_CHECKING:
    from watchbill.cron import Cron

_WIDTH = 6
_MOST = 20_000  # runs that are counted; a pattern that fires each second would take minutes
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  of wall times, which have no zone


class ClockChange(NamedTuple):
    zone: str
    before: datetime
    after: datetime

    @property
    def day(self) -> date:
        return min(self.before, self.after).date()

    def __str__(self) -> str:
        before, after = (f"{wall:%H:%M}" for wall in (self.before, self.after))
        if self.before.date() != self.after.date():
            before, after = f"{_day(self.before)} {before}", f"{_day(self.after)} {after}"
        return f"* {_day(self.day)} {self.day.year}: in {self.zone} the clock goes from {before} to {after}"


def draw(cron: Cron, start: datetime, months: int) -> str:
    first = start.astimezone(load_zone(cron.tz).info).date().replace(day=1)
    shown = [month for n in range(months) if (month := _after(first, n)) is not None]
    runs, complete_until = _count(cron, start, shown[-1])
    changes = [change for month in shown for change in _clock_changes(cron, month)]
    marked = {change.day for change in changes}
    pictures = [_month(month, runs, complete_until, marked) for month in shown]
    legend = "below each day: how often it fires    +: not counted any more    *: the clocks change on that day"
    notes = "\n".join([legend, *map(str, changes)])
    return "\n\n".join([*pictures, typer.style(notes, dim=True)])


def _day(day: date) -> str:
    return f"{day.day} {day:%B}"


def _after(first: date, months: int) -> date | None:
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return date(year, month + 1, 1) if year <= MAXYEAR else None


def _count(cron: Cron, start: datetime, last_month: date) -> tuple[Counter[date], date | None]:
    """Runs per local day, and the first day that was not counted any more."""
    runs: Counter[date] = Counter()
    end = _after(last_month, 1)
    enough = datetime.max.replace(tzinfo=UTC) if end is None else datetime.combine(end, datetime.min.time(), UTC)
    if end is not None:
        enough += timedelta(days=2)
    for number, moment in enumerate(cron.between(start, enough)):
        if number >= _MOST:
            return runs, moment.date()
        runs[moment.date()] += 1
    return runs, None


def _month(first: date, runs: Counter[date], complete_until: date | None, marked: set[date]) -> str:
    """Two lines a week: the days, and below each how often it fires."""
    lines = [typer.style(f"{first:%B %Y}".center(7 * _WIDTH), bold=True), "".join(map(_cell, calendar.day_abbr))]
    for week in calendar.monthcalendar(first.year, first.month):
        days = [first.replace(day=number) if number else None for number in week]
        lines.append("".join(_cell("" if day is None else f"{day.day}{'*' * (day in marked)}") for day in days))
        lines.append("".join("".rjust(_WIDTH) if day is None else _runs(day, runs, complete_until) for day in days))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return typer.style(text.rjust(_WIDTH), dim=True)


def _runs(day: date, runs: Counter[date], complete_until: date | None) -> str:
    if complete_until is not None and day >= complete_until:
        return "+".rjust(_WIDTH)
    count = runs[day]
    return typer.style(str(count).rjust(_WIDTH), fg="green", bold=True) if count else ".".rjust(_WIDTH)


def _clock_changes(cron: Cron, month: date) -> list[ClockChange]:
    """Those of the schedule's zone and of zones that the pattern names."""
    parts = check_schedule(cron.pattern, cron.tz, cron.dst).parts
    names = dict.fromkeys([cron.tz, *(part.zone for part in parts if part.zone)])
    return [change for name in names for change in _changes_of(load_zone(name), month)]


def _changes_of(zone: Zone, month: date) -> list[ClockChange]:
    length = calendar.monthrange(month.year, month.month)[1]
    begin = (datetime.combine(month, datetime.min.time()) - _EPOCH) // timedelta(seconds=1)
    segment = zone.segment(begin - 86_400)
    found = []
    while segment.end < begin + (length + 1) * 86_400:
        following = zone.segment(segment.end)
        before, after = (_EPOCH + timedelta(seconds=segment.end + part.offset) for part in (segment, following))
        change = ClockChange(zone.name, before, after)
        if (change.day.year, change.day.month) == (month.year, month.month):
            found.append(change)
        segment = following
    return found
