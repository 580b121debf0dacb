"""Turns wall times into instants, also around clock changes. Instants are whole seconds since 1970-01-01 UTC.

Two ways to read a set of wall times are enough for every policy. *Wall clock*: a wall time fires at the first instant
when the clock shows it or a later one. So a skipped time fires at the clock change, and a repeated time fires when the
clock shows it first. *Elapsed*: a wall time fires at every instant when the clock shows it. So a skipped time does not
fire, and a repeated one fires twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from watchbill.cron.calendar import DAY
from watchbill.cron.walls import Walls
from watchbill.cron.zones import Segment, Zone

EARLIEST = -62_135_596_800  # 0001-01-01 00:00:00 UTC
LATEST = 253_402_300_799  # 9999-12-31 23:59:59 UTC

FURTHEST_BACK = 2 * DAY  # no clock was ever put back by more, because offsets lie between -16 and +16 hours

# A cached window of times: its first instant, its end, the instant from which its times count, and its times.
_Window = tuple[int, int, int, list[int]]


class Instants(Protocol):
    """A set of instants that can find the first one after, and the last one before, any instant."""

    def next(self, instant: int) -> int | None:
        """Returns the first instant of the set that is later than `instant`."""

    def prev(self, instant: int) -> int | None:
        """Returns the last instant of the set that is earlier than `instant`."""


class OnClock(ABC):
    """The base of `WallClock` and `Elapsed`. Caches the times around the last result, because the next call mostly asks
    for an instant near it."""

    def __init__(self, walls: Walls, zone: Zone) -> None:
        self._walls = walls
        self._zone = zone
        self._segment = zone.segment(0)
        self._window: _Window = (0, 0, 0, [])
        self._caches_window = walls.has_several_times_a_day

    def next(self, instant: int) -> int | None:
        first, end, origin, times = self._window
        if first <= instant < end:
            return origin + times[bisect_right(times, instant - origin)]
        return self._search(instant)

    @abstractmethod
    def _search(self, instant: int) -> int | None:
        """Finds the first instant later than `instant`, for `next`, without the cached window."""

    @abstractmethod
    def prev(self, instant: int) -> int | None: ...

    def _cache_window(self, wall: int, segment: Segment) -> None:
        """Caches the window of times around a wall time, unless a clock change is in it."""
        start, end, offset, high = segment
        length, times = self._walls.times.window
        origin = wall - wall % length
        if len(times) > 1 and origin >= high and start <= origin - offset <= end - length:
            self._window = (origin - offset, origin - offset + times[-1], origin - offset, times)


class WallClock(OnClock):
    """Fires once for every wall time: at the first instant when the clock shows it or a later time."""

    def _search(self, instant: int) -> int | None:
        segment = self._segment
        start, end, offset, high = segment
        if not start <= instant < end:
            segment = self._segment = self._zone.segment(instant)
            start, end, offset, high = segment
        wall = instant + offset
        found = self._walls.after(wall if wall >= high else high - 1)
        if found is None:
            return None
        if found - offset >= end:
            return self._zone.first_instant(found)
        if self._caches_window:
            self._cache_window(found, segment)
        return found - offset

    def prev(self, instant: int) -> int | None:
        found = self._walls.before(self._zone.shown_before(instant) + 1)
        return None if found is None else self._zone.first_instant(found)


class Elapsed(OnClock):
    """Fires at every instant at which the clock shows a wall time of the set."""

    def _search(self, instant: int) -> int | None:
        segment = self._segment
        if not segment.start <= instant < segment.end:
            segment = self._segment = self._zone.segment(instant)
        while instant < LATEST:
            _, end, offset, _ = segment
            wall = self._walls.after(instant + offset)
            if wall is not None and wall - offset < end:
                if self._caches_window:
                    self._cache_window(wall, segment)
                return wall - offset
            if end - instant <= FURTHEST_BACK:
                resume = end
            elif wall is None:
                return None
            else:
                resume = self._zone.first_instant(wall)
            segment = self._zone.segment(resume)
            instant = resume - 1
        return None

    def prev(self, instant: int) -> int | None:
        while instant > EARLIEST - DAY:
            start, _, offset, _ = self._zone.segment(instant - 1)
            wall = self._walls.before(instant + offset)
            if wall is not None and wall - offset >= start:
                return wall - offset
            if instant - start <= FURTHEST_BACK:
                instant = start
            elif wall is None:
                return None
            else:
                instant = min(start, self._zone.first_instant(wall) + FURTHEST_BACK)
        return None


class WithoutGaps:
    """The instants of `WallClock`, without those of wall times that a clock change skips."""

    def __init__(self, walls: Walls, zone: Zone) -> None:
        self._instants = WallClock(walls, zone)
        self._walls = walls
        self._zone = zone

    def next(self, instant: int) -> int | None:
        found = self._instants.next(instant)
        while found is not None and self._zone.wall(found) not in self._walls:
            found = self._instants.next(found) if found < LATEST else None
        return found

    def prev(self, instant: int) -> int | None:
        found = self._instants.prev(instant)
        while found is not None and self._zone.wall(found) not in self._walls:
            found = self._instants.prev(found)
        return found


class Union:
    """All instants of several sets."""

    def __init__(self, sets: Sequence[Instants]) -> None:
        self._sets = sets

    def next(self, instant: int) -> int | None:
        found = [at for each in self._sets if (at := each.next(instant)) is not None]
        return min(found, default=None)

    def prev(self, instant: int) -> int | None:
        found = [at for each in self._sets if (at := each.prev(instant)) is not None]
        return max(found, default=None)


class Nothing:
    """No instant: `@reboot` waits for an event, not for a time."""

    def next(self, instant: int) -> int | None:
        return None

    def prev(self, instant: int) -> int | None:
        return None


class Grid:
    """`@every`: the instants that lie a whole number of periods before or after an anchor."""

    def __init__(self, period: int, anchor: int) -> None:
        self._period = period
        self._anchor = anchor

    def next(self, instant: int) -> int | None:
        return instant + self._period - (instant - self._anchor) % self._period

    def prev(self, instant: int) -> int | None:
        return instant - 1 - (instant - 1 - self._anchor) % self._period


class Intersection:
    """The instants that are in both of two sets. Asks the two sets in turn for the next instant, until they agree."""

    def __init__(self, one: Instants, other: Instants) -> None:
        self._one = one
        self._other = other

    def next(self, instant: int) -> int | None:
        at = self._one.next(instant)
        while at is not None and at <= LATEST:
            shared = self._other.next(at - 1)
            if shared is None or shared == at:
                return shared
            at = self._one.next(shared - 1)
        return None

    def prev(self, instant: int) -> int | None:
        at = self._one.prev(instant)
        while at is not None and at >= EARLIEST:
            shared = self._other.prev(at + 1)
            if shared is None or shared == at:
                return shared
            at = self._one.prev(shared + 1)
        return None
