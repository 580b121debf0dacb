"""What is measured, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.contestant import Contestant
from benchmarks.measures.deep import deep
from benchmarks.measures.drain import drain, drain_by_two, drain_keys, drain_young
from benchmarks.measures.enqueue import bulk, enqueue, enqueue_by_eight
from benchmarks.measures.pickup import pickup
from benchmarks.measures.producers import producers
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.measures.snapshot import clean, held

OTHERS = ("graphile-worker", "pgqueuer", "pg-boss", "procrastinate", "celery", "taskiq")
ON_POSTGRES = ("graphile-worker", "pgqueuer", "pg-boss", "procrastinate")
CHURNING = ("watchbill", "watchbill-crowd", "graphile-worker", "pgqueuer", "procrastinate")


@dataclass(frozen=True)
class Measure:
    """`figure` is what the medians and the ratios are of; `repeat`: how often, at most, however often is asked for;
    `beside`: the measure that its figures are compared with, and that it therefore takes turns with."""

    name: str
    run: Callable[[Contestant, Sizes], Run]
    peers: tuple[str, ...]
    figure: str = "rate"
    repeat: int = 9
    beside: str = ""


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("drain", drain, ("watchbill", "watchbill-def", *OTHERS)),
        Measure("drain-two", drain_by_two, ("watchbill", "watchbill-def", *OTHERS)),
        Measure("keys", drain_keys, ("watchbill-keys", "graphile-worker-keys", "procrastinate-keys")),
        Measure("key-runs", drain_keys, ("watchbill-key-runs", "graphile-worker-key-runs", "procrastinate-key-runs")),
        Measure("payloads", drain_young, ("watchbill-60B", "watchbill-100B", "watchbill-1kB", "watchbill-10kB")),
        Measure("enqueue", enqueue, ("watchbill", *OTHERS)),
        Measure("enqueue-eight", enqueue_by_eight, ("watchbill", *ON_POSTGRES)),
        Measure("bulk", bulk, ("watchbill", "watchbill-sql", "watchbill-copy", *OTHERS)),
        Measure("pickup", pickup, ("watchbill", *OTHERS), figure="p50", repeat=1),
        Measure("producers", producers, ("watchbill", "watchbill-asleep", "graphile-worker", "pgqueuer")),
        Measure("clean", clean, CHURNING),
        Measure("held", held, CHURNING, beside="clean"),
        Measure("deep", deep, ("watchbill",), figure="fresh claim 20", repeat=1),
    )
}
