"""Schedules with an `E` or `S` modifier: a trigger, and the end or start of a period that is counted from it.

A modifier works on wall times and never turns their order around. Its result becomes an instant as a wall time does:
a skipped one is at the clock change, a repeated one in its first pass; but an end is never before its trigger, and a
start that is not after the instant asked about is taken in its second pass.

Within one segment of the zone a later trigger never has an earlier result, so a bisection finds the one that is
wanted however many there are. Across a clock put back it may have, so `prev` goes back segment by segment until
nothing earlier can win.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from foliot.cron.instants import EARLIEST, FURTHEST_BACK, LATEST, Instants
from foliot.cron.pattern import Modifier
from foliot.cron.periods import apply, moved_on, reach
from foliot.cron.zones import Segment, Zone


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
        segment = self._latest_segment(instant)
        while segment is not None:
            walls = [self._last_trigger_with(mapping, segment, instant) for mapping in self._mappings]
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

    def _latest_segment(self, instant: int) -> Segment | None:
        """The last segment in which a trigger can have a result before an instant."""
        highest = min(instant + reach(self._modifier), LATEST) + FURTHEST_BACK
        anywhere = self._zone.segments[0]
        wall = last_where(lambda wall: self._early(anywhere, wall) < instant, EARLIEST - FURTHEST_BACK, highest)
        return None if wall is None else self._zone.segment(self._zone.first_instant(wall) + FURTHEST_BACK)

    def _last_trigger_with(self, mapping: _Mapping, segment: Segment, instant: int) -> int | None:
        """The last trigger of a segment whose result is earlier than an instant."""
        high = min(segment.end, LATEST + 1, instant + reach(self._modifier) + FURTHEST_BACK) + segment.offset
        wall = last_where(lambda wall: mapping(segment, wall) < instant, self._lowest_wall(segment), high)
        return None if wall is None else self._last_trigger(segment, wall)


class Modified(WithModifier):
    """A modifier behind fields: counted from the instants of a schedule."""

    def __init__(self, triggers: Instants, modifier: Modifier, zone: Zone) -> None:
        super().__init__(modifier, zone)
        self._triggers = triggers

    def span(self, instant: int) -> Span | None:
        """The first trigger after an instant whose result is after it, too."""
        trigger = self._triggers.next(instant)
        while trigger is not None and trigger <= LATEST:
            result = self._result(trigger, instant)
            if result > instant:
                return Span(trigger, result)
            trigger = self._triggers.next(self._last_useless(trigger, instant))
        return None

    def _result(self, trigger: int, instant: int) -> int:
        wall = apply(self._modifier, self._zone.wall(trigger))
        return self._pass_from(trigger if self._modifier.to_end else instant + 1, wall)

    def _last_useless(self, trigger: int, instant: int) -> int:
        """The last instant of the trigger's segment from which the modifier does not lead past the instant either."""
        high = min(self._zone.segment(trigger).end, trigger + reach(self._modifier) + FURTHEST_BACK)
        useless = last_where(lambda at: self._result(at, instant) <= instant, trigger, high)
        return trigger if useless is None else useless

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
        periods = 0
        while True:
            result = apply(self._modifier, moved_on(self._modifier, wall, periods))
            at = self._pass_from(instant + 1, result)
            if at > instant:
                return Span(instant, at)
            periods += 1

    def _lowest_wall(self, segment: Segment) -> int:
        return min(super()._lowest_wall(segment), max(segment.high, EARLIEST + segment.offset))

    def _last_trigger(self, segment: Segment, wall: int) -> int | None:
        return wall

    def _segment_before(self, segment: Segment) -> Segment | None:
        return self._zone.segment(segment.start - 1) if segment.start > EARLIEST else None


_Mapping = Callable[[Segment, int], int]


def last_where(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The greatest number from `low` to below `high` with a property that holds up to some number and not beyond."""
    step = 1
    while high - step > low and not holds(high - step):
        step *= 2
    good, bad = max(high - step, low), high - step // 2
    if low >= high or not holds(good):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
