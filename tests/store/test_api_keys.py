"""API keys, saved filters and chart marks: the functions of the room web."""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
import pytest

from tests.store.harness import Db

HASH = hashlib.sha256(b"the whole key").digest()


def add(db: Db, id: str = "shopkey1", name: str = "shop", role: str = "producer", **options: Any) -> None:
    db.value("add_api_key", id=id, hash=HASH, name=name, role=role, **options)


def use(db: Db, id: str = "shopkey1", hash: bytes | None = HASH) -> list[Any]:
    return [tuple(row) for row in db.call("_use_api_key", id=id, hash=hash)]


def test_a_key_is_found_by_its_hash_until_it_expires_or_is_revoked(db: Db) -> None:
    add(db, queues=["mail"], types=["mail.send"], rate=2.5, expires_at=db.after(100))
    assert use(db) == [("shop", "producer", None, ["mail"], ["mail.send"], 2.5)]
    assert use(db, hash=hashlib.sha256(b"another").digest()) == []
    assert use(db, id="shopkey2") == []
    assert len(use(db, hash=None)) == 1
    db.tick(100)
    assert use(db) == []
    add(db, "shopkey2", "other")
    assert db.value("revoke_api_key", key="other") == "shopkey2"
    assert use(db, id="shopkey2") == []
    assert db.value("revoke_api_key", key="other") is None
    assert [(row.id, row.state) for row in db.call("api_key_list")] == [
        ("shopkey2", "revoked"), ("shopkey1", "expired"),
    ]  # fmt: skip
    actions = [(row.action, row.subject) for row in db.rows("audit")]
    assert sorted(actions) == [
        ("add_api_key", "key shopkey1"), ("add_api_key", "key shopkey2"), ("revoke_api_key", "key shopkey2"),
    ]  # fmt: skip


def test_the_last_use_is_noted_once_a_minute(db: Db) -> None:
    add(db)
    used = []
    for _ in range(4):
        use(db)
        used.append(db.rows("api_keys")[0].used_at)
        db.tick(25)
    assert [(each - used[0]).total_seconds() for each in used] == [0, 0, 0, 75]


def test_two_valid_keys_never_have_one_name(db: Db) -> None:
    add(db)
    with pytest.raises(psycopg.Error, match="another API key is named 'shop'"):
        add(db, "shopkey2")
    db.value("revoke_api_key", key="shopkey1")
    add(db, "shopkey2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role": "king"}, "role is invalid"),
        ({"name": ""}, "name is invalid"),
        ({"id": "short"}, "the key is invalid"),
        ({"tenant": "acme", "role": "operator"}, "role is invalid"),
        ({"tenant": "acme"}, "tenants are not kept apart here"),
        ({"rate": -1}, "rate is invalid"),
    ],
)
def test_a_key_that_cannot_be_is_refused(db: Db, options: dict[str, Any], message: str) -> None:
    with pytest.raises(psycopg.Error, match=message):
        add(db, **options)
    with pytest.raises(psycopg.Error, match="expires_at is invalid"):
        add(db, expires_at=db.now)


def test_filters_belong_to_who_sees_their_tenant(db: Db) -> None:
    first = db.value("save_filter", page="jobs", name="bad", query="state:dead")
    assert db.value("save_filter", page="jobs", name="bad", query="state:failed") == first
    db.value("save_filter", page="jobs", name="bad", query="x", tenant="acme")
    assert [row.query for row in db.call("saved_filter_list", page="jobs")] == ["state:failed"]
    assert [row.query for row in db.call("saved_filter_list", tenant="acme")] == ["x"]
    assert db.value("remove_filter", id=first, tenant="acme") is False
    assert db.value("remove_filter", id=first) is True
    with pytest.raises(psycopg.Error, match="the filter is invalid"):
        db.value("save_filter", page="jobs", name="", query="x")


def test_marks_and_ended_keys_are_kept_for_a_year(db: Db) -> None:
    old = db.value("add_chart_mark", text="deploy v1")
    add(db, expires_at=db.after(1))
    db.tick(400 * 86400)
    new = db.value("add_chart_mark", text="deploy v2")
    assert [row.id for row in db.call("chart_mark_list")] == [new, old]
    assert db.value("prune_web") == 2
    assert [row.text for row in db.call("chart_mark_list", until=db.after(1))] == ["deploy v2"]
    assert db.value("remove_chart_mark", id=new) is True
    with pytest.raises(psycopg.Error, match="text is invalid"):
        db.value("add_chart_mark", text="")
