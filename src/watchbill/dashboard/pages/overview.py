"""The first page: what is wrong, how much runs and waits, each queue, the nodes, failures, and what is due next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import figure_operations, job_operations, key_operations
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figure_charts import LEGEND, draw_endings, list_marks
from watchbill.dashboard.figures import WINDOWS, Ending, find_window, read_endings, read_queues
from watchbill.dashboard.layout import Frame, read_frame
from watchbill.dashboard.pages.queues import SORTS, draw_heat
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit, link
from watchbill.dashboard.words import write_duration, write_number
from watchbill.model.figures import QueueFigures, Sample
from watchbill.model.job import NodeRecord

_MOST_QUEUES, _MOST_NODES, _MOST_FAILURES, _MOST_RUNS, _MOST_OVERDUE = 30, 5, 5, 5, 3
_FAILURE_HOURS = 6


@dataclass(frozen=True)
class Notice:
    """Something that a person should look at, with the way out."""

    kind: str  # paused, failed or dead
    icon: str
    subject: str
    sentence: str
    address: str = ""
    address_label: str = "Why"
    action: str = ""
    action_label: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


async def show_overview(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    window = find_window(request.query_params.get("window"))
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        values = await _read(transaction, frame, identity.tenant)
        dimension, name = ("all", "") if identity.tenant is None else ("tenant", identity.tenant)
        endings = await read_endings(transaction, window, frame.now, dimension, name)
        marks = await transaction.run(key_operations.chart_marks(endings[0].at)) if endings else []
    zone = make_timepiece(request, frame.now).zone
    values |= {"chart": draw_endings(window, endings, list_marks(marks, endings), zone), "legend": LEGEND}
    values |= {"window": window, "windows": WINDOWS, "endings": endings, "lately": _sum_last_hour(endings)}
    values["heat"] = draw_heat(values["queues"])
    values["notices"] = _list_notices(request, frame, values)
    return show(request, "overview.html", frame, values)


async def _read(transaction: Transaction, frame: Frame, tenant: str | None) -> dict[str, Any]:
    hour_ago = frame.now - timedelta(hours=1)
    samples = await transaction.run(figure_operations.samples("all" if tenant is None else "tenant", since=hour_ago))
    nodes = await transaction.run(job_operations.nodes())
    failures = await transaction.run(
        figure_operations.failures(since=frame.now - timedelta(hours=_FAILURE_HOURS), limit=_MOST_FAILURES)
    )
    queues = await read_queues(transaction)
    return {
        "samples": samples,
        "newest": samples[-1] if samples else None,
        "queues": sorted(queues, key=SORTS["due"])[:_MOST_QUEUES],
        "nodes": sorted(nodes, key=lambda node: node.name)[:_MOST_NODES],
        "running": sum(node.claimed for node in nodes),
        "capacity": _sum_capacity(nodes),
        "failures": failures,
        "failure_hours": _FAILURE_HOURS,
        "due_next": await transaction.fetch("web_next_runs", (_MOST_RUNS,)),
        "overdue": await transaction.fetch("web_overdue", (_MOST_OVERDUE,)),
    }


def _sum_capacity(nodes: Sequence[NodeRecord]) -> int | None:
    """How many handlers may run at once; None if a node has not said it."""
    known = [node.capacity for node in nodes if node.capacity is not None]
    return sum(known) if known and len(known) == len(nodes) else None


def _sum_last_hour(endings: Sequence[Ending]) -> dict[str, Any]:
    if not endings:
        return {"dead": 0, "ended": 0, "wait": None}
    first = endings[-1].at - timedelta(hours=1)
    recent = [each for each in endings if each.at > first]
    ended = sum(each.ended for each in recent)
    wait = sum(each.wait_seconds for each in recent) / ended if ended else None
    return {"dead": sum(each.dead for each in recent), "ended": ended, "wait": wait}


def _list_notices(request: Request, frame: Frame, values: Mapping[str, Any]) -> list[Notice]:
    queues: list[QueueFigures] = values["queues"]
    found = [_describe_pause(request, frame, queue) for queue in queues if queue.paused_at is not None]
    for name, _tenant, slot, due_by, _overdue_at, _job in values["overdue"]:
        late = write_duration((frame.now - due_by).total_seconds())
        sentence = f"should have ended {late} ago: slot {slot:%H:%M} of {slot:%d %b} has not."
        address = link(request, "/schedule", name=name)
        found.append(Notice("dead", "late", name, sentence, address, "Open schedule"))
    newest: Sample | None = values["newest"]
    if not values["nodes"] and newest is not None and newest.ready:
        sentence = f"No node is alive: {write_number(newest.ready, is_estimate=newest.is_estimate)} jobs are due."
        found.append(Notice("dead", "late", "", sentence))
    return found


def _describe_pause(request: Request, frame: Frame, queue: QueueFigures) -> Notice:
    assert queue.paused_at is not None
    why = f", “{queue.pause_reason}”" if queue.pause_reason else ""
    length = write_duration((frame.now - queue.paused_at).total_seconds())
    count = write_number(queue.paused or 0, is_estimate=bool(queue.is_estimate))
    sentence = f"is paused by {queue.paused_by or 'somebody'} for {length}{why}: {count} jobs wait."
    address = link(request, "/queue", name=queue.queue)
    return Notice(
        "paused", "paused", queue.queue, sentence, address, "Why", "/queue/resume", f"Resume {queue.queue[:30]}",
        {"queue": queue.queue},
    )  # fmt: skip


ROUTES: list[BaseRoute] = [Route("/", show_overview, methods=["GET"])]
