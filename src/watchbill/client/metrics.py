"""What `watchbill metrics` and `/metrics` of the dashboard tell Prometheus. It comes from small tables, nothing is
counted: the SQL function `metric_list` has the figures, and this module their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from watchbill.client.operations import Operation, Statement
from watchbill.telemetry.prometheus import Family, write_metrics


class Metric(NamedTuple):
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = {
    "watchbill_queue_jobs": Metric(
        "Unfinished jobs by queue and what they wait for. Large counts are estimates.", ("queue", "state")
    ),
    "watchbill_queue_oldest_seconds": Metric("How long the oldest ready job has been due.", ("queue",)),
    "watchbill_queue_ended_last_hour": Metric(
        "Runs that have ended in the last hour, and jobs that are dead or canceled since, as nodes have reported.",
        ("queue", "outcome"),
    ),
    "watchbill_queue_mean_run_seconds": Metric("How long runs of the last hour have taken on average.", ("queue",)),
    "watchbill_queue_mean_wait_seconds": Metric(
        "How long jobs of the last hour were due before they started.", ("queue",)
    ),
    "watchbill_type_ended_last_hour": Metric("As queue_ended_last_hour, by type.", ("type", "outcome")),
    "watchbill_type_mean_run_seconds": Metric("As queue_mean_run_seconds, by type.", ("type",)),
    "watchbill_type_mean_wait_seconds": Metric("As queue_mean_wait_seconds, by type.", ("type",)),
    "watchbill_paused_seconds": Metric(
        "How long a queue, a type, or a type in a queue has been paused.", ("queue", "type")
    ),
    "watchbill_tenant_running": Metric("Running jobs by tenant.", ("tenant",)),
    "watchbill_tenant_unfinished": Metric("Unfinished jobs by tenant, running ones too.", ("tenant",)),
    "watchbill_nodes": Metric("Nodes that have not left, and those that were lost in the last hour.", ("app", "state")),
    "watchbill_capacity": Metric("How many handlers the living nodes may run at once.", ("app",)),
    "watchbill_oldest_beat_seconds": Metric("Age of the oldest heartbeat of a node that has not left.", ("app",)),
    "watchbill_schedules": Metric(
        "Schedules: all, due, late and orphaned ones, and runs that are overdue.", ("status",)
    ),
    "watchbill_schedule_lag_seconds": Metric("How long the schedule that is due for longest has been due."),
    "watchbill_limit_held": Metric(
        "Jobs that hold a place of a limit, all its keys together, up to 10,000.", ("limit",)
    ),
    "watchbill_limit_max": Metric("How many jobs of each key of a limit may run.", ("limit",)),
    "watchbill_limit_waiting": Metric("Jobs that wait for a limit, up to 1,000.", ("limit",)),
    "watchbill_tokens": Metric("Tokens with and without a living owner, and those that move.", ("group", "state")),
    "watchbill_leader_term": Metric("The term of the leader of a token group.", ("group",)),
    "watchbill_pins_unmatched": Metric("Pins that match no node.", ("group",)),
    "watchbill_rebalances_last_hour": Metric("Plans that have moved tokens in the last hour.", ("group",)),
    "watchbill_alerts": Metric("Alerts that fire.", ("rule", "severity")),
    "watchbill_chore_late_seconds": Metric("How late a part of the upkeep is.", ("chore",)),
    "watchbill_chore_failing": Metric("1 if the last run of a part of the upkeep has failed.", ("chore",)),
    "watchbill_oldest_transaction_seconds": Metric(
        "Age of the oldest transaction in this database that vacuum waits for."
    ),
    "watchbill_table_bytes": Metric(
        "Size of jobs and history with indexes, as of the last vacuum of each part.", ("table",)
    ),
    "watchbill_partition_days_ahead": Metric("For how many days ahead a table has partitions.", ("table",)),
    "watchbill_sample_age_seconds": Metric("How old the counts of jobs are."),
}


def read_metrics() -> Operation[str]:
    """The metrics of the installation, in the text format of Prometheus."""
    return write_metrics(_make_families((yield Statement("metrics"))))


def _make_families(rows: Iterable[tuple[str, dict[str, Any], float]]) -> Iterator[Family]:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in METRICS}
    for short_name, labels, value in rows:
        name = f"watchbill_{short_name}"
        found[name].append(({label: str(labels[label]) for label in METRICS[name].labels}, value))
    for name, series in found.items():
        yield Family(name, "gauge", METRICS[name].meaning, series)
