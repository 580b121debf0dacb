"""Who uses the processor: the workers, the servers, the harness, and everybody else."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.servers import process_ids

TICK = os.sysconf("SC_CLK_TCK")
IDLE_SHARE = 0.88


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time so far. What the hypervisor takes away is used by others too."""

    at: float
    workers: float
    servers: float
    harness: float
    machine: float

    def since(self, before: Usage) -> dict[str, float]:
        """Cores in use between two readings."""
        seconds = max(self.at - before.at, 1e-6)
        workers, servers = self.workers - before.workers, self.servers - before.servers
        ours = workers + servers + self.harness - before.harness
        return {
            "worker_cpu": workers / seconds,
            "server_cpu": servers / seconds,
            "other_cpu": (self.machine - before.machine - ours) / seconds,
        }


def usage(sessions: Collection[int] = ()) -> Usage:
    """`sessions`: those of the workers, each of which leads one."""
    servers = set(process_ids())
    by_workers = by_servers = 0.0
    for process in _processes():
        if process.pid in servers:
            by_servers += process.seconds + process.of_children
        elif process.parent in servers:
            by_servers += process.seconds
        elif process.session in sessions:
            by_workers += process.seconds
    own = os.times()
    harness = own.user + own.system + own.children_user + own.children_system
    busy, _ = _machine()
    return Usage(time.perf_counter(), by_workers, by_servers, harness, busy)


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int
    seconds: float
    of_children: float  # that have ended


def _processes() -> Iterator[_Process]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                text = (directory / "stat").read_text()
            except OSError:  # it has ended
                continue
            rest = text[text.rindex(")") + 2 :].split()  # the name in front may hold anything
            times = [int(number) / TICK for number in rest[11:15]]
            yield _Process(int(directory.name), int(rest[1]), int(rest[3]), times[0] + times[1], times[2] + times[3])


def _machine() -> tuple[float, float]:
    """Seconds busy, seconds in all."""
    numbers = [int(number) / TICK for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def wait_until_quiet(limit: float) -> None:
    """Returns when the machine is nearly idle, or after so many seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        busy, total = _machine()
        time.sleep(0.4)
        later_busy, later_total = _machine()
        if later_busy - busy < (1 - IDLE_SHARE) * (later_total - total):
            return
