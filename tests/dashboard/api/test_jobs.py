"""Jobs over HTTP: enqueue, look, change, page, and what is refused."""

from __future__ import annotations

import json
import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.dashboard.conftest import OpenBoard, as_role
from watchbill.dashboard.identity import Identity

API = "/api/v1"


@pytest.fixture
def client(open_board: OpenBoard) -> TestClient:
    return open_api(open_board, as_role("admin"))


def open_api(open_board: OpenBoard, auth: Any, **options: Any) -> TestClient:
    """A client that sends the form token with each request, as a page does."""
    found = open_board(auth=auth, **options)
    token = found.get(f"{API}/").json()["form_token"]
    if token:
        found.headers["X-Form-Token"] = token
    return found


def enqueue(client: TestClient, type: str = "mail.send", status: int = 201, **fields: Any) -> Any:
    answer = client.post(f"{API}/jobs", json={"type": type, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_job_is_enqueued_shown_and_listed(client: TestClient) -> None:
    made = enqueue(client, payload={"to": "a@example.com", "big": 2**63 - 1}, queue="mail", priority=5)
    assert made["created"] is True
    assert made["seq"].isdecimal()
    shown = client.get(f"{API}/jobs/{made['id']}").json()
    assert (shown["type"], shown["state"], shown["queue"], shown["priority"]) == ("mail.send", "queued", "mail", 5)
    assert (shown["seq"], shown["payload"]["big"], shown["created_by"]) == (made["seq"], 2**63 - 1, "ann")
    assert shown["created_at"].endswith("Z")
    page = client.get(f"{API}/jobs", params={"q": "queue:mail payload.to:a@example.com"}).json()
    assert [job["id"] for job in page["items"]] == [made["id"]]
    assert (page["next"], page["is_complete"], page["count"]) == (None, True, None)
    assert client.get(f"{API}/jobs", params={"q": "queue:other"}).json()["items"] == []


def test_the_header_is_the_key_of_the_job(client: TestClient, schema_database: str) -> None:
    def send(payload: dict[str, int], key: str = "order-7") -> Any:
        return client.post(f"{API}/jobs", json={"type": "a", "payload": payload}, headers={"Idempotency-Key": key})

    first, again, other = send({"n": 1}), send({"n": 1}), send({"n": 2})
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert (first.json()["id"], again.json()["created"]) == (again.json()["id"], False)
    assert other.json()["code"] == "WB004"
    assert send({}, "").status_code == send({}, "x" * 201).status_code == 422
    with psycopg.connect(schema_database) as connection:
        ((hours,),) = connection.execute(
            "SELECT extract(epoch FROM expires_at - created_at)::int / 3600 FROM watchbill.idempotency"
        ).fetchall()
    assert hours == 24


def test_a_batch_is_enqueued_as_an_array_or_in_lines_all_or_none(client: TestClient) -> None:
    jobs = [{"type": "a", "payload": {"n": n}} for n in range(3)]
    array = client.post(f"{API}/jobs:batch", json=jobs)
    lines = "\n".join(map(json.dumps, jobs)) + "\n"
    in_lines = client.post(f"{API}/jobs:batch", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert (array.status_code, in_lines.status_code) == (201, 201)
    assert len({job["id"] for answer in (array, in_lines) for job in answer.json()["items"]}) == 6
    refused = client.post(f"{API}/jobs:batch", json=[*jobs, {"type": "a", "payload": {"t": "\0"}}])
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/3/payload/t")
    refused = client.post(f"{API}/jobs:batch", json=[*jobs, {"type": "a", "typ": 1}])
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/3/typ")
    assert client.post(f"{API}/jobs:batch", json=[]).status_code == 422
    assert client.get(f"{API}/jobs", params={"count": "capped", "limit": 1}).json()["count"] == 6


def test_a_webhook_tells_how_a_job_has_ended(client: TestClient, schema_database: str) -> None:
    """Alone and in a batch, with one delivery each that waits for its job; the values are those of Webhook()."""
    notify = {"endpoint": "crm", "on": ["dead"], "result": True}
    made = [enqueue(client, notify=notify)["id"]]
    batch = [{"type": "a", "notify": {"url": "https://example.com/hook"}}, {"type": "a"}]
    made += [job["id"] for job in client.post(f"{API}/jobs:batch", json=batch).json()["items"]]
    with psycopg.connect(schema_database) as connection:
        found = connection.execute("""
            SELECT d.parent::text, j.queue, j.wait, j.payload->>'receiver', j.payload->'notify'->'on',
              j.payload->'notify'->'result'
            FROM watchbill.dependencies d JOIN watchbill.jobs j ON j.id = d.child ORDER BY j.seq""").fetchall()
    assert found == [
        (made[0], "webhooks", "blocked", "crm", ["dead"], True),
        (made[1], "webhooks", "blocked", "example.com", ["succeeded", "dead"], False),
    ]
    graph = client.get(f"{API}/jobs/{made[0]}/graph").json()
    assert {job["type"] for job in graph["jobs"]} == {"mail.send", "connector.webhook.deliver"}


def test_pages_follow_each_other_without_gap(client: TestClient) -> None:
    client.post(f"{API}/jobs:batch", json=[{"type": "a"}] * 7)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = client.get(f"{API}/jobs", params=query).json()
        seen += [job["id"] for job in page["items"]]
        if page["is_complete"]:
            break
        query["after"] = page["next"]
    assert len(seen) == len(set(seen)) == 7


def test_a_job_is_canceled_retried_changed_and_copied(client: TestClient) -> None:
    job = enqueue(client, payload={"n": 1}, timeout=30)["id"]
    at = f"{API}/jobs/{job}"
    assert client.patch(at, json={"priority": 9, "queue": "slow"}).json() == {"state": "queued"}
    shown = client.get(at).json()
    assert (shown["priority"], shown["queue"]) == (9, "slow")
    assert client.patch(at, json={"run_at": "2099-01-01T09:00:00+02:00"}).status_code == 200
    assert client.get(at).json()["run_at"] == "2099-01-01T07:00:00Z"
    assert client.post(f"{at}/cancel", json={"reason": "a mistake"}).json() == {"state": "canceled"}
    assert client.patch(at, json={"priority": 1}).status_code == 409
    assert client.post(f"{at}/retry").json() == {"state": "canceled"}
    assert client.post(f"{at}/release").json() == {"released": False}
    copy = client.post(f"{at}/copy", json={"payload": {"n": 2}}).json()["id"]
    shown = client.get(f"{API}/jobs/{copy}").json()
    assert (shown["payload"], shown["queue"], shown["timeout"]) == ({"n": 2}, "slow", 30)
    actions = [row["action"] for row in client.get(f"{at}/audit").json()["items"]]
    assert actions == ["reschedule", "cancel", "reschedule", "move_queue", "set_priority"]


def test_why_attempts_and_graph_of_a_job(client: TestClient) -> None:
    parent = enqueue(client, type="extract")["id"]
    child = enqueue(client, type="load", depends_on=[parent])["id"]
    graph = client.get(f"{API}/jobs/{child}/graph").json()
    assert {job["type"] for job in graph["jobs"]} == {"extract", "load"}
    assert [(row["child"], row["parent"]) for row in graph["dependencies"]] == [(child, parent)]
    assert client.get(f"{API}/jobs/{child}/why").json()["items"][0]["cause"] == "blocked"
    assert client.get(f"{API}/jobs/{child}/attempts").json() == {"items": []}


def test_a_request_waits_for_the_end_of_a_job(client: TestClient) -> None:
    job = enqueue(client)["id"]
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(client.get(f"{API}/jobs/{job}?wait=20").json()))
    waiting.start()
    client.post(f"{API}/jobs/{job}/cancel")
    waiting.join(60)
    assert answers[0]["state"] == "canceled"
    assert client.get(f"{API}/jobs/{uuid4()}?wait=20").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"type": ""}, 422, "/type"),
        ({}, 422, "/type"),
        ({"type": "a", "priority": "1"}, 422, "/priority"),
        ({"type": "a", "priority": 40000}, 422, "/priority"),
        ({"type": "a", "run_at": "tomorrow"}, 422, "/run_at"),
        ({"type": "a", "run_at": "2030-01-01T00:00:00"}, 422, "/run_at"),
        ({"type": "a", "run_at": "0001-01-01T00:00:00+14:00"}, 422, "/run_at"),
        ({"type": "a", "payload": []}, 422, "/payload"),
        ({"type": "a", "payload": {"n": 2**70}}, 422, "/payload/n"),
        ({"type": "a", "payload": {"n": float("nan")}}, 422, "/payload/n"),
        ({"type": "a", "payload": {"n": "x" * 200_000}}, 422, "/payload"),
        ({"type": "a", "no/such~field": 1}, 422, "/no~1such~0field"),
        ({"type": "a\0b"}, 422, "/type"),
        ({"type": "a", "retry": {"kind": "never"}}, 422, None),
        ({"type": "watchbill.sql"}, 422, None),
        ({"type": "a", "delay": 1, "run_at": "2030-01-01T00:00:00Z"}, 422, None),
        ({"type": "a", "depends_on": [str(uuid4())]}, 422, None),
        ({"type": "a", "notify": {}}, 422, "/notify"),
        ({"type": "a", "notify": {"endpoint": "crm", "url": "https://example.com/"}}, 422, "/notify"),
        ({"type": "a", "notify": {"endpoint": "crm", "on": []}}, 422, "/notify/on"),
        ({"type": "a", "notify": {"endpoint": "crm", "on": ["failed"]}}, 422, "/notify/on/0"),
        ({"type": "a", "notify": {"endpoint": "crm", "secret": "x"}}, 422, "/notify/secret"),
        ({"type": "a", "notify": {"endpoint": "crm"}, "unique_by": "k", "on_duplicate": "replace"}, 422, None),
    ],
)
def test_what_is_wrong_with_a_job_is_named(client: TestClient, body: Any, status: int, pointer: str | None) -> None:
    answer = client.post(f"{API}/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert [error["pointer"] for error in answer.json().get("errors", [])] == ([] if pointer is None else [pointer])


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"type": "\\ud800"}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"type=a", "application/x-www-form-urlencoded", 415),
        (b"{}", "", 415),
        (b'{"type": "' + b"x" * 1_000_000 + b'"}', "application/json; charset=utf-8", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(client: TestClient, body: bytes, kind: str, status: int) -> None:
    answer = client.post(f"{API}/jobs", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["status"]) == (status, status), answer.text


def test_a_body_without_a_length_is_cut_off(client: TestClient) -> None:
    chunks = (b" " * 100_000 for _ in range(11))
    answer = client.post(f"{API}/jobs", content=chunks, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "limit=1&limit=2", "after=x", "q=no_such:1", "q=%00", "page=2", "wait=1"],
)
def test_a_wrong_query_is_refused(client: TestClient, query: str) -> None:
    assert client.get(f"{API}/jobs?{query}").status_code == 422


