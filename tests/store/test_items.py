"""Items that members claim for themselves: exclusive, fenced, recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import LEASE, Db, refused
from tests.store.test_tokens import GROUP, Group


@pytest.fixture
def group(db: Db) -> Group:
    return Group(db, handover_timeout=timedelta(seconds=10))


def claim(group: Group, epoch: int, key: str, **more: Any) -> Any:
    return group.db.row("claim_items", epoch=epoch, token_group=GROUP, keys=[key], **more)


def finish(group: Group, key: str, fence: int, **more: Any) -> list[str]:
    stale: list[str] = group.db.value("finish_items", token_group=GROUP, keys=[key], fences=[fence], **more)
    return stale


def check(group: Group, key: str, fence: int, **more: Any) -> None:
    group.db.call("check_item", token_group=GROUP, key=key, fence=fence, **more)


def test_the_owner_of_the_key_claims_it_once(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    first = claim(group, a, "customer-7", scope="2031-03-14")
    assert first.fence is not None
    check(group, "customer-7", first.fence, scope="2031-03-14")
    with refused("WB007"):
        check(group, "customer-7", first.fence, scope="2031-03-15")
    again = claim(group, a, "customer-7", scope="2031-03-14")
    assert (again.fence, again.refused, again.node) == (None, "taken", "a")
    assert claim(group, a, "customer-7", scope="2031-03-15").fence > first.fence


def test_long_keys_and_scopes_are_refused(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    assert claim(group, a, "k" * 1000, scope="s" * 1000).fence
    with refused("WB003", "a key of 1001 bytes is invalid: the limit is 1000"):
        claim(group, a, "k" * 1001)
    with refused("WB003", "a scope of 1001 bytes is invalid: the limit is 1000"):
        claim(group, a, "k", scope="s" * 1001)


def test_a_node_that_does_not_own_the_key_is_refused(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    owner = group.owners()
    key = group.key_of(0)
    other = b if owner[0] == a else a
    assert claim(group, other, key).refused == "not owned"
    assert claim(group, owner[0], key).fence is not None


def test_many_items_are_claimed_in_one_call(group: Group) -> None:
    a = group.join("a")
    group.join("b")
    group.rebalance(a)
    keys = [group.key_of(token) for token in range(12)]
    rows = group.db.call("claim_items", epoch=a, token_group=GROUP, keys=[*keys, keys[0]])
    taken = {row.key for row in rows if row.fence is not None}
    assert taken == {key for key, token in zip(keys, range(12), strict=True) if group.owners()[token] == a}
    assert {row.refused for row in rows if row.fence is None} == {"not owned"}


def test_an_item_is_finished_once_per_scope(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    fence = claim(group, a, "k", scope="today").fence
    assert finish(group, "k", fence, scope="today") == []
    assert claim(group, a, "k", scope="today").refused == "finished"
    assert claim(group, a, "k", scope="today", again=True).fence > fence
    plain = claim(group, a, "k").fence
    finish(group, "k", plain)
    assert claim(group, a, "k").fence > plain


def test_a_released_item_can_be_claimed_again(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    fence = claim(group, a, "k", scope="today").fence
    assert finish(group, "k", fence, scope="today", released=True) == []
    assert claim(group, a, "k", scope="today").fence > fence


def test_a_stale_fence_finishes_and_checks_nothing(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    old = claim(group, a, "k").fence
    finish(group, "k", old, released=True)
    with refused("WB007", "item 'k' is not held under fence"):
        check(group, "k", old)
    new = claim(group, a, "k").fence
    assert finish(group, "k", old) == ["k"]
    with refused("WB007"):
        check(group, "k", old)
    check(group, "k", new)


def test_a_lost_node_claims_nothing_and_the_next_owner_takes_over(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    old = claim(group, a, key, scope="today").fence
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=b)
    group.db.now += LEASE * 0.6
    group.db.reclaim(a)
    with refused("WB001"):
        claim(group, a, "another")
    group.rebalance(b)
    new = claim(group, b, key, scope="today").fence
    assert new > old
    with refused("WB007"):
        check(group, key, old, scope="today")
    assert finish(group, key, old, scope="today") == [key]


def test_a_check_holds_back_the_next_owner_until_the_transaction_ends(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    key = group.key_of(next(token for token, owner in group.owners().items() if owner == a))
    old = claim(group, a, key).fence
    user = group.db.session()
    user.begin()
    user.call("check_item", token_group=GROUP, key=key, fence=old)
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=b)
    group.db.now += LEASE * 0.6
    group.db.reclaim(a)
    group.rebalance(b)
    other = group.db.session()
    waiting = other.start("claim_items", epoch=b, token_group=GROUP, keys=[key]).blocked()
    user.commit()
    assert waiting.row().fence > old


def test_an_owner_keeps_a_token_as_long_as_it_holds_an_item_of_it(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    key = group.key_of(11)
    fence = claim(group, a, key).fence
    group.join("b")
    group.rebalance(a)
    assert group.passes(a) == 1
    assert claim(group, a, key + "x").refused in (None, "not owned")
    assert claim(group, a, key).refused == "not owned"  # it moves, so nothing more is claimed there
    finish(group, key, fence)
    assert group.passes(a) == 0


def test_a_token_does_not_wait_for_an_item_that_a_lost_node_has_left(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    assert group.owners()[11] == b
    claim(group, b, group.key_of(11))
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=a)
    group.db.now += LEASE * 0.6
    group.db.reclaim(b)
    group.rebalance(a)
    c = group.join("c")
    group.rebalance(a)
    assert group.moving()[11] == c
    assert group.passes(a) == 0
    assert group.owners()[11] == c


def test_an_overdue_hand_over_fences_the_items_of_the_owner(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    key = group.key_of(11)
    fence = claim(group, a, key).fence
    b = group.join("b")
    group.rebalance(a)
    assert group.passes(a) == 1
    group.db.tick(11)
    group.rebalance(a)
    assert group.owners()[11] == b
    with refused("WB007"):
        check(group, key, fence)
    assert finish(group, key, fence) == [key]
    assert claim(group, b, key).fence > fence


def test_an_overdue_hand_over_leaves_the_items_of_other_tokens(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    moved, kept = group.key_of(11), group.key_of(0)
    claim(group, a, moved)
    fence = claim(group, a, kept).fence
    group.join("b")
    group.rebalance(a)
    group.passes(a)
    group.db.tick(11)
    group.rebalance(a)
    assert group.owners()[11] != a
    check(group, kept, fence)
    assert finish(group, kept, fence) == []


def test_an_overdue_token_waits_for_a_transaction_that_has_checked_its_item(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    key = group.key_of(11)
    fence = claim(group, a, key).fence
    group.join("b")
    group.rebalance(a)
    group.passes(a)
    user = group.db.session()
    user.begin()
    user.call("check_item", token_group=GROUP, key=key, fence=fence)
    group.db.tick(11)
    group.rebalance(a)
    assert group.owners()[11] == a
    user.commit()
    group.rebalance(a)
    assert group.owners()[11] != a


def test_a_claim_waits_for_a_hand_over_and_then_finds_the_token_gone(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    group.rebalance(a)
    key = group.key_of(11)
    passer, claimer = group.db.session(), group.db.session()
    passer.begin()
    passer.value("pass_tokens", epoch=a, token_group=GROUP)
    waiting = claimer.start("claim_items", epoch=a, token_group=GROUP, keys=[key]).blocked()
    passer.commit()
    assert waiting.row().refused == "not owned"


def test_audit_and_incomplete_items_survive_their_node(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    done = claim(group, a, "done", scope="today").fence
    finish(group, "done", done, scope="today")
    claim(group, a, "open", scope="today")
    group.db.tick(300)
    claim(group, a, "young", scope="today")
    audit = group.db.call("item_audit", token_group=GROUP, scope="today")
    assert [(row.key, row.node, row.state) for row in audit] == [
        ("done", "a", "finished"), ("open", "a", "held"), ("young", "a", "held"),
    ]  # fmt: skip
    older = {"token_group": GROUP, "scope": "today", "older_than": timedelta(minutes=5)}
    assert [(row.key, row.is_held) for row in group.db.call("incomplete_items", **older)] == [("open", True)]
    group.db.lose(a)
    b = group.join("b")
    group.rebalance(b)
    assert [(row.key, row.node, row.is_held) for row in group.db.call("incomplete_items", **older)] == [
        ("open", "a", False)
    ]
    assert claim(group, b, "open", scope="today").fence is not None


def test_old_items_are_pruned(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    finish(group, "k", claim(group, a, "k").fence)
    claim(group, a, "open")
    group.db.tick(86400)
    assert group.db.value("prune_items", keep=timedelta(hours=1)) == 2  # the item and the rebalance
    assert [row.key for row in group.db.rows("item_claims")] == ["open"]
