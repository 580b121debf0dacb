"""A slow, plain scanner over zoneinfo datetimes: the engine's oracle. Imports nothing of `watchbill.cron`."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.unit.cron.oracle_modifiers import BareRuns, ModifiedRuns, Modifier, Triggers
from tests.unit.cron.oracle_parser import Alternative, read
from tests.unit.cron.oracle_runs import SECOND, Clock, FieldRuns, GridRuns, NoRuns, Undecided

__all__ = ["Oracle", "Undecided"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Oracle:
    """A schedule, scanned. Instants are in UTC and whole seconds."""

    def __init__(self, pattern: str, tz: str = "UTC", dst: str = "default", anchor: datetime = EPOCH) -> None:
        self.parts = [runs_of(alternative, dst, anchor) for alternative in read(pattern, tz)]

    def next(self, after: datetime) -> datetime | None:
        return min((run for part in self.parts if (run := part.next(after)) is not None), default=None)

    def prev(self, before: datetime) -> datetime | None:
        return max((run for part in self.parts if (run := part.prev(before)) is not None), default=None)

    def trigger(self, after: datetime) -> datetime | None:
        """The trigger behind `next`, where there is a modifier on a single set of triggers."""
        [part, *others] = self.parts
        window = part.window(after) if isinstance(part, ModifiedRuns) and not others else None
        return None if window is None else window[0]

    def matches(self, at: datetime) -> bool:
        return self.prev(at + SECOND) == at


def runs_of(alternative: Alternative, policy: str, anchor: datetime) -> Triggers:
    clock = Clock(alternative.zone)
    if alternative.at_start:
        return NoRuns()
    if alternative.is_bare:
        return BareRuns(Modifier(alternative.modifier), clock)
    triggers = GridRuns(alternative, anchor) if alternative.every else FieldRuns(alternative, policy)
    return ModifiedRuns(triggers, Modifier(alternative.modifier), clock) if alternative.modifier else triggers
