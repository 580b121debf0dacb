"""`/live?page=/jobs`: server-sent events with the parts of open pages that have changed: `{"page", "id", "html"}`."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Message

from watchbill.dashboard.problems import Problem
from watchbill.dashboard.visit import SCOPE_KEY, Visit, get_visit
from watchbill.dashboard.watcher import Read, Viewer, Watcher

PATH = "/live"
MOST_PAGES = 20  # of one stream, which one tab of a browser holds for all
READ_SECONDS = 0.25  # for a statement of a page that is read again and again
STREAM_SECONDS = 60.0  # then the browser asks again, so that a key or a session that has ended ends its streams
COMMENT_SECONDS = 15.0
RETRY_MILLISECONDS = 3000
USUAL_PERIOD_SECONDS = 2.0
_SLOW_PAGES = ("jobs", "alerts", "failures", "queue", "type", "types", "tenant", "tenants", "limit", "limits", "audit")
_PERIODS_SECONDS = {"/job": 1.0, "/operation": 1.0, "/operations": 1.0} | {f"/{name}": 5.0 for name in _SLOW_PAGES}
_NOT_WATCHED = (PATH, "/prefer", "/login", "/metrics", "/api/", "/health/", "/static/", "/system", "/keys")
_KEPT = ("type", "asgi", "http_version", "scheme", "server")
_COOKIES = ("watchbill_zone", "watchbill_local")
# Stands for the form token of each viewer in what many viewers share. Random, so no text of a page contains it.
_TOKEN_PLACE = f"form-token-{secrets.token_hex(16)}"


@dataclass(frozen=True)
class _SharedVisit(Visit):
    """The visit of a reading that several viewers share."""

    @property
    def form_token(self) -> str:
        return _TOKEN_PLACE


async def watch(request: Request) -> Response:
    visit = get_visit(request)
    visit.require("reader")
    names = list(dict.fromkeys(request.query_params.getlist("page")))[:MOST_PAGES]
    if not names:
        raise Problem(422, "Say which pages to watch: /live?page=/jobs")
    wanted = [_plan(request, visit, name) for name in names]
    watcher = _find_watcher(request)
    watcher.check_room([key for _, key, _, _ in wanted])
    return StreamingResponse(
        _send_news(watcher, wanted, visit.form_token),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _find_watcher(request: Request) -> Watcher:
    state = request.app.state
    if not hasattr(state, "watcher"):
        state.watcher = Watcher()
    watcher: Watcher = state.watcher
    return watcher


def _plan(request: Request, visit: Visit, name: str) -> tuple[str, object, Read, float]:
    """The name of a page, the key of its topic, how to read it, and its period."""
    address = urlsplit(name)
    path = address.path
    if path.startswith(_NOT_WATCHED) or not _is_page(request, path):
        raise Problem(404, "There is no such page to watch.", hint="The path is that of a page, without the prefix.")
    identity = visit.identity
    assert identity is not None
    cookies = {cookie: request.cookies[cookie] for cookie in _COOKIES if cookie in request.cookies}
    sent_cookies = "; ".join(f"{cookie}={value}" for cookie, value in cookies.items())
    scope = {
        **{key: request.scope[key] for key in _KEPT if key in request.scope},
        "method": "GET",
        "client": None,
        "root_path": request.scope.get("root_path", ""),
        "path": request.scope.get("root_path", "") + path,
        "query_string": address.query.encode(),
        "headers": [
            (b"host", request.headers.get("host", "").encode()),
            (b"cookie", sent_cookies.encode("latin-1", "replace")),
        ],
        SCOPE_KEY: _SharedVisit(
            replace(visit.board, database=visit.board.database.with_limit(READ_SECONDS)), identity, visit.session
        ),
    }  # fmt: skip
    seen_by = (identity.role, identity.tenant, identity.queues, identity.types, *cookies.items())
    key = (scope["root_path"], request.headers.get("host"), name, seen_by)
    period = _PERIODS_SECONDS.get(f"/{path.split('/')[1]}", USUAL_PERIOD_SECONDS)
    return name, key, lambda: _read(request.app, scope), period


def _is_page(request: Request, path: str) -> bool:
    scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    routes = [route for route in request.app.routes if isinstance(route, Route) and "GET" in (route.methods or ())]
    return any(route.matches(scope)[0] is Match.FULL for route in routes)


async def _read(app: Any, scope: Mapping[str, Any]) -> str:
    """The page, as a browser would get it."""
    status, body = 0, bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await app({**scope}, receive, send)
    if status != 200:
        raise Problem(status, "The page cannot be shown now.")
    return body.decode()


async def _send_news(
    watcher: Watcher, wanted: list[tuple[str, object, Read, float]], form_token: str
) -> AsyncIterator[str]:  # fmt: skip
    now = asyncio.get_running_loop().time
    ends = now() + STREAM_SECONDS
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    async with watcher.watching(wanted) as viewer:
        while now() < ends:
            for name, topic, page, changed in viewer.take_news():
                for element, fragment in changed.items():
                    html = fragment.html.replace(_TOKEN_PLACE, form_token)
                    yield _write_event("fragment", {"page": name, "id": element, "html": html})
                yield _write_event("tick", {"page": name, "at": page.clock, "period": topic.period})
            with suppress(TimeoutError):
                await _wait_for_news(viewer, min(COMMENT_SECONDS, max(ends - now(), 0)))
                continue
            yield ": nothing new\n\n"
    yield _write_event("again", {})


async def _wait_for_news(viewer: Viewer, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await viewer.woken.wait()
    viewer.woken.clear()


def _write_event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
