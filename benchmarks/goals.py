"""What ours wants to reach, as ratios to the peers in the same run where there is a peer, else as figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.measures.deep import CLAIMS, STATES
from benchmarks.measures.sizes import Run

Medians = dict[str, dict[str, Run]]  # by measure and peer


@dataclass(frozen=True)
class Side:
    """One figure of one peer."""

    measure: str
    peer: str
    figure: str = "rate"

    def of(self, medians: Medians) -> float | None:
        return medians.get(self.measure, {}).get(self.peer, {}).get(self.figure)


@dataclass(frozen=True)
class Goal:
    """A figure, divided by another where one is given, within a bound."""

    text: str
    over: Side
    under: Side | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a goal."""

    text: str
    value: float
    wanted: str
    met: bool


def verdicts(medians: Medians) -> Iterator[Verdict]:
    """Of the goals for which everything was measured."""
    for goal in GOALS:
        over = goal.over.of(medians)
        under = goal.under.of(medians) if goal.under else 1.0
        if over is not None and under:
            value = over / under
            least = goal.least if goal.least is not None else float("-inf")
            most = goal.most if goal.most is not None else float("inf")
            wanted = f"at least {least:g}" if goal.most is None else f"at most {most:g}"
            yield Verdict(goal.text, value, wanted, least <= value <= most)


def _beside(measure: str, peer: str, least: float) -> Goal:
    return Goal(f"{measure}: watchbill / {peer}", Side(measure, "watchbill"), Side(measure, peer), least=least)


def _held(peer: str) -> Goal:
    return Goal(f"held / clean: {peer}", Side("held", peer), Side("clean", peer), least=0.9)


def _deep(state: str, size: int) -> Goal:
    over, under = (
        Side("deep", "watchbill", f"{state} claim {size}"),
        Side("deep", "watchbill", f"{state} shallow claim {size}"),
    )
    return Goal(f"deep / shallow: claim of {size}, statistics {state}", over, under, most=1.5)


def _scans(state: str) -> Goal:
    return Goal(
        f"deep: sequential scans, statistics {state}", Side("deep", "watchbill", f"{state} sequential scans"), most=0
    )


_PRODUCERS = {"graphile-worker": 2.0, "pgqueuer": 1.5, "pg-boss": 1.0, "procrastinate": 2.0}

GOALS = [
    _beside("drain", "graphile-worker", 1.7),
    _beside("drain", "pgqueuer", 3.5),
    _beside("drain-two", "graphile-worker", 1.3),
    *(_beside(measure, peer, least) for measure in ("enqueue", "enqueue-eight") for peer, least in _PRODUCERS.items()),
    _beside("bulk", "graphile-worker", 2.1),
    *(_beside("bulk", peer, 1.3) for peer in _PRODUCERS if peer != "graphile-worker"),
    Goal("bulk: jobs/s through the function", Side("bulk", "watchbill-sql"), least=50_000),
    Goal("bulk: jobs/s by COPY", Side("bulk", "watchbill-copy"), least=100_000),
    Goal("pickup: p50, ms", Side("pickup", "watchbill", "p50"), most=1.5),
    Goal("pickup: p99, ms", Side("pickup", "watchbill", "p99"), most=7),
    *(
        Goal(
            f"pickup: {part}, watchbill / graphile-worker",
            Side("pickup", "watchbill", part),
            Side("pickup", "graphile-worker", part),
            most=1.0,
        )
        for part in ("p50", "p99")
    ),
    Goal("producers: beside sleepers / alone", Side("producers", "watchbill-asleep", "share"), least=0.9),
    _held("watchbill"),
    _held("watchbill-crowd"),
    Goal("WAL, bytes a job of 60 B", Side("payloads", "watchbill-60B", "wal_per_job"), most=1200),
    Goal("HOT share of updates", Side("drain", "watchbill", "hot_share"), least=0.9),
    *(_deep(state, size) for state in STATES for size in CLAIMS),
    *(_scans(state) for state in STATES),
]
