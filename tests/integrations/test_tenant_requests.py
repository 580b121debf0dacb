"""Requests of a FastAPI application act for the tenant that `tenant_from` returns. Row security is on, and the
application is a producer: a request that named the wrong tenant, or none, would see nothing and be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI

from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from watchbill import App
from watchbill.integrations.fastapi import WatchbillApp, lifespan
from watchbill.store.refusals import TenantRefused
from watchbill.store.tenants import enable_tenants

request_tenant: ContextVar[str | None] = ContextVar("request_tenant", default=None)


class TenantMiddleware:
    """The tenant is a header of the request."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        named = dict(scope["headers"]).get(b"x-tenant")
        token = request_tenant.set(named.decode() if named else None)
        try:
            await self.app(scope, receive, send)
        finally:
            request_tenant.reset(token)


async def get(api: Any, path: str, tenant: str | None) -> Any:
    headers = [] if tenant is None else [(b"x-tenant", tenant.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers, "app": api}
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    await api(scope, receive, send)
    return json.loads(body)


def make_api(app: App) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app))
    api.add_middleware(TenantMiddleware)

    @api.get("/async")
    async def from_a_coroutine(watchbill: WatchbillApp) -> list[str]:
        await watchbill.aenqueue("work")
        await asyncio.sleep(0)
        return [job.tenant for job in await watchbill.jobs.alist()]

    @api.get("/blocking")
    def from_a_thread(watchbill: WatchbillApp) -> list[str]:
        watchbill.enqueue("work")
        return [job.tenant for job in watchbill.jobs.list()]

    @api.get("/nested")
    async def asks_for_another_tenant(watchbill: WatchbillApp) -> list[list[str]]:
        inner = await get(api, "/async", "inner")
        with watchbill.tenant("block"):
            await watchbill.aenqueue("work")
        await watchbill.aenqueue("work")
        return [inner, [job.tenant for job in await watchbill.jobs.alist()]]

    @api.get("/task")
    async def starts_a_task(watchbill: WatchbillApp) -> str:
        made = await asyncio.create_task(watchbill.aenqueue("work"))
        return (await made.aget()).tenant

    @api.get("/schedule")
    async def adds_a_schedule(watchbill: WatchbillApp) -> list[str]:
        added = await watchbill.schedules.aadd("nightly", "@daily", task="work")
        found = await watchbill.schedules.aget("nightly")
        await watchbill.schedules.aremove("nightly")
        return [added.tenant, found.tenant]

    return api


@pytest.fixture(scope="module")
def logins(server: Server) -> Iterator[Logins]:
    url = server.url(server.create_database(template(server)))
    with make_logins(server, url) as made:
        enable_tenants(url, "watchbill")
        with made.connect("worker") as worker:
            worker.execute("""SELECT watchbill.register('node', types => '{"work": 1}')""")
        yield made


@pytest.fixture
def app(logins: Logins) -> Iterator[App]:
    with psycopg.connect(logins.owner_url) as connection:
        connection.execute("TRUNCATE watchbill.jobs")
    made: App = App(logins.url("producer"), tenant_from=request_tenant.get)
    yield made
    made.close()


def serve(app: App, *requests: tuple[str, str | None]) -> list[Any]:
    """Sends all requests at once."""

    async def run() -> list[Any]:
        api = make_api(app)
        async with api.router.lifespan_context(api):
            return await asyncio.gather(*(get(api, path, tenant) for path, tenant in requests))

    return asyncio.run(run())


def test_concurrent_requests_act_for_their_own_tenants(app: App, logins: Logins) -> None:
    """In coroutines of one loop, and in threads of one pool."""
    requests = [(path, tenant) for tenant in ("a", "b", "c") for path in ("/async", "/blocking") for _ in range(4)]
    for (_, tenant), seen in zip(requests, serve(app, *requests), strict=True):
        assert set(seen) == {tenant}
    with psycopg.connect(logins.owner_url) as connection:
        rows = connection.execute("SELECT tenant, count(*) FROM watchbill.jobs GROUP BY 1 ORDER BY 1").fetchall()
    assert rows == [("a", 8), ("b", 8), ("c", 8)]


def test_request_within_a_request_ends_with_the_outer_tenant(app: App) -> None:
    [(inner, outer)] = serve(app, ("/nested", "outer"))
    assert (inner, outer) == (["inner"], ["outer"])


def test_task_of_a_request_acts_for_its_tenant(app: App) -> None:
    assert serve(app, ("/task", "a"), ("/task", "b")) == ["a", "b"]


def test_schedules_of_a_request_belong_to_its_tenant(app: App) -> None:
    assert serve(app, ("/schedule", "a"), ("/schedule", "b")) == [["a", "a"], ["b", "b"]]


def test_request_without_a_tenant_is_refused(app: App) -> None:
    with pytest.raises(TenantRefused, match="acts for no tenant"):
        serve(app, ("/async", None))


def test_connection_of_a_request_acts_for_its_tenant(app: App, logins: Logins) -> None:
    """Also the calls that do not enqueue, and a list of jobs."""
    task = app.task(type="work")(lambda: None)
    with app.tenant("a"), psycopg.connect(logins.url("producer")) as connection:
        app.enqueue_many([task.bind(), task.bind()], connection=connection)
        assert [job.tenant for job in app.jobs.list(connection=connection)] == ["a", "a"]
        app.schedules.add("nightly", "@daily", task="work", connection=connection)
        connection.rollback()
    with app.tenant("a"), psycopg.connect(logins.url("producer"), autocommit=True) as connection:
        app.enqueue_many([task.bind(), task.bind()], connection=connection)  # one statement, which names the tenant
        assert app.jobs.list(connection=connection) == []  # a statement of its own: there is no transaction to name it
