"""Limits and queues that stand in code or that an operator sets: whose word counts, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, End, refused


def declare(db: Db, epoch: int, *limits: dict[str, Any]) -> list[str]:
    return [row.outcome for row in db.call("declare_limits", epoch=epoch, limits=list(limits))]


def declare_queues(db: Db, epoch: int, *queues: dict[str, Any]) -> list[str]:
    return [row.outcome for row in db.call("declare_queues", epoch=epoch, queues=list(queues))]


def limits(db: Db) -> dict[str, Any]:
    return {row.name: row for row in db.call("limit_list")}


API = {"name": "crm-api", "max": 10, "rates": [{"count": 100, "per": "60 seconds"}]}
MINUTE = {"count": 100, "per": 60, "evenly": False}


def test_a_declared_limit_is_written_once(db: Db) -> None:
    epoch = db.node(app="shop")
    assert declare(db, epoch, API, {"name": "task:mail", "max": 1}) == ["created", "created"]
    assert declare(db, epoch, API) == ["unchanged"]
    found = limits(db)["crm-api"]
    assert (found.max, found.rates) == (10, [MINUTE])
    assert (found.when_full, found.owner, found.changed) == ("wait", "shop", False)
    assert (found.holders, found.waiters) == (0, 0)


def test_an_operators_change_stands_until_the_code_changes(db: Db) -> None:
    epoch = db.node(app="shop")
    declare(db, epoch, API)
    db.call("set_limit", name="crm-api", max=2)
    assert declare(db, db.node(app="shop"), API) == ["unchanged"]
    assert (limits(db)["crm-api"].max, limits(db)["crm-api"].changed) == (2, True)
    assert declare(db, db.node(app="shop"), API | {"max": 20}) == ["updated"]
    assert (limits(db)["crm-api"].max, limits(db)["crm-api"].changed) == (20, False)


def test_clear_restores_what_the_code_declares(db: Db) -> None:
    declare(db, db.node(app="shop"), API)
    db.call("set_limit", name="crm-api", max=2, rates=[MINUTE | {"evenly": True}])
    assert limits(db)["crm-api"].rates == [MINUTE | {"evenly": True}]
    assert db.value("clear_limit", name="crm-api") is True
    found = limits(db)["crm-api"]
    assert (found.max, found.rates, found.changed, found.owner) == (10, [MINUTE], False, "shop")
    assert db.value("clear_limit", name="crm-api") is False


def test_a_program_of_an_earlier_release_declares_a_rate_that_spaces_its_starts(db: Db) -> None:
    """During a rolling upgrade. The newer declaration stands."""
    old = {"name": "crm-api", "max": 10, "count": 100, "per": 60.0, "burst": 10}
    assert declare(db, db.node(app="shop"), old) == ["created"]
    found = limits(db)["crm-api"]
    assert (found.max, found.rates, found.changed) == (10, [MINUTE | {"evenly": True}], False)
    assert declare(db, db.node(app="shop"), API) == ["updated"]
    assert declare(db, db.node(app="shop"), old) == ["superseded"]
    assert limits(db)["crm-api"].rates == [MINUTE]


def test_a_window_of_a_day_has_24_hours_in_every_time_zone(db: Db) -> None:
    db.value("set_limit", name="api", rates=[{"count": 5, "per": "1 day"}])
    assert db.execute("SELECT (rates[1]).per::text FROM watchbill.limits") == [("24:00:00",)]


def test_a_limit_of_an_operator_is_removed_when_it_is_cleared(db: Db) -> None:
    db.call("set_limit", name="tenant:acme", max=3)
    assert limits(db)["tenant:acme"].owner is None
    assert declare(db, db.node(app="shop"), {"name": "tenant:acme", "max": 9}) == ["foreign"]
    assert db.value("clear_limit", name="tenant:acme") is True
    assert limits(db) == {}
    with refused("WB003", "limit 'tenant:acme' is invalid: it was not declared"):
        db.call("clear_limit", name="tenant:acme")


def test_a_limit_that_the_code_no_longer_declares_is_removed_when_it_is_cleared(db: Db) -> None:
    old = db.node(app="shop")
    declare(db, old, API)
    new = db.node(app="shop")
    declare(db, new, API | {"name": "crm"})
    assert db.value("clear_limit", name="crm-api") is False  # an old node declares it
    db.call("leave", epoch=old)
    db.call("set_limit", name="crm-api", max=2)
    assert db.value("clear_limit", name="crm-api") is True
    assert limits(db)["crm-api"].max == 10  # a change is undone first
    assert db.value("clear_limit", name="crm-api") is True
    assert list(limits(db)) == ["crm"]
    db.call("leave", epoch=new)
    db.node()  # without an app, so it has no code that could declare a limit
    assert db.value("clear_limit", name="crm") is False


def test_another_app_takes_over_a_limit_whose_owner_is_gone(db: Db) -> None:
    shop, store = db.node(app="shop"), db.node(app="store")
    declare(db, shop, API)
    assert declare(db, store, API | {"max": 5}) == ["foreign"]
    assert db.value("clear_limit", name="crm-api") is False
    db.call("leave", epoch=shop)
    assert db.value("_has_stale_declaration", epoch=store) is False
    assert db.value("clear_limit", name="crm-api") is True
    assert db.value("_has_stale_declaration", epoch=store) is True
    assert declare(db, store, API | {"max": 5}) == ["created"]
    assert (limits(db)["crm-api"].max, limits(db)["crm-api"].owner) == (5, "store")
    assert db.value("_has_stale_declaration", epoch=store) is False


def test_an_old_node_does_not_undo_a_newer_declaration(db: Db) -> None:
    old, new = API, API | {"max": 20}
    first = db.node(app="shop")
    declare(db, first, old)
    second = db.node(app="shop")
    assert declare(db, second, new) == ["updated"]
    assert declare(db, db.node(app="shop"), old) == ["superseded"]
    assert limits(db)["crm-api"].max == 20
    assert db.value("_has_stale_declaration", epoch=first) is False
    db.call("leave", epoch=second)
    assert db.value("_has_stale_declaration", epoch=first) is True  # after a rollback
    assert declare(db, first, old) == ["updated"]
    assert limits(db)["crm-api"].max == 10


def test_another_app_may_declare_the_same_limit_only_alike(db: Db) -> None:
    declare(db, db.node(app="shop"), API)
    other = db.node(app="billing")
    assert declare(db, other, API) == ["unchanged"]
    assert declare(db, other, API | {"max": 5}) == ["foreign"]
    assert limits(db)["crm-api"].max == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a:b", "max": 1}, "limit 'a:b' is invalid"),
        ({"name": "a", "max": -1}, "limit 'a' is invalid: max is -1"),
        ({"name": "a", "rates": [{"count": 5}]}, "limit 'a' is invalid: rates is"),
        ({"name": "a", "rates": [{"per": 60}]}, "limit 'a' is invalid: rates is"),
        ({"name": "a", "rates": [{"count": 0, "per": 60}]}, '"count": 0'),
        ({"name": "a", "rates": [{"count": 5, "per": 0}]}, '"per": 0'),
        ({"name": "a", "rates": [{"count": 5, "per": "10 years"}]}, '"count": 5'),
        ({"name": "a", "rates": [{"count": 5, "per": 60}, {"count": 9, "per": "1 minute"}]}, '"count": 9'),
        ({"name": "a", "rates": [{"count": 5, "per": "soon"}]}, '"per": "soon"'),
        ({"name": "a", "rates": [{"count": 5, "per": 60, "burst": 2}]}, '"burst": 2'),
        ({"name": "a", "rates": {"count": 5, "per": 60}}, '"count": 5'),
        ({"name": "a", "rates": [5]}, r"rates is \[5\]"),
        ({"name": "a", "rates": []}, "neither a max nor a rate"),
        ({"name": "a" * 2000, "max": 1}, "limit with a name of 2000 characters is invalid"),
        ({"name": "a", "max": 1, "when_full": "panic"}, "when_full is panic"),
        (
            {"name": "a", "rates": [{"count": 5, "per": 60}], "when_full": "discard"},
            "when_full is discard, but it has no max",
        ),
        ({"name": "order:mail", "rates": [{"count": 5, "per": 60}]}, "jobs of an ordered key run one at a time"),
        ({"name": "order:mail", "max": 2}, "jobs of an ordered key run one at a time"),
        ({"name": "task", "max": 1}, "limit 'task' is invalid"),
        ({"name": "order:a:b", "when_dead": "pause"}, "it names a key"),
        ({"name": "a", "when_full": "wait"}, "neither a max nor a rate"),
    ],
)
def test_an_invalid_limit_is_refused(db: Db, given: dict[str, Any], message: str) -> None:
    epoch = db.node(app="shop")
    with refused("WB003", message):
        declare(db, epoch, given)
    with refused("WB003", message):
        db.call("set_limit", **given)


def test_a_declaration_needs_a_name_an_app_and_a_living_node(db: Db) -> None:
    epoch = db.node(app="shop")
    with refused("WB003", "limits is invalid: it must be a JSON array"):
        declare(db, epoch, {"max": 1})
    with refused("WB003", "has no app"):
        declare(db, db.node(), API)
    db.call("leave", epoch=epoch)
    with refused("WB001", "is lost"):
        declare(db, epoch, API)
    with refused("WB003", "set_limit needs something to change"):
        db.call("set_limit", name="a")
    with refused("WB003", "set_limit needs the name of a limit"):
        db.call("set_limit", name=None, max=1)


def test_a_queue_has_a_limit_that_an_operator_can_change(db: Db) -> None:
    epoch = db.node(app="shop")
    sync = {"name": "sync", "max": 20, "fair_by": "{account}"}
    assert declare_queues(db, epoch, sync) == ["created"]
    db.call("set_limit", name="queue:sync", max=5)
    assert declare_queues(db, epoch, sync) == ["unchanged"]
    assert (limits(db)["queue:sync"].max, limits(db)["queue:sync"].changed) == (5, True)
    assert db.value("clear_limit", name="queue:sync") is True
    assert limits(db)["queue:sync"].max == 20
    with refused("WB003", "a queue has a max, and nothing else"):
        db.call("set_limit", name="queue:sync", rates=[{"count": 5, "per": "1 minute"}])


def test_a_queue_that_an_operator_has_limited_is_forgotten_when_it_is_cleared(db: Db) -> None:
    db.call("set_limit", name="queue:mail", max=5)
    assert db.value("clear_limit", name="queue:mail") is True
    assert db.rows("queues") == []
    assert db.value("clear_limit", name="queue:mail") is False


def test_a_queue_that_holds_jobs_does_not_become_fair(db: Db) -> None:
    epoch = db.node(app="shop")
    db.enqueue("work", queue="sync")
    fair = {"name": "sync", "fair_by": "{account}"}
    assert declare_queues(db, epoch, fair) == ["refused"]
    assert declare_queues(db, epoch, {"name": "sync", "max": 5}) == ["created"]
    assert declare_queues(db, epoch, fair) == ["refused"]
    assert [(row.lanes, row.max) for row in db.rows("queues")] == [("none", 5)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "", "max": 1}, "queue '' is invalid"),
        ({"name": "a", "max": -1}, "queue 'a' is invalid: max is -1"),
        ({"name": "a", "shares": {"x": 2}}, "it has shares, but no fair_by"),
        ({"name": "a", "fair_by": "{tenant}", "shares": {"x": 0}}, "a share must be a whole number from 1 to 1000"),
    ],
)
def test_an_invalid_queue_is_refused(db: Db, given: dict[str, Any], message: str) -> None:
    with refused("WB003", message):
        declare_queues(db, db.node(app="shop"), given)


def test_every_change_by_an_operator_is_audited(db: Db) -> None:
    db.call("set_limit", name="crm-api", max=2)
    db.call("clear_limit", name="crm-api")
    rows = [(row.action, row.subject, row.detail) for row in db.rows("audit")]
    assert rows == [("set_limit", "limit crm-api", {"max": 2}), ("clear_limit", "limit crm-api", None)]


def test_holders_and_waiters_of_a_limit_are_listed_by_key(db: Db) -> None:
    """Made by hand, as a claim leaves them."""
    epoch = db.node(app="shop", name="here")
    declare(db, epoch, {"name": "account", "max": 1})
    db.enqueue("sync")
    held = db.claim_one(epoch)
    db.enqueue("sync")
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:account:7' WHERE fence = 0")
    states = "VALUES ('key:account:7', 'account'), ('key:accounts', 'accounts')"
    db.change("INSERT INTO {schema}.limit_states (key, name) " + states)
    db.change("INSERT INTO {schema}.holds VALUES ('key:account:7', %s), ('key:accounts', %s)", held.id, held.id)
    assert (limits(db)["account"].holders, limits(db)["account"].waiters) == (1, 1)
    ((key, holders, kept, since, waiters, waiting_since, _),) = db.call("limit_keys", name="account")
    assert (key, holders, kept, waiters) == ("key:account:7", 1, 0, 1)
    assert since is not None
    assert waiting_since is not None
    ((key, job, name, state, node, held_since),) = db.call("limit_holders", name="account")
    assert (key, job, name, state, node) == ("key:account:7", held.id, "sync", "running", "here")
    assert held_since == since


def test_a_job_that_keeps_an_ordered_key_without_running_is_not_shown_as_running(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", name="order:t", when_dead="pause")
    job = db.value("enqueue", type="t", ordered_by="x", max_attempts=2)

    def shown() -> tuple[int, int, str]:
        (rule,), (key,), (holder,) = (
            db.call("limit_list"),
            db.call("limit_keys", name="order:t"),
            db.call("limit_holders", name="order:t"),
        )
        assert (rule.holders, rule.kept) == (key.holders, key.kept)
        assert holder.job_id == job
        return key.holders, key.kept, holder.state

    held = db.claim_one(epoch)
    assert shown() == (1, 0, "running")
    db.settle(epoch, End(held, "failed", delay=timedelta(0)))
    assert shown() == (1, 1, "failed")
    held = db.claim_one(epoch)
    assert shown() == (1, 0, "running")
    db.settle(epoch, End(held, "failed"))
    assert shown() == (1, 1, "dead")
    db.value("clear_limit", name="order:t:x")
    assert db.call("limit_keys", name="order:t") == []


def test_a_limit_of_a_type_does_not_show_the_jobs_of_another_one(db: Db) -> None:
    epoch = db.node()
    for name in ("task:a", "task:a:b"):
        db.value("set_limit", name=name, max=1)
        db.enqueue(limit_keys=[name])
    assert len(db.claim(epoch)) == 2
    assert {row.name: row.holders for row in db.call("limit_list")} == {"task:a": 1, "task:a:b": 1}
    assert [row.key for row in db.call("limit_keys", name="task:a")] == ["task:a"]


def test_only_ordered_keys_have_a_rule_for_dead_jobs(db: Db) -> None:
    with refused("WB003", "limit 'crm-api' is invalid: only ordered keys have when_dead"):
        db.value("set_limit", name="crm-api", max=1, when_dead="pause")


def test_a_dead_job_pauses_the_key_of_a_type_with_a_colon(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", name="order:a%3Ab", when_dead="pause")
    first, second = (db.enqueue("a:b", ordered_by="1", max_attempts=1) for _ in range(2))
    assert db.run(epoch, "failed") == "dead"
    assert db.claim(epoch) == []
    assert db.value("clear_limit", name="order:a%3Ab:1")
    assert [row.id for row in db.claim(epoch)] == [second]
    assert db.states(first) == ["dead"]
