"""Nodes: who is alive, what each runs as a timeline, who serves which queue, and one node with the form to drain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figures import WINDOWS, read_endings
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit
from watchbill.model.audit import AuditRecord
from watchbill.model.job import NodeRecord

MOST_NODES, MOST_LANES, MOST_EVENTS, MOST_AUDITED = 500, 20, 10, 10
MOST_READ = 20_000  # runs that one page reads to find the long ones
MOST_RUNNING = 2_000
WINDOW_MINUTES = (5, 15, 60)
_ICONS = {"active": "running", "draining": "draining", "lost": "dead", "left": "canceled"}
_COLORS = {"active": "running", "draining": "queued", "lost": "dead", "left": "canceled"}
_OUTCOMES = {"succeeded": "succeeded", "skipped": "succeeded", "failed": "failed", "timed_out": "failed",
             "lost": "dead", "dead": "dead", "canceled": "canceled"}  # fmt: skip
_LEGEND = Markup("").join(
    charts.swatch_of_state(word, state)
    for word, state in (("succeeded", "succeeded"), ("failed", "failed"), ("lost", "dead"), ("runs", "running"))
)


@dataclass(frozen=True)
class Event:
    """Something that happened to a node."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Timeline:
    """A lane for each node. `read_since`: older runs were too many to be read."""

    chart: Markup
    short_runs: int
    least_seconds: float
    read_since: datetime | None


