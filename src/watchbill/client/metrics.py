"""What `watchbill metrics` and `/metrics` of the dashboard tell Prometheus. It comes from small tables, nothing is
counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from watchbill.client import figure_operations, job_operations, schedule_operations
from watchbill.client.operations import Operation
from watchbill.model.figures import OUTCOMES, Figure, Sample, sum_by_name
from watchbill.model.job import NodeRecord
from watchbill.model.schedule import ScheduleStats
from watchbill.telemetry.prometheus import Family, write_metrics

MOST_QUEUES = 100  # the queues with most jobs have series of their own, all others are added up as `(other)`
WAITING = ("running", "ready", "scheduled", "retrying", "limited", "paused", "unsupported", "unmatched", "blocked")


def read_metrics() -> Operation[str]:
    """The metrics of the installation, in the text format of Prometheus."""
    now = datetime.now(UTC)
    samples = yield from figure_operations.samples("queue")
    ended = sum_by_name((yield from figure_operations.figures("queue", "minute", since=now - timedelta(hours=1))))
    nodes = yield from job_operations.nodes()
    schedules = yield from schedule_operations.stats()
    return write_metrics(measure(now, samples, ended, nodes, schedules))


def measure(
    now: datetime, samples: list[Sample], ended: list[Figure], nodes: list[NodeRecord], schedules: ScheduleStats
) -> Iterator[Family]:
    by_jobs = sorted(samples, key=lambda sample: -sum(getattr(sample, word) for word in WAITING))
    kept = {sample.name for sample in by_jobs[:MOST_QUEUES]}
    jobs: dict[tuple[str, str], int] = {}
    oldest: dict[str, float] = {}
    for sample in samples:
        queue = sample.name if sample.name in kept else "(other)"
        for word in WAITING:
            jobs[queue, word] = jobs.get((queue, word), 0) + getattr(sample, word)
        if sample.oldest is not None:
            oldest[queue] = max(oldest.get(queue, 0.0), (now - sample.oldest).total_seconds())
    outcomes: dict[tuple[str, str], int] = {}
    for place, figure in enumerate(ended):
        queue = figure.name if place < MOST_QUEUES else "(other)"
        for word in OUTCOMES:
            outcomes[queue, word] = outcomes.get((queue, word), 0) + getattr(figure, word)
    states: dict[tuple[str, str], int] = {}
    for node in nodes:
        states[node.app or "", node.state] = states.get((node.app or "", node.state), 0) + 1
    yield Family(
        "watchbill_queue_jobs", "gauge", "Unfinished jobs by queue and what they wait for. Large counts are estimates.",
        [({"queue": queue, "state": word}, number) for (queue, word), number in jobs.items()],
    )  # fmt: skip
    yield Family(
        "watchbill_queue_oldest_seconds", "gauge", "How long the oldest ready job has been due.",
        [({"queue": queue}, seconds) for queue, seconds in oldest.items()],
    )  # fmt: skip
    yield Family(
        "watchbill_queue_ended_last_hour", "gauge", "What has ended in the last hour, as nodes have reported.",
        [({"queue": queue, "outcome": word}, number) for (queue, word), number in outcomes.items()],
    )  # fmt: skip
    yield Family(
        "watchbill_nodes", "gauge", "Nodes that have not left, by app and state.",
        [({"app": app, "state": state}, number) for (app, state), number in states.items()],
    )  # fmt: skip
    words = {"due": schedules.due, "late": schedules.late, "orphaned": schedules.orphaned, "overdue": schedules.overdue}
    yield Family(
        "watchbill_schedules", "gauge", "Schedules that are due, late or orphaned, and runs that are overdue.",
        [({"status": word}, number) for word, number in words.items()],
    )  # fmt: skip
    if samples:
        age = (now - samples[-1].at).total_seconds()
        yield Family("watchbill_sample_age_seconds", "gauge", "How old the counts of jobs are.", [({}, age)])
