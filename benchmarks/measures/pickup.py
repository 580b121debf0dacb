"""How soon an idle worker begins a job: from the producer's commit, and from its call, to the handler's first line."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.contestant import Contestant, Failed
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes

TIME_TO_FALL_ASLEEP = 3.0
TIME_TO_FINISH = 2.5


def pickup(contestant: Contestant, sizes: Sizes) -> Run:
    samples = sizes.samples_of(contestant.peer)
    sent = contestant.directory / "sent"
    contestant.set_up()
    contestant.log_latencies()
    contestant.start()
    time.sleep(TIME_TO_FALL_ASLEEP)
    contestant.check_alive()
    before = usage(contestant.sessions)
    contestant.call("latency", samples, sizes.gap, sent)
    cores = usage(contestant.sessions).since(before)
    time.sleep(TIME_TO_FINISH)
    contestant.stop()
    return {**_percentiles(contestant.peer.name, sent, contestant.latencies), **cores}


def _percentiles(name: str, sent: Path, begun: Path) -> Run:
    """Milliseconds. A job that ran twice counts from its first run."""
    first: dict[int, int] = {}
    for number, instant in _numbers(begun):
        first.setdefault(number, instant)
    waits, calls = [], []
    for number, before, after in _numbers(sent):
        if number not in first:
            raise Failed(f"{name}: job {number} has not begun")
        waits.append((first[number] - after) / 1e6)
        calls.append((first[number] - before) / 1e6)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        "samples": len(waits),
        **{key: _quantile(waits, share) for key, share in shares.items()},
        **{f"call_{key}": _quantile(calls, share) for key, share in shares.items()},
    }


def _numbers(file: Path) -> list[list[int]]:
    text = file.read_text() if file.exists() else ""
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
