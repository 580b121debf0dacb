"""Storms over token groups, judged by what was recorded. `STORM_SEED=n` repeats one, as far as the machine lets it."""

from __future__ import annotations

import os
from functools import partial
from random import Random

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


PLANTED = {
    "a stale fence is accepted": Mutant(
        "", "461_check_item.sql", "AND i.fence = check_item.fence\n    AND i.state = 'held'", "", ""
    ),
    "tokens change their owner without a hand-over": Mutant(
        "", "440_rebalance.sql", "n.epoch IS NULL AND x.token <> ALL (busy) AS is_free", "true AS is_free", ""
    ),
    "a grant has no new fence": Mutant(
        "", "440_rebalance.sql", "fence = CASE WHEN h.is_free THEN grant_fence ELSE x.fence END,", "", ""
    ),
    "members that have died keep their tokens": Mutant(
        "",
        "432_join_group.sql",
        "JOIN nodes n ON n.epoch = m.epoch AND n.state = 'active'",
        "JOIN nodes n ON n.epoch = m.epoch",
        "",
    ),
}


def plant(mutant: Mutant, url: str) -> None:
    """Without a word to the migrator: nodes refuse to start if the functions are not those of their release."""
    (text,) = [file.text for file in mutant.apply(SOURCE).functions if file.name == mutant.file]
    with psycopg.connect(url, autocommit=True, options="-c search_path=watchbill") as connection:
        connection.execute(text.encode())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_storm_finds_a_fault_that_was_planted_in_the_database(name: str) -> None:
    """By its records alone, in one of a few storms."""
    prepare = partial(plant, PLANTED[name])
    for seed in range(5):
        with Storm(find_servers()[0], Plan(seed, rounds=5, members=4, patience=20), before=prepare) as storm:
            storm.run()
            storm.violations = []
            found = [*check(storm.history), *check_end(storm.history)]
        if found:
            print(found[0])
            return
    pytest.fail(f"no storm has found that {name}")


def test_drawn_plans_vary_and_repeat_by_seed() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert plans == [draw_plan(seed) for seed in range(200)]
    for name in ("rounds", "members", "workers", "lease", "burst", "gap"):
        assert len({getattr(plan, name) for plan in plans}) > 1, name