async def show_nodes(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    minutes = _read_minutes(request.query_params.get("minutes"))
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        zone = make_timepiece(request, frame.now).zone
        every = await _read_nodes(transaction)
        ends = await _read_ends(transaction, every)
        versions: dict[int, str | None] = dict(
            await transaction.fetch("web_node_versions", ([node.epoch for node in every],))
        )
        day_ago = frame.now - timedelta(days=1)
        drains = await transaction.run(
            job_operations.audit(subject="node *", action="drain", since=day_ago, limit=MOST_EVENTS)
        )
        window = charts.Window(frame.now - timedelta(minutes=minutes), frame.now, zone)
        shown = _choose_lanes(every, ends, window.since)
        timeline = await _read_timeline(transaction, shown, ends, drains, window)
    live = [node for node in every if node.state in ("active", "draining")]
    gone = [node for node in every if node.state == "lost" and ends.get(node.epoch, frame.now) >= day_ago]
    newest = max(versions.values(), default=None, key=_order_version)
    values = {
        "nodes": [(node, _measure(node)) for node in sorted(live, key=lambda each: each.name)[:MOST_NODES]],
        "lost": gone[:MOST_EVENTS], "ends": ends, "versions": versions, "newest": newest,
        "running": sum(node.claimed for node in live), "capacity": sum(node.capacity or 0 for node in live),
        "draining": sum(node.state == "draining" for node in live), "only_draining": _find_only_draining(live),
        "timeline": timeline, "minutes": minutes, "choices": WINDOW_MINUTES, "legend": _LEGEND,
        "events": _list_events(every, ends, drains, day_ago), "served": _list_served(live),
    }  # fmt: skip
    return show(request, "nodes.html", frame, values)


async def _read_nodes(transaction: Transaction) -> list[NodeRecord]:
    """The live nodes, and the newest of all: where nodes come and go, an old one that lives is not among these."""
    live = await transaction.run(job_operations.nodes())
    known = {node.epoch for node in live}
    return live + [node for node in await transaction.run(job_operations.nodes(gone=True)) if node.epoch not in known]


def _read_minutes(text: str | None) -> int:
    return next((minutes for minutes in WINDOW_MINUTES if str(minutes) == text), 15)


def _order_version(text: str | None) -> tuple[tuple[int, str], ...]:
    """Sorts 0.10 after 0.9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in (text or "").split("."))


async def _read_ends(transaction: Transaction, nodes: Sequence[NodeRecord]) -> Mapping[int, datetime]:
    """When nodes that are gone have left or were lost."""
    epochs = [node.epoch for node in nodes if node.state in ("lost", "left")]
    return dict(await transaction.fetch("web_node_ends", (epochs,))) if epochs else {}


def _measure(node: NodeRecord) -> Markup:
    return charts.meter(node.claimed, node.capacity, "queued" if node.state == "draining" else "running")


def _find_only_draining(live: Sequence[NodeRecord]) -> list[tuple[str, list[str]]]:
    """Queues that only draining nodes serve, with these nodes."""
    found = []
    for queue in sorted({queue for node in live if node.state == "draining" for queue in node.queues or ()}):
        serving = [node for node in live if node.queues is None or queue in node.queues]
        if all(node.state == "draining" for node in serving):
            found.append((queue, [node.name for node in serving]))
    return found


def _list_served(live: Sequence[NodeRecord]) -> list[tuple[str, list[NodeRecord], int]]:
    """Each queue that nodes name, with these nodes and how many of its jobs could run at once."""
    queues = sorted({queue for node in live for queue in node.queues or ()})[:200]
    found = []
    for queue in queues:
        nodes = [node for node in live if node.queues is None or queue in node.queues]
        found.append((queue, nodes, sum(node.capacity or 0 for node in nodes if node.state == "active")))
    return found


def _list_events(
    nodes: Sequence[NodeRecord], ends: Mapping[int, datetime], drains: Sequence[AuditRecord], since: datetime
) -> list[Event]:
    events = [Event(node.started_at, f"{node.name} registered, epoch {node.epoch}") for node in nodes]
    for node in nodes:
        if node.epoch in ends:
            word = "was lost: its lease ran out, and others took its jobs" if node.state == "lost" else "left"
            events.append(Event(ends[node.epoch], f"{node.name} {word}"))
    events += [Event(row.at, f"{row.actor} asked {row.subject.removeprefix('node ')} to drain") for row in drains]
    recent = [event for event in events if event.at >= since]
    return sorted(recent, key=lambda event: event.at, reverse=True)[:MOST_EVENTS]


# -- Timeline


def _choose_lanes(
    nodes: Sequence[NodeRecord], ends: Mapping[int, datetime], since: datetime
) -> list[NodeRecord]:  # fmt: skip
    """The live nodes, and those that ended in the window."""
    shown = [
        node
        for node in nodes
        if node.state in ("active", "draining") or (node.state == "lost" and ends.get(node.epoch, since) > since)
    ]
    return sorted(shown, key=lambda node: node.name)[:MOST_LANES]


async def _read_timeline(
    transaction: Transaction,
    nodes: Sequence[NodeRecord],
    ends: Mapping[int, datetime],
    drains: Sequence[AuditRecord],
    window: charts.Window,
) -> Timeline | None:
    if not nodes:
        return None
    read_since = await _choose_start(transaction, window)
    runs: dict[int, list[charts.Run]] = {node.epoch: [] for node in nodes}
    parameters = {"epochs": list(runs), "since": read_since, "most": MOST_READ, "running": MOST_RUNNING}
    for epoch, task, outcome, begin, end in await transaction.fetch("web_runs", parameters):
        state = "running" if end is None else _OUTCOMES.get(outcome, "canceled")
        runs[epoch].append(charts.Run(begin, end, state, task))
    lanes = [_make_lane(node, runs[node.epoch], ends.get(node.epoch), drains, window) for node in nodes]
    short = charts.count_short_runs(lanes, window)
    since = read_since if read_since > window.since else None
    chart = charts.node_timeline("Timeline", lanes, window, read_since=since)
    return Timeline(chart, short, window.span.total_seconds() / 100, since)


async def _choose_start(transaction: Transaction, window: charts.Window) -> datetime:
    """Since when runs are read: so that these are at most about MOST_READ, going by how many have ended per second."""
    hour = next(each for each in WINDOWS if each.seconds == 3600)
    span = window.span.total_seconds()
    endings = await read_endings(transaction, hour._replace(seconds=int(span)), window.until)
    number = sum(each.ended for each in endings)
    return window.since if number <= MOST_READ else window.until - timedelta(seconds=span * MOST_READ / number)


def _make_lane(
    node: NodeRecord,
    runs: Sequence[charts.Run],
    ended: datetime | None,
    drains: Sequence[AuditRecord],
    window: charts.Window,
) -> charts.Lane:
    drained = next((row.at for row in drains if row.subject == f"node {node.name}" and row.at >= node.started_at), None)
    is_lost = node.state == "lost"
    note = f"{node.claimed} of {node.capacity}" if node.capacity else f"{node.claimed} running"
    if is_lost and ended is not None:
        runs = [replace(run, end=ended, outcome="dead") if run.end is None else run for run in runs]
        note = f"lost {ended.astimezone(window.zone):%H:%M}"
    elif node.state == "draining":
        note = "drains" + (f", {drained.astimezone(window.zone):%H:%M}" if drained else "")
    return charts.Lane(
        node.name, _COLORS.get(node.state, "queued"), _ICONS.get(node.state, "queued"), note, runs,
        drains_since=drained if drained and drained > window.since and not is_lost else None,
        lost_at=ended if is_lost else None, lost_text="lost, others took its jobs" if is_lost else "",
    )  # fmt: skip


# -- One node


async def show_node(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    epoch, name = request.query_params.get("epoch", ""), request.query_params.get("name", "")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        every = await _read_nodes(transaction)
        node = next((each for each in every if str(each.epoch) == epoch or (not epoch and each.name == name)), None)
        if node is None:
            raise Problem(404, f"There is no node {(epoch or name)[:60]!r}.",
                          hint="Nodes that ended long ago are forgotten.")  # fmt: skip
        ends = await _read_ends(transaction, [node])
        versions: dict[int, str | None] = dict(await transaction.fetch("web_node_versions", ([node.epoch],)))
        running = await transaction.fetch("web_running_on", (node.epoch, 100))
        audit = await transaction.run(job_operations.audit(subject=f"node {node.name}", limit=MOST_AUDITED))
    values = {
        "node": node, "meter": _measure(node), "ended_at": ends.get(node.epoch), "version": versions.get(node.epoch),
        "running": running, "audit": audit,
    }  # fmt: skip
    return show(request, "node.html", frame, values)


async def _drain(transaction: Transaction, fields: Fields) -> str:
    name = read_field(fields, "name")
    if not await transaction.run(job_operations.drain(name)):
        return f"{name} was not active, so it was not asked to drain."
    return f"{name} drains: it ends what runs, gives the rest back, and stops."


ROUTES: list[BaseRoute] = [
    Route("/nodes", show_nodes, methods=["GET"]),
    Route("/node", show_node, methods=["GET"]),
    Route("/node/drain", act("operator", _drain), methods=["POST"]),
]
