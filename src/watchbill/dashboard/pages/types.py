"""Types of tasks: the list, and one type with what ended, what its jobs wait for, and who handles it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import figure_operations, job_operations
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.figure_charts import LEGEND, read_figures, show_causes
from watchbill.dashboard.figures import WINDOWS, find_window
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.figures import Figure, sum_by_name

MOST_TYPES = 500
MOST_AUDITED = 10
_FEWEST_FOR_COLOR, _MANY = 20, 0.02  # a share of fewer runs says little
_COLUMNS = {"Type": "name", "Ended, 1 h": "ended", "Failed": "failed", "Run, mean": "run"}


@dataclass(frozen=True)
class TypeRow:
    """A type: how many live nodes handle it, whether it is paused, and what ended in the last hour."""

    type: str
    nodes: int = 0
    versions: Sequence[int] = ()
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    unsupported_since: datetime | None = None
    sums: Figure | None = None

    @property
    def ended(self) -> int:
        return self.sums.runs if self.sums else 0

    @property
    def failed(self) -> int:
        return self.sums.failed + self.sums.timed_out + self.sums.lost if self.sums else 0

    @property
    def mean_wait(self) -> float | None:
        return self.sums.wait_seconds / self.sums.runs if self.sums and self.sums.runs else None

    @property
    def mean_run(self) -> float | None:
        return self.sums.run_seconds / self.sums.runs if self.sums and self.sums.runs else None

    @property
    def has_many_failures(self) -> bool:
        return self.ended >= _FEWEST_FOR_COLOR and self.failed / self.ended >= _MANY


_SORTS: Mapping[str, Any] = {
    "ended": lambda row: (-row.ended, row.type),
    "failed": lambda row: (-(row.failed / row.ended if row.ended else 0), row.type),
    "run": lambda row: (-(row.mean_run or 0), row.type),
    "name": lambda row: row.type,
}


async def show_types(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    sort, text = request.query_params.get("sort", "ended"), request.query_params.get("q", "").strip()[:100]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        rows = await read_types(transaction, frame.now)
    found = sorted((row for row in rows if text.lower() in row.type.lower()), key=_SORTS.get(sort, _SORTS["ended"]))
    values = {
        "rows": found[:MOST_TYPES], "number": len(found), "text": text, "sorts": _COLUMNS,
        "sorted_by": next((word for word, name in _COLUMNS.items() if name == sort), "Ended, 1 h"),
    }  # fmt: skip
    return show(request, "types.html", frame, values)


async def read_types(transaction: Transaction, now: datetime, name: str | None = None) -> list[TypeRow]:
    """The types that are known, with those that ended in the last hour. With `name`, only that one."""
    hour_ago = now - timedelta(hours=1)
    figures = await transaction.run(figure_operations.figures("type", "minute", since=hour_ago))
    sums = {each.name: each for each in sum_by_name(figures) if name in (None, each.name)}
    rows = await transaction.fetch("web_types", {"name": name})
    known = [replace(TypeRow(*row), sums=sums.pop(row[0], None)) for row in rows]
    return known + [TypeRow(each.name, sums=each) for each in sums.values()]


async def show_type(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    name = request.query_params.get("name", "")
    window = find_window(request.query_params.get("window") or "6h")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        row = await find_type(transaction, frame.now, name)
        causes = await transaction.run(job_operations.count_causes(type=name))
        zone = make_timepiece(request, frame.now).zone
        figures = await read_figures(transaction, window, frame.now, zone, "type", name)
        since = frame.now - timedelta(seconds=window.seconds)
        failures = await transaction.run(figure_operations.failures(since=since))
        nodes = await transaction.run(job_operations.nodes())
        audit = await transaction.run(job_operations.audit(subject=f"type {name}", limit=MOST_AUDITED))
    values = {
        "row": row, "causes": show_causes(causes, visit.board.redaction), "figures": figures, "window": window,
        "windows": [each for each in WINDOWS if each.step >= 900 or each.name == "6 h"],
        "legend": LEGEND, "failures": sum(group.type == name for group in failures),
        "nodes": [node for node in nodes if name in (node.types or ())], "audit": audit,
        "task": visit.board.app.tasks.get(name), "may_try": may_try(identity, name),
    }  # fmt: skip
    return show(request, "type.html", frame, values)


async def find_type(transaction: Transaction, now: datetime, name: str) -> TypeRow:
    """The type, if it is known, or has a job that is known."""
    found = await read_types(transaction, now, name) if name else []
    if found:
        return found[0]
    if name and await find_last_job(transaction, name):
        return TypeRow(name)
    raise Problem(
        404, f"There is no type {name[:100]!r}.", hint="A type is known while a node handles it, or has jobs."
    )


async def find_last_job(transaction: Transaction, name: str) -> UUID | None:
    """The newest job of a type, as far as one look finds it."""
    wanted = write_conditions([Condition("type", "=", (name,))])
    page = await transaction.run(job_operations.read_page(wanted, limit=1))
    return page.jobs[0].id if page.jobs else None


def may_try(identity: Identity, name: str) -> bool:
    return identity.may("producer") and (not identity.types or name in identity.types)


ROUTES: list[BaseRoute] = [
    Route("/types", show_types, methods=["GET"]),
    Route("/type", show_type, methods=["GET"]),
]
