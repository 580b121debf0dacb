"""Schedules that stand in code: whose word counts, what is orphaned, and what the start of a cluster is."""

from __future__ import annotations

from itertools import takewhile
from typing import Any
from uuid import uuid4

import pytest

from tests.store.harness import Db, refused
from tests.store.test_tick import add, at, jobs, slots, tick_at


def rule(hash: str = "1", name: str = "s", **more: Any) -> dict[str, Any]:
    return {"name": name, "pattern": "0 * * * *", "type": "task", "hash": hash} | more


def declare(db: Db, epoch: int, *rules: dict[str, Any], **more: Any) -> list[str]:
    return [row.outcome for row in db.call("declare_schedules", epoch=epoch, schedules=list(rules), **more)]


def start(db: Db, *rules: dict[str, Any], app: str = "shop") -> int:
    epoch = db.node(app=app)
    declare(db, epoch, *rules)
    return epoch


def look(db: Db, name: str = "s") -> Any:
    return db.row("schedule_by_name", name=name)


def test_unchanged_declaration_is_written_once(db: Db) -> None:
    epoch = db.node(app="shop")
    assert declare(db, epoch, rule(), rule(name="t")) == ["created", "created"]
    assert declare(db, epoch, rule(), rule(name="t")) == ["unchanged", "unchanged"]
    assert (look(db).owner, look(db).hash, look(db).created_by, look(db).differs_from_code) == (
        "shop",
        "1",
        "shop",
        False,
    )
    assert tick_at(db, at(10)).fired == 2


def test_operator_change_lasts_until_the_code_changes(db: Db) -> None:
    start(db, rule())
    db.call("update_schedule", name="s", changes={"pattern": "30 * * * *"})
    assert look(db).differs_from_code
    assert declare(db, db.node(app="shop"), rule()) == ["unchanged"]
    assert look(db).pattern == "30 * * * *"
    assert declare(db, db.node(app="shop"), rule("2", priority=1)) == ["updated"]
    assert (look(db).pattern, look(db).priority, look(db).differs_from_code) == ("0 * * * *", 1, False)


@pytest.mark.parametrize("change", [{"enabled": False}, {"payload": {"a": 1}}, {"grace": "1 hour"}, {"tags": ["x"]}])
def test_every_operator_change_sets_differs_from_code(db: Db, change: dict[str, Any]) -> None:
    start(db, rule())
    db.call("update_schedule", name="s", changes=change)
    assert look(db).differs_from_code
    db.call("update_schedule", name="s", changes=dict.fromkeys(change))
    assert not look(db).differs_from_code


def test_older_declaration_is_superseded_in_a_rolling_deploy(db: Db) -> None:
    start(db, rule("old"))
    new = start(db, rule("new", priority=9))
    assert declare(db, db.node(app="shop"), rule("old")) == ["superseded"]
    assert look(db).priority == 9
    db.call("leave", epoch=new)  # a deploy that was taken back
    assert declare(db, db.node(app="shop"), rule("old")) == ["updated"]
    assert look(db).priority == 0


def test_node_may_change_its_declaration_and_change_it_back(db: Db) -> None:
    epoch = start(db, rule("one"))
    assert [declare(db, epoch, rule(word)) for word in ("two", "one")] == [["updated"], ["updated"]]


def test_newest_remaining_declaration_wins_when_newer_nodes_leave(db: Db) -> None:
    codes = {name: rule(name, priority=number) for number, name in enumerate(("first", "second", "third"))}
    nodes = {name: start(db, code) for name, code in codes.items()}

    def in_vain() -> list[str]:
        return [name for name, epoch in nodes.items() if db.value("_has_stale_declaration", epoch=epoch)]

    assert in_vain() == []
    db.call("leave", epoch=nodes.pop("third"))
    assert in_vain() == ["second"], "the first is older still"
    assert declare(db, nodes["first"], codes["first"]) == ["superseded"]
    assert declare(db, nodes["second"], codes["second"]) == ["updated"]
    assert (look(db).priority, in_vain()) == (1, [])
    db.lose(nodes.pop("second"))
    assert in_vain() == ["first"]
    assert declare(db, nodes["first"], codes["first"]) == ["updated"]
    db.call("update_schedule", name="s", changes={"priority": 7})
    assert in_vain() == [], "what an operator changes stands"


