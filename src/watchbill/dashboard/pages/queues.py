"""Queues: the list, and one queue with what its jobs wait for, what ended, who serves it, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, tzinfo
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations, limit_operations
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figure_charts import LEGEND, read_figures, show_causes
from watchbill.dashboard.figures import WINDOWS, find_window, read_queues
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.figures import QueueFigures
from watchbill.model.job import NodeRecord

MOST_AUDITED = 10
_DUE_MINUTES, _MOST_DUE = 60, 10_000
# By what a list of queues can be sorted. What needs a look comes first.
SORTS: Mapping[str, Callable[[QueueFigures], Any]] = {
    "due": lambda queue: (queue.paused_at is None, -queue.due, queue.queue),
    "oldest": lambda queue: (queue.oldest is None, queue.oldest and queue.oldest.timestamp(), queue.queue),
    "speed": lambda queue: (-queue.per_second, queue.queue),
    "failed": lambda queue: (-(queue.failed_share or 0), queue.queue),
    "name": lambda queue: queue.queue,
}
_COLUMNS = {"Queue": "name", "Due": "due", "Oldest": "oldest", "Per s": "speed", "Failed": "failed"}


async def show_queues(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    sort = request.query_params.get("sort", "due")
    text = request.query_params.get("q", "").strip()[:100]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        queues = await read_queues(transaction)
    shown = sorted(
        (queue for queue in queues if text.lower() in queue.queue.lower()), key=SORTS.get(sort, SORTS["due"])
    )  # fmt: skip
    sorted_by = next((word for word, name in _COLUMNS.items() if name == sort), "Due")
    values = {
        "queues": shown, "number": len(queues), "text": text, "heat": draw_heat(shown), "sorts": _COLUMNS,
        "sorted_by": sorted_by,
    }  # fmt: skip
    return show(request, "queues.html", frame, values)


def draw_heat(queues: Sequence[QueueFigures]) -> dict[str, Markup]:
    """How many jobs of each queue were due in each minute of the last hour."""
    return {
        queue.queue: charts.heat_row(f"Ready jobs of {queue.queue} in the last hour", queue.trend) for queue in queues
    }


async def show_queue(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    name = request.query_params.get("name", "")
    window = find_window(request.query_params.get("window"))
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        zone = make_timepiece(request, frame.now).zone
        queue = await _find_queue(transaction, name) if name else None
        if queue is None:
            raise Problem(404, f"There is no queue {name[:100]!r}.",
                          hint="A queue is known while it has jobs, a node, a rule or a pause.")  # fmt: skip
        causes = await transaction.run(job_operations.count_causes(queue=name))
        figures = await read_figures(transaction, window, frame.now, zone, "queue", name)
        due = await _read_due(transaction, name, frame.now, zone)
        nodes = await transaction.run(job_operations.nodes())
        rules = await transaction.run(limit_operations.queue_rules())
        audit = await transaction.run(job_operations.audit(subject=f"queue {name}", limit=MOST_AUDITED))
    values = {
        "queue": queue,
        "trend": charts.sparkline(f"Jobs that were due in the last hour in {name}", queue.trend),
        "causes": show_causes(causes, visit.board.redaction),
        "figures": figures,
        "window": window,
        "windows": WINDOWS,
        "legend": LEGEND,
        "due": due,
        "nodes": sorted((node for node in nodes if serves(node, name)), key=lambda node: node.name),
        "rule": next((rule for rule in rules if rule.name == name), None),
        "audit": audit,
    }
    return show(request, "queue.html", frame, values)


async def _find_queue(transaction: Transaction, name: str) -> QueueFigures | None:
    """The figures of a queue. Those of a queue that has jobs, but that the caller finds in no figures, are empty: a
    tenant has no samples of queues."""
    found = await read_queues(transaction, name)
    if found:
        return found[0]
    wanted = write_conditions([Condition("queue", "=", (name,))])
    page = await transaction.run(job_operations.read_page(wanted, limit=1))
    empty: dict[str, Any] = dict.fromkeys(field.name for field in fields(QueueFigures))
    return QueueFigures(**empty | {"queue": name, "trend": (), "nodes": 0, "draining_nodes": 0}) if page.jobs else None


def serves(node: NodeRecord, queue: str) -> bool:
    """A node without queues of its own serves all."""
    return node.queues is None or queue in node.queues


@dataclass(frozen=True)
class Due:
    """How many delayed jobs become due in each minute of the next hour. `until` is not None if there are so many that
    only those until then were read."""

    chart: Markup
    number: int
    until: datetime | None


async def _read_due(transaction: Transaction, name: str, now: datetime, zone: tzinfo) -> Due | None:
    rows = await transaction.fetch("web_due", {"queue": name, "now": now, "minutes": _DUE_MINUTES, "most": _MOST_DUE})
    counts = {minute: number for minute, number, _ in rows if minute is not None}
    until = rows[0][2]
    if not counts and until is None:
        return None
    bars = []
    for minute in range(_DUE_MINUTES):
        number = counts.get(minute, 0)
        at = (now + timedelta(minutes=minute)).astimezone(zone)
        bars.append(charts.Bar(f"{at:%H:%M}", float(number), "queued", f"{at:%H:%M}: {number:,} become due"))
    return Due(charts.bars("Due in the next hour", bars, unit="jobs", height=110), sum(counts.values()), until)


async def _pause(transaction: Transaction, fields: Fields) -> str:
    what = _read_subject(fields)
    reason = fields.get("reason", "").strip()[:500] or None
    if not await transaction.run(job_operations.pause(**what, reason=reason)):
        return f"{_name_subject(what)} was paused already."
    return f"{_name_subject(what)} is paused: none of its jobs start."


async def _resume(transaction: Transaction, fields: Fields) -> str:
    what = _read_subject(fields)
    if not await transaction.run(job_operations.resume(**what)):
        return f"{_name_subject(what)} was not paused."
    return f"{_name_subject(what)} is resumed."


def _read_subject(fields: Fields) -> dict[str, str]:
    """A queue, a type, or a type in a queue."""
    return {name: fields[name] for name in ("queue", "type") if fields.get(name)} or {
        "queue": read_field(fields, "queue")
    }


def _name_subject(what: Mapping[str, str]) -> str:
    text = " in ".join(f"{kind} {what[kind]}" for kind in ("type", "queue") if kind in what)
    return f"{text[:1].upper()}{text[1:]}"


ROUTES: list[BaseRoute] = [
    Route("/queues", show_queues, methods=["GET"]),
    Route("/queue", show_queue, methods=["GET"]),
    Route("/queue/pause", act("operator", _pause), methods=["POST"]),
    Route("/queue/resume", act("operator", _resume), methods=["POST"]),
]
