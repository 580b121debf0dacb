"""Reads time zones from the same TZif files as `zoneinfo`, as arrays of whole seconds. Both cron engines use them.

A zone is a list of segments, each with one offset from UTC. A segment has a high-water mark: the latest time that the
wall clock had shown before the segment began. If the clock was put forward, the segment starts above its mark, and the
times between are skipped. If the clock was put back, the segment starts below its mark, and the times up to the mark
are repeated. So one bisection finds the first instant at which a clock shows w *or a later time*. At that instant a
wall-clock schedule runs, for a skipped time as for a repeated one.

The rule for the future (the footer of the file) is expanded up to the year 2500. From there on the calendar, and so the
zone, repeats every 400 years.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from typing import NamedTuple

from watchbill.cron.calendar import CYCLE, CYCLE_YEARS, DAY, year_of, year_start

BEGINNING = -(1 << 62)
END = 1 << 62

_FOLDS_FROM = 2100  # from here on a zone repeats every 400 years: no zone file lists a transition after 2087
_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_NOT_PORTABLE = re.compile(r"(?:posix|right)/.*|posixrules|localtime")
LONGEST_NAME = 64  # characters; no zone has a longer name, and file systems refuse very long ones
_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])")
_HEADER = struct.Struct(">4sc15x6l")


class Transitions(NamedTuple):
    """The content of a zone file: from `instants[i]` on the offset is `offsets[i]`; before all of them it is
    `before`."""

    before: int
    instants: list[int]
    offsets: list[int]
    horizon: int  # from this instant on the zone repeats every 400 years; END if it never changes again


class Segment(NamedTuple):
    """A time in which the offset from UTC stays the same: instants from `start` up to, not including, `end`."""

    start: int
    end: int
    offset: int
    high: int  # the high-water mark: before `start`, the wall clock has shown or skipped every time below this

    def shifted(self, seconds: int) -> Segment:
        return Segment(self.start + seconds, self.end + seconds, self.offset, self.high + seconds)


class Zone:
    """A time zone. Instants are seconds since 1970 in UTC; a *wall* is what its clock shows, counted as if it were
    UTC."""

    def __init__(self, name: str, info: tzinfo, transitions: Transitions) -> None:
        self.name = name
        self.info = info
        self.horizon = transitions.horizon
        self.segments = _make_segments(transitions)
        self._starts = [segment.start for segment in self.segments]
        self._highs = [segment.high for segment in self.segments]

    @property
    def is_fixed(self) -> bool:
        return len(self.segments) == 1

    def segment(self, instant: int) -> Segment:
        """Returns the segment that an instant lies in."""
        if instant >= self.horizon:
            shift = self._shift(instant)
            return self.segment(instant - shift).shifted(shift)
        return self.segments[bisect_right(self._starts, instant) - 1]

    def wall(self, instant: int) -> int:
        return instant + self.segment(instant).offset

    def first_instant(self, wall: int) -> int:
        """Returns the first instant at which the clock shows this wall time or a later one."""
        if wall >= self.horizon:
            shift = self._shift(wall)
            return self.first_instant(wall - shift) + shift
        start, _, offset, _ = self.segments[bisect_right(self._highs, wall) - 1]
        return wall - offset if wall - offset > start else start

    def shown_before(self, instant: int) -> int:
        """Returns the last wall time whose `first_instant` is earlier than `instant`."""
        _, _, offset, high = self.segment(instant - 1)
        return max(instant - 1 + offset, high - 1)

    def second_instant(self, wall: int) -> int | None:
        """Returns the instant at which the clock shows this wall time again, after it was put back; None if it never
        does."""
        segment = self.segment(self.segment(self.first_instant(wall)).end)
        shown_again = segment.start + segment.offset <= wall < segment.high
        return wall - segment.offset if shown_again else None

    def stamp(self, instant: int) -> datetime:
        """Returns an instant as an aware datetime in this zone."""
        return datetime.fromtimestamp(instant, self.info)

    def _shift(self, seconds: int) -> int:
        return ((seconds - self.horizon) // CYCLE + 1) * CYCLE


class UnknownZone(LookupError):
    """The name is neither an IANA name that this machine knows nor an offset like +05:30."""


def is_zone(name: str) -> bool:
    """Whether a zone of this name exists. Does not parse its file."""
    if len(name) > LONGEST_NAME:
        return False
    return name == "UTC" or _OFFSET.fullmatch(name) is not None or name in listed_names() or zone_file(name) is not None


@lru_cache(maxsize=2048)
def load_zone(name: str) -> Zone:
    """Returns the zone of this name: `UTC`, an IANA name, or an offset like `+05:30` (east is positive)."""
    if name == "UTC":
        return Zone(name, UTC, _make_fixed(0))
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset.groups()
        seconds = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)
        return Zone(name, timezone(timedelta(seconds=seconds)), _make_fixed(seconds))
    from zoneinfo import ZoneInfo  # imported here, because `import watchbill.cron` must be fast

    transitions = read_transitions(name)
    return Zone(name, ZoneInfo(name), transitions)


def read_transitions(name: str) -> Transitions:
    """Reads the transitions of a zone from its file, including those that the rule in the footer adds."""
    data = zone_file(name)
    if data is None:
        raise UnknownZone(name)
    return parse_tzif(data)


def parse_tzif(data: bytes) -> Transitions:
    """Reads a TZif file (RFC 8536): its 64-bit half where there is one, without leap seconds, as `zoneinfo` does."""
    _, version, *counts = _HEADER.unpack_from(data)
    start, width = _HEADER.size, 4
    if version >= b"2":
        start += _compute_block_size(counts, 4)
        _, _, *counts = _HEADER.unpack_from(data, start)
        start, width = start + _HEADER.size, 8
    transition_count, type_count = counts[3], counts[4]
    instants = list(struct.unpack_from(f">{transition_count}{'q' if width == 8 else 'l'}", data, start))
    start += transition_count * width
    indexes = data[start : start + transition_count]
    types = list(struct.iter_unpack(">lBB", data[start + transition_count :][: type_count * 6]))
    before = next((offset for offset, is_dst, _ in types if not is_dst), types[0][0])
    offsets = [types[index][0] for index in indexes]
    footer = data.rstrip(b"\n").rsplit(b"\n", 1)[-1].decode("ascii") if width == 8 else ""
    return _expand_footer(before, instants, offsets, footer)


@cache
def listed_names() -> dict[str, None]:
    """Returns the IANA names that the tzdata package lists, in order. To look for all zone files would take too
    long."""
    from importlib import resources

    try:
        return dict.fromkeys(resources.files("tzdata").joinpath("zones").read_text("ascii").split())
    except (ModuleNotFoundError, OSError):
        return {}


def zone_file(name: str) -> bytes | None:
    """Returns the content of a zone's file, which is searched where `zoneinfo` searches it, in the same order."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or _NOT_PORTABLE.fullmatch(name):
        return None
    import zoneinfo
    from pathlib import Path

    for directory in zoneinfo.TZPATH:
        path = Path(directory, name)
        if path.is_file():
            data = path.read_bytes()
            return data if data.startswith(b"TZif") else None
    return _read_packaged(name)


