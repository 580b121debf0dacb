"""A parsed pattern, before a time zone is applied: the parser makes this tree, and the engine reads it.

Sets of small numbers are masks with bit n for the value n.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from watchbill.cron.days import DayRule

Unit = Literal["Y", "Q", "M", "W", "D", "H", "m", "S"]

ALL_MONTHS = (1 << 13) - 2


class Fields(NamedTuple):
    """The five to seven fields of a pattern, such as minute and hour."""

    seconds: int
    minutes: int
    hours: int
    days: DayRule
    months: int
    years: int | None  # None means every year; in a mask, bit 0 is 1970
    by_interval: bool  # a time field begins with `*`: the schedule follows elapsed time through clock changes


class Every(NamedTuple):
    """`@every`: fires every so many seconds."""

    seconds: int


class AtStart(NamedTuple):
    """`@reboot`: fires when the cluster starts, so it has no instants."""


class Modifier(NamedTuple):
    """A modifier such as `E1M2D` or `S0W`, which moves a wall time, step by step, to the end or start of a period."""

    to_end: bool
    steps: tuple[tuple[Unit, int], ...]


class Part(NamedTuple):
    """One of the parts of a pattern that are separated by `|`. Without a body it is a modifier alone, which counts from
    the instant that a caller gives."""

    body: Fields | Every | AtStart | None
    modifier: Modifier | None
    weeks: int | None
    zone: str | None


class Pattern(NamedTuple):
    parts: tuple[Part, ...]
