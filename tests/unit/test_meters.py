"""What a process measures: bounded, and in the text format of Prometheus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.worker.test_health import read_metrics
from watchbill.telemetry.prometheus import Family, Histogram, merge_metrics, write_metrics
from watchbill.worker.meters import Meters


def claimed(queue: str = "mail", type_: str = "send") -> Any:
    return SimpleNamespace(id=b"1", queue=queue, type=type_, raw_run_at=0)


def test_a_histogram_counts_each_value_once_and_sums_up() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 30.0):
        histogram.add(value)
    text = write_metrics([Family("watchbill_x_seconds", "histogram", "X.", [({"queue": "a"}, histogram)])])
    found = read_metrics(text)
    buckets = [found["watchbill_x_seconds_bucket", f'queue="a",le="{bound}"'] for bound in ("0.1", "1", "+Inf")]
    assert buckets == [2, 3, 4]
    assert found["watchbill_x_seconds_count", 'queue="a"'] == 4
    assert round(found["watchbill_x_seconds_sum", 'queue="a"'], 2) == 30.65


def test_runs_are_measured_from_their_start_and_from_when_they_were_due() -> None:
    meters = Meters()
    meters.note_successes([(claimed(), 100.0, None, None)], (), due_offset=-97.0, now=100.4)
    meters.note_successes([(claimed(), 100.0, None, None)], {b"1"}, due_offset=-97.0, now=100.4)
    found = read_metrics(write_metrics(meters.measure()))
    name = 'queue="mail",type="send"'
    assert found["watchbill_attempt_seconds_count", name] == 1
    assert found["watchbill_attempt_seconds_bucket", f'{name},le="0.1"'] == 0
    assert found["watchbill_attempt_seconds_bucket", f'{name},le="0.5"'] == 1
    assert found["watchbill_wait_seconds_sum", 'queue="mail"'] == 3
    assert found["watchbill_wait_seconds_bucket", 'queue="mail",le="2"'] == 0


def test_series_are_bounded_however_many_names_there_are() -> None:
    meters = Meters()
    for number in range(500):
        name = f"name-{number}"
        meters.note_successes([(claimed(name, name), 1.0, None, None)], (), due_offset=0.0, now=2.0)
    lines = [line for line in write_metrics(meters.measure()).splitlines() if not line.startswith("#")]
    assert len(lines) < 1_100
    found = read_metrics("\n".join(lines))
    counts = [value for (name, _), value in found.items() if name == "watchbill_attempt_seconds_count"]
    assert sum(counts) == 500


def test_claims_and_settlements_are_known_by_their_queries() -> None:
    meters = Meters()
    for query, rows in (("claim", 3), ("claim_above", 0), ("settle_succeeded", 1), ("unblock", 0)):
        meters.note_query(query, 0.002, rows)
    meters.note_chore("survey", 0.1, has_failed=True)
    meters.note_beat(0.01, is_acknowledged=True)
    meters.note_beat(5.0, is_acknowledged=False)
    meters.note_enqueued(job=None)
    meters.note_lost_lease(name="a", epoch=1)
    found = read_metrics(write_metrics(meters.measure()))
    assert found["watchbill_claimed_total", ""] == 3
    assert found["watchbill_empty_claims_total", ""] == 1
    assert found["watchbill_claim_seconds_count", ""] == 2
    assert found["watchbill_settle_seconds_count", ""] == 1
    assert found["watchbill_query_seconds_count", 'query="unblock"'] == 1
    assert found["watchbill_chore_failures_total", 'chore="survey"'] == 1
    assert found["watchbill_heartbeats_total", 'result="failed"'] == 1
    assert found["watchbill_heartbeat_seconds_count", ""] == 1
    assert found["watchbill_leases_lost_total", ""] == found["watchbill_enqueued_total", ""] == 1


def test_metrics_of_several_processes_are_one_text() -> None:
    def write(number: int, name: str) -> str:
        return write_metrics(
            [
                Family("watchbill_a", "gauge", "A.", [({}, number)]),
                Family("watchbill_b_total", "counter", "B.", [({"type": name}, number)]),
            ]
        )

    merged = merge_metrics({"1": write(1, "x {y} z"), "2": write(2, "w")}, "process")
    assert merged.splitlines() == [
        "# HELP watchbill_a A.",
        "# TYPE watchbill_a gauge",
        'watchbill_a{process="1"} 1',
        'watchbill_a{process="2"} 2',
        "# HELP watchbill_b_total B.",
        "# TYPE watchbill_b_total counter",
        'watchbill_b_total{process="1",type="x {y} z"} 1',
        'watchbill_b_total{process="2",type="w"} 2',
    ]
