"""Zones worth testing with, by what is odd about them, and their clock changes, found with zoneinfo alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

ZONE_KINDS: dict[str, list[str]] = {
    "utc": ["UTC"],
    "offset": ["+03:00", "-09:30", "+14:00"],
    "never changes": ["Asia/Tokyo", "Asia/Kathmandu", "Etc/GMT+5"],
    "northern summer time": ["America/New_York", "Europe/Berlin", "America/St_Johns"],
    "southern summer time": ["Australia/Sydney", "America/Santiago", "Pacific/Chatham"],
    "changes at midnight": ["America/Havana", "Africa/Cairo", "Asia/Beirut", "America/Sao_Paulo"],
    "half-hour change": ["Australia/Lord_Howe"],
    "two-hour change": ["Antarctica/Troll"],
    "winter time instead": ["Europe/Dublin", "Africa/Casablanca"],
    "a day lost or gained": ["Pacific/Apia", "Pacific/Kwajalein", "Asia/Manila", "America/Juneau"],
    "offset with seconds": ["Africa/Monrovia", "Europe/Amsterdam"],
}

# Years in which the zones above change their clocks: past and present, far ahead, and the odd events.
PAST = (1844, 1867, 1892, 1937, 1969, 1972, 1993, 1994, 2011, 2018, 2023, 2024, 2025)
FUTURE = (2099, 2100, 2499, 2500, 2899, 2900, 5000, 9998)


class ClockChange(NamedTuple):
    zone: str
    instant: datetime
    kind: str


@cache
def clock_changes(zone: str) -> list[ClockChange]:
    if zone[0] in "+-" or zone == "UTC":
        return []
    return [change for year in PAST + FUTURE for change in _changes_of(zone, year)]


def _changes_of(zone: str, year: int) -> list[ClockChange]:
    info = ZoneInfo(zone)
    day, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    while day < end:
        before, after = day, day + timedelta(days=1)
        if _offset(info, before) != _offset(info, after):
            found.append(_describe(zone, info, _bisect(info, before, after)))
        day = after
    return found


def _describe(zone: str, info: ZoneInfo, instant: datetime) -> ClockChange:
    jump = _offset(info, instant) - _offset(info, instant - timedelta(seconds=1))
    kinds = ("a_gap", "an_overlap") if abs(jump) < timedelta(hours=20) else ("a_day_gap", "a_day_overlap")
    return ClockChange(zone, instant, kinds[jump < timedelta(0)])


def _bisect(info: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second with another offset."""
    old = _offset(info, before)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        before, after = (middle, after) if _offset(info, middle) == old else (before, middle)
    return after


def _offset(info: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(info).utcoffset()
    assert offset is not None
    return offset