def _read_packaged(name: str) -> bytes | None:
    from importlib import resources

    try:
        return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    except (ModuleNotFoundError, OSError):
        return None


def _compute_block_size(counts: list[int], width: int) -> int:
    ut_count, standard_count, leap_count, transition_count, type_count, name_length = counts
    transitions = transition_count * (width + 1) + type_count * 6 + name_length
    return transitions + leap_count * (width + 4) + standard_count + ut_count


def _make_fixed(offset: int) -> Transitions:
    return Transitions(offset, [], [], END)


def _expand_footer(before: int, instants: list[int], offsets: list[int], footer: str) -> Transitions:
    """Adds the transitions of the footer's rule, for the years after the last transition that the file lists."""
    from watchbill.cron.footer import parse_footer  # imported here, because UTC does not need it

    rule = parse_footer(footer) if footer else None
    if rule is None or not rule.changes:
        return Transitions(rule.standard if rule and not instants else before, instants, offsets, END)
    last = instants[-1] if instants else BEGINNING
    first_year = year_of(last // DAY) if instants else 1
    folds_from = max(_FOLDS_FROM, first_year + 2)
    horizon_year = folds_from + CYCLE_YEARS
    for instant, offset in rule.transitions(first_year, horizon_year + 1):
        if instant > last:
            instants.append(instant)
            offsets.append(offset)
    return Transitions(before, instants, offsets, year_start(horizon_year) * DAY)


def _make_segments(transitions: Transitions) -> list[Segment]:
    starts, offsets, highs = split_into_segments(transitions)
    return [*map(Segment._make, zip(starts, [*starts[1:], END], offsets, highs, strict=True))]


def split_into_segments(transitions: Transitions) -> tuple[list[int], list[int], list[int]]:
    """Returns start, offset and high-water mark of each segment. A transition that changes only the name or the
    summer-time flag, and not the offset, starts no segment."""
    offset, high = transitions.before, BEGINNING
    starts, offsets, highs = [BEGINNING], [offset], [high]
    # A dict, because of several changes at one instant only the last one counts.
    changes = dict(zip(transitions.instants, transitions.offsets, strict=True))
    for instant, new_offset in changes.items():
        if new_offset != offset:
            if instant + offset > high:
                high = instant + offset
            starts.append(instant)
            offsets.append(new_offset)
            highs.append(high)
            offset = new_offset
    return starts, offsets, highs
