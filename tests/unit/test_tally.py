"""What a tally counts, how it is named, and when it is sent again."""

from __future__ import annotations

import json
import time
from typing import Any

from watchbill.worker.run import Claimed
from watchbill.worker.tally import MOST_NAMES, Tally


def claimed(queue: str = "q", number: int = 0) -> Claimed:
    known: dict[str, Any] = {"id": number.to_bytes(16), "queue": queue, "type": "t", "tenant": "x", "raw_run_at": 0}
    return Claimed(**dict.fromkeys(Claimed._fields, 5) | known)


def take(tally: Tally) -> list[dict[str, Any]]:
    report = tally.next_report()
    assert report is not None
    tally.acknowledge(report)
    rows: list[dict[str, Any]] = json.loads(report.counts)
    return rows


def counts(row: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in row.items() if isinstance(value, int) and value}


def test_runs_count_by_outcome_and_jobs_by_what_they_ended_as() -> None:
    tally = Tally()
    for outcome, state in (
        ("failed", "failed"), ("failed", "dead"), ("timed_out", "dead"), ("snoozed", "queued"),
        ("skipped", "succeeded"),
        ("canceled", "canceled"), ("canceled", "failed"), ("failed", "canceled"), ("released", "queued"),
        ("unsupported", "queued"),
    ):  # fmt: skip
        tally.add_ending(claimed(), outcome, state, None)
    (row,) = take(tally)
    assert counts(row) == {"failed": 4, "dead": 2, "timed_out": 1, "snoozed": 1, "skipped": 1, "canceled": 2}


def test_refused_endings_do_not_count() -> None:
    tally, now = Tally(), time.monotonic()
    tally.add_successes([(claimed(number=n), now, None, None) for n in range(3)], [(1).to_bytes(16)])
    assert [counts(row) for row in take(tally)] == [{"succeeded": 2}]


def test_waits_are_measured_on_the_clock_of_the_database() -> None:
    tally, now = Tally(), time.monotonic()
    tally.set_clock(946_684_800.0 + 100.0, now)  # the database says that it is 100 s after the job was due
    tally.add_successes([(claimed(), now, None, None)], ())
    (row,) = take(tally)
    assert 99 < row["wait_seconds"] < 101


def test_names_beyond_the_most_count_as_others() -> None:
    tally = Tally()
    for number in range(MOST_NAMES + 5):
        tally.add_ending(claimed(f"q{number}"), "failed", "failed", None)
    rows = take(tally)
    assert len(rows) == MOST_NAMES + 1
    assert {row["failed"] for row in rows if row["queue"] == "(other)"} == {5}


def test_a_report_is_repeated_until_it_is_acknowledged_and_then_numbers_grow() -> None:
    tally = Tally()
    assert tally.next_report() is None
    tally.add_ending(claimed(), "failed", "failed", None)
    first = tally.next_report()
    tally.add_ending(claimed(), "failed", "failed", None)
    assert tally.next_report() is first
    assert first is not None
    tally.acknowledge(first)
    second = tally.next_report()
    assert second is not None
    assert (first.number, second.number) == (1, 2)
    tally.begin_epoch()
    assert tally.next_report() is None
