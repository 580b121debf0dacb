"""The tenant in scope: of a block, a request or a running job. Row security is on, and the programs are producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import watchbill
from tests.acceptance.command import Watchbill
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from watchbill.store.refusals import TenantRefused
from watchbill.store.tenants import enable_tenants

request_tenant: ContextVar[str | None] = ContextVar("request_tenant", default=None)


@pytest.fixture(scope="module")
def protected(server: Server) -> Iterator[Logins]:
    """Roles and row security take a second to make, and no test changes them."""
    url = server.url(server.create_database(template(server)))
    with make_logins(server, url) as made:
        enable_tenants(url, "watchbill")
        yield made


@pytest.fixture
def logins(protected: Logins) -> Logins:
    protected.run(sql.SQL("TRUNCATE watchbill.jobs"))
    return protected


@pytest.fixture
def app(logins: Logins) -> Iterator[watchbill.App[None]]:
    made: watchbill.App[None] = watchbill.App(logins.url("producer"), tenant_from=request_tenant.get)

    @made.task(type="send")
    def send(n: int) -> None:
        raise NotImplementedError

    yield made
    made.close()


def tenants(logins: Logins) -> list[str]:
    with psycopg.connect(logins.owner_url) as connection:
        return [tenant for (tenant,) in connection.execute("SELECT tenant FROM watchbill.jobs ORDER BY seq")]


def test_job_gets_the_tenant_of_the_block(app: watchbill.App[None], logins: Logins) -> None:
    send = app.tasks.get("send")
    assert send is not None
    with app.tenant("acme"):
        first = send.enqueue(1)
        app.enqueue_many([send.bind(2), send.bind(3)])
        send.using(tenant="acme", delay=60).enqueue(4)
        assert first.get().tenant == "acme"
        assert len(app.jobs.list()) == 4
    assert tenants(logins) == ["acme"] * 4


def test_job_gets_the_tenant_that_it_names(app: watchbill.App[None], logins: Logins) -> None:
    send = app.tasks.get("send")
    assert send is not None
    send.using(tenant="acme").enqueue(1)
    app.enqueue_many([send.using(tenant="acme").bind(n) for n in range(2)])
    assert tenants(logins) == ["acme"] * 3


def test_job_gets_the_tenant_of_the_request(app: watchbill.App[None], logins: Logins) -> None:
    send = app.tasks.get("send")
    assert send is not None
    token = request_tenant.set("acme")
    try:
        job = send.enqueue(1)
        assert job.get().tenant == "acme"
    finally:
        request_tenant.reset(token)
    assert tenants(logins) == ["acme"]


def test_many_rows_are_copied_for_the_tenant(app: watchbill.App[None], logins: Logins) -> None:
    send = app.tasks.get("send")
    assert send is not None
    with app.tenant("acme"):
        app.enqueue_many([send.bind(n) for n in range(3000)])
    assert set(tenants(logins)) == {"acme"}


def test_one_tenant_sees_nothing_of_another(app: watchbill.App[None]) -> None:
    send = app.tasks.get("send")
    assert send is not None
    with app.tenant("acme"):
        job = send.enqueue(1)
    with app.tenant("other"):
        assert app.jobs.list() == []
        with pytest.raises(watchbill.WatchbillError):
            job.get()
    assert app.jobs.list() == []  # no tenant, no rows: the setting ended with its statement


def test_without_a_tenant_nothing_is_written(app: watchbill.App[None]) -> None:
    send = app.tasks.get("send")
    assert send is not None
    with pytest.raises(TenantRefused, match="acts for no tenant"):
        app.enqueue_many([send.bind(1), send.bind(2)])
    with pytest.raises(TenantRefused, match="acts for no tenant"):
        send.enqueue(1)
    with app.tenant("default"):
        send.enqueue(1)


def test_tasks_of_one_loop_act_for_their_own_tenants(app: watchbill.App[None], logins: Logins) -> None:
    send = app.tasks.get("send")
    assert send is not None

    async def serve(tenant: str) -> list[str]:
        with app.tenant(tenant):
            await send.aenqueue(1)
            return [job.tenant for job in await app.jobs.alist()]

    async def both() -> list[list[str]]:
        try:
            return list(await asyncio.gather(serve("a"), serve("b")))
        finally:
            await app.aclose()

    assert asyncio.run(both()) == [["a"], ["b"]]


def test_empty_tenant_is_refused(app: watchbill.App[None]) -> None:
    with pytest.raises(ValueError, match="tenant='' is invalid"), app.tenant(""):
        pass


def test_commands_of_a_producer_act_for_the_tenant_of_their_option(tmp_path: Path, logins: Logins) -> None:
    """A producer may not read which queues live nodes serve, so only the type is checked."""
    command = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": logins.url("producer")})
    done = command.here("jobs", "enqueue", "send", "--tenant", "acme")
    assert (done.returncode, done.stderr) == (0, "No live node handles send; the job waits for one that does.\n")
    assert done.stdout.strip() in command.here("jobs", "--tenant", "acme").stdout
    assert command.here("jobs").stderr.endswith(
        "acts for no tenant. Name one with --tenant, or in the address of the database.\n"
    )
    assert command.here("jobs", "--tenant", "blue").stdout == ""
    assert tenants(logins) == ["acme"]
