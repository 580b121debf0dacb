"""Everything at once: real workers, real faults, and the checker's judgement of what came of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.__main__ import draw_plan
from tests.chaos.harness import Chaos, Plan, seed_of_environment
from tests.servers import find_servers
from watchbill.postgres.embedded import Binaries


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return find_servers()[0]


def _survive(binaries: Binaries, plan: Plan) -> None:
    print(f"CHAOS_SEED={plan.seed}")
    with Chaos(binaries, plan) as chaos:
        chaos.run()
        report = chaos.report()
        print(report)
        assert not chaos.violations, report


@pytest.mark.timeout(360)
def test_short_storm_loses_and_repeats_no_job(binaries: Binaries) -> None:
    _survive(binaries, Plan(seed_of_environment(), seconds=20, jobs=300, patience=120))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_long_storm_loses_and_repeats_no_job(binaries: Binaries) -> None:
    plan = Plan(seed_of_environment(), seconds=300, jobs=9000, producers=4)
    _survive(binaries, replace(plan, direct=3, proxied=4, supervised=1, external=2))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_storm_with_shortest_lease_loses_and_repeats_no_job(binaries: Binaries) -> None:
    plan = Plan(seed_of_environment(), seconds=120, jobs=1200, lease=1, gap=(0.05, 0.5), patience=120)
    _survive(binaries, plan)


def test_drawn_storm_plans_vary_and_repeat_by_seed() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert plans == [draw_plan(seed) for seed in range(200)]
    for name in ("seconds", "direct", "proxied", "producers", "supervised", "pooled", "external", "lease", "gap"):
        assert len({getattr(plan, name) for plan in plans}) > 1, name
