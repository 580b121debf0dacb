"""Every page in the name of each role and of tenants, where the database checks roles and keeps tenants apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.browser.story import tell
from tests.dashboard.conftest import BASE
from tests.dashboard.test_other_pages import PAGES
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from tests.store.harness import Db
from watchbill import App
from watchbill.dashboard import Dashboard, Identity
from watchbill.dashboard.identity import ROLES
from watchbill.store.tenants import enable_tenants

MORE = ("/", "/jobs", "/failures", "/schedules", "/calendar", "/schedule?name=nightly-report", "/find?q=mail")
WHO = {role: Identity(role, role) for role in ROLES} | {
    "acme reader": Identity("acme-reader", "reader", "acme"),
    "acme producer": Identity("acme-shop", "producer", "acme"),
}
# What a tenant does not see, because it is of another tenant or of none.
_NOT_FOR_TENANTS = {"/schedule?name=nightly-report": 404, "/operation?id=1": 404}


@pytest.fixture(scope="module")
def walls(server: Server) -> Iterator[Logins]:
    """The story of the shop in a database with group roles and row security."""
    name = server.create_database(template(server))
    db = Db(server.url(name))
    tell(db)
    db.close()
    with make_logins(server, server.url(name)) as made:
        enable_tenants(made.owner_url, "watchbill")
        yield made
    server.drop_database(name)


@pytest.fixture(scope="module")
def client(walls: Logins) -> Iterator[TestClient]:
    board = Dashboard(App(walls.owner_url, name="board"), auth=lambda request: WHO[request.headers["who"]], hosts=())
    with TestClient(board, base_url=BASE, raise_server_exceptions=False, follow_redirects=False) as found:
        yield found


@pytest.mark.parametrize("who", WHO)
def test_every_page_is_shown_to_those_whom_the_database_lets_look(client: TestClient, who: str) -> None:
    identity = WHO[who]
    found: list[tuple[str, int]] = []
    for path in (*PAGES, *MORE):
        answer = client.get(path, headers={"who": who})
        allowed = {200, 303} | ({_NOT_FOR_TENANTS.get(path, 200)} if identity.tenant else set())
        if answer.status_code not in allowed:
            found.append((path, answer.status_code))
        if identity.tenant is not None:
            assert "globex" not in answer.text, path
            assert "<script>alert" not in answer.text.replace("&lt;", "<"), path
    assert found == []
