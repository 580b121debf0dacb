"""Who takes part, each at the best setting we know; how its unfinished jobs are counted; how many it is given.

A variant is the same queue with other options. What runs it is decided by the adapter's name.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.places import ADAPTERS, ENV, OUR_PYTHON, PEERS_PYTHON

OURS = "watchbill"


@dataclass(frozen=True)
class Peer:
    """`left`: SQL that counts what is unfinished. None: it is not on PostgreSQL; a job is done when its handler ran."""

    name: str
    adapter: str
    jobs: int
    left: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    singles: int = 3_000
    samples: int = 1_000
    workers: int = 1  # of the measures with an old snapshot

    @property
    def command(self) -> list[str]:
        if self.adapter.endswith(".mjs"):
            return ["node", str(ADAPTERS / self.adapter)]
        python = OUR_PYTHON if self.adapter == OURS else PEERS_PYTHON
        return [str(python), "-m", f"benchmarks.adapters.{self.adapter}"]

    @property
    def missing(self) -> str | None:
        """What has to be installed before it can take part."""
        if self.adapter.endswith(".mjs"):
            there = shutil.which("node") and (ENV / "node" / "node_modules").exists()
            return None if there else "node and its packages"
        if self.adapter == OURS:
            return None
        if self.left is None and not shutil.which("redis-server"):
            return "redis-server"
        return None if PEERS_PYTHON.exists() else str(PEERS_PYTHON)


def _watchbill(variant: str = "", jobs: int = 100_000, workers: int = 1, **options: Any) -> Peer:
    name = f"{OURS}-{variant}" if variant else OURS
    left = "SELECT count(*) FROM watchbill.jobs"
    return Peer(name, OURS, jobs, left, options, samples=5_000, workers=workers)


_GRAPHILE = {
    "concurrentJobs": 24,
    "maxPoolSize": 25,
    "localQueue": {"size": 5000, "refetchDelay": {"durationMs": 10}},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}
_PG_BOSS = {
    "batchSize": 2000,
    "localConcurrency": 2,
    "burstWhenBatchFull": True,
    "pollingIntervalSeconds": 0.5,
}

# A thousand keys, at most one job of each at a time: one after the other, or a hundred jobs of a key in a row.
_KEYS, _KEY_RUNS = {"keys": 1000, "run": 1}, {"keys": 1000, "run": 100}


def _graphile(variant: str = "", **options: Any) -> Peer:
    left = "SELECT count(*) FROM graphile_worker._private_jobs"
    return Peer(f"graphile-worker{variant}", "graphile_worker.mjs", 100_000, left, {"worker": _GRAPHILE, **options})


def _procrastinate(variant: str = "", **options: Any) -> Peer:
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    return Peer(f"procrastinate{variant}", "procrastinate", 5_000, left, {"concurrency": 20, **options})


_ALL = [
    _watchbill(),
    _watchbill("def", **{"def": True}),
    _watchbill("sql", bulk="sql"),
    _watchbill("copy", bulk="copy"),
    _watchbill("crowd", workers=3, priorities=10),
    _watchbill("asleep", queues="elsewhere"),
    _watchbill("60B", payload=60),
    _watchbill("100B", payload=100),
    _watchbill("1kB", 50_000, payload=1_000),
    _watchbill("10kB", 20_000, payload=10_000),
    _watchbill("keys", **_KEYS),
    _watchbill("key-runs", **_KEY_RUNS),
    _graphile(),
    _graphile("-keys", **_KEYS),
    _graphile("-key-runs", **_KEY_RUNS),
    Peer(
        "pgqueuer",
        "pgqueuer",
        50_000,
        "SELECT count(*) FROM pgqueuer",
        {"batch": 1000, "uvloop": True, "pool": 5},
    ),
    Peer(
        "pg-boss",
        "pg_boss.mjs",
        50_000,
        "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state < 'completed'",
        {"work": _PG_BOSS},
    ),
    _procrastinate(),
    _procrastinate("-keys", **_KEYS),
    _procrastinate("-key-runs", **_KEY_RUNS),
    Peer("celery", "celery", 8_000),
    Peer("taskiq", "taskiq", 15_000),
]
PEERS = {peer.name: peer for peer in _ALL}
