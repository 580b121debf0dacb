"""Answers requests by the table of endpoints: checks the role, reads the query and the body, and writes the answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.dashboard.api.call import TENANT_HEADER, Call, Endpoint, Reply
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.visit import get_visit

_JSON_TYPE = "application/json"
_LINES_TYPE = "application/x-ndjson"
_STRANGER = Identity("stranger", "reader")
_MOST_ERRORS = 20


def make_routes(prefix: str, table: Sequence[Endpoint]) -> list[BaseRoute]:
    """One route per path, for all its methods, in the order of the table."""
    by_path: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for endpoint in table:
        by_path[endpoint.path][endpoint.method] = endpoint
    return [Route(prefix + path, _Resource(methods)) for path, methods in by_path.items()]


class _Resource:
    """What answers at one path."""

    def __init__(self, methods: Mapping[str, Endpoint]) -> None:
        self._methods = methods

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        endpoint = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if endpoint is None:
            allowed = ", ".join(sorted(self._methods))
            raise Problem(405, f"This address takes {allowed}.", headers={"Allow": allowed})
        visit = get_visit(request)
        identity = visit.identity or _STRANGER if endpoint.role is None else visit.require(endpoint.role)
        visit.board.traffic.admit(identity)
        call = Call(
            request,
            endpoint,
            visit.board,
            identity,
            request.path_params,
            await _read_body(request, endpoint),
            _read_query(request, endpoint),
            _choose_tenant(request, identity),
        )
        return _write(await endpoint.handle(call), endpoint)


def _write(value: object, endpoint: Endpoint) -> Response:
    if isinstance(value, Response):
        return value
    reply = value if isinstance(value, Reply) else Reply(value, endpoint.statuses[0])
    assert endpoint.answer is not None
    answer = _adapter(endpoint.answer).validate_python(reply.value)
    return Response(_adapter(endpoint.answer).dump_json(answer), reply.status, media_type=_JSON_TYPE)


@cache
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _choose_tenant(request: Request, identity: Identity) -> str | None:
    named = request.headers.get(TENANT_HEADER)
    if named is None:
        return identity.tenant
    if not 1 <= len(named) <= 200 or not named.isprintable():
        raise Problem(422, f"The header {TENANT_HEADER} has the name of a tenant.")
    refuse_other_tenant(identity, named)
    return named


def refuse_other_tenant(identity: Identity, tenant: str) -> None:
    if identity.tenant not in (None, tenant):
        raise Problem(403, f"{identity.name} acts for tenant {identity.tenant} only.", code="WB013")


# -- Reading


def _read_query(request: Request, endpoint: Endpoint) -> Any:
    given = request.query_params.multi_items()
    twice = [name for name, times in Counter(name for name, _ in given).items() if times > 1]
    if twice:
        raise _refuse([{"pointer": f"/{twice[0]}", "detail": "is given more than once"}], "query")
    if endpoint.query is None:
        if given:
            raise _refuse([{"pointer": f"/{name}", "detail": "is not known here"} for name, _ in given], "query")
        return None
    try:
        return _adapter(endpoint.query).validate_strings(dict(given))
    except ValidationError as error:
        raise _refuse(_list_errors(error), "query") from None


async def _read_body(request: Request, endpoint: Endpoint) -> Any:
    if endpoint.body is None:
        return None
    raw = await read_bytes(request, endpoint.most_bytes)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind != _JSON_TYPE and not (endpoint.takes_lines and kind == _LINES_TYPE):
        also = f" or {_LINES_TYPE}" if endpoint.takes_lines else ""
        raise Problem(415, f"The body is {kind or 'without a type'}; send {_JSON_TYPE}{also}.")
    if kind == _LINES_TYPE:
        raw = b"[" + b",".join(line for line in raw.splitlines() if line.strip()) + b"]"
    return read_json(raw or b"{}", endpoint.body)


async def read_bytes(request: Request, most: int) -> bytes:
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated[:20]) > most:
        raise Problem(413, f"The body has {int(stated[:20]):,} bytes; at most {most:,} are read.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Problem(413, f"The body has more than {most:,} bytes.")
    return bytes(body)


def read_json(raw: bytes, model: type[BaseModel | RootModel[Any]]) -> Any:
    try:
        return _adapter(model).validate_json(raw)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
            reason = error.errors(include_url=False)[0]["msg"].removeprefix("Invalid JSON: ")
            raise Problem(400, f"The body is not JSON: {reason}.") from None
        raise _refuse(_list_errors(error), "body") from None


def _list_errors(error: ValidationError) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_ERRORS]
    return [{"pointer": write_pointer(each["loc"]), "detail": _phrase(each["msg"])} for each in found]


def write_pointer(places: Sequence[object]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(place).replace("~", "~0").replace("/", "~1") for place in places)


def _phrase(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _refuse(errors: list[dict[str, Any]], what: str) -> Problem:
    first = errors[0]
    return Problem(422, f"{first['pointer'] or 'The whole'} in the {what}: {first['detail']}.", errors=errors)
