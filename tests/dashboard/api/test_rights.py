"""Every endpoint of the table, tried by every role, by tenants, by strangers and from foreign hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from tests.dashboard.conftest import BASE
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from watchbill import App
from watchbill.dashboard import Dashboard, Identity
from watchbill.dashboard.api.call import Endpoint
from watchbill.dashboard.api.endpoints import PREFIX, TABLE
from watchbill.dashboard.api.openapi import list_statuses
from watchbill.dashboard.identity import ROLES
from watchbill.store.tenants import enable_tenants

ACME, OTHER = Identity("acme", "producer", "acme"), Identity("other", "producer", "other")
WHO = {role: Identity(role, role) for role in ROLES} | {
    "acme": ACME, "other": OTHER, "acme reader": Identity("acme-reader", "reader", "acme")
}  # fmt: skip
UNKNOWN = str(uuid4())


@pytest.fixture(scope="module")
def logins(server: Server) -> Iterator[Logins]:
    """One database for all these tests, with group roles and row security."""
    name = server.create_database(server.templates.get("schema") or _make_template(server))
    with make_logins(server, server.url(name)) as made:
        enable_tenants(made.owner_url, "watchbill")
        yield made
    server.drop_database(name)


def _make_template(server: Server) -> str:
    from tests.conftest import _migrated

    server.templates["schema"] = _migrated(server)
    return server.templates["schema"]


@pytest.fixture(scope="module")
def client(logins: Logins) -> Iterator[TestClient]:
    """A client whose header `who` says in whose name it comes."""
    board = Dashboard(
        App(logins.owner_url, name="board"), auth=lambda request: WHO.get(request.headers.get("who", "")), hosts=()
    )
    with TestClient(board, base_url=BASE, raise_server_exceptions=False, follow_redirects=False) as found:
        yield found


def ask(client: TestClient, endpoint: Endpoint, who: str, path: str | None = None, **options: Any) -> Any:
    headers = {"who": who}
    if who in WHO:
        headers["X-Form-Token"] = client.app.board.sessions.make_form_token(WHO[who], None)  # type: ignore[attr-defined]
    return client.request(
        endpoint.method, PREFIX + (path or fill(endpoint)), headers=headers | options.pop("headers", {}), **options
    )


def fill(endpoint: Endpoint) -> str:
    """The path with ids and names of things that do not exist."""
    places = {"id": UNKNOWN, "number": "987654321", "epoch": "987654321", "name": "no-such"}
    return re.sub(r"\{(\w+)(:path)?\}", lambda place: places[place[1]], endpoint.path)


def name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", TABLE, ids=name)
def test_each_role_may_do_what_the_table_says(client: TestClient, endpoint: Endpoint) -> None:
    streams = endpoint.media_type == "text/event-stream"  # it would never end
    for who, identity in [] if streams else WHO.items():
        answer = ask(client, endpoint, who)
        may = endpoint.role is None or identity.may(endpoint.role)
        assert (answer.status_code == 403) <= (not may or identity.tenant is not None), (who, answer.text)
        assert may or answer.status_code == 403, (who, answer.text)
        assert answer.status_code in list_statuses(endpoint), (who, answer.text)
    stranger = ask(client, endpoint, "")
    assert (stranger.status_code == 401) == (endpoint.role is not None)


@pytest.mark.parametrize("endpoint", TABLE, ids=name)
def test_a_foreign_host_and_a_forged_request_are_refused(client: TestClient, endpoint: Endpoint) -> None:
    assert ask(client, endpoint, "admin", headers={"Host": "evil.example"}).status_code == 421
    if endpoint.method != "GET":
        assert ask(client, endpoint, "admin", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert ask(client, endpoint, "admin", headers={"X-Form-Token": "x"}).status_code == 403


@pytest.mark.parametrize("endpoint", [each for each in TABLE if each.body is not None], ids=name)
def test_every_body_has_a_limit_and_is_json(client: TestClient, endpoint: Endpoint) -> None:
    assert endpoint.role is not None
    who = next(role for role in ("admin", "worker") if Identity(role, role).may(endpoint.role))
    kind = {"Content-Type": "application/json"}
    assert ask(client, endpoint, who, content=b"{", headers=kind).status_code == 400
    assert ask(client, endpoint, who, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert ask(client, endpoint, who, content=b'{"no such field": 1}', headers=kind).status_code == 422
    stated = kind | {"Content-Length": str(endpoint.most_bytes + 1)}
    assert ask(client, endpoint, who, content=b"{}", headers=stated).status_code == 413


@pytest.mark.parametrize("endpoint", [each for each in TABLE if 404 in each.errors], ids=name)
def test_what_does_not_exist_is_not_found(client: TestClient, endpoint: Endpoint) -> None:
    assert endpoint.role is not None
    who = next(role for role in ("admin", "worker") if Identity(role, role).may(endpoint.role))
    options: dict[str, Any] = {"params": QUERIES.get(name(endpoint), {})}
    if endpoint.body is not None:
        options["json"] = EXAMPLES.get(name(endpoint), {})
    for path in {fill(endpoint), fill(endpoint).replace(UNKNOWN, "no-id").replace("987654321", "9" * 30)}:
        answer = ask(client, endpoint, who, path, **options)
        assert answer.status_code == 404, answer.text


EXAMPLES: dict[str, Any] = {
    "PATCH /jobs/{id}": {"priority": 1},
    "POST /groups/rebalance": {"group": "no-such"},
    "POST /pins": {"group": "no-such", "keys": ["a"], "pattern": "%"},
}
QUERIES = {"DELETE /pins": {"group": "no-such"}}
EXAMPLES["POST /nodes/{epoch}/settle"] = {"items": [{"id": UNKNOWN, "fence": "1"}]}


@pytest.mark.parametrize("endpoint", [each for each in TABLE if each.path.startswith("/jobs/{id}")], ids=name)
def test_a_job_of_another_tenant_does_not_exist(client: TestClient, endpoint: Endpoint) -> None:
    enqueue = next(each for each in TABLE if name(each) == "POST /jobs")
    job = ask(client, enqueue, "acme", json={"type": "a"}).json()["id"]
    path = endpoint.path.replace("{id}", job)
    options = {} if endpoint.body is None else {"json": EXAMPLES.get(name(endpoint), {})}
    foreign = ask(client, endpoint, "other", path, **options)
    assert endpoint.role is not None
    assert foreign.status_code == (404 if OTHER.may(endpoint.role) else 403), foreign.text
    reader = ask(client, endpoint, "acme reader", path, **options)
    assert reader.status_code == (200 if endpoint.role == "reader" else 403), reader.text
    own = ask(client, endpoint, "acme" if ACME.may(endpoint.role) else "operator", path, **options)
    assert own.status_code in endpoint.statuses, own.text


def test_a_tenant_enqueues_for_itself_only(client: TestClient) -> None:
    enqueue, many, show = (
        next(each for each in TABLE if name(each) == wanted)
        for wanted in ("POST /jobs", "POST /jobs:batch", "GET /jobs/{id}")
    )
    made = ask(client, enqueue, "acme", json={"type": "a"}).json()["id"]
    assert ask(client, show, "operator", f"/jobs/{made}").json()["tenant"] == "acme"
    for other in ("other", "default"):
        refused = ask(client, enqueue, "acme", json={"type": "a", "tenant": other})
        assert (refused.status_code, refused.json()["code"]) == (403, "WB013")
        refused = ask(client, many, "acme", json=[{"type": "a"}, {"type": "a", "tenant": other}])
        assert (refused.status_code, refused.json()["code"]) == (403, "WB013")
        assert ask(client, enqueue, "acme", json={"type": "a"}, headers={"Watchbill-Tenant": other}).status_code == 403
    free = ask(client, enqueue, "producer", json={"type": "a"}, headers={"Watchbill-Tenant": "other"}).json()["id"]
    assert ask(client, show, "other", f"/jobs/{free}").json()["tenant"] == "other"
    by_name = ask(client, many, "producer", json=[{"type": "a", "tenant": "acme"}]).json()["items"][0]["id"]
    assert ask(client, show, "acme", f"/jobs/{by_name}").status_code == 200


def test_lists_have_the_jobs_of_the_tenant(client: TestClient) -> None:
    enqueue, find = (next(each for each in TABLE if name(each) == wanted) for wanted in ("POST /jobs", "GET /jobs"))
    made = ask(client, enqueue, "acme", json={"type": "only.acme"}).json()["id"]

    def list_ids(who: str) -> list[str]:
        return [job["id"] for job in ask(client, find, who, params={"q": "type:only.acme"}).json()["items"]]

    assert list_ids("acme") == list_ids("acme reader") == list_ids("reader") == list_ids("operator") == [made]
    assert list_ids("other") == []
