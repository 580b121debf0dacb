"""The pages of flow, fleet and control: each for each role, and what people change there."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from tests.browser.story import DECLINED, HOSTILE, NOW, Story
from tests.dashboard.conftest import OpenBoard
from tests.dashboard.test_jobs_pages import open_shop, send
from tests.store.harness import End
from watchbill import App
from watchbill.dashboard import Dashboard, Identity, open_to_all
from watchbill.dashboard.pages.cluster import write_places
from watchbill.dashboard.pages.limits import read_rates
from watchbill.dashboard.payload_form import list_fields, read_fields
from watchbill.dashboard.problems import Problem

PAGES = (
    "/queues", "/queues?sort=oldest&q=m", "/queue?name=mail", "/queue?name=imports&window=6h", "/types",
    "/types?sort=name", "/type?name=mail.send", "/limits", "/limit?name=crm", "/tenants", "/tenant?name=acme",
    "/nodes", "/nodes?minutes=60", "/node?name=w1", "/cluster", "/cluster?group=shop&key=customer:7", "/operations",
    "/operation?id=1", "/alerts", "/alerts?show=past", "/alerts?show=silences", "/alerts?show=rules",
    "/alerts?show=routes", "/audit", "/audit?actor=ann&since=24h", "/system",
)  # fmt: skip
FORMS = re.compile(r'<form[^>]* method="post" action="(/[^"]+)"')


@pytest.mark.parametrize("role", ["reader", "worker", "producer", "operator", "admin"])
def test_every_page_is_shown_with_the_forms_that_the_role_may_use(
    open_board: OpenBoard, shop: Story, role: str
) -> None:
    client = open_shop(open_board, shop, role)
    found: set[str] = set()
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert 'aria-current="page"' in answer.text, path
        found |= set(FORMS.findall(answer.text))
    for_operators = {"/queue/resume", "/queue/pause", "/node/drain", "/cluster/pin", "/limit/set", "/alerts/silence",
                     "/alerts/rule", "/alerts/test", "/alerts/unsilence", "/operation/resume",
                     "/system/mark"}  # fmt: skip
    for_admins = {"/lock/release", "/tenant/set"}
    assert (for_operators <= found, for_admins <= found) == (role in ("operator", "admin"), role == "admin")
    if role not in ("operator", "admin"):
        assert found == set()
    assert client.get("/keys").status_code == (200 if role == "admin" else 403)
    assert ('title="Keys"' in client.get("/").text) == (role == "admin")


@pytest.mark.parametrize(
    "path",
    ["/queue", "/queue?name=x", "/type?name=x", "/limit?name=x", "/tenant?name=x", "/node?name=x", "/node?epoch=9",
     "/cluster?group=x", "/operation?id=99", "/operation?id=x", "/operation"],
)  # fmt: skip
def test_what_does_not_exist_is_not_found(open_board: OpenBoard, shop: Story, path: str) -> None:
    assert open_shop(open_board, shop).get(path).status_code == 404


def test_hostile_values_stay_text(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "admin")
    html = "<img src=x onerror=alert(1)>"
    for path in ("/queues?q=", "/types?q=", "/limits?q=", "/tenants?q=", "/cluster?key=", "/alerts?show=",
                 "/audit?subject=", "/queue?name=", "/type?name=", "/types/try?name=", "/nodes?minutes="):  # fmt: skip
        assert "<img" not in client.get(path + html).text, path
    assert "<script>alert" not in client.get("/tenant", params={"name": HOSTILE[:60]}).text
    assert client.get("/audit?before=x").status_code == 422
    assert client.get("/audit?since=x").status_code == 422


def test_a_queue_shows_why_its_jobs_wait_and_who_serves_it(open_board: OpenBoard, shop: Story) -> None:
    page = open_shop(open_board, shop).get("/queue?name=mail").text
    assert "Queue mail is paused by ann" in page
    assert "delayed or to be tried again" in page
    assert ">2. of 4 queues<" in page
    assert 'aria-label="What the jobs wait for"' in page
    unserved = open_shop(open_board, shop).get("/queue?name=imports").text
    assert "No live node serves this queue." in unserved
    assert "watchbill worker --queues imports" in unserved


def test_a_type_is_paused_and_resumed(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    send(client, "/queue/pause", type="feed.send", reason="partner moves")
    page = client.get("/type?name=feed.send").text
    assert "Type feed.send is paused" in page
    assert "“partner moves”" in page
    assert "paused by ann" in client.get("/types").text
    send(client, "/queue/resume", type="feed.send")
    assert "paused by ann" not in client.get("/types").text
    assert send(client, "/queue/pause").status_code == 422


def test_nodes_show_their_runs_events_and_queues_that_only_they_serve(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/nodes").text
    assert "ann asked w3 to drain" in page
    assert "w4 was lost" in page
    assert '<span class="failed">behind</span>' not in page  # the older version is that of the lost node
    assert "orders.charge, runs" in page
    assert "orders.charge" in client.get("/node?name=w1").text
    send(client, "/node/drain", name="w1")
    assert "w1 drains" in client.get("/nodes").text
    assert "<b>sync</b> is served by w1 only, and it drains" in client.get("/nodes").text
    shop.db.change("UPDATE {schema}.nodes SET state = 'active' WHERE name = 'w1'")


def test_an_old_node_is_shown_where_many_came_and_went(open_board: OpenBoard, shop: Story) -> None:
    shop.db.change(
        """
        INSERT INTO {schema}.nodes (epoch, name, instance, state, lease, labels, started_at, ended_at)
        SELECT (SELECT max(epoch) FROM {schema}.nodes) + n, 'spot-' || n, {schema}.uuid7(), 'left', '30 seconds',
          '{{}}', %s, %s
        FROM generate_series(1, 1001) n""",
        NOW - timedelta(days=3), NOW - timedelta(days=2),
    )  # fmt: skip
    client = open_shop(open_board, shop)
    assert "3 alive" in client.get("/nodes").text
    assert "epoch" in client.get("/node?name=w2").text
    shop.db.change("DELETE FROM {schema}.nodes WHERE name LIKE 'spot-%%'")


def test_many_runs_are_read_only_as_far_back_as_is_quick(
    open_board: OpenBoard, shop: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.dashboard.pages.nodes.MOST_READ", 100)
    page = open_shop(open_board, shop).get("/nodes").text
    assert "only runs which ended since 14:40:4" in page


def test_the_cluster_shows_whose_token_a_key_has(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "admin")
    page = client.get("/cluster").text
    assert "12 tokens have" in page
    assert "zone=eu-1" in page
    assert 'token <span class="id">' in client.get("/cluster?group=shop&key=customer:42").text
    assert "pinned to zone=eu-1" in client.get("/cluster?group=shop&key=customer:7").text
    send(client, "/cluster/pin", group="shop", key="customer:9", place="w1%", expires="1h", reason="test")
    assert "customer:9 is pinned" in client.get("/cluster").text
    send(client, "/cluster/unpin", group="shop", key="customer:9")
    assert send(client, "/cluster/pin", group="shop", key="k", place="zone=").status_code == 422
    assert send(client, "/cluster/pin", group="shop", key="k", place="w1", expires="soon").status_code == 422
    assert send(client, "/cluster/rebalance", group="nothing").status_code == 404
    fence = re.search(r'name="name" value="stock/berlin"><input type="hidden" name="fence" value="(\d+)"', page)
    assert fence is not None
    send(client, "/lock/release", name="stock/berlin", fence=fence[1])
    assert "Lock stock/berlin is released." in client.get("/cluster").text
    assert "stock/berlin" not in client.get("/cluster").text
    assert send(open_shop(open_board, shop), "/lock/release", name="crm-export", fence="1").status_code == 403


def test_limits_are_changed(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    assert "2 at once, 100 per 1 min" in client.get("/limits").text
    send(client, "/limit/set", name="crm", max="5", rates="10/1s, 100/1m")
    assert "5 at once, 10 per 1 s, 100 per 1 min" in client.get("/limit?name=crm").text
    for wrong in ({"max": "x"}, {"rates": "10"}, {"rates": "x/1m"}, {}):
        assert send(client, "/limit/set", name="crm", **wrong).status_code == 422, wrong
    send(client, "/limit/set", name="new", max="1")
    send(client, "/limit/clear", name="new")
    assert client.get("/limit?name=new").status_code == 404
    assert read_rates("none", evenly=False) == []
    assert read_rates(" ", evenly=False) is None


def test_an_ordered_key_of_a_dead_job_is_freed(open_board: OpenBoard, shop: Story) -> None:
    db = shop.db
    db.call("set_limit", name="order:ship.label", when_dead="pause")
    db.enqueue("ship.label", queue="labels", tenant="acme", max_attempts=1, ordered_by="o-1")
    node = db.node("w9", types={"ship.label": 1}, queues=["labels"], lease=timedelta(hours=6))
    db.settle(node, End(db.claim_one(node, queues=["labels"]), "failed", error=DECLINED))
    client = open_shop(open_board, shop)
    page = client.get("/limit?name=order:ship.label").text
    assert "Free the key" in page
    key = re.search(r'name="name" value="(order:ship.label:[^"]+)"', page)
    assert key is not None
    send(client, "/limit/clear", name=key[1])
    assert "is free." in client.get("/limits").text
    db.call("leave", epoch=node)


def test_quotas_are_set_by_admins(open_board: OpenBoard, shop: Story) -> None:
    assert send(open_shop(open_board, shop), "/tenant/set", name="globex").status_code == 403
    client = open_shop(open_board, shop, "admin")
    send(client, "/tenant/set", name="globex", running="7", unfinished="1,000")
    page = client.get("/tenant?name=globex").text
    assert "0 of 7" in page
    assert "0 of 1,000" in page
    assert send(client, "/tenant/set", name="globex", running="many").status_code == 422


def test_an_operation_is_resumed_and_canceled(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/operation?id=1").text
    assert "of 1,031" in page
    assert "it has succeeded" in page
    send(client, "/operation/resume", id="1")
    assert "Operation 1 goes on." in client.get("/operations").text
    send(client, "/operation/pause", id="1")
    assert send(client, "/operation/cancel", id="99").status_code == 404


def test_an_operation_that_makes_jobs_is_shown(open_board: OpenBoard, shop: Story) -> None:
    shop.db.change(
        """
        INSERT INTO {schema}.bulk_operations (kind, state, conditions, arguments, created_by, created_at, next_at)
        VALUES ('backfill_slots', 'pending', '[]', '{{}}', 'ann', %s, %s)""",
        NOW, NOW,
    )  # fmt: skip
    assert "Backfill slots" in open_shop(open_board, shop).get("/operations").text


def test_alerts_are_silenced_and_rules_changed(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/alerts").text
    assert "should have ended at 02:00" in page
    assert 'href="/schedule?name=nightly-report' in page
    send(client, "/alerts/silence", lasting="2h", rule="schedule_overdue", reason="known")
    silences = client.get("/alerts?show=silences").text
    assert "rule schedule_overdue" in silences
    number = re.search(r'action="/alerts/unsilence">.*?name="id" value="(\d+)"', silences)
    assert number is not None
    send(client, "/alerts/unsilence", id=number[1])
    assert "The silence is over." in client.get("/alerts?show=past").text
    assert send(client, "/alerts/silence", lasting="long").status_code == 422
    send(client, "/alerts/rule", rule="backlog", above="500", lasting="10m", severity="critical", is_enabled="yes")
    assert "above 500 jobs" in client.get("/alerts?show=rules").text
    send(client, "/alerts/rule", rule="backlog", severity="critical", reset="yes")
    assert "above 1000 jobs" in client.get("/alerts?show=rules").text
    send(client, "/alerts/test", name="ops")
    assert "waiting" in client.get("/alerts?show=routes").text


def test_the_audit_is_found_by_who_and_what(
    open_board: OpenBoard, shop: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/audit?action=drain").text
    assert "node w3" in page
    assert "provider down" not in page
    assert "node w3" not in client.get("/audit?actor=nobody").text
    monkeypatch.setattr("watchbill.dashboard.pages.audit.MOST_ROWS", 5)
    seen: list[str] = []
    address = "/audit"
    for _ in range(100):
        page = client.get(address).text
        seen += re.findall(r'<tr role="row"><td role="cell"><time datetime="([^"]+)"', page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        if following is None:
            break
        address = following[1].replace("&amp;", "&")
    assert len(seen) == shop.db.count("audit")
    assert seen == sorted(seen, reverse=True)


def test_an_admin_makes_and_revokes_a_key(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "admin")
    made = send(client, "/keys", name="ci", role="producer", queues="mail, orders", expires="30d", rate="5")
    key = re.search(r"wb_\w{8}_[\w-]{43}", made.text)
    assert key is not None
    assert key[0] not in client.get("/keys").text
    assert "queues mail, orders" in client.get("/keys").text
    for wrong in ({"role": "king"}, {"expires": "soon"}, {"rate": "x"}, {"name": ""}, {"name": "ci"}):
        answer = send(client, "/keys", **({"name": "other", "role": "reader"} | wrong))
        assert answer.status_code == 422, wrong
        assert 'role="alert"' in answer.text
    send(client, "/keys/revoke", id="ci")
    assert "is revoked" in client.get("/keys").text
    assert send(open_shop(open_board, shop), "/keys", name="x", role="admin").status_code == 403


def test_the_system_shows_no_secret_and_doctor_runs(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    page = client.get("/system").text
    assert "only this dashboard checks them" in page
    assert "finished_jobs" in page
    assert shop.db.url not in page
    assert "Run doctor" in page
    assert "Every check" not in page
    doctor = client.get("/system/doctor").text
    assert "zone table" in doctor
    assert open_shop(open_board, shop, "reader").get("/system/doctor").status_code == 403
    send(client, "/system/mark", text="deploy <v42>")
    assert "deploy &lt;v42&gt;" in client.get("/system").text


# -- Try a task


@pytest.fixture
def known(shop: Story) -> TestClient:
    """A dashboard in a process that knows the tasks."""
    app = App(shop.db.url, name="shop")

    @app.task(type="mail.send", queue="mail")
    def send_mail(to: str, copies: int = 1, html: bool = False, tags: list[str] | None = None) -> None: ...

    @app.task(type="odd.task")
    def odd(value: object, at: float = 0.5) -> None: ...

    board = Dashboard(app, auth=open_to_all, hosts=())
    return TestClient(board, base_url="http://127.0.0.1:8484", raise_server_exceptions=False, follow_redirects=False)


def test_a_known_task_has_a_field_for_each_argument(known: TestClient, shop: Story) -> None:
    page = known.get("/types/try?name=mail.send").text
    for field in ("p.to", "p.copies", "p.html", "p.tags"):
        assert f'name="{field}"' in page
    fields = {"type": "mail.send", "queue": "mail", "p.to": "a@example.com", "p.copies": "2", "p.html": "true"}
    made = send(known, "/types/try", **fields)
    assert made.status_code == 303, made.text
    job = shop.db.look(made.headers["location"].rpartition("/")[2])
    assert job.payload == {"to": "a@example.com", "copies": 2, "html": True}
    assert job.created_by == "anyone"
    for wrong in ({"p.copies": "many"}, {"p.tags": "["}, {"p.tags": "5"}, {"priority": "x"}, {"run_at": "soon"}):
        answer = send(known, "/types/try", **(fields | wrong))
        assert answer.status_code == 422, wrong
        assert "a@example.com" in answer.text  # what was written is still there


def test_an_unknown_task_has_the_payload_of_its_last_job(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop, "producer")
    page = client.get("/types/try?name=orders.charge").text
    assert "&#34;amount&#34;: 12900" in page
    made = send(client, "/types/try", type="orders.charge", queue="orders", payload='{"order": 1}', tenant="acme")
    assert made.status_code == 303, made.text
    assert shop.db.look(made.headers["location"].rpartition("/")[2]).payload == {"order": 1}
    assert send(client, "/types/try", type="orders.charge", queue="orders", payload="[").status_code == 422
    assert open_shop(open_board, shop, "reader").get("/types/try?name=orders.charge").status_code == 403
    bound = Identity("shop", "producer", types=("mail.send",))
    client = open_shop(open_board, shop, auth=lambda _: bound)
    assert client.get("/types/try?name=orders.charge").status_code == 403
    assert send(client, "/types/try", type="orders.charge", queue="orders", payload="{}").status_code == 403


def test_a_hidden_value_of_the_example_stays_what_it_is(open_board: OpenBoard, shop: Story) -> None:
    client = open_shop(open_board, shop)
    mail = str(shop.jobs["mail"])
    hidden = '{"to": "b@example.com", "token": "[hidden]"}'
    made = send(client, "/types/try", type="mail.send", queue="mail", payload=hidden, example=mail)
    assert made.status_code == 303, made.text
    assert shop.db.look(made.headers["location"].rpartition("/")[2]).payload["token"] == "secret-4711"


def test_fields_follow_the_schema() -> None:
    schema = {
        "properties": {
            "level": {"enum": ["low", "high"]},
            "when": {"type": "string", "format": "date-time"},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "data": {"type": "object"},
        },
        "required": ["level", "when"],
    }
    kinds = {field.name: (field.kind, field.is_needed, field.note) for field in list_fields(schema)}
    assert kinds == {
        "level": ("choice", True, ""),
        "when": ("text", True, "date-time"),
        "count": ("whole", False, "may be empty"),
        "data": ("json", False, "may be empty"),
    }
    assert read_fields(schema, {"p.level": "high", "p.when": "x", "p.count": " ", "p.data": '{"a": 1}'}) == {
        "level": "high", "when": "x", "data": {"a": 1}
    }  # fmt: skip
    for wrong in ({"p.level": ""}, {"p.level": "low", "p.when": "x", "p.count": "NaN"}):
        with pytest.raises(Problem):
            read_fields(schema, wrong)


def test_pins_are_written_as_people_write_them() -> None:
    class Pin:
        patterns = ('{"zone": "eu-1", "gpu": "a100"}', "w1%")

    assert write_places(Pin()) == "gpu=a100,zone=eu-1, then w1%"  # type: ignore[arg-type]
