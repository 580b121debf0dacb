"""Endpoints of connectors: set_endpoint, remove_endpoint, endpoint_list and declare_endpoints."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.store.harness import Db
from watchbill import Rate
from watchbill.connectors import Endpoint

BASE = {"base_url": "https://api.example.com/v2"}
BEARER = {"kind": "bearer", "secret": "env:WATCHBILL_SECRET_CRM"}
SIGNATURE = {"kind": "signature", "secrets": ["env:A", "file:/run/secrets/b"]}


def rows(db: Db, query: str, *params: Any) -> list[tuple[Any, ...]]:
    return db.execute(query.encode(), params)


def set_endpoint(db: Db, name: str = "crm", tenant: str = "default", **definition: Any) -> None:
    rows(db, "SELECT watchbill.set_endpoint(%s, %s::jsonb, %s)", name, json.dumps(definition), tenant)


def read(db: Db, columns: str, name: str = "crm") -> Any:
    ((*values,),) = rows(db, f"SELECT {columns} FROM watchbill.endpoint_list(name => %s)", name)
    return values[0] if len(values) == 1 else tuple(values)


def test_set_endpoint_changes_only_what_is_given(db: Db) -> None:
    set_endpoint(db, **BASE, auth=BEARER, headers={"X-App": "shop"}, hosts=["API.example.com"], timeout=2.5, max=3)
    set_endpoint(db, max=7)
    assert read(db, "kind, base_url, auth, headers, hosts, timeout, max") == (
        "http", BASE["base_url"], BEARER, {"X-App": "shop"}, ["api.example.com"], 2.5, 7,
    )  # fmt: skip
    set_endpoint(db, timeout=None, auth=None, headers={})
    assert read(db, "auth, headers, timeout, max") == (None, {}, None, 7)
    assert rows(db, "SELECT action, subject, detail->'max' FROM watchbill.audit ORDER BY at LIMIT 1") == [
        ("set_endpoint", "endpoint crm", 3)
    ]


def test_rates_and_order_are_parts_of_an_endpoint(db: Db) -> None:
    set_endpoint(db, **BASE, rates=[{"count": 3, "per": 60}, {"count": 1, "per": "1 second"}], ordered=True)
    rates = [{"count": 1, "per": 1, "evenly": False}, {"count": 3, "per": 60, "evenly": False}]
    set_endpoint(db, max=7)
    assert read(db, "max, rates, ordered") == (7, rates, True)
    set_endpoint(db, rates=None, ordered=False)
    assert read(db, "max, rates, ordered") == (7, None, False)
    refused: list[dict[str, Any]] = [
        {"rates": {}},
        {"rates": [{"count": 0, "per": 1}]},
        {"ordered": None},
        {"ordered": "yes"},
    ]
    for wrong in refused:
        with pytest.raises(psycopg.Error, match="is invalid") as error:
            set_endpoint(db, **wrong)
        assert error.value.sqlstate == "WB003"


def test_a_declared_rate_is_unchanged_until_an_operator_changes_it(db: Db) -> None:
    found = Endpoint("crm", BASE["base_url"], rates=[Rate(9, per="1m"), Rate(3, per="1s")]).definition
    epoch = register(db, "a")
    assert [declare(db, epoch, **found) for _ in range(2)] == [[("crm", "created")], [("crm", "unchanged")]]
    assert read(db, "changed") is False
    set_endpoint(db, rates=[{"count": 1, "per": 1}])
    assert read(db, "changed") is True


def test_jobs_of_an_ordered_endpoint_have_its_key_and_no_priority(db: Db) -> None:
    """From every producer, the delivery of `notify` among them. Those of other endpoints stay free."""
    set_endpoint(db, **BASE, kind="webhook", auth=SIGNATURE, ordered=True)
    set_endpoint(db, "free", **BASE, kind="webhook", auth=SIGNATURE)
    jobs = [{"type": "connector.webhook.deliver", "payload": {"endpoint": name}} for name in ("crm", "free")]
    jobs.append({"type": "plain", "meta": {"notify": {"endpoint": "crm", "on": ["dead"]}}})
    rows(db, "SELECT watchbill.enqueue_many(%s::jsonb)", json.dumps(jobs))
    rows(
        db, "SELECT watchbill.enqueue(%s, %s::jsonb, priority => 5::smallint)", jobs[0]["type"],
        json.dumps(jobs[0]["payload"]),
    )  # fmt: skip
    assert rows(
        db,
        "SELECT order_key, priority, count(*) FROM watchbill.jobs WHERE type <> 'plain' GROUP BY 1, 2 ORDER BY 1",
    ) == [("order:connector.webhook.deliver:default/crm", 0, 3), (None, 0, 1)]


def test_the_limit_of_an_endpoint_lives_and_dies_with_it(db: Db) -> None:
    set_endpoint(db, "a.b", "x/y %", **BASE)
    limits = "SELECT name, max FROM watchbill.limits"
    assert rows(db, limits) == [("endpoint/x%2Fy%20%25/a.b", 5)]
    assert rows(db, "SELECT watchbill.remove_endpoint('a.b', %s)", "x/y %") == [(True,)]
    assert rows(db, limits) == []
    assert rows(db, "SELECT watchbill.remove_endpoint('a.b', %s)", "x/y %") == [(False,)]


def test_disabling_keeps_its_time_and_enabling_clears_failures(db: Db) -> None:
    set_endpoint(db, **BASE)
    rows(db, "SELECT watchbill._report_endpoint('default', 'crm', 'failed')")
    set_endpoint(db, disabled="on holiday")
    first = read(db, "disabled_at")
    set_endpoint(db, disabled="still on holiday")
    assert read(db, "disabled_at, disabled_reason") == (first, "still on holiday")
    assert rows(db, "SELECT watchbill._report_endpoint('default', 'crm', 'gone')") == [(False,)]
    set_endpoint(db, disabled=None)
    assert read(db, "disabled_at, disabled_reason, failing_since") == (None, None, None)


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"max": 1},  # a new one needs an address
        {"base_url": "ftp://example.com"},
        {"base_url": "https://user@example.com"},
        {"base_url": "https://example.com/?a=b"},
        {"base_url": "https://example.com/#a"},
        {"base_url": "https://exa mple.com/"},
        {"base_url": 5},
        {**BASE, "unknown": 1},
        {**BASE, "max": -1},
        {**BASE, "max": 1.5},
        {**BASE, "max": "5"},
        {**BASE, "timeout": 0},
        {**BASE, "timeout": 1e9},
        {**BASE, "hosts": "a"},
        {**BASE, "hosts": [5]},
        {**BASE, "headers": {"Authorization": "Bearer secret"}},
        {**BASE, "headers": {"cookie": "a"}},
        {**BASE, "headers": {"A": "b\r\nC: d"}},
        {**BASE, "headers": {"A b": "c"}},
        {**BASE, "headers": {"A": 1}},
        {**BASE, "headers": {"A": "Jürgen"}},
        {**BASE, "headers": {"A": "b "}},
        {**BASE, "auth": {"kind": "bearer", "secret": "the secret itself"}},
        {**BASE, "auth": {"kind": "bearer", "token": "env:A"}},
        {**BASE, "auth": {"kind": "bearer", "secret": "env:A", "value": "the secret itself"}},
        {**BASE, "auth": {"kind": "bearer"}},
        {**BASE, "auth": {"kind": "other", "secret": "env:A"}},
        {**BASE, "auth": {"kind": "basic", "secret": "env:A"}},
        {**BASE, "auth": {"kind": "header", "name": "A\r\nB", "secret": "env:A"}},
        {**BASE, "auth": SIGNATURE},  # signs webhooks only
        {**BASE, "kind": "webhook"},  # without signature
        {**BASE, "kind": "webhook", "auth": {"kind": "signature", "secrets": []}},
        {**BASE, "kind": "webhook", "auth": {"kind": "signature", "secrets": "env:A"}},
        {**BASE, "kind": "webhook", "auth": {"kind": "signature", "secrets": ["secret"]}},
        {**BASE, "disabled": True},
        {**BASE, "headers": {"X-App": "x" * 50_000}},
    ],
)
def test_invalid_endpoints_are_refused(db: Db, definition: dict[str, Any]) -> None:
    with pytest.raises(psycopg.DatabaseError, match="endpoint 'crm' is invalid") as error:
        set_endpoint(db, **definition)
    assert error.value.sqlstate == "WB003"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "ä", "x" * 101])
def test_a_name_of_an_endpoint_is_plain(db: Db, name: str) -> None:
    with pytest.raises(psycopg.Error, match="this is not a name"):
        set_endpoint(db, name, **BASE)


def test_a_key_of_a_connector_names_its_own_endpoint_only(db: Db) -> None:
    for name in ("crm", "erp"):
        set_endpoint(db, name, **BASE)
    rows(
        db,
        """SELECT watchbill.enqueue('connector.http.request', '{"endpoint": "crm", "receiver": "erp"}',
          limit_keys => '{endpoint/default/erp,connector/receiver:x}')""",
    )
    rows(db, """SELECT watchbill.enqueue('connector.http.request', '{"endpoint": "missing"}', queue => 'q')""")
    rows(db, """SELECT watchbill.enqueue('connector.other', '{"endpoint": "crm"}')""")
    assert rows(db, "SELECT queue, payload->>'receiver', limit_keys FROM watchbill.jobs ORDER BY seq") == [
        ("default", "crm", ["key:endpoint/default/crm"]),
        ("q", "missing", ["key:connector/receiver:default/missing"]),
        ("default", None, None),
    ]


@pytest.mark.parametrize(
    ("url", "receiver"),
    [
        ("https://A.example/x", "a.example"),
        ("https://a.example:8443?x", "a.example"),
        ("https://u:p@a.example/", "a.example"),
        ("http://[::1]:80/", "[::1]"),
        ("nonsense", ""),
        ("https://{tenant}/", "{tenant}"),
        ("https://a:b/", "a"),
    ],
)
def test_a_free_address_is_limited_by_its_host(db: Db, url: str, receiver: str) -> None:
    rows(db, "SELECT watchbill.enqueue('connector.webhook.deliver', %s::jsonb)", json.dumps({"url": url}))
    ((found, keys),) = rows(db, "SELECT payload->>'receiver', limit_keys FROM watchbill.jobs")
    assert found == receiver
    encoded = receiver.replace("[", "%5B").replace("]", "%5D").replace(":", "%3A")
    encoded = encoded.replace("{", "%7B").replace("}", "%7D")
    assert keys == [f"key:connector/receiver:default/{encoded}"]


def test_no_job_waits_for_an_open_transaction_that_makes_the_first_rules(db: Db) -> None:
    other = db.session()
    other.begin()
    free = {"url": "https://x.example/"}
    for type_ in ("connector.http.request", "connector.webhook.deliver"):
        other.send(type_, payload=free)
        job = db.send(type_, payload=free).id
        assert rows(db, "SELECT limit_keys, lane FROM watchbill.jobs WHERE id = %s", job) == [(None, 0)]
    other.commit()
    job = db.send("connector.http.request", payload=free).id
    assert rows(db, "SELECT limit_keys FROM watchbill.jobs WHERE id = %s", job) == [
        (["key:connector/receiver:default/x.example"],)
    ]


def test_a_queue_of_ones_own_stays_as_it_is(db: Db) -> None:
    """Jobs that wait in it have no lanes; a fair queue would not run them."""
    rows(db, "SELECT watchbill.enqueue('mine', queue => 'webhooks')")
    rows(db, """SELECT watchbill.enqueue('connector.webhook.deliver', '{"endpoint": "crm"}')""")
    assert rows(db, "SELECT count(*) FROM watchbill.queues WHERE name = 'webhooks'") == [(0,)]
    assert rows(db, "SELECT DISTINCT lane FROM watchbill.jobs") == [(0,)]


def declare(db: Db, epoch: int, **endpoint: Any) -> list[tuple[Any, ...]]:
    given = json.dumps([{"tenant": "default", "name": "crm", **endpoint}])
    return rows(db, "SELECT * FROM watchbill.declare_endpoints(%s, %s::jsonb)", epoch, given)


def register(db: Db, name: str) -> int:
    ((epoch,),) = rows(db, "SELECT watchbill.register(%s, '1 hour', app => 'shop')", name)
    return int(epoch)


def test_a_change_by_an_operator_stays_until_the_code_changes(db: Db) -> None:
    declared: dict[str, Any] = {
        "kind": "http", "base_url": "https://one.example", "headers": {}, "auth": None, "hosts": [], "timeout": None,
        "max": 4,
    }  # fmt: skip
    node = register(db, "a")
    assert declare(db, node, **declared) == [("crm", "created")]
    assert read(db, "owner, changed, max") == ("shop", False, 4)
    set_endpoint(db, base_url="https://two.example")
    assert read(db, "changed") is True
    assert declare(db, node, **declared) == [("crm", "unchanged")]
    assert read(db, "base_url") == "https://two.example"
    assert declare(db, node, **declared | {"max": 5}) == [("crm", "updated")]
    assert read(db, "base_url, max, changed") == ("https://one.example", 5, False)


def test_an_older_node_does_not_undo_a_newer_declaration(db: Db) -> None:
    old, new = register(db, "old"), register(db, "new")
    declare(db, old, base_url="https://old.example")
    declare(db, new, base_url="https://new.example")
    assert declare(db, old, base_url="https://old.example") == [("crm", "superseded")]
    assert rows(db, "SELECT watchbill._has_stale_limit_declaration(%s)", old) == [(False,)]
    rows(db, "SELECT watchbill.leave(%s)", new)
    assert rows(db, "SELECT watchbill._has_stale_limit_declaration(%s)", old) == [(True,)]
    assert declare(db, old, base_url="https://old.example") == [("crm", "updated")]


def test_an_endpoint_of_an_operator_is_not_taken_over(db: Db) -> None:
    set_endpoint(db, **BASE)
    assert declare(db, register(db, "a"), base_url="https://other.example") == [("crm", "foreign")]


def test_an_erasure_deletes_endpoints_with_their_limits(db: Db) -> None:
    set_endpoint(db, "crm", "gone", **BASE)
    set_endpoint(db, "crm", "kept", **BASE)
    assert ("connector_endpoints", 1) in rows(db, "SELECT * FROM watchbill.preview_erasure('gone')")
    while not rows(db, "SELECT is_done FROM watchbill.erase_tenant('gone')")[0][0]:
        pass
    assert rows(db, "SELECT tenant FROM watchbill.connector_endpoints") == [("kept",)]
    assert rows(db, "SELECT name FROM watchbill.limits") == [("endpoint/kept/crm",)]
