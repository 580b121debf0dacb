"""Schedules with an `E` or `S` modifier: a trigger, and the end or start of a period that is counted from it.

A modifier works on wall times and never turns their order around. Its result becomes an instant as a wall time does:
a skipped one is at the clock change, a repeated one in its first pass; but an end is never before its trigger, and a
start that is not after the instant asked about is taken in its second pass.

The last trigger before which a result lies is found by undoing the modifier's steps, however many there are. Within
one segment of the zone a later trigger never has an earlier result, so where repeated times make a difference a
bisection finds it, from there. Across a clock put back it may have, so `prev` goes back segment by segment until
nothing earlier can win.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from watchbill.cron.instants import EARLIEST, FURTHEST_BACK, LATEST, Instants
from watchbill.cron.pattern import Modifier
from watchbill.cron.periods import apply, largest_unit, latest_before, moved_on
from watchbill.cron.zones import Segment, Zone


class Span(NamedTuple):
    """A trigger and the instant that the modifier makes of it."""

    trigger: int
    result: int


class WithModifier(ABC):
    """The results of a modifier on some set of triggers. A trigger is told by its segment and its wall time."""

    def __init__(self, modifier: Modifier, zone: Zone) -> None:
        self._modifier = modifier
        self._zone = zone
        self._mappings = [self._late] if modifier.to_end else [self._early, self._late]

    @abstractmethod
    def span(self, instant: int) -> Span | None:
        """The trigger and the result that `next` stands for."""

    def next(self, instant: int) -> int | None:
        span = self.span(instant)
        return None if span is None else span.result

    def prev(self, instant: int) -> int | None:
        """The greatest result of any trigger that is earlier than an instant."""
        results: list[int] = []
        latest = min(self._latest(instant), LATEST + FURTHEST_BACK)
        segment = self._latest_segment(latest)
        while segment is not None:
            walls = [self._last_trigger_with(mapping, segment, instant, latest) for mapping in self._mappings]
            pairs = zip(self._mappings, walls, strict=True)
            results += [mapping(segment, wall) for mapping, wall in pairs if wall is not None]
            if all(wall is not None and wall >= segment.high for wall in walls):
                break  # every trigger of an earlier segment has an earlier wall time
            segment = self._segment_before(segment)
        return max(results, default=None)

    @abstractmethod
    def _last_trigger(self, segment: Segment, wall: int) -> int | None:
        """The last trigger of a segment up to a wall time."""

    @abstractmethod
    def _segment_before(self, segment: Segment) -> Segment | None:
        """The last earlier segment that has a trigger."""

    def _lowest_wall(self, segment: Segment) -> int:
        return max(segment.start, EARLIEST) + segment.offset

    def _early(self, _: Segment, wall: int) -> int:
        return self._zone.first_instant(apply(self._modifier, wall))

    def _late(self, segment: Segment, wall: int) -> int:
        result = apply(self._modifier, wall)
        return self._pass_from(wall - segment.offset, result)

    def _pass_from(self, instant: int, wall: int) -> int:
        """The first pass of a wall time that is not before an instant, else its last."""
        first = self._zone.first_instant(wall)
        if first >= instant:
            return first
        second = self._zone.second_instant(wall)
        return first if second is None else second

    def _latest(self, instant: int) -> int:
        """The last wall time of a trigger whose result is earlier than an instant, at least in its first pass."""
        return latest_before(self._modifier, self._zone.shown_before(instant))

    def _latest_segment(self, latest: int) -> Segment | None:
        """The last segment in which a trigger can have so early a wall time."""
        if latest < EARLIEST - FURTHEST_BACK:
            return None
        return self._zone.segment(self._zone.first_instant(latest) + FURTHEST_BACK)

    def _last_trigger_with(self, mapping: _Mapping, segment: Segment, instant: int, latest: int) -> int | None:
        """The last trigger of a segment whose result is earlier than an instant."""
        high = min(min(segment.end, LATEST + 1) + segment.offset, latest + 1)
        low = self._lowest_wall(segment)
        wall = last_where(lambda wall: mapping(segment, wall) < instant, low, high)
        return None if wall is None else self._last_trigger(segment, wall)

    def _from(self, instant: int, wall: int) -> int:
        """The result of a wall time, after an instant if its passes allow."""
        return self._pass_from(instant + 1, apply(self._modifier, wall))

    def _last_useless_wall(self, instant: int, wall: int, latest: int) -> int | None:
        """The last wall time, from this one on, that leads no further than to an instant."""
        return last_where(lambda wall: self._from(instant, wall) <= instant, wall, latest + 1)


class Modified(WithModifier):
    """A modifier behind fields: counted from the instants of a schedule."""

    def __init__(self, triggers: Instants, modifier: Modifier, zone: Zone) -> None:
        super().__init__(modifier, zone)
        self._triggers = triggers

    def span(self, instant: int) -> Span | None:
        """The first trigger after an instant whose result is after it, too."""
        trigger = self._triggers.next(instant)
        latest: int | None = None
        while trigger is not None and trigger <= LATEST:
            result = self._result(trigger, instant)
            if result > instant:
                return Span(trigger, result)
            latest = self._latest(instant + 1) if latest is None else latest
            trigger = self._triggers.next(self._last_useless(trigger, instant, latest))
        return None

    def _result(self, trigger: int, instant: int) -> int:
        wall = self._zone.wall(trigger)
        if self._modifier.to_end:
            return self._pass_from(trigger, apply(self._modifier, wall))
        return self._from(instant, wall)

    def _last_useless(self, trigger: int, instant: int, latest: int) -> int:
        """An instant up to which triggers, from this one on, do not lead past the instant either."""
        segment = self._zone.segment(trigger)
        if self._modifier.to_end:
            high = min(segment.end, latest + 1 - segment.offset)
            useless = last_where(lambda at: self._result(at, instant) <= instant, trigger, high)
            return trigger if useless is None else useless
        wall = self._last_useless_wall(instant, trigger + segment.offset, latest)
        return trigger if wall is None else max(trigger, self._zone.first_instant(wall + 1) - 1)

    def _last_trigger(self, segment: Segment, wall: int) -> int | None:
        trigger = self._triggers.prev(wall - segment.offset + 1)
        return None if trigger is None or trigger < max(segment.start, EARLIEST) else trigger + segment.offset

    def _segment_before(self, segment: Segment) -> Segment | None:
        trigger = self._triggers.prev(segment.start) if segment.start > EARLIEST else None
        return None if trigger is None or trigger < EARLIEST else self._zone.segment(trigger)


class Bare(WithModifier):
    """A modifier alone: counted from the instant asked about, whatever that is. Skipped wall times count as well."""

    def span(self, instant: int) -> Span | None:
        wall = self._zone.wall(instant)
        useless = self._last_useless_wall(instant, wall, self._latest(instant + 1))
        unit, periods = largest_unit(self._modifier), 0
        while useless is not None and moved_on(unit, wall, periods) <= useless:
            periods += 1
        return Span(instant, self._from(instant, moved_on(unit, wall, periods)))

    def _lowest_wall(self, segment: Segment) -> int:
        return min(super()._lowest_wall(segment), max(segment.high, EARLIEST + segment.offset))

    def _last_trigger(self, segment: Segment, wall: int) -> int | None:
        return wall

    def _segment_before(self, segment: Segment) -> Segment | None:
        return self._zone.segment(segment.start - 1) if segment.start > EARLIEST else None


_Mapping = Callable[[Segment, int], int]


def last_where(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The greatest number from `low` to below `high` with a property that holds up to some number and not beyond."""
    if low >= high:
        return None
    good, bad, step = high - 1, high, 1
    while not holds(good):
        if good == low:
            return None
        good, bad, step = max(high - 2 * step, low), good, 2 * step
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
