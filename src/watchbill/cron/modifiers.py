"""Finds the instants of schedules with an `E` or `S` modifier.

The instants that a pattern names without its modifier are its triggers. The modifier turns each into a result: the end
or start of a period that is counted from the trigger.

A modifier works on wall times, and the result of a later wall time is never earlier. A result becomes an instant as
every wall time does: a skipped one is at the clock change, a repeated one is when the clock shows it first. There are
two exceptions: an end is never before its trigger, and a start that is not after the given instant is taken when the
clock shows it for the second time.

To find the last trigger whose result is before an instant, `undo_modifier` undoes the steps of the modifier. Repeated
wall times may move that trigger. A bisection finds it, because within one segment of the zone (a time in which its
offset from UTC stays the same) a later trigger never has an earlier result. Where a clock is put back it may have one,
so `prev` searches segment by segment, backwards, until no earlier segment can have a later result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from watchbill.cron.instants import EARLIEST, FURTHEST_BACK, LATEST, Instants
from watchbill.cron.pattern import Modifier
from watchbill.cron.periods import add_units, apply_modifier, largest_unit, undo_modifier
from watchbill.cron.zones import Segment, Zone


class Span(NamedTuple):
    """A trigger, and the instant to which the modifier moves it."""

    trigger: int
    result: int


class WithModifier(ABC):
    """The instants to which a modifier moves a set of triggers. A segment and a wall time identify a trigger."""

    def __init__(self, modifier: Modifier, zone: Zone) -> None:
        self._modifier = modifier
        self._zone = zone
        self._mappings = (
            [self._compute_result_from_trigger]
            if modifier.to_end
            else [self._compute_result_in_first_pass, self._compute_result_from_trigger]
        )

    @abstractmethod
    def next_with_trigger(self, instant: int) -> Span | None:
        """Returns the first result later than `instant`, with its trigger; None if there is none."""

    def next(self, instant: int) -> int | None:
        span = self.next_with_trigger(instant)
        return None if span is None else span.result

    def prev(self, instant: int) -> int | None:
        """Returns the last result that is earlier than `instant`."""
        results: list[int] = []
        latest = min(self._find_latest_trigger(instant), LATEST + FURTHEST_BACK)
        segment = self._find_latest_segment(latest)
        while segment is not None:
            walls = [self._find_last_trigger_before(mapping, segment, instant, latest) for mapping in self._mappings]
            pairs = zip(self._mappings, walls, strict=True)
            results += [mapping(segment, wall) for mapping, wall in pairs if wall is not None]
            if all(wall is not None and wall >= segment.high for wall in walls):
                break  # every trigger of an earlier segment has an earlier wall time
            segment = self._find_prev_trigger_segment(segment)
        return max(results, default=None)

    @abstractmethod
    def _find_last_trigger(self, segment: Segment, wall: int) -> int | None:
        """Returns the wall time of the last trigger in the segment that is not later than `wall`."""

    @abstractmethod
    def _find_prev_trigger_segment(self, segment: Segment) -> Segment | None:
        """Returns the last segment before this one that has a trigger; None if there is none."""

    def _find_lowest_wall(self, segment: Segment) -> int:
        return max(segment.start, EARLIEST) + segment.offset

    def _compute_result_in_first_pass(self, _: Segment, wall: int) -> int:
        return self._zone.first_instant(apply_modifier(self._modifier, wall))

    def _compute_result_from_trigger(self, segment: Segment, wall: int) -> int:
        result = apply_modifier(self._modifier, wall)
        return self._find_instant_of_wall(wall - segment.offset, result)

    def _find_instant_of_wall(self, instant: int, wall: int) -> int:
        """Returns the first instant, from `instant` on, at which the clock shows a wall time. If there is none, returns
        the last such instant before."""
        first = self._zone.first_instant(wall)
        if first >= instant:
            return first
        second = self._zone.second_instant(wall)
        return first if second is None else second

    def _find_latest_trigger(self, instant: int) -> int:
        """Returns the last wall time of a trigger whose result is earlier than `instant`. If the clock shows the result
        twice, the first time counts."""
        return undo_modifier(self._modifier, self._zone.shown_before(instant))

    def _find_latest_segment(self, latest: int) -> Segment | None:
        """Returns the last segment in which a trigger can have a wall time up to `latest`."""
        if latest < EARLIEST - FURTHEST_BACK:
            return None
        return self._zone.segment(self._zone.first_instant(latest) + FURTHEST_BACK)

    def _find_last_trigger_before(self, mapping: _Mapping, segment: Segment, instant: int, latest: int) -> int | None:
        """Returns the wall time of the last trigger in a segment whose result is earlier than `instant`."""
        high = min(min(segment.end, LATEST + 1) + segment.offset, latest + 1)
        low = self._find_lowest_wall(segment)
        wall = bisect_last(lambda wall: mapping(segment, wall) < instant, low, high)
        return None if wall is None else self._find_last_trigger(segment, wall)

    def _compute_result_after(self, instant: int, wall: int) -> int:
        """Returns the result of a wall time as an instant: when the clock first shows it after `instant`, or else when
        the clock shows it last."""
        return self._find_instant_of_wall(instant + 1, apply_modifier(self._modifier, wall))

    def _find_last_useless_wall(self, instant: int, wall: int, latest: int) -> int | None:
        """Returns the last wall time, from `wall` on, whose result is not later than `instant`."""
        return bisect_last(lambda wall: self._compute_result_after(instant, wall) <= instant, wall, latest + 1)


class Modified(WithModifier):
    """A modifier behind fields: its triggers are the instants that the fields name."""

    def __init__(self, triggers: Instants, modifier: Modifier, zone: Zone) -> None:
        super().__init__(modifier, zone)
        self._triggers = triggers

    def next_with_trigger(self, instant: int) -> Span | None:
        """Returns the first trigger later than `instant` whose result is later than `instant` too."""
        trigger = self._triggers.next(instant)
        latest: int | None = None
        while trigger is not None and trigger <= LATEST:
            result = self._compute_trigger_result(trigger, instant)
            if result > instant:
                return Span(trigger, result)
            latest = self._find_latest_trigger(instant + 1) if latest is None else latest
            trigger = self._triggers.next(self._find_last_useless_instant(trigger, instant, latest))
        return None

    def _compute_trigger_result(self, trigger: int, instant: int) -> int:
        """Returns the instant to which the modifier moves a trigger. A clock that is put back shows some wall times
        twice. Then the modifier E gives the first of the two instants that is not before the trigger; S gives the first
        that is later than `instant`, from which the search began, or else the last."""
        wall = self._zone.wall(trigger)
        if self._modifier.to_end:
            return self._find_instant_of_wall(trigger, apply_modifier(self._modifier, wall))
        return self._compute_result_after(instant, wall)

    def _find_last_useless_instant(self, trigger: int, instant: int, latest: int) -> int:
        """Returns the last instant such that all triggers from `trigger` up to it have results that are not later than
        `instant`. The search for the next trigger can start there."""
        segment = self._zone.segment(trigger)
        if self._modifier.to_end:
            high = min(segment.end, latest + 1 - segment.offset)
            useless = bisect_last(lambda at: self._compute_trigger_result(at, instant) <= instant, trigger, high)
            return trigger if useless is None else useless
        wall = self._find_last_useless_wall(instant, trigger + segment.offset, latest)
        return trigger if wall is None else max(trigger, self._zone.first_instant(wall + 1) - 1)

    def _find_last_trigger(self, segment: Segment, wall: int) -> int | None:
        trigger = self._triggers.prev(wall - segment.offset + 1)
        return None if trigger is None or trigger < max(segment.start, EARLIEST) else trigger + segment.offset

    def _find_prev_trigger_segment(self, segment: Segment) -> Segment | None:
        trigger = self._triggers.prev(segment.start) if segment.start > EARLIEST else None
        return None if trigger is None or trigger < EARLIEST else self._zone.segment(trigger)


class ModifierAlone(WithModifier):
    """A modifier without fields: every wall time is a trigger, also a skipped one."""

    def next_with_trigger(self, instant: int) -> Span | None:
        wall = self._zone.wall(instant)
        useless = self._find_last_useless_wall(instant, wall, self._find_latest_trigger(instant + 1))
        unit, periods = largest_unit(self._modifier), 0
        while useless is not None and add_units(unit, wall, periods) <= useless:
            periods += 1
        return Span(instant, self._compute_result_after(instant, add_units(unit, wall, periods)))

    def _find_lowest_wall(self, segment: Segment) -> int:
        return min(super()._find_lowest_wall(segment), max(segment.high, EARLIEST + segment.offset))

    def _find_last_trigger(self, segment: Segment, wall: int) -> int | None:
        return wall

    def _find_prev_trigger_segment(self, segment: Segment) -> Segment | None:
        return self._zone.segment(segment.start - 1) if segment.start > EARLIEST else None


_Mapping = Callable[[Segment, int], int]


def bisect_last(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Returns the greatest number from `low` to below `high` for which `holds` is true. `holds` must be true up to some
    number, and false after it."""
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
