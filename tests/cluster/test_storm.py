"""Storms over token groups, judged by what was recorded. `STORM_SEED=n` repeats one, as far as the machine lets it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

import psycopg
import pytest

from tests.cluster.storm.__main__ import draw_plan
from tests.cluster.storm.checker import check, check_end
from tests.cluster.storm.world import Plan, Storm
from tests.servers import find_servers
from tests.store.mutants import Mutant
from watchbill.postgres.migrate import Source

SOURCE = Source.of_package("watchbill.store")


def find_seed() -> int:
    return int(os.environ.get("STORM_SEED") or Random().randrange(10**6))


def survive(plan: Plan) -> None:
    print(f"STORM_SEED={plan.seed}")
    with Storm(find_servers()[0], plan) as storm:
        storm.run()
        report = storm.report()
        print(report)
        assert not storm.violations, report


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_short_storm_breaks_no_promise() -> None:
    """It does not judge how long a recovery takes: the machine may be busy."""
    survive(Plan(find_seed(), rounds=1, members=3, most=4, burst=(3, 5), has_bounds=False, patience=100))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_storm_over_items_breaks_no_promise() -> None:
    survive(Plan(find_seed(), rounds=30, members=6))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_storm_over_routed_and_ordered_jobs_breaks_no_promise() -> None:
    survive(Plan(find_seed(), rounds=30, members=0, workers=5))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_storm_over_twenty_nodes_breaks_no_promise() -> None:
    survive(Plan(find_seed(), rounds=9, members=20, most=22, lease=5.0))


class Planted(NamedTuple):
    """A fault, in which storms it shows, and what the checker says of it."""

    file: str
    original: str
    replacement: str
    words: tuple[str, ...]
    storm: Plan = Plan(0, rounds=5, members=4, patience=20)


JOBS_STORM = Plan(0, rounds=5, members=0, workers=4, patience=20)
PLANTED = {
    # Nor does the server end the transaction of a process that is frozen, which would hide the fault.
    "a stale fence is accepted": Planted(
        "cluster/check_item.sql",
        """BEGIN PERFORM FROM item_claims i
           WHERE i.token_group = check_item.token_group AND i.scope = coalesce(check_item.scope, '')
             AND i.key = check_item.key AND i.fence = check_item.fence AND i.state = 'held' FOR SHARE;
           IF NOT FOUND THEN""",
        """BEGIN PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
           IF false THEN""",
        ("an old fence was accepted", "work was overwritten"),
    ),
    "tokens change their owner without a hand-over": Planted(
        "cluster/rebalance.sql",
        "n.epoch IS NULL AND x.token <> ALL (busy) AS is_free",
        "true AS is_free",
        ("without a hand-over",),
    ),
    "a grant has no new fence": Planted(
        "cluster/rebalance.sql",
        "fence = CASE WHEN h.is_free THEN grant_fence ELSE x.fence END,",
        "",
        ("without a new fence",),
    ),
    "members that have died keep their tokens": Planted(
        "cluster/join_group.sql",
        "JOIN nodes n ON n.epoch = m.epoch AND n.state = 'active'",
        "JOIN nodes n ON n.epoch = m.epoch",
        ("tokens are stranded",),
    ),
    # It is slow as well, so that the leader can want more tokens before.
    "members pass on tokens that they still count": Planted(
        "cluster/pass_tokens.sql",
        """g token_groups := _lock_group(pass_tokens.token_group);
           passed int := 0;
           BEGIN
           PERFORM FROM nodes n WHERE n.epoch = pass_tokens.epoch AND n.state IN ('active', 'draining') FOR UPDATE;
           IF NOT FOUND THEN PERFORM _lock_living_node(pass_tokens.epoch); END IF;
           IF pass_tokens.version = g.version OR pass_tokens.version IS NULL THEN""",
        """pause text := pg_sleep(1);
           g token_groups := _lock_group(pass_tokens.token_group);
           passed int := 0;
           BEGIN
           PERFORM FROM nodes n WHERE n.epoch = pass_tokens.epoch AND n.state IN ('active', 'draining') FOR UPDATE;
           IF NOT FOUND THEN PERFORM _lock_living_node(pass_tokens.epoch); END IF;
           IF true THEN""",
        ("said that it owns",),
        Plan(0, rounds=8, members=4, burst=(6, 10), patience=20),
    ),
    "members count tokens that they have to pass on": Planted(
        "cluster/member_state.sql",
        "AND x.epoch = member_state.epoch AND x.next IS NULL);",
        "AND x.epoch = member_state.epoch);",
        ("said that it owns",),
    ),
    # It is slow as well, so that another node can be elected before it writes.
    "an old leader plans": Planted(
        "cluster/rebalance.sql",
        "g := _lock_group(rebalance.token_group); PERFORM _check_term(g.name, rebalance.term);",
        "PERFORM pg_sleep(3); g := _lock_group(rebalance.token_group);",
        ("planned while another one led",),
        Plan(0, rounds=8, members=4, lease=1.0, patience=20),
    ),
    "tokens do not wait for the jobs of their owner": Planted(
        "cluster/rebalance.sql",
        "AND x.token <> ALL (busy);",
        ";",
        ("where its key did not belong",),
        JOBS_STORM,
    ),
    "workers claim jobs of tokens that they do not own": Planted(
        "claim/pick_lanes.sql",
        "AND k.epoch = _pick_own_lanes.epoch AND",
        "AND",
        ("where its key did not belong",),
        JOBS_STORM,
    ),
}


def plant(fault: Planted, url: str) -> None:
    """Without a word to the migrator: nodes refuse to start if the functions are not those of their release."""
    mutant = Mutant("", fault.file, fault.original, fault.replacement, "")
    (text,) = [file.text for file in mutant.apply(SOURCE).functions if file.name == fault.file]
    with psycopg.connect(url, autocommit=True, options="-c search_path=watchbill") as connection:
        connection.execute(text.encode())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_storm_finds_a_fault_that_was_planted_in_the_database(name: str) -> None:
    """By its records alone, in one of a few storms."""
    fault = PLANTED[name]
    for seed in range(5):
        with Storm(find_servers()[0], replace(fault.storm, seed=seed), before=partial(plant, fault)) as storm:
            storm.run()
            storm.violations = []
            found = [*check(storm.history), *check_end(storm.history)]
        known = [each for each in found if any(words in each for words in fault.words)]
        if known:
            print(f"seed {seed}, {len(known)} times: {known[0]}")
            return
    pytest.fail(f"no storm has found that {name}")


def test_drawn_plans_vary_and_repeat_by_seed() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert plans == [draw_plan(seed) for seed in range(200)]
    for name in ("rounds", "members", "workers", "lease", "burst", "gap"):
        assert len({getattr(plan, name) for plan in plans}) > 1, name
