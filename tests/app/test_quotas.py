"""app.tenants, and what Python programs see of quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import watchbill
from watchbill import NoSuchTenant, QuotaExceeded


@pytest.fixture
def app(schema_database: str, tmp_path: Path) -> Iterator[watchbill.App[None]]:
    made: watchbill.App[None] = watchbill.App(schema_database, payload_store=str(tmp_path), payload_store_above=100)

    @made.task(type="send")
    def send(text: str) -> None:
        raise NotImplementedError

    yield made
    made.close()


def test_a_refused_enqueue_tells_which_quota_and_when_it_has_room(app: watchbill.App[None]) -> None:
    assert app.tenants.set("acme", per_minute=1)
    with app.tenant("acme"):
        app.enqueue("send", {"text": "a"})
        with pytest.raises(QuotaExceeded, match="The quota per_minute of tenant 'acme' is full") as caught:
            app.enqueue("send", {"text": "a"})
    error = caught.value
    assert (error.tenant, error.quota, error.max, error.used, error.wanted) == ("acme", "per_minute", 1, 1, 1)
    assert error.frees_at is not None
    assert error.frees_at.tzinfo is not None
    assert error.hint is not None
    assert "It has room again at" in error.hint
    app.enqueue("send", {"text": "a"})  # of another tenant


def test_a_refused_enqueue_in_a_callers_transaction_tells_the_same(
    app: watchbill.App[None], schema_database: str
) -> None:
    app.tenants.set("acme", unfinished=0)
    with psycopg.connect(schema_database) as connection, pytest.raises(QuotaExceeded) as caught:
        app.enqueue("send", {"text": "a"}, tenant="acme", connection=connection)
    assert (caught.value.quota, caught.value.max, caught.value.frees_at) == ("unfinished", 0, None)


def test_tenants_are_read_and_set(app: watchbill.App[None]) -> None:
    with pytest.raises(NoSuchTenant):
        app.tenants.get("acme")
    assert app.tenants.set("acme", running=2, unfinished=10)
    assert not app.tenants.set("acme", running=2)
    assert app.tenants.set("acme", unfinished=None)
    found = app.tenants.get("acme")
    assert (found.max_running, found.max_unfinished, found.roles) == (2, None, [])
    assert [each.tenant for each in asyncio.run(app.tenants.alist())] == ["acme"]


def test_an_erasure_deletes_the_payloads_in_the_store(app: watchbill.App[None], tmp_path: Path) -> None:
    for tenant in ("acme", "acme", "other"):
        app.enqueue("send", {"text": "x" * 1000}, tenant=tenant)
    assert len(list(tmp_path.glob("*/*"))) == 3
    assert app.tenants.preview_erasure("acme") == {"jobs": 2}
    record = app.tenants.erase("acme")
    assert (record.is_done, record.payloads, record.deleted) == (True, 2, {"jobs": 2, "history": 2})
    assert len(list(tmp_path.glob("*/*"))) == 1
    assert [each.tenant for each in app.tenants.list()] == ["other"]
    assert asyncio.run(app.tenants.aerase("other")).payloads == 1
    assert list(tmp_path.glob("*/*")) == []


def test_an_erasure_gives_up_waiting_and_continues_later(app: watchbill.App[None], schema_database: str) -> None:
    with psycopg.connect(schema_database) as late:
        app.enqueue("send", {"text": "a"}, tenant="acme", connection=late)
        record = app.tenants.erase("acme", wait=0)
        assert (record.is_done, record.waiting) == (False, "transactions that were open when the erasure began")
        assert app.tenants.get("acme").erasing_since is not None
    assert app.tenants.erase("acme").is_done
    with pytest.raises(NoSuchTenant):
        app.tenants.get("acme")
