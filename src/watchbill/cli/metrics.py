"""`watchbill metrics` and `watchbill health`: figures for Prometheus, and whether a worker lives and is ready."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from watchbill.cli.arguments import complete_node
from watchbill.cli.help import command_group
from watchbill.cli.output import Usage
from watchbill.cli.screen import say, say_lines
from watchbill.client import figure_operations, job_operations, schedule_operations
from watchbill.model.figures import OUTCOMES, Figure, Sample, sum_by_name
from watchbill.model.job import NodeRecord
from watchbill.model.schedule import ScheduleStats
from watchbill.settings import Settings
from watchbill.telemetry.prometheus import Family, write_metrics

MOST_QUEUES = 100  # the queues with most jobs have series of their own, all others are added up as `(other)`
WAITING = ("running", "ready", "scheduled", "retrying", "limited", "paused", "unsupported", "unmatched", "blocked")
REQUEST_SECONDS = 5.0

metrics = command_group()
health = command_group("Ask whether a worker lives, or is ready for work. Exits with 1 if not.")


@metrics.command("metrics")
def print_metrics(ctx: typer.Context) -> None:
    """Print metrics of the installation, for Prometheus. They come from small tables, nothing is counted."""
    now = datetime.now(UTC)
    samples = ctx.obj.run(figure_operations.samples("queue"))
    ended = sum_by_name(ctx.obj.run(figure_operations.figures("queue", "minute", since=now - timedelta(hours=1))))
    nodes = ctx.obj.run(job_operations.nodes())
    schedules = ctx.obj.run(schedule_operations.stats())
    say_lines(write_metrics(measure(now, samples, ended, nodes, schedules)).rstrip("\n"))


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


Node = Annotated[
    str | None,
    typer.Option(help="Ask the database about the node with this name instead.", autocompletion=complete_node),
]
Port = Annotated[int | None, typer.Option(help="The worker's health_port, if it is not that of the settings.")]


@health.command()
def live(ctx: typer.Context, port: Port = None, node: Node = None) -> None:
    """Ask whether the worker's process lives: its event loop has turned within stuck_after."""
    _tell(ctx, "live", port, node)


@health.command()
def ready(ctx: typer.Context, port: Port = None, node: Node = None) -> None:
    """Ask whether the worker is ready for work: registered, its lease holds, and it does not drain."""
    _tell(ctx, "ready", port, node)


def _tell(ctx: typer.Context, question: Literal["live", "ready"], port: int | None, node: str | None) -> None:
    is_well, answer = _ask_process(question, port) if node is None else _ask_database(ctx, question, node)
    say(answer, err=not is_well)
    raise typer.Exit(0 if is_well else 1)


def _ask_process(question: str, port: int | None) -> tuple[bool, str]:
    settings = Settings.load()
    port = port or settings.health_port
    if port is None:
        raise Usage("There is no health_port.", hint="Set health_port for the worker and here, or give --node NAME.")
    connection = http.client.HTTPConnection(settings.health_host, port, timeout=REQUEST_SECONDS)
    try:
        connection.request("GET", f"/health/{question}")
        reply = connection.getresponse()
        return reply.status == http.HTTPStatus.OK, reply.read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"no worker answers at {settings.health_host}, port {port}: {error}"
    finally:
        connection.close()


def _ask_database(ctx: typer.Context, question: str, name: str) -> tuple[bool, str]:
    found = next((each for each in ctx.obj.run(job_operations.nodes()) if each.name == name), None)
    if found is None or found.lease_expires_at is None:
        return False, f"no living node is named {name}"
    if found.lease_expires_at < datetime.now(UTC):
        return False, f"the lease of {name} has expired"
    if question == "ready" and found.state != "active":
        return False, f"{name} is {found.state}"
    return True, "ok"
