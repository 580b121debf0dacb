"""The lifespan and the dependency, in this process; examples/fastapi_app has the servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.waiting import until
from watchbill import App
from watchbill.errors import SchemaError
from watchbill.integrations.fastapi import NotInApplication, WatchbillApp, lifespan, watchbill_app


async def get(api: Any, path: str) -> Any:
    """What a server does with one request."""
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "app": api}
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    await api(scope, receive, send)
    return json.loads(body)


def make_api(app: App, **options: Any) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app, **options))

    @api.get("/async")
    async def from_a_coroutine(watchbill: WatchbillApp) -> str:
        return str((await watchbill.aenqueue("work")).id)

    @api.get("/blocking")
    def from_a_thread(watchbill: WatchbillApp) -> str:
        return str(watchbill.enqueue("work").id)

    return api


def sessions(url: str) -> list[tuple[Any, ...]]:
    """Those that anybody else has open on this database."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()


def test_sync_and_async_endpoints_leave_no_connection_open(schema_database: str) -> None:
    app = App(schema_database)

    async def serve() -> list[str]:
        api = make_api(app)
        async with api.router.lifespan_context(api):
            assert sessions(schema_database) == [], "nothing is opened until it is used"
            return [await get(api, "/async"), await get(api, "/blocking")]

    made = asyncio.run(serve())
    until(lambda: sessions(schema_database) == [])
    assert len({app.jobs.get(each).id for each in map(UUID, made)}) == 2
    app.close()


def test_a_node_works_while_the_server_lives(schema_database: str) -> None:
    app = App(schema_database)

    @app.task(type="work")
    async def work() -> str:
        return "done"

    async def serve() -> str:
        api = make_api(app, node=True, concurrency=2)
        async with api.router.lifespan_context(api):
            await get(api, "/async")
            job = await work.aenqueue()
            return await job.aresult(timeout=30)

    assert asyncio.run(serve()) == "done"
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT state FROM watchbill.nodes").fetchall() == [("left",)]
    until(lambda: sessions(schema_database) == [])


def test_a_server_with_a_node_does_not_start_without_the_schema(database: str) -> None:
    async def serve() -> None:
        api = make_api(App(database), node=True)
        async with api.router.lifespan_context(api):
            pytest.fail("it started")

    with pytest.raises(SchemaError, match="watchbill db migrate"):
        asyncio.run(serve())


def test_lifespan_works_with_plain_starlette(schema_database: str) -> None:
    app = App(schema_database)

    async def endpoint(request: Request) -> JSONResponse:
        return JSONResponse((await watchbill_app(request).aenqueue("work")).created)

    async def serve() -> Any:
        api = Starlette(routes=[Route("/", endpoint)], lifespan=lifespan(app))
        async with api.router.lifespan_context(api):
            return await get(api, "/")

    assert asyncio.run(serve()) is True


def test_missing_lifespan_error_shows_how_to_add_it(schema_database: str) -> None:
    api = make_api(App(schema_database))
    with pytest.raises(NotInApplication, match=r"FastAPI\(lifespan=lifespan\(app\)\)"):
        asyncio.run(get(api, "/async"))
