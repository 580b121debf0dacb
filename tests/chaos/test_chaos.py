"""Everything at once: real workers, real faults, and the checker's judgement of what came of it."""

from __future__ import annotations

import pytest

from foliot.postgres.embedded import Binaries
from tests.chaos.harness import Chaos, Plan, seed_of_environment
from tests.servers import find_servers


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


@pytest.mark.timeout(240)
def test_nothing_is_lost_and_nothing_happens_twice(binaries: Binaries) -> None:
    _survive(binaries, Plan(seed_of_environment(), seconds=20, jobs=300))
