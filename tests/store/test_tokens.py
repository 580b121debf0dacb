"""Token groups: members, tokens, rebalance and hand-over."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.harness import LEASE, Db, End, refused
from watchbill.cluster.distribution import plan_moves
from watchbill.cluster.hashing import HASHES, token_of

GROUP = "production"


class Group:
    """A group of a test's own nodes; the first of them leads."""

    def __init__(self, db: Db, total: int = 12, **more: Any) -> None:
        self.db = db
        db.call("declare_group", name=GROUP, total=total, **more)

    def join(self, name: str, **more: Any) -> int:
        epoch = self.db.node(name, **more)
        self.db.call("join_group", epoch=epoch, token_group=GROUP)
        return epoch

    def lead(self, epoch: int) -> int:
        """The term of the leader, whichever node that is."""
        (row,) = self.db.call("elect", epoch=epoch, groups=[GROUP])
        return int(row.term)

    def rebalance(self, leader: int) -> int:
        moved: int = self.db.value("rebalance", token_group=GROUP, term=self.lead(leader), epoch=leader)
        return moved

    def passes(self, epoch: int) -> int:
        """Passes on what it can; the number of tokens that it has to keep for now."""
        left: int = self.db.value("pass_tokens", epoch=epoch, token_group=GROUP)
        return left

    def owners(self) -> dict[int, int]:
        return {row.token: row.epoch for row in self.db.rows("tokens", "token")}

    def counts(self) -> dict[int, int]:
        return dict(Counter(self.owners().values()))

    def moving(self) -> dict[int, int]:
        return {row.token: row.next for row in self.db.rows("tokens", "token") if row.next is not None}

    def state(self, epoch: int, **more: Any) -> Any:
        return self.db.row("member_state", epoch=epoch, token_group=GROUP, **more)

    def key_of(self, token: int) -> str:
        """Some key that has this token."""
        total = self.db.rows("token_groups")[0].total
        return next(key for key in map(str, range(100_000)) if token_of(key, total) == token)


@pytest.fixture
def group(db: Db) -> Group:
    return Group(db)


@pytest.mark.parametrize("hash", HASHES)
def test_sql_and_python_agree_on_the_token_of_a_key(db: Db, hash: str) -> None:
    for key in ("", "customer-7", "ключ", "\t", "x" * 500, *map(str, range(50))):
        for total in (1, 7, 10_000, 10_000_000):
            assert db.value("_token_of", key=key, total=total, hash=hash) == token_of(key, total, hash)


def test_first_rebalance_divides_all_tokens(group: Group) -> None:
    a, b, c = group.join("a"), group.join("b"), group.join("c")
    assert group.rebalance(a) == 12
    assert group.counts() == {a: 4, b: 4, c: 4}
    (row,) = group.db.rows("rebalances")
    assert (row.reason, row.leader, row.nodes_after, row.moved) == ("first assignment", "a", ["a", "b", "c"], 12)


def test_nothing_is_written_when_nothing_has_changed(group: Group) -> None:
    a = group.join("a")
    group.join("b")
    group.rebalance(a)
    before = group.db.execute("SELECT xmin::text, * FROM watchbill.token_groups")
    assert group.rebalance(a) == 0
    assert group.db.execute("SELECT xmin::text, * FROM watchbill.token_groups") == before
    assert group.state(a).needs_leader is None


def test_assignment_waits_for_min_nodes(db: Db) -> None:
    group = Group(db, min_nodes=2)
    a = group.join("a")
    assert group.rebalance(a) == 0
    assert group.counts() == {}
    assert group.state(a).needs_leader is None
    b = group.join("b")
    assert group.state(a).needs_leader == "first assignment"
    group.rebalance(a)
    assert group.counts() == {a: 6, b: 6}


def test_more_nodes_than_tokens_leave_some_without(db: Db) -> None:
    group = Group(db, total=2)
    nodes = [group.join(name) for name in "abc"]
    group.rebalance(nodes[0])
    assert sorted(group.counts().values()) == [1, 1]
    assert group.state(nodes[0]).needs_leader is None