def test_declaration_does_not_change_schedules_of_other_owners(db: Db) -> None:
    add(db, "hand")
    start(db, rule(name="theirs"), app="other")
    assert declare(db, db.node(app="shop"), rule(name="hand"), rule(name="theirs")) == ["foreign", "foreign"]
    assert look(db, "hand").owner is None


def test_orphaned_schedule_does_not_fire_and_says_why(db: Db) -> None:
    old = start(db, rule(missed="catch_up", overlap="allow"))
    start(db)
    assert not look(db).orphaned
    db.call("leave", epoch=old)
    assert (look(db).orphaned, look(db).status, look(db).next_run) == (True, "orphaned", None)
    assert tick_at(db, at(12, 30))[:4] == (0, 0, 0, None)
    assert db.value("_release_orphans") == 0
    assert "is orphaned: nodes of app shop are alive" in db.call("why_schedule", name="s")[0].reason
    start(db, rule(missed="catch_up", overlap="allow"))
    assert not look(db).orphaned
    assert db.row("tick").fired == 3  # slots meanwhile are missed ones


def test_schedule_is_not_orphaned_while_no_node_of_its_app_lives(db: Db) -> None:
    old, new = start(db, rule()), start(db)
    db.call("leave", epoch=old)
    assert tick_at(db, at(10)).fired == 0
    db.call("leave", epoch=new)
    assert db.row("tick").fired == 1


def test_declarations_of_a_lost_node_do_not_count(db: Db) -> None:
    old, new = start(db, rule()), start(db)
    db.tick(29)
    db.call("heartbeat", epoch=new)
    db.tick(2)
    db.reclaim(old)
    assert look(db).orphaned


def test_node_that_never_declared_orphans_no_schedule(db: Db) -> None:
    old = start(db, rule())
    db.node(app="shop")
    start(db, app="other")
    db.call("leave", epoch=old)
    assert tick_at(db, at(10)).fired == 1


def test_nodes_of_other_apps_orphan_no_schedule(db: Db) -> None:
    old = start(db, rule())
    start(db, app="other")
    db.call("leave", epoch=old)
    assert tick_at(db, at(10)).fired == 1


# -- the start of the cluster


def test_run_on_start_and_reboot_run_once_per_cluster_start(db: Db) -> None:
    rules = rule(run_on_start=True), rule(name="t", pattern="@reboot"), rule(name="u")
    first = start(db, *rules)
    second = start(db, *rules)
    assert [(r.kind, r.outcome) for r in db.rows("slots")] == [("start", None), ("start", None)]
    assert {j.slot for j in jobs(db)} == {None}
    db.call("leave", epoch=first)
    third = start(db, *rules)
    db.call("leave", epoch=second)
    db.call("leave", epoch=third)
    assert len(slots(db)) == 2
    db.tick(1)
    start(db, *rules)
    assert len(slots(db)) == 4


def test_two_simultaneous_declarations_are_one_cluster_start(db: Db) -> None:
    one, two = db.node(app="shop"), db.node(app="shop")
    other = db.session()
    db.begin()
    declare(db, two, rule(run_on_start=True))
    waiting = other.start("declare_schedules", epoch=one, schedules=[rule(run_on_start=True)]).blocked()
    db.commit()
    waiting.rows()
    assert len(slots(db)) == 1


def test_cluster_starts_once_all_crashed_nodes_are_lost(db: Db) -> None:
    rules = rule(run_on_start=True), rule(name="t", pattern="@reboot"), rule(name="u")
    dead = [start(db, *rules) for _ in range(2)]
    db.tick(3600)
    one = start(db, *rules)
    db.tick(1)
    two = start(db, *rules)
    assert len(slots(db)) == 2, "are the others dead?"
    assert [db.value("start_cluster", epoch=epoch) for epoch in (one, two)] == [None, None]
    for epoch in dead:
        db.lose(epoch)
    assert db.value("start_cluster", epoch=two) is None, "it was not the first"
    for epoch in (one, one, two):
        assert db.value("start_cluster", epoch=epoch) is True
        assert len(slots(db)) == 4, "once"


def test_heartbeat_of_another_node_prevents_a_cluster_start(db: Db) -> None:
    old = start(db, rule(run_on_start=True))
    db.tick(3600)
    new = start(db, rule(run_on_start=True))
    assert db.value("start_cluster", epoch=new) is None
    db.tick(1)
    db.call("heartbeat", epoch=old)
    assert db.value("start_cluster", epoch=new) is False
    db.lose(old)
    assert db.value("start_cluster", epoch=new) is False, "it has lived to see it"
    assert len(slots(db)) == 1


