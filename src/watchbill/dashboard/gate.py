"""What every request passes: the host, who asks, forged requests, and the headers of the answer."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from watchbill.dashboard.forms import parse_fields, read_form_body
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import MEDIA_TYPE, Problem
from watchbill.dashboard.sessions import COOKIE, FORM_FIELD, FORM_HEADER, SAFE_METHODS, Session, refuse_other_site
from watchbill.dashboard.visit import SCOPE_KEY, Board, Visit

Auth = Callable[[Request], "Identity | Awaitable[Identity | None] | None"]
FindKey = Callable[[str], Awaitable[Identity | None]]
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
FORM_TYPE = "application/x-www-form-urlencoded"


def write_policy(frame_ancestors: str) -> str:
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        f"form-action 'self'; base-uri 'none'; frame-ancestors {frame_ancestors}"
    )


@dataclass(frozen=True)
class Rules:
    """`hosts`: the only hosts to which this server answers; None for any, because others check it."""

    auth: Auth | None
    hosts: Sequence[str] | None = None
    frame_ancestors: str = "'none'"


def open_to_all(request: Request) -> Identity:
    """The `auth` of a dashboard where everybody is an admin. Write it out only where no other people reach it."""
    return Identity("anyone", "admin")


class Gate:
    """The outermost part. What passes finds a Visit in its scope."""

    def __init__(self, inner: ASGIApp, board: Board, rules: Rules, find_key: FindKey, find_session: Any) -> None:
        self._inner, self._board, self._rules = inner, board, rules
        self._find_key, self._find_session = find_key, find_session
        self._headers = {
            "Content-Security-Policy": write_policy(rules.frame_ancestors),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check_host(request)
            visit = await self._identify(request)
            if request.method not in SAFE_METHODS:
                receive = await self._check_forged(request, visit)
        except Problem as problem:
            await answer_problem(problem)(scope, receive, send_with_headers)
            return
        scope[SCOPE_KEY] = visit
        await self._inner(scope, receive, send_with_headers)

    def _check_host(self, request: Request) -> None:
        if self._rules.hosts is None:
            return
        host = _strip_port(request.headers.get("host", ""))
        if host.lower().rstrip(".") not in (*LOCAL_HOSTS, *self._rules.hosts):
            raise Problem(
                421,
                f"This server does not answer to the host {host[:100]!r}.",
                hint="Add it to the setting dashboard_hosts, if it is yours.",
            )

    async def _identify(self, request: Request) -> Visit:
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and credential.startswith("wb_"):
            found = await self._find_key(credential.strip())
            if found is None:
                raise Problem(
                    401,
                    "This API key is unknown, expired or revoked.",
                    headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
                )
            return self._visit(found, None)
        if self._rules.auth is not None:
            answer = self._rules.auth(request)
            return self._visit(await answer if inspect.isawaitable(answer) else answer, None)
        session = self._board.sessions.read(request.cookies.get(COOKIE))
        return self._visit(await self._find_session(session) if session else None, session)

    def _visit(self, identity: Identity | None, session: Session | None) -> Visit:
        if identity is not None and self._board.read_only:
            identity = identity.as_reader()
        return Visit(self._board, identity, session if identity is not None else None)

    async def _check_forged(self, request: Request, visit: Visit) -> Receive:
        """Refuses an unsafe request that the person's browser may have sent without the person's will. A key in a
        header is never sent so. Returns how to receive the request, of which the token of a form was read."""
        if request.headers.get("authorization", "").lower().startswith("bearer "):
            return request.receive
        refuse_other_site(request)
        if visit.identity is None:  # nothing to abuse; the login page is one of these
            return request.receive
        given, receive = request.headers.get(FORM_HEADER), request.receive
        if given is None and request.headers.get("content-type", "").partition(";")[0].strip() == FORM_TYPE:
            body = await read_form_body(request)
            given, receive = parse_fields(body).get(FORM_FIELD), _replay(body, request.receive)
        if not self._board.sessions.is_form_token(given, visit.identity, visit.session):
            raise Problem(
                403,
                "The form token of this session is missing or wrong.",
                hint=f"Load the page again. Programs use an API key, or send {FORM_HEADER} from GET /api/v1/.",
                title="Not from a form of this session",
            )
        return receive


def answer_problem(problem: Problem) -> Response:
    return JSONResponse(problem.as_json(), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body once more, and then what the server says: that the client has gone."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _strip_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