def test_tokens_of_a_node_that_died_before_the_clock_was_set_back_move(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.tick(-86_400)
    group.db.value("heartbeat", epoch=a)
    group.db.reclaim(b)
    assert group.state(a).needs_leader == "nodes left"
    group.rebalance(a)
    assert group.counts() == {a: 12}


def test_tokens_of_a_living_owner_move_when_it_passes_them_on(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    assert group.state(a).needs_leader == "nodes joined"
    assert group.rebalance(a) == 6
    assert group.counts() == {a: 12}
    assert set(group.moving().values()) == {b}
    assert len(group.state(a).tokens) == 6
    assert group.state(a).moving == 6
    assert group.state(b).tokens == []
    fences = {row.token: row.fence for row in group.db.rows("tokens")}
    moving = group.moving()
    assert group.passes(a) == 0
    assert group.counts() == {a: 6, b: 6}
    for row in group.db.rows("tokens"):
        assert (row.fence > fences[row.token]) == (row.token in moving)


def test_a_member_is_assigned_when_all_its_tokens_have_arrived(group: Group) -> None:
    a = group.join("a")
    assert not group.state(a).is_assigned
    group.rebalance(a)
    assert group.state(a).is_assigned
    b = group.join("b")
    group.rebalance(a)
    assert not group.state(b).is_assigned
    group.passes(a)
    assert group.state(b).is_assigned


def test_a_lost_node_is_not_a_member(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    assert group.state(a).is_member
    group.db.lose(a)
    assert not group.state(a).is_member
    assert not group.state(group.db.node("b")).is_member


def test_only_the_owner_passes_tokens_on(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    group.rebalance(a)
    assert group.passes(b) == 0
    assert group.counts() == {a: 12}


def test_changes_of_a_group_come_one_after_the_other(group: Group) -> None:
    a, b = group.join("a"), group.db.node("b")
    first, second = group.db.session(), group.db.session()
    first.begin()
    first.call("join_group", epoch=b, token_group=GROUP)
    waiting = second.start("leave_group", epoch=a, token_group=GROUP).blocked()
    first.commit()
    assert waiting.value() is False
    assert [row.epoch for row in group.db.rows("members")] == [b]


def test_each_change_raises_the_version_once(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    assert group.state(a).version == 1
    b = group.join("b")
    group.rebalance(a)
    assert group.state(a).version == 2
    group.passes(a)
    assert group.state(a).version == 3
    assert group.state(a, seen_version=3).tokens is None
    assert len(group.state(b, seen_version=2).tokens) == 6


def test_tokens_of_a_lost_owner_are_granted_at_once(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=b)
    group.db.now += LEASE * 0.6
    group.db.reclaim(a)
    fences = {row.token: row.fence for row in group.db.rows("tokens") if row.epoch == a}
    assert group.state(b).needs_leader == "nodes left"
    assert group.rebalance(b) == 6
    assert group.counts() == {b: 12}
    assert group.moving() == {}
    assert all(row.fence > fences[row.token] for row in group.db.rows("tokens") if row.token in fences)


def test_a_member_whose_node_was_pruned_is_forgotten(group: Group) -> None:
    """The group was not used for longer than nodes are kept."""
    a = group.join("a")
    group.rebalance(a)
    group.db.value("leave", epoch=a)
    group.db.now += timedelta(days=2)
    assert group.db.value("prune_nodes", keep=timedelta(days=1)) == 1
    b = group.join("b")
    assert group.rebalance(b) == 12
    assert group.counts() == {b: 12}
    assert [row.epoch for row in group.db.rows("members")] == [b]


def test_a_member_that_was_lost_is_forgotten_with_the_next_rebalance(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=a)
    group.db.now += LEASE * 0.6
    group.db.reclaim(b)
    group.rebalance(a)
    assert [row.epoch for row in group.db.rows("members")] == [a]


def test_a_leader_that_leaves_strands_nothing(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.value("leave", epoch=a)
    assert group.rebalance(b) == 6
    assert group.counts() == {b: 12}


def test_a_leave_and_a_join_between_two_looks_are_noticed(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.value("leave", epoch=b)
    c = group.join("c")
    assert group.rebalance(a) == 6
    assert group.counts() == {a: 6, c: 6}
    assert group.db.rows("rebalances", "id DESC")[0].reason == "nodes joined, nodes left"


def test_a_node_that_drains_passes_its_tokens_on(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    group.db.value("drain", name="b")
    group.rebalance(a)
    assert group.counts() == {a: 6, b: 6}
    group.passes(b)
    assert group.counts() == {a: 12}


def test_a_member_that_leaves_the_group_keeps_tokens_until_it_passes_them_on(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    assert group.db.value("leave_group", epoch=b, token_group=GROUP) is True
    group.rebalance(a)
    assert group.state(b).moving == 6
    group.passes(b)
    assert group.db.value("leave_group", epoch=b, token_group=GROUP) is False
    assert [row.epoch for row in group.db.rows("members")] == [a]
    group.db.call("join_group", epoch=b, token_group=GROUP)
    group.rebalance(a)
    assert len(group.moving()) == 6


def test_a_token_on_its_way_can_come_back(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    group.rebalance(a)
    group.db.value("leave", epoch=b)
    group.rebalance(a)
    assert group.moving() == {}
    assert group.counts() == {a: 12}
    assert len(group.state(a).tokens) == 12


def test_a_rebalance_with_an_old_term_is_refused(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    term = group.lead(a)
    group.db.value("leave", epoch=a)
    assert group.lead(b) > term
    with refused("WB012"):
        group.db.value("rebalance", token_group=GROUP, term=term, epoch=a)
    assert group.counts() == {}


def test_a_term_stays_until_the_rebalance_commits(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    term = group.lead(a)
    leader = group.db.session()
    leader.begin()
    leader.value("rebalance", token_group=GROUP, term=term, epoch=a)
    group.db.now += LEASE * 1.1
    group.db.call("heartbeat", epoch=b)
    (row,) = group.db.call("elect", epoch=b, groups=[GROUP])
    assert row.leader is None
    leader.commit()
    assert group.lead(b) > term


def test_members_serve_all_queues_of_the_group(group: Group) -> None:
    a, b = group.join("a", queues=["other"]), group.join("b", queues=["score", "other"])
    group.db.call("route_queue", queue="score", token_group=GROUP)
    group.rebalance(a)
    assert group.counts() == {b: 12}
    group.db.call("drain", name="b")
    (row,) = group.db.call("group_list", name=GROUP)
    assert (row.others, row.waits_for) == (["a", "b"], "no member serves all its queues (score)")
    c = group.join("c")  # did not say which queues it serves
    group.rebalance(a)
    assert set(group.moving().values()) == {c}


def test_a_group_without_members_and_jobs_is_removed(group: Group) -> None:
    a = group.join("a")
    group.db.call("route_queue", queue="score", token_group=GROUP)
    group.rebalance(a)
    group.db.call("pin", token_group=GROUP, wanted=[{"key": "k", "pattern": "a"}])
    group.db.call("claim_items", epoch=a, token_group=GROUP, keys=["item"])
    with refused("WB003", f"group '{GROUP}' has members: a"):
        group.db.call("remove_group", name=GROUP)
    group.db.call("leave", epoch=a)
    group.db.enqueue(queue="score")
    routed = group.db.enqueue(queue="score", route_by="k")
    with refused("WB003", f"group '{GROUP}' routes unfinished jobs of queue 'score'"):
        group.db.call("remove_group", name=GROUP)
    group.db.call("cancel", id=routed)
    group.db.call("remove_group", name=GROUP)
    for table in ("token_groups", "tokens", "members", "pins", "item_claims", "rebalances"):
        assert group.db.count(table) == 0, table
    assert [(queue.lanes, queue.token_group) for queue in group.db.rows("queues")] == [("none", None)]
    assert [row.subject for row in group.db.rows("audit") if row.action == "remove_group"] == [GROUP]
    with refused("WB003", "it does not exist"):
        group.db.call("remove_group", name=GROUP)


def test_the_removal_of_a_group_does_not_miss_a_job_that_is_not_committed(group: Group) -> None:
    group.db.call("route_queue", queue="score", token_group=GROUP)
    producer = group.db.session()
    producer.begin()
    producer.call("enqueue", type="t", queue="score", route_by="k")
    with refused("WB003", "a transaction that writes jobs is open"):
        group.db.call("remove_group", name=GROUP)
    producer.rollback()
    group.db.call("remove_group", name=GROUP)


def test_an_operator_can_ask_for_a_rebalance(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    group.db.change("UPDATE {schema}.tokens SET epoch = 0 WHERE token < 3")
    assert group.rebalance(a) == 0
    group.db.call("request_rebalance", token_group=GROUP)
    assert group.rebalance(a) == 3
    assert group.counts() == {a: 12}


def test_a_lost_node_cannot_join_or_pass_tokens(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    group.db.lose(a)
    with refused("WB001"):
        group.db.call("join_group", epoch=a, token_group=GROUP)
    with refused("WB001"):
        group.passes(a)


def test_declaring_a_group_again_changes_its_options(group: Group) -> None:
    group.db.call("declare_group", name=GROUP, total=12, min_nodes=3, handover_timeout=timedelta(seconds=5))
    (row,) = group.db.rows("token_groups")
    assert (row.min_nodes, row.handover_timeout) == (3, timedelta(seconds=5))


def test_another_number_of_tokens_is_refused_while_the_group_has_pins(group: Group) -> None:
    """They name tokens, so that they would be lost."""
    group.db.execute("""SELECT watchbill.pin('production', '[{"key": "k", "pattern": "a"}]')""")
    with refused("WB003", r"group 'production' has 12 tokens \(md5\), not 24 \(md5\)"):
        group.db.call("declare_group", name=GROUP, total=24)
    assert group.db.count("pins") == 1
    group.db.execute("SELECT watchbill.clear_pins('production')")
    group.db.call("declare_group", name=GROUP, total=24)


def test_another_number_of_tokens_is_refused_while_the_group_has_members(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    with refused("WB003", r"group 'production' has 12 tokens \(md5\), not 24 \(md5\)"):
        group.db.call("declare_group", name=GROUP, total=24)
    group.db.value("leave", epoch=a)
    group.db.call("declare_group", name=GROUP, total=24)
    b = group.join("b")
    group.rebalance(b)
    assert group.counts() == {b: 24}


@pytest.mark.parametrize(
    "options",
    [{"name": ""}, {"total": 0}, {"hash": "crc"}, {"min_nodes": 0}, {"handover_timeout": timedelta(0)}],
)
def test_options_of_a_group_are_checked(db: Db, options: dict[str, Any]) -> None:
    with refused("WB003", "is invalid"):
        db.call("declare_group", **({"name": "g"} | options))


def test_an_unknown_group_is_refused(db: Db) -> None:
    with refused("WB003", "token group 'x' is invalid"):
        db.call("join_group", epoch=db.node("a"), token_group="x")


def claim_routed(group: Group, epoch: int, token: int) -> Any:
    """A job of that lane which the node has claimed."""
    group.db.call("route_queue", queue="score", token_group=GROUP)
    group.db.enqueue("score", queue="score")
    job = group.db.claim_one(epoch, queues=["score"])
    group.db.change("UPDATE {schema}.jobs SET lane = %s + 1, route_key = 'k' WHERE id = %s", token, job.id)
    return job


def test_an_owner_keeps_a_token_as_long_as_it_runs_a_job_of_its_lane(group: Group) -> None:
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    job = claim_routed(group, a, 11)
    group.rebalance(a)
    assert 11 in group.moving()
    assert group.passes(a) == 1
    assert list(group.moving()) == [11]
    group.db.settle(a, End(job))
    assert group.passes(a) == 0
    assert group.moving() == {}


def test_a_token_does_not_wait_for_a_job_that_its_owner_has_given_back(group: Group) -> None:
    """The row of the claim still names it, because another job of the same claim runs."""
    a = group.join("a")
    group.rebalance(a)
    group.db.call("route_queue", queue="score", token_group=GROUP)
    for _ in range(2):
        group.db.enqueue("score", queue="score")
    first, second = group.db.claim(a, max=2, queues=["score"])
    for job, token in ((first, 11), (second, 10)):
        group.db.change("UPDATE {schema}.jobs SET lane = %s + 1, route_key = 'k' WHERE id = %s", token, job.id)
    group.join("b")
    group.rebalance(a)
    assert group.passes(a) == 2
    group.db.settle(a, End(first, "released"))
    group.db.change("UPDATE {schema}.jobs SET lane = 12, route_key = 'k' WHERE id = %s", first.id)
    assert group.passes(a) == 1
    assert list(group.moving()) == [10]


def test_passing_tokens_on_waits_for_a_claim_under_way_and_refuses_those_that_began_before(group: Group) -> None:
    """A claim locks the row of its node FOR KEY SHARE and compares `assignment`."""
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    group.rebalance(a)
    claimer, passer = group.db.session(), group.db.session()
    claimer.begin()
    claimer.execute("SELECT FROM watchbill.nodes WHERE epoch = %s FOR KEY SHARE", (a,))
    waiting = passer.start("pass_tokens", epoch=a, token_group=GROUP).blocked()
    claimer.commit()
    assert waiting.value() == 0
    assert next(row.assignment for row in group.db.rows("nodes") if row.epoch == a) == 1


def test_an_overdue_hand_over_releases_the_jobs_of_the_owner_and_grants_its_tokens(db: Db) -> None:
    group = Group(db, handover_timeout=timedelta(seconds=10))
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    job = claim_routed(group, a, 11)
    group.rebalance(a)
    assert group.passes(a) == 1
    db.tick(9)
    assert group.state(b).needs_leader is None
    group.rebalance(a)
    assert group.moving() == {11: b}
    db.tick(1)
    assert group.state(b).needs_leader == "hand-over"
    group.rebalance(a)
    assert group.moving() == {}
    assert group.owners()[11] == b
    assert db.look(job.id).state == "queued"
    assert db.settle(a, End(job)) == {job.id: None}
    assert next(row.assignment for row in db.rows("nodes") if row.epoch == a) == 2


def test_the_time_of_a_hand_over_counts_from_the_first_request(db: Db) -> None:
    """Otherwise an owner that does not let go could keep a token for as long as members come and go."""
    group = Group(db, handover_timeout=timedelta(seconds=10))
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    claim_routed(group, a, 11)
    group.rebalance(a)
    assert group.passes(a) == 1
    db.tick(9)
    db.value("leave", epoch=b)
    c = group.join("c")
    group.rebalance(a)
    assert group.moving() == {11: c}
    db.tick(1)
    group.rebalance(a)
    assert group.owners()[11] == c


def test_only_what_is_overdue_is_taken(db: Db) -> None:
    """Neither tokens that were asked for later, nor jobs of tokens that stay."""
    group = Group(db, handover_timeout=timedelta(seconds=10))
    a = group.join("a")
    group.rebalance(a)
    b = group.join("b")
    claim_routed(group, a, 11)
    kept = claim_routed(group, a, 0)
    group.rebalance(a)
    assert group.passes(a) == 1
    db.tick(9)
    c = group.join("c")
    group.rebalance(a)
    later = {token for token, wanted in group.moving().items() if wanted == c and group.owners()[token] == a} - {11}
    assert later
    db.tick(1)
    group.rebalance(a)
    assert group.owners()[11] in (b, c)
    assert {group.owners()[token] for token in later} == {a}
    assert db.settle(a, End(kept)) == {}


def test_taking_overdue_tokens_waits_for_a_claim_under_way(db: Db) -> None:
    group = Group(db, handover_timeout=timedelta(seconds=10))
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    group.rebalance(a)
    term = group.lead(a)
    db.tick(11)
    claimer, leader = db.session(), db.session()
    claimer.begin()
    claimer.execute("SELECT FROM watchbill.nodes WHERE epoch = %s FOR KEY SHARE", (a,))
    waiting = leader.start("rebalance", token_group=GROUP, term=term, epoch=a).blocked()
    claimer.commit()
    waiting.value()
    assert group.moving() == {}


def test_an_overdue_token_whose_job_is_being_completed_waits(db: Db) -> None:
    group = Group(db, handover_timeout=timedelta(seconds=10))
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    job = claim_routed(group, a, 11)
    group.rebalance(a)
    group.passes(a)
    handler = db.session()
    handler.begin()
    handler.call("guard", id=job.id, fence=job.fence)
    db.tick(11)
    group.rebalance(a)
    assert list(group.moving()) == [11]
    handler.commit()
    group.rebalance(a)
    assert group.moving() == {}


def test_tokens_of_living_owners_are_not_granted_with_those_of_a_lost_one(group: Group) -> None:
    """The lost owner has a token that waits for its job, so that there is something to grant later."""
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    token = next(token for token, owner in group.owners().items() if owner == b)
    job = claim_routed(group, b, token)
    handler = group.db.session()
    handler.begin()
    handler.call("guard", id=job.id, fence=job.fence)
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=a)
    group.db.now += LEASE * 0.6
    group.db.reclaim(b)
    group.join("c")
    group.join("d")
    group.rebalance(a)
    assert group.owners()[token] == b
    assert group.counts()[a] == 6
    handler.rollback()
    group.db.reclaim()
    group.rebalance(a)
    assert group.owners()[token] != b
    assert group.counts()[a] == 6


def test_tokens_of_a_lost_owner_wait_until_its_jobs_are_reclaimed(group: Group) -> None:
    a, b = group.join("a"), group.join("b")
    group.rebalance(a)
    token = next(token for token, owner in group.owners().items() if owner == a)
    job = claim_routed(group, a, token)
    handler = group.db.session()
    handler.begin()
    handler.call("guard", id=job.id, fence=job.fence)
    group.db.now += LEASE / 2
    group.db.call("heartbeat", epoch=b)
    group.db.now += LEASE * 0.6
    group.db.reclaim(a)
    assert group.rebalance(b) == 6
    assert group.moving() == {token: b}
    assert group.counts() == {a: 1, b: 11}
    handler.rollback()
    group.db.reclaim()
    assert group.state(b).needs_leader == "hand-over"
    fence = next(row.fence for row in group.db.rows("tokens") if row.token == token)
    group.rebalance(b)
    assert group.counts() == {b: 12}
    assert next(row.fence for row in group.db.rows("tokens") if row.token == token) > fence


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 9), st.integers(1, 17))
def test_sql_moves_as_few_tokens_as_the_proven_plan(db: Db, alive: list[int], seed: int, total: int) -> None:
    """Each number in `alive` turns a node on or off; after each turn both plans are compared."""
    db.wipe()
    group = Group(db, total=total)
    nodes: dict[int, int] = {}
    for number, index in enumerate([9, *alive]):  # node 9 leads and stays
        if index in nodes:
            db.value("leave", epoch=nodes.pop(index))
        else:
            nodes[index] = group.join(f"{seed}-{index}-{number}")
        current = group.owners() | group.moving()
        expected = plan_moves(range(total), list(nodes.values()), current)
        assert group.rebalance(nodes[9]) == len(expected)
        counts = Counter((group.owners() | group.moving()).values())
        assert set(counts) <= set(nodes.values())
        assert max(counts.values()) - min(counts[epoch] for epoch in nodes.values()) <= 1
        if number % 2:
            for epoch in nodes.values():
                group.passes(epoch)


def test_tokens_stay_if_the_group_has_changed_since_the_owner_read_it(group: Group) -> None:
    """Memory of the owner may still count a token that began to move later."""
    a = group.join("a")
    group.rebalance(a)
    group.join("b")
    group.rebalance(a)
    seen = group.state(a).version
    group.join("c")
    group.rebalance(a)
    assert group.db.value("pass_tokens", epoch=a, token_group=GROUP, version=seen) == 8
    assert group.counts() == {a: 12}
    assert group.db.value("pass_tokens", epoch=a, token_group=GROUP, version=seen + 1) == 0
    assert group.counts()[a] == 4


def test_a_group_that_statistics_do_not_know_is_planned_without_reading_each_token_for_each(own_db: Db) -> None:
    """The planner takes an unknown group for one row. A join of its tokens with themselves took minutes for 10,000."""
    total, pins = 1000, [{"key": str(number), "pattern": "b"} for number in range(200)]
    own_db.call("declare_group", name="small", total=4)
    small = own_db.node("small")
    own_db.call("join_group", epoch=small, token_group="small")
    (row,) = own_db.call("elect", epoch=small, groups=["small"])
    own_db.call("rebalance", token_group="small", term=row.term, epoch=small)
    own_db.call("pin", token_group="small", wanted=pins[:3], created_by="test")
    own_db.execute("ANALYZE")
    group = Group(own_db, total=total)
    a = group.join("a")

    def count_reads() -> int:
        """Rows of tokens and pins that one rebalance reads."""
        term = group.lead(a)
        own_db.begin()
        own_db.call("rebalance", token_group=GROUP, term=term, epoch=a)
        (found,) = own_db.execute(
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables "
            "WHERE relname IN ('tokens', 'pins')"
        )
        own_db.commit()
        return int(found[0])

    reads = [count_reads()]
    b = group.join("b")
    reads.append(count_reads())
    group.passes(a)
    own_db.call("pin", token_group=GROUP, wanted=pins, created_by="test")
    reads += [count_reads(), count_reads()]
    group.passes(a)
    own_db.call("clear_pins", token_group=GROUP)
    reads += [count_reads(), count_reads()]
    own_db.call("leave", epoch=b)
    reads.append(count_reads())
    assert max(reads) < 100 * total, reads  # each token for each would be 1,000 * total
    mine = "SELECT token FROM watchbill.tokens WHERE token_group = %s AND token < %s AND epoch = %s"
    assert len(own_db.execute(mine, (GROUP, total, a))) == total
