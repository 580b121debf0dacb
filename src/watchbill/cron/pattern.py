"""A parsed pattern, before a time zone is applied: the parser makes this tree, and the engine reads it.

Sets of small numbers are masks with bit n for the value n.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from watchbill.cron.days import DayRule

Unit = Literal["Y", "Q", "M", "W", "D", "H", "m", "S"]

ALL_MONTHS = (1 << 13) - 2


class Fields(NamedTuple):
    """The five to seven fields."""

    seconds: int
    minutes: int
    hours: int
    days: DayRule
    months: int
    years: int | None  # None is every year; else bit 0 is 1970
    by_interval: bool  # a time field begins with `*`: the schedule follows elapsed time through clock changes


class Every(NamedTuple):
    """`@every`: a grid of so many seconds."""

    seconds: int


class AtStart(NamedTuple):
    """`@reboot`: it has no instants."""


class Modifier(NamedTuple):
    """`E1M2D`, `S0W`: from a wall time to the end or the start of a period, step by step."""

    to_end: bool
    steps: tuple[tuple[Unit, int], ...]


class Part(NamedTuple):
    """One alternative of a union. Without a body it is a bare modifier, counted from the given instant."""

    body: Fields | Every | AtStart | None
    modifier: Modifier | None
    weeks: int | None
    zone: str | None


class Pattern(NamedTuple):
    parts: tuple[Part, ...]
