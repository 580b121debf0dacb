"""Groups of failures: attempts that failed in the same way. A group is retried with a probe first, then the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import bulk_operations, figure_operations, job_operations, key_operations
from watchbill.client.key_operations import ChartMark
from watchbill.dashboard import charts
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figures import WINDOWS, Window, find_window, read_endings
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.pages.job import AttemptLine, read_attempts
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.searches import quote_value
from watchbill.dashboard.visit import get_visit
from watchbill.model.bulk_operation import BulkOperation
from watchbill.model.figures import FailureGroup
from watchbill.model.job import JobRecord, Pause
from watchbill.redaction import Redaction

PROBE_JOBS = 10
MOST_GROUPS, MOST_TRENDS, MOST_DONE = 100, 30, 5
_TREND_POINTS = 36
_SOON_AFTER = timedelta(hours=1)  # a group that begins so soon after a mark is said to come with it
SHOWN = ("all", "new", "dead")
# What differs between the messages of a group, as the SQL function _failure_pattern() has it, in short.
_PARTS = re.compile(
    r'"[^"]*"|“[^”]*”|(?<!\w)\'[^\']*\'(?!\w)|[\w.%+-]+@[\w.-]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}'
    r"|(?<!\w)(?:0x)?[0-9a-fA-F]{8,}(?!\w)|(?<!\w)[-+]?\d+(?:[.,:]\d+)*"
)


@dataclass(frozen=True)
class Group:
    """A group of failures, as the page shows it, without what is hidden. `mark` is what it may have come with."""

    failure: int
    tenant: str
    type: str
    exception: str
    message: Markup
    example: UUID
    first: datetime
    last: datetime
    attempts: int
    dead: int
    trend: Markup | None
    mark: str | None

    @property
    def filter(self) -> str:
        return f"failure:{self.failure} type:{quote_value(self.type)} tenant:{quote_value(self.tenant)}"


@dataclass(frozen=True)
class Opened:
    """What is known of the one group that is open: an example, what keeps it, and what was done before."""

    job: JobRecord | None
    last: AttemptLine | None
    pauses: Sequence[Pause]
    done: Sequence[tuple[BulkOperation, Markup | None]]


async def show_failures(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    redaction = visit.board.redaction
    query = request.query_params
    window = find_window(query.get("window") or "6h")
    chosen = query.get("show") if query.get("show") in SHOWN else "all"
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        since = frame.now - timedelta(seconds=window.seconds)
        found = await transaction.run(figure_operations.failures(since=since, limit=MOST_GROUPS))
        marks = await transaction.run(key_operations.chart_marks(since - _SOON_AFTER))
        dimension, name = ("all", "") if identity.tenant is None else ("tenant", identity.tenant)
        endings = await read_endings(transaction, window, frame.now, dimension, name)
        trends = await _read_trends(transaction, found, window, frame.now)
        groups = [_show_group(group, marks, trends, redaction) for group in found if _is_shown(group, chosen, since)]
        opened = _find_group(groups, query.get("group"), query.get("tenant"))
        details = await _read_opened(transaction, opened, redaction) if opened else None
    zone = make_timepiece(request, frame.now).zone
    chart = charts.stacked_area(
        f"Failed attempts per {window.unit}",
        charts.Time([each.at for each in endings], zone),
        [
            charts.Layer("failed", "failed", [each.failed for each in endings]),
            charts.Layer("dead", "dead", [each.dead for each in endings]),
        ],
        marks=[charts.Mark(mark.at, mark.text[:40]) for mark in marks if mark.at >= endings[0].at],
        height=132,
    ) if endings else None  # fmt: skip
    values = {
        "window": window, "windows": WINDOWS, "chosen": chosen, "shown": SHOWN, "groups": groups, "chart": chart,
        "opened": opened, "details": details, "probe": PROBE_JOBS, "newest_mark": marks[0].text if marks else None,
        "new_since_mark": sum(group.first >= marks[0].at for group in groups) if marks else 0,
    }  # fmt: skip
    return show(request, "failures.html", frame, values)


def _is_shown(group: FailureGroup, chosen: str | None, since: datetime) -> bool:
    return chosen == "all" or (chosen == "new" and group.first >= since) or (chosen == "dead" and group.dead > 0)


def _find_group(groups: Sequence[Group], failure: str | None, tenant: str | None) -> Group | None:
    return next(
        (group for group in groups if str(group.failure) == failure and tenant in (None, group.tenant)), None
    )  # fmt: skip


async def _read_trends(
    transaction: Transaction, groups: Sequence[FailureGroup], window: Window, now: datetime
) -> Mapping[str, Sequence[float]]:
    """How often jobs of each type have failed, in steps: what is stored of a group has no times."""
    types = list(dict.fromkeys(group.type for group in groups))[:MOST_TRENDS]
    if not types:
        return {}
    step = max(window.seconds // _TREND_POINTS, 600)
    found: dict[str, list[float]] = {each: [] for each in types}
    since = now - timedelta(seconds=window.seconds - step)
    for name, failed in await transaction.fetch("web_failing_types", (types, since, step)):
        found[name].append(float(failed))
    return found


def _show_group(
    group: FailureGroup, marks: Sequence[ChartMark], trends: Mapping[str, Sequence[float]], redaction: Redaction
) -> Group:
    error = {"type": group.exception, "message": group.message}
    hidden = redaction.hide("error", error, type=group.type)
    kind, message = (hidden["type"], hidden["message"]) if isinstance(hidden, dict) else (None, hidden)
    near = (mark for mark in marks if timedelta(0) <= group.first - mark.at <= _SOON_AFTER)
    mark = next(near, None)
    trend = trends.get(group.type)
    return Group(
        group.failure, group.tenant, group.type, str(kind or "failed"), mark_parts(str(message).partition("\n")[0]),
        group.example, group.first, group.last, group.attempts, group.dead,
        charts.spark_bars(f"Failed attempts of {group.type}", trend) if trend else None,
        mark.text if mark else None,
    )  # fmt: skip


def mark_parts(message: str) -> Markup:
    """A message with marks at the parts that differ between the failures of its group."""
    text, shown, place = message[:300], Markup(""), 0
    for part in _PARTS.finditer(text):
        shown += escape(text[place : part.start()]) + Markup('<span class="ph">{}</span>').format(part[0])
        place = part.end()
    return shown + escape(text[place:])


async def _read_opened(transaction: Transaction, group: Group, redaction: Redaction) -> Opened:
    try:
        job = await transaction.run(job_operations.get(group.example))
    except job_operations.NoSuchJob:  # its history is gone
        return Opened(None, None, (), await _read_done(transaction, group))
    attempts = [each for each in await read_attempts(transaction, job, redaction) if each.error]
    pauses = await transaction.run(job_operations.pauses())
    keeping = [each for each in pauses if each.queue in (None, job.queue) and each.type in (None, job.type)]
    return Opened(job, attempts[-1] if attempts else None, keeping, await _read_done(transaction, group))


async def _read_done(transaction: Transaction, group: Group) -> list[tuple[BulkOperation, Markup | None]]:
    """The last operations on this group. Of a probe, also what became of its jobs."""
    operations = await transaction.run(bulk_operations.find(limit=50))
    needle = f"failure:{group.failure}"
    found = [each for each in operations if needle in f"{each.filter} {each.arguments.get('filter', '')}".split()]
    return [(each, await _draw_probe(transaction, each)) for each in found[:MOST_DONE]]


async def _draw_probe(transaction: Transaction, operation: BulkOperation) -> Markup | None:
    """The jobs of a probe as squares; None for an operation that names no jobs."""
    if not (operation.filter or "").startswith("id:"):
        return None
    ids = (operation.filter or "").removeprefix("id:").split(",")
    rows = await transaction.fetch("web_states", (ids,))
    squares = [charts.Square(_OUTCOMES.get(state, "waiting"), f"{job_id} {state}") for job_id, state in rows]
    succeeded = sum(square.outcome == "succeeded" for square in squares)
    return charts.slot_squares(f"{succeeded} of {len(squares)} succeeded", squares, most=max(len(squares), 1))


_OUTCOMES = {
    "succeeded": "succeeded",
    "failed": "retried",
    "dead": "dead",
    "running": "running",
    "canceled": "canceled",
}

ROUTES: list[BaseRoute] = [Route("/failures", show_failures, methods=["GET"])]
