"""What a form does: it changes something in the name of the caller, says so on the next page, and returns to a page.

The gate has checked the token of the form. `act` checks the role, the database checks it again, and the SQL functions
write the audit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.identity import Role
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice
from watchbill.dashboard.visit import get_visit, link

Fields = Mapping[str, str]
Change = Callable[[Transaction, Fields], Awaitable[str]]
Handler = Callable[[Request], Awaitable[Response]]


def act(role: Role, change: Change) -> Handler:
    """The handler of a form. `change` returns the sentence that the next page shows. The form may have a field
    `back`: the page to return to."""

    async def handle(request: Request) -> Response:
        visit = get_visit(request)
        identity = visit.require(role)
        fields = await read_form(request)
        async with visit.board.database.acting(identity) as transaction:
            done = await change(transaction, fields)
        response = RedirectResponse(read_back(request, fields), 303)
        leave_notice(request, response, done)
        return response

    return handle


def read_field(fields: Fields, name: str) -> str:
    """A field that the form must have."""
    value = fields.get(name, "").strip()
    if not value:
        raise Problem(422, f"The field {name} is empty.", errors=[{"pointer": f"/{name}", "detail": "is empty"}])
    return value


def read_back(request: Request, fields: Mapping[str, str]) -> str:
    """The page to return to: only one of this dashboard."""
    wanted = fields.get("back", "/")
    inside = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted and wanted.isprintable()
    return link(request, wanted if inside else "/")
