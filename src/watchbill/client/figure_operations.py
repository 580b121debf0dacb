"""Operations that read figures, and have them counted again."""

from __future__ import annotations

from datetime import datetime, timedelta

from watchbill.client.operations import Operation, Statement
from watchbill.model.figures import FailureGroup, Figure, QueueFigures, Sample


def figures(dimension: str = "all", grain: str = "hour", *, since: datetime | None = None) -> Operation[list[Figure]]:
    return [Figure(*row) for row in (yield Statement("figures", (dimension, grain, since)))]


def samples(dimension: str = "all", *, since: datetime | None = None) -> Operation[list[Sample]]:
    return [Sample(*row) for row in (yield Statement("samples", (dimension, since)))]


def queue_figures(name: str | None = None, *, minutes: int = 60) -> Operation[list[QueueFigures]]:
    """Queues with what waits and runs, and what has ended in so many minutes; with a name, only that queue."""
    return [QueueFigures(*row) for row in (yield Statement("queue_figures", (name, minutes)))]


def failures(*, since: datetime | None = None, limit: int = 100) -> Operation[list[FailureGroup]]:
    return [FailureGroup(*row) for row in (yield Statement("failures", (since, limit)))]


def rebuild(since: datetime) -> Operation[datetime]:
    rows: list[tuple[datetime]] = yield Statement("rebuild_figures", (since,))
    return rows[0][0]


def data_age() -> Operation[timedelta | None]:
    """How long ago the last change was made that a standby shows; None if this server is a primary."""
    rows: list[tuple[timedelta | None]] = yield Statement("data_age")
    return rows[0][0]
