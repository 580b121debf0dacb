"""The oracle for modifiers: goes through triggers and periods one by one, as the rules are worded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from tests.unit.cron.oracle_runs import DAY, SECOND, Clock, Undecided

PATIENCE = 100
LENGTHS = {"Y": 366, "Q": 92, "M": 31, "W": 7, "D": 1, "H": 1, "m": 1, "S": 1}


class Triggers(Protocol):
    def next(self, after: datetime) -> datetime | None: ...

    def prev(self, before: datetime) -> datetime | None: ...


class ModifiedRuns:
    """The results of a modifier on triggers."""

    def __init__(self, triggers: Triggers, modifier: Modifier, clock: Clock) -> None:
        self.triggers = triggers
        self.modifier = modifier
        self.clock = clock

    def next(self, after: datetime) -> datetime | None:
        window = self.window(after)
        return None if window is None else window[1]

    def window(self, after: datetime) -> tuple[datetime, datetime] | None:
        trigger = self.triggers.next(after)
        for _ in range(PATIENCE):
            if trigger is None:
                return None
            result = self.result(trigger, after)
            if result > after:
                return trigger, result
            trigger = self.triggers.next(trigger)
        raise Undecided

    def result(self, trigger: datetime, after: datetime) -> datetime:
        wall = self.modifier.apply(self.clock.wall(trigger))
        passes = self.clock.instants(wall)
        if self.modifier.to_end:
            wanted = [instant for instant in passes if instant >= trigger]
        else:
            wanted = [instant for instant in passes if instant > after]
        return (wanted or passes[-1:] or [self.clock.first_reaching(wall)])[0]

    def prev(self, before: datetime) -> datetime | None:
        best: tuple[datetime, datetime] | None = None
        trigger = self.triggers.prev(before + self.modifier.reach)
        for _ in range(PATIENCE):
            if trigger is None:
                break
            results = [result for result in self.results(trigger) if result < before]
            if results and (best is None or results[-1] > best[0]):
                best = results[-1], trigger
            if best is not None and self.cannot_win(trigger, *best):
                break
            trigger = self.triggers.prev(trigger)
        else:
            raise Undecided
        return None if best is None else best[0]

    def cannot_win(self, trigger: datetime, result: datetime, best: datetime) -> bool:
        wobble = self.clock.wobble(result) + self.clock.wobble(best)
        return self.clock.wall(trigger) <= self.clock.wall(best) - wobble

    def results(self, trigger: datetime) -> list[datetime]:
        """All that `next` may give for this trigger, from wherever it is asked."""
        wall = self.modifier.apply(self.clock.wall(trigger))
        passes = self.clock.instants(wall)
        if len(passes) < 2:
            return [self.clock.first_reaching(wall)]
        first, second = passes
        if self.modifier.to_end:
            return [first if first >= trigger else second]
        return [first, second] if first < trigger else [first]


class BareRuns:
    """A modifier alone."""

    def __init__(self, modifier: Modifier, clock: Clock) -> None:
        self.modifier = modifier
        self.clock = clock

    def next(self, after: datetime) -> datetime | None:
        start = self.clock.wall(after)
        while True:
            wall = self.modifier.apply(start)
            passes = self.clock.instants(wall) or [self.clock.first_reaching(wall)]
            later = [instant for instant in passes if instant > after]
            if later:
                return later[0]
            start = self.modifier.moved_on(start)

    def prev(self, before: datetime) -> datetime | None:
        unit = self.modifier.steps[0][1]
        start = period_start(self.clock.wall(before) + self.modifier.reach, unit)
        best: tuple[datetime, datetime] | None = None
        for _ in range(PATIENCE):
            results = [result for result in self.results(start, next_period(start, unit)) if result < before]
            if results and (best is None or results[-1] > best[0]):
                best = results[-1], start
            if best is not None and start < best[1] - self.clock.wobble(best[0]) - self.clock.wobble(before):
                return best[0]
            start = period_start(start - SECOND, unit)
        raise Undecided

    def results(self, start: datetime, end: datetime) -> list[datetime]:
        """All that the modifier makes of the wall times of one period, all of which lead to the same wall time."""
        wall = self.modifier.apply(start)
        passes = self.clock.instants(wall)
        if len(passes) < 2:
            return [self.clock.first_reaching(wall)]
        first, second = passes
        inside = self.instants_within(start, end)
        from_first = [first] if not self.modifier.to_end or any(instant <= first for instant in inside) else []
        return from_first + ([second] if any(instant > first for instant in inside) else [])

    def instants_within(self, start: datetime, end: datetime) -> list[datetime]:
        """The first and the last instant at which the clock shows a time of a period, for each pass."""
        ends = [*self.clock.instants(start), *self.clock.instants(end - SECOND)]
        near = {instant + shift for instant in ends for shift in (timedelta(0), SECOND, -SECOND)}
        for wall in (start, end - SECOND):
            change = self.clock.first_reaching(wall)
            near |= {change, change - SECOND}
        return [instant for instant in near if start <= self.clock.wall(instant) < end]


class Modifier:
    """`E` and `S`: plain calendar arithmetic, one unit at a time."""

    def __init__(self, text: str) -> None:
        self.to_end = text[0] == "E"
        self.steps: list[tuple[int, str]] = []
        number, in_time = "", False
        for char in text[1:]:
            if char.isdigit():
                number += char
            elif char == "T":
                in_time = True
            else:
                self.steps.append((int(number), "m" if char == "M" and in_time else char))
                number, in_time = "", in_time or char == "H"
        self.reach = timedelta(days=2 + sum(LENGTHS[unit] for _, unit in self.steps))
        self.largest = min((unit for _, unit in self.steps), key="YQMWDHmS".index)

    def apply(self, wall: datetime) -> datetime:
        for count, unit in self.steps:
            start = period_start(wall, unit)
            for _ in range(count):
                start = next_period(start, unit)
            wall = next_period(start, unit) - SECOND if self.to_end else start
        return wall

    def moved_on(self, wall: datetime) -> datetime:
        """One of the largest unit later, on the last day of the month where the day is missing."""
        start = period_start(wall, "M" if self.largest in "YQM" else self.largest)
        if self.largest not in "YQM":
            return next_period(start, self.largest) + (wall - start)
        target = start
        for _ in range({"Y": 12, "Q": 3, "M": 1}[self.largest]):
            target = next_period(target, "M")
        time_of_day = wall - wall.replace(hour=0, minute=0, second=0)
        return min(target + (wall - start), next_period(target, "M") - DAY + time_of_day)


def period_start(wall: datetime, unit: str) -> datetime:
    if unit in "SmH":
        return wall.replace(second=wall.second if unit == "S" else 0, minute=0 if unit == "H" else wall.minute)
    midnight = wall.replace(hour=0, minute=0, second=0)
    if unit == "W":
        return midnight - timedelta(days=wall.weekday())
    month = {"D": wall.month, "M": wall.month, "Q": (wall.month - 1) // 3 * 3 + 1, "Y": 1}[unit]
    return midnight if unit == "D" else midnight.replace(month=month, day=1)


def next_period(start: datetime, unit: str) -> datetime:
    """The start of the period after the one that starts here."""
    steps = {"S": SECOND, "m": timedelta(minutes=1), "H": timedelta(hours=1), "D": DAY, "W": timedelta(days=7)}
    if unit in steps:
        return start + steps[unit]
    months = {"M": 1, "Q": 3, "Y": 12}[unit]
    return period_start(start + timedelta(days=31 * months), unit)
