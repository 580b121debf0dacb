"""Everything but jobs over HTTP: each resource is changed and looked at once."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.dashboard.api.test_jobs import API, enqueue, open_api
from tests.dashboard.conftest import OpenBoard, as_role
from tests.role_logins import Logins
from watchbill.dashboard import Identity
from watchbill.store.tenants import enable_tenants


@pytest.fixture
def client(open_board: OpenBoard) -> TestClient:
    return open_api(open_board, as_role("admin"))


def ask(client: TestClient, method: str, path: str, status: int = 200, **options: Any) -> Any:
    answer = client.request(method, API + path, **options)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_operations_are_previewed_started_once_and_paused(client: TestClient) -> None:
    jobs = [enqueue(client, payload={"n": n})["id"] for n in range(3)]
    wanted: dict[str, Any] = {"kind": "cancel", "q": "type:mail.send", "arguments": {"reason": "a mistake"}}
    preview = ask(client, "POST", "/operations", json=wanted | {"dry_run": True})
    assert (preview["operation"], preview["preview"]["jobs"]) == (None, 3)
    first = ask(client, "POST", "/operations", 202, json=wanted, headers={"Idempotency-Key": "k"})["operation"]
    again = ask(client, "POST", "/operations", 202, json=wanted, headers={"Idempotency-Key": "k"})["operation"]
    ask(client, "POST", "/operations", 409, json=wanted | {"kind": "retry"}, headers={"Idempotency-Key": "k"})
    assert (first["id"], first["created_by"], first["filter"]) == (again["id"], "ann", "type:mail.send")
    at = f"/operations/{first['id']}"
    assert ask(client, "POST", f"{at}/pause")["state"] == "paused"
    assert ask(client, "POST", f"{at}/resume")["state"] == "running"
    assert ask(client, "POST", f"{at}/cancel")["state"] == "canceled"
    assert ask(client, "GET", at)["state"] == "canceled"
    assert [row["id"] for row in ask(client, "GET", "/operations")["items"]] == [first["id"]]
    by_ids = {"kind": "cancel", "ids": jobs[:2], "dry_run": True}
    assert ask(client, "POST", "/operations", json=by_ids)["preview"]["jobs"] == 2
    ask(client, "POST", "/operations", 422, json={"kind": "cancel"})
    ask(client, "POST", "/operations", 422, json=wanted | {"kind": "set_priority"})


def test_pauses_limits_and_figures(client: TestClient) -> None:
    enqueue(client, queue="mail")
    assert ask(client, "POST", "/pauses", json={"queue": "mail", "reason": "down"}) == {"changed": True}
    assert ask(client, "GET", "/pauses")["items"][0]["by"] == "ann"
    assert ask(client, "GET", "/queues")["items"][0]["pause_reason"] == "down"
    assert ask(client, "GET", "/queues/why", params={"queue": "mail"})["items"][0]["cause"] == "paused"
    assert ask(client, "DELETE", "/pauses", params={"queue": "mail"}) == {"changed": True}
    assert ask(client, "DELETE", "/pauses", params={"queue": "mail"}) == {"changed": False}
    ask(client, "POST", "/pauses", 422, json={})
    ask(client, "DELETE", "/pauses", 422)
    rule = {"max": 3, "rates": [{"count": 10, "per": 60}]}
    assert ask(client, "PUT", "/limits/crm/api", json=rule)["rates"] == [{"count": 10, "per": 60, "evenly": False}]
    assert [row["name"] for row in ask(client, "GET", "/limits")["items"]] == ["crm/api"]
    assert ask(client, "DELETE", "/limits/crm/api") == {"changed": True}
    ask(client, "PUT", "/limits/crm", 422, json={"rates": [{"count": 0, "per": 60}]})
    assert ask(client, "GET", "/failures")["items"] == []
    assert ask(client, "GET", "/types")["items"] == []


def test_tenants_have_quotas_and_are_erased(client: TestClient) -> None:
    enqueue(client, tenant="acme")
    assert ask(client, "PUT", "/tenants/acme", json={"unfinished": 1}) == {"changed": True}
    assert ask(client, "GET", "/tenants")["items"][0]["max_unfinished"] == 1
    refused = client.post(f"{API}/jobs", json={"type": "a", "tenant": "acme"})
    assert (refused.status_code, refused.json()["code"]) == (429, "WB015")
    assert int(refused.headers["retry-after"]) >= 1
    assert ask(client, "PUT", "/tenants/acme", json={"unfinished": None}) == {"changed": True}
    erased = ask(client, "DELETE", "/tenants/acme")
    assert (erased["is_done"], erased["waiting"]) == (True, None)
    assert ask(client, "GET", "/jobs")["items"] == []


def test_a_schedule_is_added_changed_run_and_removed(client: TestClient) -> None:
    made = ask(
        client, "POST", "/schedules", 201,
        json={"name": "nightly/report", "pattern": "0 2 * * *", "tz": "Europe/Paris", "type": "report.make",
              "payload": {"n": 1}, "timeout": 60, "tags": ["a"]},
    )  # fmt: skip
    assert (made["name"], made["created_by"], made["timeout"], made["tags"]) == ("nightly/report", "ann", 60, ["a"])
    at = f"/schedules/{made['id']}"
    ask(client, "POST", "/schedules", 409, json={"name": "nightly/report", "type": "a"})
    changed = ask(client, "PATCH", at, json={"pattern": "0 3 * * *", "timeout": None, "payload": {"n": 2}})
    assert (changed["pattern"], changed["timeout"], changed["payload"]) == ("0 3 * * *", None, {"n": 2})
    job = ask(client, "POST", f"{at}/run", 201, json={"payload": {"n": 3}})["job"]
    assert ask(client, "GET", f"/jobs/{job}")["payload"] == {"n": 3}
    ask(client, "POST", f"{at}/run", 409, json={"overlap": "skip"})
    assert ask(client, "GET", f"{at}/slots")["items"][0]["job_id"] == job
    assert len(ask(client, "GET", f"{at}/preview", params={"count": 3})["items"]) == 3
    assert ask(client, "POST", f"{at}/disable") == {"changed": True}
    assert ask(client, "GET", f"{at}/why")["items"][0]["fires"] is False
    assert ask(client, "POST", f"{at}/enable") == {"changed": True}
    assert [row["id"] for row in ask(client, "GET", "/schedules", params={"tag": "a"})["items"]] == [made["id"]]
    assert ask(client, "DELETE", at) == {"changed": True}
    ask(client, "GET", at, 404)
    wrong = ask(client, "POST", "/schedules", 422, json={"name": "x", "pattern": "61 * * * *", "type": "a"})
    assert wrong["code"] == "WB010"


def test_a_pattern_is_explained(client: TestClient) -> None:
    told = ask(client, "POST", "/schedules/explain", json={"pattern": "0 2 * * *", "tz": "Europe/Paris", "count": 2})
    assert "02:00" in told["description"]
    assert len(told["next"]) == 2
    ask(client, "POST", "/schedules/explain", 422, json={"pattern": "x"})
    ask(client, "POST", "/schedules/explain", 422, json={"pattern": "* * * * *", "tz": "Nowhere"})
    assert ask(client, "POST", "/schedules/explain", json={"pattern": "@reboot"})["next"] == []


def test_producers_write_no_sql_commands(open_board: OpenBoard, client: TestClient) -> None:
    producer = open_api(open_board, as_role("producer"))
    command = {"name": "tidy", "every": 60, "command": "SELECT 1"}
    ask(producer, "POST", "/schedules", 403, json=command)
    made = ask(client, "POST", "/schedules", 201, json=command)
    for method, path, body in (("PATCH", "", {"every": 90}), ("POST", "/run", {}), ("DELETE", "", None)):
        ask(producer, method, f"/schedules/{made['id']}{path}", 403, json=body)
    own = ask(producer, "POST", "/schedules", 201, json={"name": "own", "type": "a"})
    ask(producer, "PATCH", f"/schedules/{own['id']}", 403, json={"command": "SELECT 1"})


def test_a_key_for_some_queues_makes_schedules_of_these_only(open_board: OpenBoard, client: TestClient) -> None:
    shop = Identity("shop", "producer", queues=("mail",))
    producer = open_api(open_board, lambda _: shop)
    ask(producer, "POST", "/schedules", 403, json={"name": "s", "type": "a"})
    made = ask(producer, "POST", "/schedules", 201, json={"name": "s", "type": "a", "queue": "mail"})
    at = f"/schedules/{made['id']}"
    for queue in ("orders", None):  # null is the queue `default`
        ask(producer, "PATCH", at, 403, json={"queue": queue})
    ask(producer, "PATCH", at, json={"every": 60})
    # The steps of a chain name queues of their own.
    steps = {"jobs": [{"type": "a", "queue": "orders"}], "ends": [0]}
    chain = {"name": "chain", "type": "watchbill.flow", "payload": steps}
    made = ask(client, "POST", "/schedules", 201, json=chain | {"queue": "mail"})
    ask(producer, "POST", "/schedules", 403, json=chain | {"name": "t", "queue": "mail"})
    ask(producer, "POST", f"/schedules/{made['id']}/run", 403)


def test_nodes_groups_pins_and_locks(client: TestClient, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        ((epoch,),) = connection.execute("SELECT watchbill.register('w1', queues => '{mail}')").fetchall()
        connection.execute("SELECT watchbill.declare_group('g', 10)")
        connection.execute("SELECT watchbill.lock_acquire('report/1', '1 minute', 'me')")
    (node,) = ask(client, "GET", "/nodes")["items"]
    assert (node["epoch"], node["state"], node["queues"]) == (str(epoch), "active", ["mail"])
    assert ask(client, "POST", f"/nodes/{epoch}/drain") == {"changed": True}
    assert ask(client, "GET", "/nodes")["items"][0]["state"] == "draining"
    assert ask(client, "GET", "/groups")["items"][0]["name"] == "g"
    pins = {"group": "g", "keys": ["a", "b"], "pattern": "w%", "reason": "large"}
    assert ask(client, "POST", "/pins", json=pins) == {"pins": 2}
    assert [row["key"] for row in ask(client, "GET", "/pins", params={"group": "g"})["items"]] == ["a", "b"]
    assert ask(client, "DELETE", "/pins", params={"group": "g", "key": "a"}) == {"pins": 1}
    assert ask(client, "POST", "/groups/rebalance", json={"group": "g"}) == {"changed": True}
    ask(client, "POST", "/groups/rebalance", 404, json={"group": "h"})
    (lock,) = ask(client, "GET", "/locks")["items"]
    assert (lock["name"], lock["holder"]) == ("report/1", "me")
    assert ask(client, "POST", "/locks/release", json={"name": "report/1", "fence": lock["fence"]}) == {"changed": True}
    assert ask(client, "POST", "/locks/release", json={"name": "report/1"}) == {"changed": False}


def test_alerts_silences_and_audit(client: TestClient) -> None:
    assert ask(client, "GET", "/alerts")["items"] == []
    silence = ask(
        client, "POST", "/silences", 201, json={"matcher": {"rule": "backlog"}, "lasting": 60, "reason": "known"}
    )["id"]
    assert ask(client, "GET", "/silences")["items"][0]["created_by"] == "ann"
    assert ask(client, "DELETE", f"/silences/{silence}") == {"changed": True}
    ask(client, "DELETE", f"/silences/{silence}", 404)
    ask(client, "POST", "/silences", 422, json={"matcher": {"rule": "backlog"}})
    ask(client, "POST", "/silences", 422, json={"matcher": {"no": "such"}, "lasting": 60})
    assert ask(client, "PUT", "/alert-rules", json={"rule": "backlog", "above": 5}) == {"changed": True}
    ask(client, "PUT", "/alert-rules", 422, json={"rule": "no such", "above": 5})
    actions = [row["action"] for row in ask(client, "GET", "/audit")["items"]]
    assert actions == ["set_alert_rule", "end_silence", "add_silence"]
    assert len(ask(client, "GET", "/audit", params={"action": "add_silence", "actor": "ann"})["items"]) == 1


def test_admins_make_and_revoke_keys(client: TestClient) -> None:
    made = ask(client, "POST", "/keys", 201, json={"name": "shop", "role": "producer", "types": ["a"], "expires": 60})
    bearer = {"Authorization": f"Bearer {made['key']}", "X-Form-Token": ""}
    assert ask(client, "GET", "/", headers=bearer)["types"] == ["a"]
    ask(client, "POST", "/jobs", 201, json={"type": "a"}, headers=bearer)
    ask(client, "POST", "/keys", 403, json={"name": "x", "role": "admin"}, headers=bearer)
    assert made["key"] not in json.dumps(ask(client, "GET", "/keys"))
    ask(client, "POST", "/keys", 409, json={"name": "shop", "role": "reader"})
    ask(client, "POST", "/keys", 422, json={"name": "x", "role": "operator", "tenant": "acme"})
    ask(client, "DELETE", "/keys/shop")
    ask(client, "DELETE", "/keys/shop", 404)


def test_a_tenant_sees_its_own_schedules_only(open_board: OpenBoard, logins: Logins) -> None:
    enable_tenants(logins.owner_url, "watchbill")
    acme, other, free, operator = (
        open_api(open_board, as_role(role, tenant), url=logins.owner_url)
        for role, tenant in (("producer", "acme"), ("producer", "other"), ("producer", None), ("operator", None))
    )
    made = ask(acme, "POST", "/schedules", 201, json={"name": "s", "type": "a"})
    ask(acme, "POST", "/schedules", 403, json={"name": "t", "type": "a", "tenant": "other"})
    assert made["tenant"] == "acme"
    at = f"/schedules/{made['id']}"
    ask(other, "GET", at, 404)
    ask(other, "POST", f"{at}/run", 404)
    assert ask(other, "GET", "/schedules")["items"] == []
    for client in (acme, free, operator):
        job = ask(client, "POST", f"{at}/run", 201)["job"]
        assert ask(operator, "GET", f"/jobs/{job}")["tenant"] == "acme"
        ask(other, "GET", f"/jobs/{job}", 404)


def test_metrics_need_a_reader(open_board: OpenBoard, logins: Logins) -> None:
    assert open_board(auth=lambda _: None, url=logins.owner_url).get("/metrics").status_code == 401
    answer = open_board(auth=as_role("reader"), url=logins.owner_url).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE watchbill_queue_jobs gauge" in answer.text


def test_series_and_scale(client: TestClient, schema_database: str) -> None:
    enqueue(client, queue="mail")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('w1', queues => '{mail}', capacity => 4)")
        connection.execute("SELECT watchbill._sample_backlog(clock_timestamp())")
    scale = ask(client, "GET", "/scale", params={"queue": "mail"})
    assert (scale["ready"], scale["nodes"], scale["capacity"], scale["wanted"]) == (1, 1, 4, 1)
    assert ask(client, "GET", "/scale", params={"queue": "none"})["wanted"] == 0
    ended = ask(client, "GET", "/series", params={"metric": "ended", "step": 60})["items"]
    assert {point["value"] for point in ended} == {0}
    assert 59 <= len(ended) <= 61
    waited = ask(client, "GET", "/series", params={"metric": "ready", "dimension": "queue", "name": "mail"})
    assert [point["value"] for point in waited["items"]] == [1]
    ask(client, "GET", "/series", 422, params={"metric": "ready", "since": "2020-01-01T00:00:00Z"})
    ask(client, "GET", "/series", 422, params={"metric": "no such"})
