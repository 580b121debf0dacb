"""A dashboard in this process, on a database of its own, and a browser-like client for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.browser.story import Story, tell
from tests.conftest import BINARIES
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from tests.store.harness import Db
from watchbill import App
from watchbill.dashboard import Dashboard, Identity, open_to_all
from watchbill.postgres.embedded import Binaries

BASE = "http://127.0.0.1:8484"
OpenBoard = Callable[..., TestClient]


@pytest.fixture
def open_board(schema_database: str) -> Iterator[OpenBoard]:
    """`open_board(...)` makes a Dashboard with these arguments and returns a client for it."""
    with ExitStack() as stack:

        def open_one(url: str = schema_database, **options: Any) -> TestClient:
            options = {"auth": open_to_all, "hosts": (), **options}
            client = TestClient(
                Dashboard(App(url, name="board"), **options),
                base_url=BASE,
                raise_server_exceptions=False,
                follow_redirects=False,
            )
            return stack.enter_context(client)

        yield open_one


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, start_server: Callable[[Binaries], Server]) -> Iterator[Story]:
    """A database with the story of the shop, for the tests of a module."""
    server = start_server(BINARIES[0])
    name = server.create_database(template(server))
    with closing(Db(server.url(name))) as db:
        yield tell(db)
    server.drop_database(name)


@pytest.fixture
def logins(server: Server, schema_database: str) -> Iterator[Logins]:
    """The group roles, and a login role for each."""
    with make_logins(server, schema_database) as made:
        yield made


def as_role(role: Any, tenant: str | None = None) -> Callable[[object], Identity]:
    """An `auth` that gives every caller this role."""
    return lambda _: Identity("ann", role, tenant)
