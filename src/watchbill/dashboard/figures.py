"""What pages show of how much runs and waits. All of it is read from small tables of figures; no page counts jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from watchbill.dashboard.database import Transaction
from watchbill.model.figures import QueueFigures, Sample


class Window(NamedTuple):
    """How far back charts look. `step` is the width of a point, in seconds."""

    name: str
    seconds: int
    step: int

    @property
    def unit(self) -> str:
        """What a point is called: `minute`, `15 minutes`, `day`."""
        sizes = ((86_400, "day"), (3600, "hour"), (60, "minute"))
        size, unit = next(each for each in sizes if self.step >= each[0])
        number = self.step // size
        return unit if number == 1 else f"{number} {unit}s"


WINDOWS = (
    Window("1 h", 3600, 60),
    Window("6 h", 6 * 3600, 300),
    Window("24 h", 24 * 3600, 900),
    Window("7 d", 7 * 86_400, 7200),
    Window("90 d", 90 * 86_400, 86_400),
)
_TREND_SECONDS = 3600


def find_window(name: str | None) -> Window:
    return next((window for window in WINDOWS if window.name.replace(" ", "") == name), WINDOWS[0])


class Ending(NamedTuple):
    """What has ended in one step of a chart."""

    at: datetime
    succeeded: int
    failed: int
    dead: int
    canceled: int
    ended: int
    run_seconds: float
    wait_seconds: float

    @property
    def mean_run(self) -> float | None:
        return self.run_seconds / self.ended if self.ended else None

    @property
    def mean_wait(self) -> float | None:
        return self.wait_seconds / self.ended if self.ended else None


async def read_queues(transaction: Transaction, name: str | None = None) -> list[QueueFigures]:
    rows = await transaction.fetch("queue_figures", (name, _TREND_SECONDS // 60))
    return [QueueFigures(*row) for row in rows]


async def read_endings(
    transaction: Transaction, window: Window, now: datetime, dimension: str = "all", name: str = ""
) -> list[Ending]:
    since = now - timedelta(seconds=window.seconds - window.step)
    return [Ending(*row) for row in await transaction.fetch("web_endings", (dimension, name, since, window.step))]


def thin_out(samples: Sequence[Sample], most: int = 120) -> Sequence[Sample]:
    """Fewer samples, evenly; the newest one stays."""
    step = max(1, -(-len(samples) // most))
    return samples[(len(samples) - 1) % step :: step]