def test_node_registered_before_the_last_leave_starts_no_cluster(db: Db) -> None:
    old = start(db, rule(run_on_start=True))
    new = db.node(app="shop")
    db.tick(1)
    db.call("leave", epoch=old)
    declare(db, new, rule(run_on_start=True))
    assert len(slots(db)) == 1


def test_repeated_declaration_is_not_a_second_cluster_start(db: Db) -> None:
    epoch = start(db, rule(run_on_start=True))
    declare(db, epoch, rule(run_on_start=True))
    assert len(slots(db)) == 1


def test_processes_that_register_again_after_a_loss_start_no_cluster(db: Db) -> None:
    """Whoever of them registers first: an instance is known by its earlier nodes."""
    rules, instances = rule(run_on_start=True), [uuid4(), uuid4()]
    lost = [db.node(app="shop", instance=instance) for instance in instances]
    for epoch in lost:
        declare(db, epoch, rules)
    db.lose(*lost)
    again = [db.node(app="shop", instance=instance) for instance in instances]
    for epoch in again:
        declare(db, epoch, rules)
        db.tick(1)
    new = start(db, rules)
    db.call("heartbeat", epoch=again[0])
    assert [db.value("start_cluster", epoch=epoch) for epoch in (*again, new)] == [True, True, False]
    assert len(slots(db)) == 1


def test_lost_undecided_node_may_start_the_cluster_when_it_returns(db: Db) -> None:
    rules, instance = rule(run_on_start=True), uuid4()
    dead = start(db, rules)
    db.tick(1)
    declare(db, (undecided := db.node(app="shop", instance=instance)), rules)
    assert db.value("start_cluster", epoch=undecided) is None
    db.lose(dead, undecided)
    assert db.value("start_cluster", epoch=undecided) is None, "it may live"
    declare(db, (again := db.node(app="shop", instance=instance)), rules)
    assert len(slots(db)) == 1
    assert db.value("start_cluster", epoch=again) is True
    assert len(slots(db)) == 2


def test_lost_node_that_returns_prevents_a_cluster_start(db: Db) -> None:
    """It did not beat between the coming of the next one and its own loss."""
    rules, instance = rule(run_on_start=True), uuid4()
    declare(db, (old := db.node(app="shop", instance=instance)), rules)
    db.tick(1)
    new = start(db, rules)
    db.lose(old)
    declare(db, db.node(app="shop", instance=instance), rules)
    assert db.value("start_cluster", epoch=new) is False
    assert len(slots(db)) == 1


def test_two_nodes_that_declare_at_once_start_the_cluster_once(db: Db) -> None:
    """The schedule exists already, so that nothing but the lock of declarations lets the second node wait."""
    rules = rule(run_on_start=True)
    db.call("leave", epoch=start(db, rules))
    db.tick(1)
    first, second, other = db.node(app="shop"), db.node(app="shop"), db.session()
    before = len(slots(db))
    db.begin()
    declare(db, first, rules)
    waiting = other.start("declare_schedules", epoch=second, schedules=[rules]).blocked()
    db.commit()
    assert [row.outcome for row in waiting.rows()] == ["unchanged"]
    assert len(slots(db)) == before + 1


def test_undecided_node_requests_heartbeats_from_others(db: Db) -> None:
    channel = db.value("_wake_channel")
    listener = db.session(db.url)
    listener.execute(f'LISTEN "{channel}"')

    def heard() -> list[str]:
        db.execute("SELECT pg_notify(%s, 'the end')", (channel,))
        notes = (note.payload for note in listener.connection.notifies(timeout=60))
        return list(takewhile(lambda note: note != "the end", notes))

    start(db, rule(run_on_start=True), rule(name="t"))
    db.tick(1)
    start(db, rule(name="t"))
    assert "beat" not in heard(), "nothing runs when its cluster starts"
    db.tick(1)
    start(db, rule(run_on_start=True))
    assert "beat" in heard()


def test_invalid_declarations_are_refused(db: Db) -> None:
    with refused("WB001"):
        declare(db, 7, rule())
    with refused("WB003", "has no app"):
        declare(db, db.node(), rule())
    with refused("WB003", "each with a hash"):
        declare(db, db.node(app="shop"), {"name": "s"})
    with refused("WB010"):
        declare(db, db.node(app="shop"), rule(), rule(name="t", pattern="bla"))
    assert db.count("schedules") == 0
