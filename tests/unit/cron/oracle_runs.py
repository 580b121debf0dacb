"""A slow, plain scanner over zoneinfo datetimes: what the engine is compared with. Imports nothing of `watchbill.cron`.

A wall time is a naive datetime, an instant an aware one in UTC.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

from tests.unit.cron.oracle_parser import Alternative, is_named

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
FIRST = datetime(1, 1, 2, tzinfo=UTC)
LAST = datetime(9999, 12, 30, tzinfo=UTC)


class Undecided(Exception):
    """Scanning would take too long."""


def zone_info(name: str) -> tzinfo:
    if name[0] in "+-":
        offset = timedelta(hours=int(name[1:3]), minutes=int(name[4:6]))
        return timezone(-offset if name[0] == "-" else offset)
    return ZoneInfo(name)


class Clock:
    """What the clocks of a zone show."""

    def __init__(self, zone: str) -> None:
        self.info = zone_info(zone)

    def wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self.info).replace(tzinfo=None, fold=0)

    def instants(self, wall: datetime) -> list[datetime]:
        """The instants at which the clock shows this: none, one or two."""
        both = {wall.replace(tzinfo=self.info, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(instant for instant in both if self.wall(instant) == wall)

    def first_reaching(self, wall: datetime) -> datetime:
        """The first instant at which the clock shows this or later."""
        shown = self.instants(wall)
        if shown:
            return shown[0]
        before, after = sorted(wall.replace(tzinfo=self.info, fold=fold).astimezone(UTC) for fold in (0, 1))
        while after - before > SECOND:
            middle = before + (after - before) // 2
            middle -= timedelta(microseconds=middle.microsecond)
            before, after = (before, middle) if self.wall(middle) >= wall else (middle, after)
        return after

    def wobble(self, instant: datetime) -> timedelta:
        """How far the clock is put forward or back within three days of an instant."""
        return wobble_around(self.info, instant.date())


@lru_cache(maxsize=100_000)
def wobble_around(info: tzinfo, day: date) -> timedelta:
    noon = datetime.combine(day, time(12), UTC)
    offsets = [
        moment.astimezone(info).utcoffset() or timedelta(0)
        for hours in range(-84, 85)
        if FIRST < (moment := noon + timedelta(hours=hours)) < LAST
    ]
    return max(offsets) - min(offsets)


class FieldRuns:
    """The instants of fields under a policy."""

    def __init__(self, alternative: Alternative, policy: str) -> None:
        self.alternative = alternative
        self.clock = Clock(alternative.zone)
        elapsed = alternative.follows_elapsed_time
        self.runs_gaps = policy in ("once", "both") or (policy == "default" and not elapsed)
        self.runs_twice = policy == "both" or (policy == "default" and elapsed)

    def next(self, after: datetime) -> datetime | None:
        wobble = self.clock.wobble(after)
        best: datetime | None = None
        for wall in self.walls(self.clock.wall(after) - wobble, 1):
            best = min((run for run in (*self.runs(wall), best) if run is not None and run > after), default=None)
            if best is not None and wall >= self.clock.wall(best) + self.clock.wobble(best):
                return best
        return best

    def prev(self, before: datetime) -> datetime | None:
        wobble = self.clock.wobble(before)
        best: datetime | None = None
        for wall in self.walls(self.clock.wall(before) + wobble, -1):
            best = max((run for run in (*self.runs(wall), best) if run is not None and run < before), default=None)
            if best is not None and wall <= self.clock.wall(best) - self.clock.wobble(best):
                return best
        return best

    def runs(self, wall: datetime) -> list[datetime]:
        """The instants at which a wall time of the schedule runs."""
        shown = self.clock.instants(wall)
        if not shown:
            return [self.clock.first_reaching(wall)] if self.runs_gaps else []
        return shown if self.runs_twice else shown[:1]

    def walls(self, start: datetime, direction: int) -> Iterator[datetime]:
        """The wall times from one on, forwards or backwards."""
        for day in self.days(start.date(), direction):
            for hour, minute, second in self.times(start if day == start.date() else None, direction):
                wall = datetime.combine(day, time(hour, minute, second))
                if (wall - start) * direction >= timedelta(0):
                    yield wall

    def times(self, start: datetime | None, direction: int) -> Iterator[tuple[int, ...]]:
        hours, minutes, seconds = (numbers[::direction] for numbers in self.alternative.times)
        if start is not None:
            hours = [hour for hour in hours if (hour - start.hour) * direction >= 0]
        for hour in hours:
            minutes_here = minutes
            if start is not None and hour == start.hour:
                minutes_here = [minute for minute in minutes if (minute - start.minute) * direction >= 0]
            yield from product([hour], minutes_here, seconds)

    def days(self, start: date, direction: int) -> Iterator[date]:
        """The days of the schedule from one on."""
        for year in self.years(start.year, direction):
            for month in sorted(self.alternative.months)[::direction]:
                if (year * 12 + month - start.year * 12 - start.month) * direction >= 0:
                    days = self.days_of_month(year, month)[::direction]
                    yield from (day for day in days if (day - start).days * direction >= 0)

    def years(self, start: int, direction: int) -> Iterator[int]:
        """What no year of a whole cycle of 400 years has, none has; twice that, for clock changes on top."""
        year = start
        named = self.alternative.years
        while 1 <= year <= 9999 and (named is not None or abs(year - start) <= 801):
            if named is None or year in named:
                yield year
            year += direction

    def days_of_month(self, year: int, month: int) -> list[date]:
        alternative = self.alternative
        days = days_named(alternative.fields[3], alternative.fields[5], year % 400, month)
        found = [date(year, month, day) for day in days]
        weeks = alternative.weeks
        return found if weeks is None else [day for day in found if day.isocalendar().week in weeks]


@lru_cache(maxsize=100_000)
def days_named(of_month: str, of_week: str, year: int, month: int) -> list[int]:
    """The days of a month that the two day fields name. The calendar repeats after 400 years."""
    length = monthrange(year + 400, month)[1]
    return [day for day in range(1, length + 1) if is_named(of_month, of_week, date(year + 400, month, day))]


class NoRuns:
    """`@reboot`."""

    def next(self, after: datetime) -> datetime | None:
        return None

    def prev(self, before: datetime) -> datetime | None:
        return None


class GridRuns:
    """`@every`, in the weeks it is confined to."""

    def __init__(self, alternative: Alternative, anchor: datetime) -> None:
        self.period = timedelta(seconds=alternative.every)
        self.weeks = alternative.weeks
        self.anchor = anchor
        self.clock = Clock(alternative.zone)

    def next(self, after: datetime) -> datetime | None:
        return self.search(after - (after - self.anchor) % self.period + self.period, self.period)

    def prev(self, before: datetime) -> datetime | None:
        last = before - SECOND
        return self.search(last - (last - self.anchor) % self.period, -self.period)

    def search(self, instant: datetime, step: timedelta) -> datetime | None:
        for _ in range(20_000):
            if self.weeks is None or self.clock.wall(instant).isocalendar().week in self.weeks:
                return instant
            instant += step
        raise Undecided
