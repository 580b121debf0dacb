"""Each slot once, whatever happens: the set of (schedule, slot) is the one that the patterns alone say."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.chaos.server import ChaosServer
from tests.conftest import BINARIES
from tests.scheduler.year import Rule, Simulation, draw_outages, draw_rules, expected, found
from watchbill.store.install import install


def simulate(
    url: str,
    start: datetime,
    end: datetime,
    rules: int,
    outages: int,
    seed: int,
    restart: Callable[[], None] | None = None,
) -> Simulation:
    draw = random.Random(seed)
    drawn, gaps = draw_rules(rules, draw), draw_outages(start, end, outages, draw)
    slots = {rule: list(rule.slots(start, end)) for rule in drawn}
    wanted = {rule.name: expected(rule, due, gaps) for rule, due in slots.items()}
    simulation = Simulation(url, start, end, draw, restart)
    simulation.add(drawn)
    simulation.run(gaps)
    ran, counts = found(url)
    for rule, due in slots.items():
        assert ran.get(rule.name, set()) == wanted[rule.name], explain(rule, ran.get(rule.name, set()), wanted)
        assert counts.get(rule.name, 0) == len(due), (rule, "slots are not accounted for")
    print(
        f"{len(drawn)} schedules, {sum(map(len, wanted.values()))} jobs, {simulation.instants} instants, "
        f"{simulation.deaths} deaths of schedulers, {simulation.server_restarts} of the server"
    )
    return simulation


def explain(rule: Rule, ran: set[datetime], wanted: dict[str, set[datetime]]) -> str:
    missing, extra = sorted(wanted[rule.name] - ran)[:3], sorted(ran - wanted[rule.name])[:3]
    return f"{rule}: missing {missing}, too many {extra}"


def test_every_slot_fires_once_in_three_weeks_with_a_clock_change(schema_database: str) -> None:
    start, end = datetime(2031, 3, 20, 12, 7, 3, tzinfo=UTC), datetime(2031, 4, 10, tzinfo=UTC)
    simulation = simulate(schema_database, start, end, rules=34, outages=6, seed=1)
    assert simulation.deaths > 5


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_slot_fires_once_in_a_year_of_a_thousand_schedules() -> None:
    start, end = datetime(2031, 1, 1, tzinfo=UTC), datetime(2032, 1, 1, tzinfo=UTC)
    with ChaosServer(BINARIES[0]) as server:
        install(server.url)

        def restart() -> None:
            server.stop(signal.SIGQUIT)
            server.start()

        simulation = simulate(server.url, start, end, rules=1000, outages=120, seed=2, restart=restart)
    assert simulation.deaths > 100
    assert simulation.server_restarts > 3
