"""Compiles a pattern, a zone and a clock-change policy into a schedule that gives instants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

from watchbill.cron.extensions import check_zone
from watchbill.cron.instants import (
    EARLIEST,
    LATEST,
    Elapsed,
    Grid,
    Instants,
    Intersection,
    Nothing,
    Union,
    WallClock,
    WithoutGaps,
)
from watchbill.cron.modifiers import Modified, ModifierAlone, Span, WithModifier
from watchbill.cron.parser import parse
from watchbill.cron.pattern import AtStart, Every, Fields, Part, Pattern
from watchbill.cron.tokens import Token
from watchbill.cron.walls import walls_of
from watchbill.cron.zones import Zone, load_zone

Policy = Literal["default", "skip", "once", "both"]

_EVERY_SECOND = parse("* * * * * *").parts[0].body


class Compiled:
    """A compiled schedule: its instants, and the first and last instant that a datetime in its zone can express."""

    def __init__(self, zone: Zone, parts: tuple[Instants, ...], zones: Sequence[Zone]) -> None:
        self.zone = zone
        self.parts = parts
        self.instants = parts[0] if len(parts) == 1 else Union(parts)
        self.first = max(EARLIEST - min(zone.wall(EARLIEST) - EARLIEST, 0) for zone in zones)
        self.last = min(LATEST - max(zone.wall(LATEST) - LATEST, 0) for zone in zones)
        # All that `Cron.next` needs, in one attribute: it is called often, and one attribute is read faster than four.
        self.for_next = (self.instants.next, zone.info, self.first, self.last)

    def next_with_trigger(self, instant: int) -> Span | None:
        """Returns the next instant of the schedule, with its trigger: the instant from which a modifier has moved
        it."""
        spans = [span for part in self.parts if (span := _next_with_trigger(part, instant)) is not None]
        return min(spans, key=lambda span: span.result, default=None)


@lru_cache(maxsize=4096)
def check_schedule(text: str, zone_name: str, policy: Policy) -> Pattern:
    """Parses a schedule, and raises an error if it is invalid. Does not compile it."""
    if policy not in get_args(Policy):
        *others, last = get_args(Policy)
        raise ValueError(f"dst must be {', '.join(others)} or {last}, not {policy!r}")
    check_zone(Token(zone_name, 0, zone_name))
    return parse(text)


@lru_cache(maxsize=4096)
def compile_schedule(text: str, zone_name: str, policy: Policy, anchor: int) -> Compiled:
    pattern = check_schedule(text, zone_name, policy)
    own_zone = load_zone(zone_name)
    zones = [load_zone(part.zone) if part.zone else own_zone for part in pattern.parts]
    parts = tuple(_compile_part(part, zone, policy, anchor) for part, zone in zip(pattern.parts, zones, strict=True))
    return Compiled(own_zone, parts, (own_zone, *zones))


def _compile_part(part: Part, zone: Zone, policy: Policy, anchor: int) -> Instants:
    if part.body is None:
        assert part.modifier is not None
        return ModifierAlone(part.modifier, zone)
    triggers = _compile_body(part.body, part.weeks, zone, policy, anchor)
    return triggers if part.modifier is None else Modified(triggers, part.modifier, zone)


def _compile_body(
    body: Fields | Every | AtStart, weeks: int | None, zone: Zone, policy: Policy, anchor: int
) -> Instants:
    if isinstance(body, AtStart):
        return Nothing()
    if isinstance(body, Fields):
        return _compile_fields(body, weeks, zone, policy)
    grid = Grid(body.seconds, anchor)
    if weeks is None:
        return grid
    assert isinstance(_EVERY_SECOND, Fields)
    return Intersection(grid, Elapsed(walls_of(_EVERY_SECOND, weeks), zone))


def _compile_fields(fields: Fields, weeks: int | None, zone: Zone, policy: Policy) -> Instants:
    walls = walls_of(fields, weeks)
    if policy == "skip":
        return WithoutGaps(walls, zone)
    if policy == "both":
        return Union((WallClock(walls, zone), Elapsed(walls, zone)))
    if policy == "default" and fields.by_interval:
        return Elapsed(walls, zone)
    return WallClock(walls, zone)


def _next_with_trigger(part: Instants, instant: int) -> Span | None:
    if isinstance(part, WithModifier):
        return part.next_with_trigger(instant)
    at = part.next(instant)
    return None if at is None else Span(at, at)