def test_a_wrong_filter_says_where(client: TestClient) -> None:
    problem = client.get(f"{API}/jobs", params={"q": "state:ready typ:a"}).json()
    assert "column 13" in problem["detail"] or "column" in problem["detail"]
    assert "there is no field 'typ'" in problem["detail"]


def test_other_methods_are_named(client: TestClient) -> None:
    answer = client.delete(f"{API}/jobs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert client.get(f"{API}/nothing").status_code == 404


def test_hidden_values_are_neither_shown_nor_found(open_board: OpenBoard) -> None:
    client = open_api(open_board, as_role("admin"), redact=["payload.password"], redact_text=["secret-[0-9]+"])
    job = enqueue(client, payload={"password": "x", "note": "secret-1 kept"})["id"]
    assert client.get(f"{API}/jobs/{job}").json()["payload"] == {"password": "[hidden]", "note": "[hidden] kept"}
    assert client.get(f"{API}/jobs", params={"q": "payload.password:x"}).status_code == 422


def test_a_producer_uses_its_queues_and_types_only(open_board: OpenBoard) -> None:
    who = Identity("shop", "producer", None, ("mail",), ("mail.send",))
    client, admin = open_api(open_board, lambda _: who), open_api(open_board, as_role("admin"))
    own = enqueue(client, queue="mail")["id"]
    assert enqueue(client, type="other", queue="mail", status=403)["errors"][0]["pointer"] == "/type"
    assert enqueue(client, status=403)["errors"][0]["pointer"] == "/queue"
    batch = client.post(f"{API}/jobs:batch", json=[{"type": "mail.send", "queue": "mail"}, {"type": "mail.send"}])
    assert (batch.status_code, batch.json()["errors"][0]["pointer"]) == (403, "/1/queue")
    notified = enqueue(client, queue="mail", notify={"endpoint": "crm"}, status=403)
    assert "may not use the type 'connector.webhook.deliver'" in notified["detail"]
    foreign = enqueue(admin, type="other")["id"]
    for verb in ("cancel", "retry", "copy"):
        assert client.post(f"{API}/jobs/{foreign}/{verb}").status_code == 403
    assert client.post(f"{API}/jobs/{own}/copy", json={"queue": "default"}).status_code == 403
    assert client.post(f"{API}/jobs/{own}/cancel").status_code == 200
    assert client.post(f"{API}/jobs/{own}/cancel", json={"force": True}).status_code == 403


def test_a_read_only_server_only_shows(open_board: OpenBoard) -> None:
    client = open_api(open_board, as_role("admin"), read_only=True)
    assert client.get(f"{API}/").json()["role"] == "reader"
    assert client.get(f"{API}/jobs").status_code == 200
    assert client.post(f"{API}/jobs", json={"type": "a"}).status_code == 403
