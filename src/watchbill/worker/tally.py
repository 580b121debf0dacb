"""Counts how the runs of this process end, until a heartbeat takes the counts to the database.

So figures cost no statement, and what they cost follows nodes, not jobs. A tally keeps its number until the server has
acknowledged it: one that is sent again after a lost reply is stored once. What a killed process does not report, and
what other programs settle, is counted from history after the end of each hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import orjson

from watchbill.worker.endings import Success
from watchbill.worker.meters import Meters
from watchbill.worker.run import Claimed

MOST_NAMES = 200  # combinations of queue, type and tenant in one tally; the jobs of all others count as OTHER
OTHER = ("(other)", "(other)", "(other)")
OUTCOMES = ("succeeded", "skipped", "failed", "timed_out", "snoozed")  # of runs
ENDED_JOBS = ("dead", "canceled")
_COUNTED = (*OUTCOMES, *ENDED_JOBS)
_PLACES = {name: place for place, name in enumerate(_COUNTED)}
_RUN_SECONDS, _WAIT_SECONDS = len(_COUNTED), len(_COUNTED) + 1
_SECONDS_FROM_1970_TO_2000 = 946_684_800.0

Counts = dict[tuple[str, str, str], list[float]]  # the numbers of _COUNTED, then the seconds of runs and of waits


class Report(NamedTuple):
    number: int
    counts: str  # JSON, as the SQL function _report_tally takes it


class Tally:
    """The event loop adds, and the thread of the heartbeat takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._reported: Counts = {}  # all that was in reports, for metrics
        self._pending: Report | None = None
        self._number = 0
        self.meters: Meters | None = None  # also measures each run, if the process has a health_port
        self._clock_offset = time.time() - time.monotonic()  # the database's clock less the monotonic one

    def begin_epoch(self) -> None:
        """Starts anew: under its last epoch the server may have stored what was not acknowledged."""
        with self._lock:
            _add_counts(self._reported, self._counts)
            self._counts, self._pending, self._number = {}, None, 0

    def set_clock(self, database_seconds: float, asked: float) -> None:
        """Notes the time of the database, which it has told in reply to a statement that was sent at `asked`."""
        self._clock_offset = database_seconds - (asked + time.monotonic()) / 2

    def add_successes(self, succeeded: Sequence[Success], refused: Collection[bytes]) -> None:
        now, due_offset = time.monotonic(), self._clock_offset - _SECONDS_FROM_1970_TO_2000
        with self._lock:
            for claimed, started, _, _ in succeeded:
                if refused and claimed.id in refused:
                    continue
                numbers = self._counts.get((claimed.queue, claimed.type, claimed.tenant))
                if numbers is None:
                    numbers = self._add_name(claimed)
                numbers[0] += 1
                numbers[_RUN_SECONDS] += now - started
                wait = started + due_offset - claimed.raw_run_at / 1e6
                if wait > 0:
                    numbers[_WAIT_SECONDS] += wait
        if self.meters is not None:
            self.meters.note_successes(succeeded, refused, due_offset)

    def add_ending(self, claimed: Claimed, outcome: str, state: str, started: float | None) -> None:
        """Counts a run by its outcome, and its job if that has ended as dead or canceled."""
        if outcome == "canceled" and state != "canceled":  # without a stop request it is a failure
            outcome = "failed"
        with self._lock:
            numbers = self._counts.get((claimed.queue, claimed.type, claimed.tenant)) or self._add_name(claimed)
            if outcome in _PLACES and outcome != "canceled":
                numbers[_PLACES[outcome]] += 1
            if state in ("dead", "canceled"):
                numbers[_PLACES[state]] += 1
            if started is not None and outcome not in ("canceled", "released"):
                numbers[_RUN_SECONDS] += time.monotonic() - started
                due = claimed.raw_run_at / 1e6 + _SECONDS_FROM_1970_TO_2000
                numbers[_WAIT_SECONDS] += max(0.0, started + self._clock_offset - due)
                if self.meters is not None:
                    self.meters.note_ending(claimed, started, self._clock_offset - _SECONDS_FROM_1970_TO_2000)

    def _add_name(self, claimed: Claimed) -> list[float]:
        name = (claimed.queue, claimed.type, claimed.tenant) if len(self._counts) < MOST_NAMES else OTHER
        return self._counts.setdefault(name, [0] * (_WAIT_SECONDS + 1))

    def next_report(self) -> Report | None:
        """Returns what to send: the last report if it was not acknowledged, or else what was counted since."""
        with self._lock:
            if self._pending is None and self._counts:
                self._number += 1
                self._pending = Report(self._number, _as_json(self._counts))
                _add_counts(self._reported, self._counts)
                self._counts = {}
            return self._pending

    def total(self) -> Counts:
        """Returns what was counted since the process started."""
        with self._lock:
            total = {name: [*numbers] for name, numbers in self._reported.items()}
            _add_counts(total, self._counts)
            return total

    def acknowledge(self, report: Report) -> None:
        with self._lock:
            if self._pending is report:
                self._pending = None


def _add_counts(total: Counts, counts: Counts) -> None:
    for name, numbers in counts.items():
        known = total.setdefault(name if name in total or len(total) < MOST_NAMES else OTHER, [0] * len(numbers))
        for place, number in enumerate(numbers):
            known[place] += number


def _as_json(counts: Counts) -> str:
    return orjson.dumps(
        [
            {"queue": queue, "type": job_type, "tenant": tenant}
            | dict(zip((*_COUNTED, "run_seconds", "wait_seconds"), numbers, strict=True))
            for (queue, job_type, tenant), numbers in counts.items()
        ]
    ).decode()
