"""Finds a thing by its name or id: the field in the top bar, and the palette of the scripts."""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit, link
from watchbill.model.ids import id_range
from watchbill.model.job import JobMatch

MOST_FOUND = 20
_ID = re.compile(r"(?=[0-9a-f-]{7,36}\Z)[0-9a-f]{7,8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,12})?", re.IGNORECASE)
_FILTER = re.compile(r"\S+[:<>]\S*|.*\s.*")
_PAGES = {"queue": "/queue", "type": "/type", "schedule": "/schedule", "node": "/node", "tenant": "/tenant"}


class Found(NamedTuple):
    kind: str
    label: str
    address: str


async def find(request: Request) -> Response:
    """A page with what has this text in its name; the thing itself if there is only one; the list of jobs for a filter.
    Programs that accept JSON get a list."""
    visit = get_visit(request)
    identity = visit.require("reader")
    text = request.query_params.get("q", "").strip()[:200]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        rows = await transaction.fetch("web_find", {"text": text, "most": MOST_FOUND}) if text else []
        jobs = await _find_jobs(transaction, text)
    found = [Found("job", f"{job.type} {job.id}", link(request, f"/job/{job.id}")) for job in jobs]
    found += [Found(kind, name, _find_address(request, kind, name, tenant)) for kind, name, tenant in rows]
    if request.headers.get("accept", "").startswith("application/json"):
        return JSONResponse([each._asdict() for each in found])
    if text and not found and _FILTER.fullmatch(text):
        return RedirectResponse(link(request, "/jobs", q=text), 303)
    if len(found) == 1:
        return RedirectResponse(found[0].address, 303)
    return show(request, "find.html", frame, {"text": text, "found": found, "most": MOST_FOUND})


async def _find_jobs(transaction: Transaction, text: str) -> list[JobMatch]:
    """The jobs whose id begins with this text, if it can be the beginning of an id."""
    if not _ID.fullmatch(text):
        return []
    return await transaction.run(job_operations.find_by_prefix(*id_range(text), MOST_FOUND))


def _find_address(request: Request, kind: str, name: str, tenant: str | None) -> str:
    query = {"name": name} | ({"tenant": tenant} if tenant else {})
    return link(request, _PAGES[kind], **query)


ROUTES: list[BaseRoute] = [Route("/find", find, methods=["GET"])]
