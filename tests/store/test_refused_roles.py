"""A refusal says what is missing: which role the call needs, and who the caller is. In SQL as far as Watchbill raises
the error, and through Python and the command line also where PostgreSQL does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.servers import Server
from tests.store.tenant_site import Site, open_sites
from watchbill.cli import main
from watchbill.client import job_operations
from watchbill.client.client import AsyncClient, Client
from watchbill.client.operations import Operation
from watchbill.store.refusals import RoleRefused


@pytest.fixture(scope="module")
def sites() -> Iterator[Callable[[Server], Site]]:
    with open_sites() as ask:
        yield ask


@pytest.fixture
def site(server: Server, sites: Callable[[Server], Site]) -> Site:
    return sites(server)


@pytest.mark.parametrize(
    ("role", "tenant", "call", "says"),
    [
        ("bound_producer", "b", "enqueue('t')", "is a producer, bound to a, and names tenant 'b'"),
        ("bound_operator", None, "pause('q')", "pause is for all tenants: role 'R' is an operator, bound to a"),
        ("producer", "", "enqueue('t')", "role 'R' is a producer and acts for no tenant"),
        ("producer", "a", "enqueue('t', tenant => 'b')", "role 'R' is a producer and acts for tenant 'a'"),
        (
            "bound_operator",
            None,
            "set_tenant('a', '{}')",
            "is an operator, bound to a, and may not act for all tenants",
        ),
    ],
)
def test_errors_of_sql_functions_say_who_the_caller_is(
    site: Site, role: str, tenant: str | None, call: str, says: str
) -> None:
    login = f"{site.logins.database}_{role}"
    with site.session(role, tenant) as session, pytest.raises(psycopg.Error) as refused:
        session.execute(f"SELECT watchbill.{call}".encode())
    assert says in str(refused.value).replace(login, "R")


def run(url: str, operation: Callable[[], Operation[Any]]) -> Any:
    with Client(url, pool_size=1) as client:
        return client.run(operation())


def arun(url: str, operation: Callable[[], Operation[Any]]) -> Any:
    async def ask() -> Any:
        async with AsyncClient(url, pool_size=1) as client:
            return await client.run(operation())

    return asyncio.run(ask())


@pytest.mark.parametrize("run", [run, arun])
def test_python_says_which_role_a_call_needs_and_who_the_caller_is(
    site: Site, run: Callable[[str, Callable[[], Operation[Any]]], Any]
) -> None:
    url, name = site.logins.url("bound_producer"), f"{site.logins.database}_bound_producer"
    with pytest.raises(RoleRefused) as refused:
        run(url, lambda: job_operations.release(site.job_ids[0]))
    assert f"This needs the role operator; role '{name}' is a producer, bound to a" in refused.value.message
    with pytest.raises(
        RoleRefused, match=r"the role worker, operator or reader; .*\(permission denied for table nodes"
    ):
        run(url, job_operations.served_queues)
    with pytest.raises(RoleRefused, match=r"the role producer, worker or operator; role .* is a reader, bound to a"):
        run(site.logins.url("bound_reader"), lambda: job_operations.cancel(site.job_ids[0]))


def test_command_line_says_why_it_shows_nothing(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("jobs", "schedules"):
        url = site.logins.url("producer")
        monkeypatch.setattr("sys.argv", ["watchbill", "--database-url", url, "--schema", "watchbill", command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        assert "is a producer and acts for no tenant. Name one with --tenant" in capsys.readouterr().err
