"""How the dashboard writes numbers, durations and times: `12,400`, `≈ 4.2 M`, `7 min 53 s`, `in 41 s`, `14:40:53`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

MINUTE, HOUR, DAY = 60, 3600, 86_400
_LONG = 200 * DAY  # from here on a duration is given in years
_EXACT_UP_TO = 100_000  # larger numbers are shortened where a tile shows them
NONE = "-"
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?[+-]\d\d(?::\d\d)?")
_INTERVAL = re.compile(r"\bin (?:(\d+) days? )?(\d\d+):(\d\d):(\d\d)(?:\.\d+)?\b")
_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def write_number(number: float | None, *, is_estimate: bool = False) -> str:
    """`12,400`, or `≈ 12,400` for an estimate."""
    if number is None:
        return NONE
    shown = f"{number:,.0f}" if abs(number) >= 10 or float(number).is_integer() else f"{number:.1f}"
    return f"≈ {shown}" if is_estimate else shown


def write_short_number(number: float | None, *, is_estimate: bool = False) -> str:
    """A number for a tile: `12,400`, `≈ 418 k`, `4.2 M`."""
    if number is None or abs(number) < _EXACT_UP_TO:
        return write_number(number, is_estimate=is_estimate)
    size, unit = next(each for each in _SIZES if abs(number) >= each[0])
    amount = number / size
    shown = f"{amount:.1f}" if abs(amount) < 10 else f"{amount:,.0f}"
    return f"{'≈ ' if is_estimate else ''}{shown} {unit}"


def write_share(part: float, whole: float) -> str:
    """`0.4 %`, or `-` of nothing."""
    if not whole:
        return NONE
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent < 10 and part else f"{percent:.0f} %"


def write_rate(per_second: float | None) -> str:
    """Jobs per second: `92`, `0.4`, or `0` for less than one in a quarter of an hour."""
    if per_second is None:
        return NONE
    if per_second >= 9.95:
        return f"{per_second:,.0f}"
    if per_second >= 0.095:
        return f"{per_second:.1f}"
    return f"{per_second:.2f}" if per_second >= 0.005 else "0"


def write_bytes(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    length, unit = next(each for each in _SIZES if size >= each[0])
    amount = size / length
    return f"{amount:.1f} {unit}B" if amount < 10 else f"{amount:,.0f} {unit}B"


def write_duration(seconds: float | None) -> str:
    """`3 ms`, `0.4 s`, `41 s`, `7 min 53 s`, `6 h 12 min`, `3 d 4 h`, `14 d`, `2 years`."""
    if seconds is None:
        return NONE
    length = abs(seconds)
    if length < 0.0995:
        shown = f"{length * 1000:.0f} ms"
    elif length < 9.95:
        shown = f"{length:.1f} s"
    else:
        shown = _write_long_duration(round(length))
    return f"-{shown}" if seconds < 0 and shown[0] != "0" else shown


def _write_long_duration(seconds: int) -> str:
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return _write_two(seconds, MINUTE, "min", 1, "s")
    if seconds < DAY:
        return _write_two(seconds, HOUR, "h", MINUTE, "min")
    if seconds < 10 * DAY:
        return _write_two(seconds, DAY, "d", HOUR, "h")
    if seconds < _LONG:
        return f"{seconds // DAY} d"
    return f"{seconds / (365 * DAY):.1f} years"


def _write_two(seconds: int, size: int, unit: str, smaller: int, small_unit: str) -> str:
    whole, rest = divmod(seconds, size)
    part = rest // smaller
    return f"{whole} {unit} {part} {small_unit}" if part else f"{whole} {unit}"


def write_coarse_duration(seconds: float) -> str:
    """The first unit only, for `in 9 h` and `7 min ago`."""
    length = abs(seconds)
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if length >= size:
            return f"{length // size:.0f} {unit}" if length < _LONG else _write_long_duration(round(length))
    return f"{length:.0f} s"


@dataclass(frozen=True)
class Timepiece:
    """What the time is for a page, and in which zone it shows times."""

    now: datetime
    zone: tzinfo = field(default=UTC)
    zone_name: str = "UTC"

    def seconds_since(self, instant: datetime | None) -> float | None:
        return None if instant is None else (self.now - instant).total_seconds()

    def write_exact(self, instant: datetime) -> str:
        """`2026-10-20 14:40:53.123 UTC`."""
        local = instant.astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {self.zone_name}"

    def write_clock(self, instant: datetime) -> str:
        """The time of today, otherwise the day as well: `14:40:53`, `19 Oct 14:40`, `2025-10-19`."""
        local, today = instant.astimezone(self.zone), self.now.astimezone(self.zone)
        if local.date() == today.date():
            return f"{local:%H:%M:%S}"
        if abs((today - local).total_seconds()) < _LONG:
            return f"{local.day} {local:%b %H:%M}"
        return f"{local:%Y-%m-%d}"

    def write_minute(self, instant: datetime) -> str:
        """`14:40` today, and the day otherwise."""
        shown = self.write_clock(instant)
        return shown[:5] if shown[2:3] == shown[5:6] == ":" else shown

    def write_relative(self, instant: datetime) -> str:
        """`7 min ago`, `now`, `in 41 s`."""
        past = (self.now - instant).total_seconds()
        if abs(past) < 1:
            return "now"
        shown = write_coarse_duration(past)
        return f"{shown} ago" if past > 0 else f"in {shown}"

    def rewrite(self, sentence: str) -> str:
        """A sentence of the database with its instants as the page writes them: `since 14:33:53 (7 min ago)`."""
        named = _INTERVAL.sub(_write_interval, sentence)
        return _INSTANT.sub(lambda found: self._write_both(datetime.fromisoformat(found[0]), named), named)

    def _write_both(self, instant: datetime, sentence: str) -> str:
        clock = self.write_clock(instant)
        return clock if instant > self.now and ", in " in sentence else f"{clock} ({self.write_relative(instant)})"


def _write_interval(found: re.Match[str]) -> str:
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return f"in {write_duration(days * DAY + hours * HOUR + minutes * MINUTE + seconds)}"
