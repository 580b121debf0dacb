"""The audit: what people did, the newest first, by who, what and to which thing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.pages.job_actions import read_when
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit

MOST_ROWS = 50
_FIELDS = ("actor", "action", "subject", "tenant")


async def show_audit(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    query = request.query_params
    fields = {name: query.get(name, "").strip()[:200] for name in (*_FIELDS, "since")}
    wanted: dict[str, Any] = {name: fields[name] or None for name in _FIELDS}
    if wanted["action"]:
        wanted["action"] = wanted["action"].replace(" ", "_")
    before = _read_before(query.get("before", ""))
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        since = _read_since(fields["since"], frame.now, make_timepiece(request, frame.now).zone)
        rows = await transaction.run(job_operations.audit(**wanted, since=since, before=before, limit=MOST_ROWS + 1))
    values = {
        "rows": rows[:MOST_ROWS], "next": rows[MOST_ROWS - 1].id if len(rows) > MOST_ROWS else None,
        "before": before, "fields": fields, "is_filtered": any(fields.values()),
    }  # fmt: skip
    return show(request, "audit.html", frame, values)


def _read_before(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Problem(422, f"{text[:40]!r} is not the number of a row.")
    return int(text)


def _read_since(text: str, now: datetime, zone: Any) -> datetime | None:
    """`2h` for the last two hours, or an instant."""
    if not text:
        return None
    when = read_when(text, now, zone)
    return None if when is None else when if when <= now else now - (when - now)


ROUTES: list[BaseRoute] = [Route("/audit", show_audit, methods=["GET"])]
