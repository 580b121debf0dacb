"""Measures what a process does, for `/metrics`. Only a process with a `health_port` has meters.

Every name is bounded: the first queues and types that a process meets have series of their own, all others are added up
as `(other)`. Names of nodes, keys and tenants are never labels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from watchbill.telemetry.prometheus import Family, Histogram, Summary
from watchbill.worker.endings import Success
from watchbill.worker.run import Claimed

RUN_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 300.0, 1200.0, 3600.0)
WAIT_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 900.0, 1800.0)
STATEMENT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0)
MOST_TYPES = 40  # pairs of queue and type that have a histogram of their own
MOST_QUEUES = 20
OTHER = "(other)"
_CLAIMS = frozenset({"claim", "claim_above", "claim_other_types"})
_SETTLEMENTS = frozenset({"settle_succeeded", "settle", "settle_with_logs"})

Key = TypeVar("Key")


class Meters:
    """The event loop adds, the heartbeat's thread adds its own, and any thread reads."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], Histogram] = {}
        self._waits: dict[str, Histogram] = {}
        self._claims, self._settlements = Histogram(STATEMENT_SECONDS), Histogram(STATEMENT_SECONDS)
        self._beats = Histogram(STATEMENT_SECONDS)
        self._claimed = self._empty_claims = self._lost_leases = 0
        self._beat_results = {"ok": 0, "failed": 0}
        self._queries: dict[str, Summary] = {}
        self._chores: dict[str, Summary] = {}
        self._failed_chores: dict[str, int] = {}
        self._enqueued = 0
        self._enqueued_lock = threading.Lock()  # handlers enqueue from threads too

    def note_query(self, query: str, seconds: float, row_count: int) -> None:
        """Adds a statement of a chore, a claim or a settlement."""
        self._queries[query] = self._queries.get(query, Summary()).plus(seconds)
        if query in _CLAIMS:
            self._claims.add(seconds)
            self._claimed += row_count
            self._empty_claims += not row_count
        elif query in _SETTLEMENTS:
            self._settlements.add(seconds)

    def note_beat(self, seconds: float, *, is_acknowledged: bool) -> None:
        self._beat_results["ok" if is_acknowledged else "failed"] += 1
        if is_acknowledged:
            self._beats.add(seconds)

    def note_chore(self, name: str, seconds: float, *, has_failed: bool) -> None:
        self._chores[name] = self._chores.get(name, Summary()).plus(seconds)
        self._failed_chores[name] = self._failed_chores.get(name, 0) + has_failed

    def note_enqueued(self, **_: object) -> None:
        """Observes the event `job_enqueued`."""
        with self._enqueued_lock:
            self._enqueued += 1

    def note_lost_lease(self, **_: object) -> None:
        """Observes the event `node_lost`."""
        self._lost_leases += 1

    def note_successes(
        self, succeeded: Iterable[Success], refused: Collection[bytes], due_offset: float, now: float | None = None
    ) -> None:
        """Adds runs that were settled just now. `due_offset` is the database's clock less the monotonic one, counted
        from 2000 as `raw_run_at` is."""
        now = time.monotonic() if now is None else now
        for claimed, started, _, _ in succeeded:
            if not refused or claimed.id not in refused:
                self._add_run(claimed, now - started, started + due_offset - claimed.raw_run_at / 1e6)

    def note_ending(self, claimed: Claimed, started: float, due_offset: float) -> None:
        now = time.monotonic()
        self._add_run(claimed, now - started, started + due_offset - claimed.raw_run_at / 1e6)

    def _add_run(self, claimed: Claimed, run_seconds: float, wait_seconds: float) -> None:
        runs = self._runs.get((claimed.queue, claimed.type))
        if runs is None:
            name = _choose_name(self._runs, (claimed.queue, claimed.type), (OTHER, OTHER), MOST_TYPES)
            runs = self._runs.setdefault(name, Histogram(RUN_SECONDS))
        runs.add(run_seconds)
        waits = self._waits.get(claimed.queue)
        if waits is None:
            name_of_queue = _choose_name(self._waits, claimed.queue, OTHER, MOST_QUEUES)
            waits = self._waits.setdefault(name_of_queue, Histogram(WAIT_SECONDS))
        waits.add(max(0.0, wait_seconds))

    def measure(self) -> Iterator[Family]:
        yield Family(
            "watchbill_attempt_seconds", "histogram", "How long runs have taken until their end was stored.",
            [({"queue": queue, "type": type_}, runs) for (queue, type_), runs in sorted(self._runs.items())],
        )  # fmt: skip
        yield Family(
            "watchbill_wait_seconds", "histogram", "How long jobs were due before they started.",
            [({"queue": queue}, waits) for queue, waits in sorted(self._waits.items())],
        )  # fmt: skip
        single: Mapping[str, tuple[Histogram, str]] = {
            "watchbill_claim_seconds": (self._claims, "How long claims have taken."),
            "watchbill_settle_seconds": (self._settlements, "How long statements that store endings have taken."),
            "watchbill_heartbeat_seconds": (self._beats, "How long heartbeats have taken until their answer."),
        }
        for name, (histogram, meaning) in single.items():
            yield Family(name, "histogram", meaning, [({}, histogram)])
        counters: Mapping[str, tuple[int, str]] = {
            "watchbill_enqueued_total": (self._enqueued, "Jobs that handlers of this process have enqueued."),
            "watchbill_claimed_total": (self._claimed, "Jobs that were claimed."),
            "watchbill_empty_claims_total": (self._empty_claims, "Claims that have found no job."),
            "watchbill_leases_lost_total": (self._lost_leases, "How often the node was declared lost."),
        }
        for name, (number, meaning) in counters.items():
            yield Family(name, "counter", meaning, [({}, number)])
        yield Family(
            "watchbill_heartbeats_total", "counter", "Heartbeats, by whether they were acknowledged.",
            [({"result": result}, number) for result, number in self._beat_results.items()],
        )  # fmt: skip
        yield Family(
            "watchbill_query_seconds", "summary", "How long statements of the worker have taken, by their name.",
            [({"query": query}, taken) for query, taken in sorted(self._queries.items())],
        )  # fmt: skip
        yield Family(
            "watchbill_chore_seconds", "summary", "How long chores of the node have taken.",
            [({"chore": chore}, taken) for chore, taken in sorted(self._chores.items())],
        )  # fmt: skip
        yield Family(
            "watchbill_chore_failures_total", "counter", "Runs of chores that have failed.",
            [({"chore": chore}, number) for chore, number in sorted(self._failed_chores.items())],
        )  # fmt: skip


def _choose_name(known: Mapping[Key, object], name: Key, other: Key, most: int) -> Key:
    return name if name in known or len(known) < most else other
