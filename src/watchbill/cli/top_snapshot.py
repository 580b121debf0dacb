"""What `watchbill top` shows, read from the small tables of figures, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from watchbill.cli.output import pluralize, show_age
from watchbill.cli.spark import draw_bar
from watchbill.client import figure_operations, job_operations
from watchbill.client.operations import Operation
from watchbill.model.figures import FailureGroup, Figure, QueueFigures, Sample, sum_by_name
from watchbill.model.job import NodeRecord

LATELY_MINUTES = 5  # rates are those of the last minutes, and of the one that is not over
_SHORTEST_SECONDS = 10.0  # nodes report no more often
_MOST_FAILURES = 50
_WAITS = ("scheduled", "retrying", "limited", "paused", "unsupported", "unmatched", "blocked")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is shown. `backlog` is the newest sample; `lately` and `hour` are None if nothing has ended."""

    at: datetime
    backlog: Sample | None
    lately: Figure | None
    hour: Figure | None
    queues: list[QueueFigures]
    nodes: list[NodeRecord]
    failures: list[FailureGroup]

    @property
    def per_second(self) -> float:
        return 0.0 if self.lately is None else self.compute_rate(self.lately.runs)

    def compute_rate(self, ended: int | None) -> float:
        """Returns how many of the runs that have ended lately there were per second, since the first of them."""
        if self.lately is None or not ended:
            return 0.0
        return ended / max(_SHORTEST_SECONDS, (self.at - self.lately.at).total_seconds())

    @property
    def failed_share(self) -> float | None:
        return None if self.hour is None or not self.hour.runs else count_failed(self.hour) / self.hour.runs


def count_failed(figure: Figure) -> int:
    return figure.failed + figure.timed_out + figure.lost


def read_snapshot() -> Operation[Snapshot]:
    now = datetime.now(UTC)
    hour = now - timedelta(hours=1)
    this_minute = now.replace(second=0, microsecond=0)
    samples = yield from figure_operations.samples("all")
    figures = yield from figure_operations.figures("all", "minute", since=hour)
    queues = yield from figure_operations.queue_figures()
    nodes = yield from job_operations.nodes()
    failures = yield from figure_operations.failures(since=hour, limit=_MOST_FAILURES)
    lately = [figure for figure in figures if figure.at >= this_minute - timedelta(minutes=LATELY_MINUTES)]
    return Snapshot(now, _first(samples), _first(sum_by_name(lately)), _first(sum_by_name(figures)), queues, nodes,
                    failures)  # fmt: skip


def _first(found: list[Any]) -> Any:
    return found[0] if found else None


def describe_backlog(backlog: Sample | None) -> str:
    if backlog is None:
        return "No sample has been taken yet: a node takes one every 10 seconds."
    mark = "≈ " if backlog.is_estimate else ""
    words = [f"running {backlog.running:,}", f"ready {mark}{backlog.ready:,}"]
    words += [f"{word} {mark}{number:,}" for word in _WAITS if (number := getattr(backlog, word))]
    return f"{', '.join(words)}; sampled {show_ago(backlog.at) or 'now'}"


def describe_endings(found: Snapshot) -> str:
    if found.hour is None:
        return "Nothing has ended in the last hour."
    failed = f", {show_share(found.failed_share)} failed" if found.failed_share else ""
    dead = f", {found.hour.dead:,} dead" if found.hour.dead else ""
    return (
        f"{found.per_second:,.1f} runs per second; in the last hour {pluralize(found.hour.runs, 'run')}{failed}{dead}"
    )


def show_queue(queue: QueueFigures, snapshot: Snapshot) -> tuple[str, ...]:
    """Returns what is ready, what runs, the age of the oldest, the rate, and the share that failed."""
    mark = "≈ " if queue.is_estimate else ""
    return (
        f"{mark}{queue.ready or 0:,}", f"{queue.running or 0:,}", show_age(queue.oldest),
        f"{snapshot.compute_rate(queue.ended_lately):,.1f}", show_share(queue.failed_share),
    )  # fmt: skip


def show_share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def describe_queue(queue: QueueFigures) -> str:
    """Returns what is unusual: who paused the queue, that its limit is reached, that no node serves it."""
    words = []
    if queue.paused_at is not None:
        words += [
            f"paused by {queue.paused_by or 'unknown'}" + (f": {queue.pause_reason}" if queue.pause_reason else "")
        ]
    if queue.max is not None and (queue.running or 0) >= queue.max:
        words += [f"limit of {queue.max:,} reached"]
    if queue.unfinished and not queue.nodes:
        words += ["no node serves it"]
    elif queue.nodes and queue.nodes == queue.draining_nodes:
        words += ["its nodes drain"]
    for word in ("paused", "limited", "unsupported", "unmatched"):
        if number := getattr(queue, word):
            words += [f"{number:,} {word}"]
    return ", ".join(words)


def show_claimed(node: NodeRecord) -> str:
    return f"{node.claimed}/{node.capacity}" if node.capacity else str(node.claimed)


def draw_load(node: NodeRecord, width: int) -> str:
    return draw_bar(node.claimed, node.capacity or 0, width) if node.capacity else ""


def show_ago(moment: datetime | None) -> str:
    return f"{age} ago" if (age := show_age(moment)) else ""
