"""A strategy that knows the whole grammar of patterns, aims at clock changes, and notes what it drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_args

from hypothesis import strategies as st

from tests.unit.cron.oracle_parser import DAYS, MONTHS
from tests.unit.cron.zones import ZONE_KINDS, clock_changes
from watchbill.cron.compiler import Policy

Draw = Any  # what `st.composite` hands in
T = TypeVar("T")
POLICIES: dict[str, Policy] = {f"dst_{policy}": policy for policy in get_args(Policy)}
UNITS = " ".join(f"unit_{unit}:1" for unit in "YQMWDHmS")

# All that a run must have drawn: the productions of the grammar, policies, kinds of zones and of instants.
_PRODUCTIONS = """
    5_fields 6_fields 7_fields preset @every @reboot modifier_alone weeks_alone |
    * */n n n/n a-b a-b/n list name leading_zero range_that_wraps every_year years_near any_years
    ? + L L-n LW L-nW nW dL d#L d#n d#-n dWk
    WOY TZ: TZ= CRON_TZ= zone_without_prefix extension_in_front extension_behind
    E S EOD: SOD: T unit_Y unit_Q unit_M unit_W unit_D unit_H unit_m unit_S
    dst_default dst_skip dst_once dst_both
    near_a_gap near_an_overlap near_a_day_gap near_a_day_overlap anywhen
