"""Figures: how many runs and jobs have ended, and how many jobs waited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

GRAINS = ("minute", "hour", "day")
DIMENSIONS = ("queue", "type", "tenant")
_FEWEST_FOR_COLOR = 20  # runs; a share of fewer says little
OUTCOMES = ("succeeded", "skipped", "failed", "timed_out", "lost", "snoozed", "dead", "canceled")


@dataclass(frozen=True, slots=True)
class Figure:
    """What has ended in a minute, an hour or a day: runs by outcome, and jobs that are dead or canceled. `is_counted`
    says that it was counted from history, and not only reported by nodes."""

    at: datetime
    name: str
    succeeded: int
    skipped: int
    failed: int
    timed_out: int
    lost: int
    snoozed: int
    dead: int
    canceled: int
    run_seconds: float
    wait_seconds: float
    is_counted: bool

    @property
    def runs(self) -> int:
        return self.succeeded + self.skipped + self.failed + self.timed_out + self.lost + self.snoozed


@dataclass(frozen=True, slots=True)
class Sample:
    """How many unfinished jobs there were at an instant, by what they waited for."""

    at: datetime
    name: str
    running: int
    ready: int
    scheduled: int
    retrying: int
    limited: int
    paused: int
    unsupported: int
    unmatched: int
    blocked: int
    oldest: datetime | None
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue: what its jobs waited for when the last sample was taken, what has ended in the last hour, its rules."""

    queue: str
    running: int | None
    ready: int | None
    scheduled: int | None
    retrying: int | None
    limited: int | None
    paused: int | None
    unsupported: int | None
    unmatched: int | None
    blocked: int | None
    oldest: datetime | None
    is_estimate: bool | None
    sampled_at: datetime | None
    trend: Sequence[int]
    ended_lately: int | None
    ended: int | None
    failed: int | None
    dead: int | None
    run_seconds: float | None
    wait_seconds: float | None
    nodes: int
    draining_nodes: int
    max: int | None
    fair_by: str | None
    token_group: str | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None

    @property
    def due(self) -> int:
        """Jobs that are due and do not run, whatever they wait for."""
        counts = (self.ready, self.limited, self.paused, self.unsupported, self.unmatched)
        return sum(count or 0 for count in counts)

    @property
    def unfinished(self) -> int:
        counts = (self.running, self.scheduled, self.retrying, self.blocked)
        return self.due + sum(count or 0 for count in counts)

    @property
    def per_second(self) -> float:
        return (self.ended_lately or 0) / 300

    @property
    def mean_run(self) -> float | None:
        return (self.run_seconds or 0) / self.ended if self.ended else None

    @property
    def mean_wait(self) -> float | None:
        return (self.wait_seconds or 0) / self.ended if self.ended else None

    @property
    def failed_share(self) -> float | None:
        return (self.failed or 0) / self.ended if self.ended else None

    @property
    def has_many_failures(self) -> bool:
        return (self.ended or 0) >= _FEWEST_FOR_COLOR and (self.failed_share or 0) >= 0.02


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Attempts that have failed in the same way, and the jobs that this has left dead."""

    failure: int
    tenant: str
    type: str
    exception: str | None
    message: str
    example: UUID
    first: datetime
    last: datetime
    attempts: int
    dead: int


def sum_by_name(figures: Iterable[Figure]) -> list[Figure]:
    """Adds up the figures of each name, and sorts the names by how much has ended."""
    sums: dict[str, Figure] = {}
    for figure in figures:
        known = sums.get(figure.name)
        sums[figure.name] = figure if known is None else _add(known, figure)
    return sorted(sums.values(), key=lambda figure: (-figure.runs, figure.name))


def _add(one: Figure, other: Figure) -> Figure:
    first, second = asdict(one), asdict(other)
    added = {name: first[name] + second[name] for name in (*OUTCOMES, "run_seconds", "wait_seconds")}
    is_counted = one.is_counted and other.is_counted
    return Figure(at=min(one.at, other.at), name=one.name, is_counted=is_counted, **added)
