"""What a program asks first: where it is, who it is, and what it may ask."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from watchbill._version import __version__
from watchbill.client import operations
from watchbill.dashboard.api.call import Call
from watchbill.dashboard.api.shapes import Answer
from watchbill.dashboard.identity import Role
from watchbill.dashboard.visit import get_visit


class About(Answer):
    """`role` and `form_token` are null for a stranger. A page of the dashboard sends the form token with its requests,
    in the header X-Form-Token; programs with an API key do not need it."""

    version: str
    installation: str | None
    name: str | None
    role: Role | None
    tenant: str | None
    queues: list[str]
    types: list[str]
    read_only: bool
    form_token: str | None


async def show(call: Call[None, None]) -> dict[str, Any]:
    visit, identity = get_visit(call.request), get_visit(call.request).identity
    installation = None
    if identity is not None:
        async with call.acting() as transaction:
            installation = await transaction.run(operations.installation())
    return {
        "version": __version__,
        "installation": installation,
        "name": identity and identity.name,
        "role": identity and identity.role,
        "tenant": identity and identity.tenant,
        "queues": list(identity.queues) if identity else [],
        "types": list(identity.types) if identity else [],
        "read_only": visit.board.read_only,
        "form_token": visit.form_token or None,
    }


async def show_document(call: Call[None, None]) -> Response:
    make_document = call.request.app.state.make_document  # it lists the endpoints, of which this is one
    return JSONResponse(make_document(_find_root(call.request)))


def _find_root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))