"""
PRODUCTIONS = frozenset(_PRODUCTIONS.split()) | {f"zone: {kind}" for kind in ZONE_KINDS}

integers = cache(st.integers)  # making a strategy costs more than drawing from it


@cache
def names_by_weight(weighted: str) -> list[str]:
    pairs = (pair.rsplit(":", 1) for pair in weighted.split())
    return [name for name, weight in pairs for _ in range(int(weight))]


@dataclass(frozen=True)
class Case:
    pattern: str
    zone: str
    dst: Policy
    instant: datetime
    drawn: frozenset[str] = field(repr=False)


class Maker:
    """Draws one case, noting every production."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.drawn: set[str] = set()
        self.slow_zone = False  # one in which the oracle has a whole day of wall times to go through, one by one

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(integers(low, high))
        return value

    def chance(self, percent: int) -> bool:
        return self.number(1, 100) <= percent

    def one_of(self, values: Sequence[T]) -> T:
        return values[self.number(0, len(values) - 1)]

    def pick(self, weighted: str) -> str:
        """One of some names with weights, as in `yes:3 no:1`; noted."""
        name = self.one_of(names_by_weight(weighted))
        self.drawn.add(name)
        return name

    # Fields

    def numbers(self, low: int, high: int, *, wraps: bool = True, names: tuple[str, ...] = (), first: int = 0) -> str:
        items = [self.item(low, high, wraps, names, first) for _ in range(2 if self.chance(25) else 1)]
        if len(items) > 1:
            self.drawn.add("list")
        return ",".join(items)

    def item(self, low: int, high: int, wraps: bool, names: tuple[str, ...], first: int) -> str:
        kind = self.pick("*:2 */n:2 n:6 n/n:1 a-b:3 a-b/n:2")
        step = f"/{self.number(1, max(2, (high - low) // 2))}" if kind.endswith("/n") else ""
        if kind.startswith("*"):
            return f"*{step}"
        start, end = self.number(low, high), self.number(low, high)
        if end < start and not wraps:
            start, end = end, start
        if kind.startswith("a-b"):
            if end < start:
                self.drawn.add("range_that_wraps")
            return f"{self.value(start, names, first)}-{self.value(end, names, first)}{step}"
        return f"{self.value(start, names, first)}{step}"

    def value(self, number: int, names: tuple[str, ...], first: int) -> str:
        if names and number - first < len(names) and self.chance(40):
            self.drawn.add("name")
            name = names[number - first]
            return name if self.chance(70) else name.lower() if self.chance(50) else name.capitalize()
        if self.chance(5):
            self.drawn.add("leading_zero")
            return f"0{number}"
        return str(number)

    def time(self, high: int, *, sparse: bool) -> str:
        return str(self.number(0, high)) if sparse else self.numbers(0, high)

    def hour(self, *, sparse: bool) -> str:
        return self.time(3 if self.chance(50) else 23, sparse=sparse or self.chance(50))  # clocks change before 4

    def day_of_month(self) -> str:
        if self.chance(45):
            return self.pick("*:4 ?:1")
        return ",".join(self.day_item() for _ in range(2 if self.chance(25) else 1))

    def day_item(self) -> str:
        kind = self.pick("day:6 L:2 L-n:2 LW:2 L-nW:2 nW:2")
        if kind == "day":
            return self.item(1, 31, False, (), 0)
        if kind == "nW":
            return f"{self.number(1, 31)}W"
        return kind.replace("n", str(self.number(1, 30 if self.chance(10) else 6)))

    def day_of_week(self) -> str:
        if self.chance(45):
            return self.pick("*:4 ?:1")
        items = ",".join(self.weekday_item() for _ in range(2 if self.chance(25) else 1))
        if self.chance(25):
            self.drawn.add("+")
            return f"+{items}"
        return items

    def weekday_item(self) -> str:
        kind = self.pick("weekday:5 dL:1 d#L:1 d#n:1 d#-n:1 dWk:1")
        if kind == "weekday":
            return self.item(0, 7, True, DAYS, 0)
        day = self.value(self.number(0, 6 if kind == "dWk" else 7), DAYS, 0)
        return f"{day}{kind[1:].replace('n', str(self.number(1, 5))).replace('k', str(self.number(1, 5)))}"

    def month(self) -> str:
        return "*" if self.chance(70) else self.numbers(1, 12, names=MONTHS, first=1)

    def year(self) -> str:
        kind = self.pick("every_year:2 years_near:3 any_years:2")
        if kind == "every_year":
            return "*"
        if kind == "any_years":
            return self.numbers(1970, 3000, wraps=False)
        near = self.number(2009, 2026)
        return f"{near}-{near + self.number(0, 3)}"

    def fields(self, *, sparse: bool) -> str:
        kind = self.pick("5_fields:3 6_fields:2 7_fields:2")
        second = [] if kind == "5_fields" else [self.time(59, sparse=sparse)]
        year = [self.year()] if kind == "7_fields" else []
        time = [*second, self.time(59, sparse=sparse), self.hour(sparse=sparse)]
        days = [self.day_of_month(), self.month(), self.day_of_week()]
        return (" " if self.chance(90) else " \t ").join([*time, *days, *year])

    # What stands around the fields

    def body(self, *, sparse: bool) -> str:
        kind = self.pick("fields:24 preset:2 @every:2 @reboot:2")
        if kind == "preset":
            return self.one_of(["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
        if kind == "@every":
            return f"@every {self.one_of(['90s', '1h', '7m', '1d12h', '36h1s', '45m30s', '10d', '999h', '61s'])}"
        return "@reboot" if kind == "@reboot" else self.fields(sparse=sparse)

    def zone_word(self) -> str:
        zone = self.one_of(self.one_of(list(ZONE_KINDS.values())))
        prefix = self.pick("TZ::1 TZ=:1 CRON_TZ=:1 zone_without_prefix:1")
        if prefix == "zone_without_prefix":
            return zone if "/" in zone else "Europe/London"
        return f"{prefix}{zone}"

    def weeks_word(self) -> str:
        self.drawn.add("WOY")
        return f"WOY:{self.numbers(1, 53)}"

    def modifier_word(self) -> str:
        kind = self.pick("E:1 S:1")
        prefix = self.pick("EOD::1 SOD::1") if self.chance(50) else ""
        parts = []
        for index in range(self.number(1, 3)):
            separator = "T" if index and self.chance(30) else ""
            if separator:
                self.drawn.add("T")
            unit = self.pick(UNITS)[-1]
            parts.append(f"{separator}{self.number(0, 3)}{unit}")
        return f"{prefix}{kind}{''.join(parts)}"

    def alternative(self) -> str:
        kind = self.pick("body:11 modifier_alone:1 weeks_alone:1")
        words = [self.zone_word()] if self.chance(25) else []
        if kind == "body":
            words += [self.weeks_word()] if self.chance(15) else []
            modifier = [self.modifier_word()] if self.chance(25) else []
            sparse = (bool(modifier) or self.slow_zone) and self.chance(85)
            return self.around(self.body(sparse=sparse), words + modifier)
        return self.around(self.modifier_word() if kind == "modifier_alone" else self.weeks_word(), words)

    def around(self, body: str, words: list[str]) -> str:
        before: list[str] = []
        after: list[str] = []
        for word in words:
            leads = self.chance(40) and not (word[0].isalpha() and "/" in word and ":" not in word and "=" not in word)
            self.drawn.add("extension_in_front" if leads else "extension_behind")
            (before if leads else after).append(word)
        return " ".join([*before, body, *after])

    def pattern(self) -> str:
        parts = [self.alternative()]
        if self.chance(10):
            self.drawn.add("|")
            parts.append(self.alternative())
        return self.one_of([" | ", "|", "| "]).join(parts)

    def instant(self, zone: str) -> datetime:
        changes = clock_changes(zone)
        if changes and self.chance(75):
            kinds = sorted({change.kind for change in changes})
            kind = self.one_of(kinds)
            change = self.one_of([change for change in changes if change.kind == kind])
            self.drawn.add(f"near_{kind}")
            seconds = self.number(-10, 10) if self.chance(25) else self.number(-90_000, 90_000)
            return change.instant + timedelta(seconds=seconds)
        self.drawn.add("anywhen")
        year = self.number(1, 9998) if self.chance(15) else self.number(1970, 2100)
        start = datetime(max(year, 2), 1, 1, tzinfo=UTC)
        return start + timedelta(days=self.number(-5, 370), seconds=self.number(0, 86399))

    def case(self) -> Case:
        kind = self.one_of([*ZONE_KINDS, "a day lost or gained"])  # twice, as its changes are the rarest
        self.drawn.add(f"zone: {kind}")
        self.slow_zone = kind == "a day lost or gained"
        zone = self.one_of(ZONE_KINDS[kind])
        dst = POLICIES[self.pick("dst_default:4 dst_skip:2 dst_once:2 dst_both:2")]
        instant = self.instant(zone)
        return Case(self.pattern(), zone, dst, instant, frozenset(self.drawn))


@st.composite
def cases(draw: Draw) -> Case:
    return Maker(draw).case()
