"""Pins: they move one key, and nothing that shares its token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, refused
from tests.store.test_items import claim, finish
from tests.store.test_tokens import GROUP, Group
from watchbill.cluster.hashing import token_of


@pytest.fixture
def group(db: Db) -> Group:
    return Group(db, handover_timeout=timedelta(seconds=10))


def pin(group: Group, key: str, *patterns: str, **more: Any) -> int:
    wanted = [{"key": key, "pattern": pattern, "reason": "memory"} for pattern in patterns]
    made: int = group.db.value("pin", token_group=GROUP, wanted=wanted, **more)
    return made


def settle(group: Group, leader: int, *nodes: int) -> None:
    """Lets the leader and the owners do what there is to do."""
    for _ in range(6):
        group.rebalance(leader)
        for node in (leader, *nodes):
            group.passes(node)


def owner_of(group: Group, key: str) -> int:
    lane = group.db.value("_route_lane", token_group=GROUP, route_key=key)
    return group.owners()[lane - 1]


def test_a_pin_moves_its_key_alone(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    token = next(token for token, owner in group.owners().items() if owner == a)
    key, neighbour, *_ = (key for key in map(str, range(200)) if token_of(key, 12) == token)
    before = group.owners()
    assert pin(group, key, "gpu-%") == 1
    settle(group, a, b)
    assert owner_of(group, key) == b
    assert {number: owner for number, owner in group.owners().items() if number < 12} == before
    assert group.owners()[12] == b
    assert owner_of(group, neighbour) == a


def test_wrong_keys_and_lengths_are_refused(group: Group) -> None:
    pin(group, "k" * 1000, "gpu-%")
    with refused("WB003", "a key of 1001 bytes is invalid: the limit is 1000"):
        pin(group, "ä" * 500 + "k", "gpu-%")
    with refused("WB003", 'pin {"key": "", '):
        pin(group, "", "gpu-%")
    for length in (timedelta(0), timedelta(days=-1)):
        with refused("WB003", "expires_in .* is invalid"):
            pin(group, "k", "gpu-%", expires_in=length)


def test_members_read_pins_again_when_these_have_changed(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    before = group.state(a).pins_version
    assert group.state(a, seen_pins=before).pin_keys is None
    pin(group, "k", "a")
    state = group.state(a, seen_pins=before)
    assert (state.pin_keys, state.pin_tokens) == (["k"], [12])
    assert group.state(a, seen_pins=state.pins_version).pin_keys is None


def test_a_pin_starts_with_the_owner_of_the_key(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    pin(group, key, "gpu-%")
    assert owner_of(group, key) == a
    group.rebalance(a)
    group.rebalance(a)
    assert group.moving() == {12: b}


def test_the_first_alternative_with_a_living_match_counts(group: Group) -> None:
    a, b = group.join("a"), group.join("big-1")
    group.rebalance(a)
    key = group.key_of(0)
    pin(group, key, "gpu-%", "big-%")
    settle(group, a, b)
    assert owner_of(group, key) == b
    c = group.join("gpu-1")
    settle(group, a, b, c)
    assert owner_of(group, key) == c
    group.db.value("leave", epoch=c)
    settle(group, a, b)
    assert owner_of(group, key) == b


def test_a_pin_can_ask_for_labels(group: Group) -> None:
    a, b = group.join("a"), group.join("b", labels={"gpu": "a100", "zone": "x"})
    group.rebalance(a)
    wanted = [{"key": "k", "labels": {"gpu": "a100"}}]
    group.db.call("pin", token_group=GROUP, wanted=wanted)
    settle(group, a, b)
    assert owner_of(group, "k") == b


def test_a_pin_can_name_a_node_by_its_label(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.call("pin", token_group=GROUP, wanted=[{"key": "k", "labels": {"node": "b"}}])
    settle(group, a, b)
    assert owner_of(group, "k") == b
    (row,) = group.db.call("pin_list", token_group=GROUP)
    assert row.has_match


def test_a_pin_without_a_match_has_no_owner_and_is_shown(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    pin(group, "k", "gpu-%")
    settle(group, a)
    assert owner_of(group, "k") == 0
    assert claim(group, a, "k").refused == "not owned"
    (row,) = group.db.call("pin_list", token_group=GROUP)
    assert (row.key, row.patterns, row.owner, row.has_match, row.reason) == ("k", ["gpu-%"], None, False, "memory")
    b = group.join("gpu-7")
    settle(group, a, b)
    assert group.db.row("pin_list", token_group=GROUP).owner == "gpu-7"


def test_patterns_are_those_of_like(group: Group) -> None:
    a, b = group.join("prod-1-gpu"), group.join("prod_2")
    group.rebalance(a)
    for key, pattern in {"1": "prod-1-gpu", "2": "prod-%", "3": "%-gpu", "4": "%1%"}.items():
        pin(group, key, pattern)
    settle(group, a, b)
    assert {owner_of(group, key) for key in "1234"} == {a}


def test_pins_of_one_pattern_spread_over_its_nodes(group: Group) -> None:
    nodes = [group.join(f"gpu-{number}") for number in range(3)]
    group.rebalance(nodes[0])
    wanted = [{"key": str(number), "pattern": "gpu-%"} for number in range(60)]
    assert group.db.value("pin", token_group=GROUP, wanted=wanted) == 60
    settle(group, *nodes)
    owners = [owner_of(group, str(number)) for number in range(60)]
    assert min(owners.count(node) for node in nodes) >= 8


def test_a_new_pin_replaces_the_alternatives_or_comes_after_them(group: Group) -> None:
    group.join("a")
    pin(group, "k", "x", "y")
    pin(group, "k", "z")
    assert group.db.row("pin_list", token_group=GROUP).patterns == ["z"]
    pin(group, "k", "w", append=True)
    assert group.db.row("pin_list", token_group=GROUP).patterns == ["z", "w"]
    assert len(group.owners()) == 1


def test_a_cleared_pin_gives_its_key_back(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    pin(group, key, "gpu-%")
    settle(group, a, b)
    assert group.db.value("clear_pins", token_group=GROUP, key=key) == 1
    assert group.db.call("pin_list", token_group=GROUP) == []
    assert owner_of(group, key) == b  # until it has passed the key on
    settle(group, a, b)
    assert owner_of(group, key) == a
    assert group.db.rows("pins") == []
    assert len(group.owners()) == 12


def test_pins_are_cleared_by_their_creator(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    pin(group, "k", "x", created_by="old-worker")
    pin(group, "k", "a", created_by="me", append=True)
    pin(group, "l", "x", created_by="old-worker")
    assert group.db.value("clear_pins", token_group=GROUP, created_by="old-worker") == 2
    (row,) = group.db.call("pin_list", token_group=GROUP)
    assert (row.key, row.patterns, row.created_by) == ("k", ["a"], "me")


def test_pins_expire(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    pin(group, key, "gpu-%", expires_in=timedelta(days=1))
    settle(group, a, b)
    assert owner_of(group, key) == b
    group.db.now += timedelta(days=1)
    for node in (a, b):
        group.db.call("heartbeat", epoch=node)
    assert group.state(a).needs_leader == "pins expire"
    settle(group, a, b)
    assert owner_of(group, key) == a
    assert group.db.rows("pins") == []


def test_a_pin_keeps_its_key_when_its_first_alternative_has_expired(group: Group) -> None:
    a, b = group.join("a"), group.join("big-1")
    group.rebalance(a)
    key = group.key_of(0)
    pin(group, key, "gpu-%", expires_in=timedelta(days=1))
    pin(group, key, "big-%", append=True)
    settle(group, a, b)
    assert group.state(a).pin_keys == [key]
    group.db.now += timedelta(days=1)
    for node in (a, b):
        group.db.call("heartbeat", epoch=node)
    settle(group, a, b)
    assert [row.rank for row in group.db.rows("pins")] == [2]
    assert group.state(a).pin_keys == [key]
    assert owner_of(group, key) == b


def test_a_held_item_keeps_a_new_pin_with_its_owner(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    fence = claim(group, a, key).fence
    pin(group, key, "gpu-%")
    settle(group, a, b)
    assert owner_of(group, key) == a
    finish(group, key, fence)
    settle(group, a, b)
    assert owner_of(group, key) == b


def test_a_pin_that_was_cleared_can_be_set_again(group: Group) -> None:
    a, b = group.join("a"), group.join("gpu-1")
    group.rebalance(a)
    pin(group, "k", "gpu-%")
    settle(group, a, b)
    group.db.value("clear_pins", token_group=GROUP)
    pin(group, "k", "a")
    settle(group, a, b)
    assert owner_of(group, "k") == a
    assert group.db.row("pin_list", token_group=GROUP).patterns == ["a"]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        [1],
        [{"key": "k"}],
        [{"pattern": "x"}],
        [{"key": "k", "pattern": "x", "labels": {}}],
        [{"key": 1, "pattern": "x"}],
        [{"key": "k", "labels": 1}],
    ],
)
def test_an_invalid_pin_is_refused_and_shown(group: Group, wanted: Any) -> None:
    with refused("WB003", "pin .* is invalid"):
        group.db.call("pin", token_group=GROUP, wanted=wanted)
