"""The dashboard at any prefix: in Starlette and FastAPI, and behind proxies that keep or strip the prefix. Every link,
file and form stays inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from watchbill import App
from watchbill.dashboard import Dashboard, open_to_all
from watchbill.integrations.starlette import session_auth

ADDRESS = re.compile(r'(?:href|action|src)="(/[^"]*)"')


def with_session(application: ASGIApp, session: dict[str, Any]) -> ASGIApp:
    """As SessionMiddleware does it."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await application({**scope, "session": session}, receive, send)

    return serve


def strip(application: ASGIApp, prefix: str) -> ASGIApp:
    """A proxy that takes the prefix away."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["path"].removeprefix(prefix), "raw_path": b""}
        await application(scope, receive, send)

    return serve


def in_starlette(app: App) -> tuple[ASGIApp, str]:
    return Starlette(routes=[Mount("/a/b", Dashboard(app, auth=open_to_all))]), "/a/b"


def in_fastapi(app: App) -> tuple[ASGIApp, str]:
    api = FastAPI()
    api.mount("/watchbill", Dashboard(app, auth=open_to_all))
    return api, "/watchbill"


def in_mounted_fastapi(app: App) -> tuple[ASGIApp, str]:
    api, prefix = in_fastapi(app)
    return Starlette(routes=[Mount("/outer", api)]), f"/outer{prefix}"


def behind_keeping_proxy(app: App) -> tuple[ASGIApp, str]:
    return Dashboard(app, auth=open_to_all, prefix="/ops"), "/ops"


def behind_stripping_proxy(app: App) -> tuple[ASGIApp, str]:
    return strip(Dashboard(app, auth=open_to_all, prefix="/ops"), "/ops"), "/ops"


def alone(app: App) -> tuple[ASGIApp, str]:
    return Dashboard(app, auth=open_to_all), ""


@pytest.mark.parametrize(
    "place",
    [alone, in_starlette, in_fastapi, in_mounted_fastapi, behind_keeping_proxy, behind_stripping_proxy],
)
def test_every_address_stays_inside(schema_database: str, place: Callable[[App], tuple[ASGIApp, str]]) -> None:
    app = App(schema_database, name="board")
    served, prefix = place(app)
    with TestClient(served, base_url="http://localhost", follow_redirects=False) as client:
        for path in ("/", "/jobs", "/schedules", "/queues", "/nodes", "/keys"):
            page = client.get(prefix + path)
            assert page.status_code == 200, path
            found = ADDRESS.findall(page.text)
            assert found
            assert [each for each in found if not each.startswith(f"{prefix}/")] == []
        files = [each for each in found if "/static/" in each]
        assert {client.get(each).status_code for each in files} == {200}
        token = re.search(r'name="form_token" value="([^"]+)"', page.text)
        assert token is not None
        form = {"form_token": token[1], "queue": "mail", "back": "/queues"}
        answer = client.post(f"{prefix}/queue/pause", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"{prefix}/queues")
        assert f"Path={prefix or '/'};" in answer.headers["set-cookie"]
        assert "is paused" in client.get(f"{prefix}/queues").text
        assert client.get(f"{prefix}/api/v1/queues").json()["items"][0]["queue"] == "mail"
        assert client.get(f"{prefix}/health/live").status_code == 200
    app.close()


@pytest.mark.parametrize(
    ("session", "status", "words"),
    [
        ({}, 401, ""),
        ({"user": "ann"}, 200, "ann, reader"),
        ({"user": "ann", "role": "operator"}, 200, "ann, operator"),
    ],
)
def test_a_session_of_starlette_says_who_asks(
    schema_database: str, session: dict[str, Any], status: int, words: str
) -> None:
    app = App(schema_database, name="board")
    api = FastAPI()
    api.mount("/watchbill", Dashboard(app, auth=session_auth()))
    with TestClient(with_session(api, session), base_url="http://localhost") as client:
        page = client.get("/watchbill/")
        assert page.status_code == status
        assert words in page.text
    app.close()


def test_without_sessions_the_error_says_what_to_add(schema_database: str) -> None:
    app = App(schema_database, name="board")
    client = TestClient(Dashboard(app, auth=session_auth()), base_url="http://localhost")
    with pytest.raises(Exception, match="There is no session"):
        client.get("/")
    app.close()
