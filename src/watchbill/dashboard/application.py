"""`Dashboard`: the pages and the HTTP API as one ASGI application, to run by itself or to mount under any prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from watchbill.client.metrics import read_metrics
from watchbill.dashboard import pages
from watchbill.dashboard.api.endpoints import PREFIX, TABLE
from watchbill.dashboard.api.openapi import make_document
from watchbill.dashboard.api.router import make_routes
from watchbill.dashboard.database import Database
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.gate import Auth, Gate, Rules, answer_problem
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.keys import Keys
from watchbill.dashboard.problems import Problem, explain
from watchbill.dashboard.replica import Replica
from watchbill.dashboard.sessions import COOKIE, SESSION_SECONDS, Session, Sessions, User
from watchbill.dashboard.visit import Board, Look, get_visit, link
from watchbill.errors import WatchbillError
from watchbill.redaction import Redaction
from watchbill.telemetry.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from watchbill.app.application import App

_MAX_LOGIN_FIELDS = 10


class Dashboard:
    """`api.mount("/watchbill", Dashboard(app, auth=...))`.

    `auth(request)` returns who asks, or None for a stranger; it may be a coroutine function. `auth=None` is for a
    dashboard with logins of its own: API keys, and `users`. With `read_only`, everybody is a reader. `redact` names
    values that are never shown, such as `payload.password` or `*.token`; `redact_text` are patterns for texts. `prefix`
    is where a proxy has put the dashboard, whether it keeps the prefix in the paths or strips it.
    """

    def __init__(
        self,
        app: App,
        *,
        auth: Auth | None,
        read_only: bool = False,
        redact: Sequence[str] = (),
        redact_text: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
        prefix: str = "",
        secret: str | None = None,
        users: Mapping[str, User] | None = None,
        frame_ancestors: str = "'none'",
        look: Look | None = None,
    ) -> None:
        redaction = Redaction(tuple(redact), tuple(redact_text))
        redaction.check()
        self._prefix = prefix.rstrip("/")
        runtime = app.producer.runtime
        self.database = Database(
            lambda: runtime.database_url, runtime.settings.schema, prepare=runtime.settings.prepared_statements
        )
        if (read_url := runtime.settings.read_url) is not None:
            self.database.standby = Replica(
                Database(lambda: read_url, runtime.settings.schema, prepare=runtime.settings.prepared_statements)
            )
        self.board = Board(
            app,
            self.database,
            Sessions(secret, users or {}),
            redaction,
            read_only=read_only,
            has_login=auth is None,
            keys=Keys(self.database),
            look=look or Look(),
        )
        inner = Starlette(
            routes=[*_list_own_routes(), *make_routes(PREFIX, TABLE), *pages.routes()],
            exception_handlers={Problem: _answer, WatchbillError: _answer, HTTPException: _answer, Exception: _answer},
        )
        inner.state.make_document = make_document
        inner.router.redirect_slashes = False
        self._gate = Gate(
            inner, self.board, Rules(auth, hosts, frame_ancestors), self.board.keys.find, self._find_session
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._gate(self._place(scope), receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def aclose(self) -> None:
        """Closes its connections; the next request opens others."""
        await self.database.close()

    def _place(self, scope: Scope) -> Scope:
        """Puts the prefix where a mounting application would put it. A proxy may have stripped it from the path."""
        if not self._prefix:
            return scope
        path, root = scope["path"], scope.get("root_path", "")
        kept = path == root + self._prefix or path.startswith(f"{root}{self._prefix}/")
        inside = path.removeprefix(root + self._prefix) if kept else path.removeprefix(root)
        return {**scope, "root_path": root + self._prefix, "path": f"{root}{self._prefix}{inside or '/'}"}

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _find_session(self, session: Session) -> Identity | None:
        if session.kind == "key":
            return await self.board.keys.find_by_id(session.name)
        user = self.board.sessions.users.get(session.name) if session.kind == "user" else None
        return None if user is None else Identity(user.name, user.role)


def _list_own_routes() -> list[BaseRoute]:
    return [
        Route("/health/live", _live, methods=["GET"]),
        Route("/health/ready", _check_ready, methods=["GET"]),
        Route("/metrics", _show_metrics, methods=["GET"]),
        Route("/login", _log_in, methods=["POST"]),
        Route("/logout", _log_out, methods=["POST"]),
    ]


async def _live(request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _check_ready(request: Request) -> Response:
    await get_visit(request).board.database.read_facts()
    return JSONResponse({"status": "ready"})


async def _show_metrics(request: Request) -> Response:
    visit = get_visit(request)
    async with visit.board.database.acting(visit.require("reader"), read_only=True) as transaction:
        text = await transaction.run(read_metrics())
    return Response(text, media_type=CONTENT_TYPE)


async def _log_in(request: Request) -> Response:
    """Takes the fields `name`, `password` and `next` of the login form. The name may be empty if the password is an
    API key. Shows the page of the form again after a failure."""
    visit = get_visit(request)
    sessions = visit.board.sessions
    address = request.client.host if request.client else ""
    sessions.refuse_guessing(address)
    fields = await read_form(request, most_fields=_MAX_LOGIN_FIELDS)
    name, password = fields.get("name", ""), fields.get("password", "")
    identity = await _check_login(visit.board, name, password) if visit.board.has_login else None
    if identity is None:
        sessions.note_failure(address)
        raise Problem(401, "Name or password is wrong.", title="The login failed")
    response = RedirectResponse(_choose_next(request, fields.get("next", "")), 303)
    response.set_cookie(
        COOKIE,
        sessions.begin("user", name) if identity.key is None else sessions.begin("key", identity.key),
        max_age=SESSION_SECONDS,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


async def _check_login(board: Board, name: str, password: str) -> Identity | None:
    if not name and password.startswith("wb_"):
        return await board.keys.find(password.strip())
    return await board.sessions.check_password(name, password)


async def _log_out(request: Request) -> Response:
    visit = get_visit(request)
    if visit.session is not None:
        visit.board.sessions.end(visit.session)
    response = RedirectResponse(link(request, "/login"), 303)
    response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return response


def _choose_next(request: Request, wanted: str) -> str:
    """Where to go after the login: only to a page of this dashboard."""
    inside = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted and wanted.isprintable()
    return link(request, wanted if inside else "/")


async def _answer(request: Request, error: Exception) -> Response:
    """The answer to a request that failed: a page for people, a problem for programs."""
    problem = _explain_http(error) if isinstance(error, HTTPException) else explain(error)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if path.startswith(("/api/", "/health/", "/metrics")):
        return answer_problem(problem)
    return await pages.show_problem(request, problem)


def _explain_http(error: HTTPException) -> Problem:
    details = {404: "There is nothing at this address.", 405: "This address does not take that method."}
    return Problem(error.status_code, details.get(error.status_code, error.detail), headers=error.headers)
