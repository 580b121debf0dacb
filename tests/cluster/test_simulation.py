"""The protocol of token groups under thousands of interleavings. A failure prints its seed: `SEED=n` repeats it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.simulation import Failure, Simulation, Write, check_journal
from tests.conftest import BINARIES
from tests.servers import Server
from tests.store.conftest import template
from tests.store.harness import Db
from tests.store.mutants import Mutant
from watchbill.cluster import lease, ownership
from watchbill.postgres.migrate import Source, apply_functions

SEEDS, LONG_SEEDS = 60, 10_000
SOURCE = Source.of_package("watchbill.store")


@pytest.fixture
def db(start_server: object) -> Iterator[Db]:
    server: Server = start_server(BINARIES[0])  # type: ignore[operator]
    made = Db(server.url(server.create_database(template(server))))
    made.configure(synchronous_commit="off")
    yield made
    made.close()


def run_many(db: Db, count: int) -> None:
    only = os.environ.get("SEED")
    for seed in [int(only)] if only else range(count):
        Simulation(db, seed).run()


@pytest.mark.timeout(300)
def test_no_interleaving_breaks_a_promise(db: Db) -> None:
    run_many(db, SEEDS)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_interleaving_of_thousands_breaks_a_promise(db: Db) -> None:
    run_many(db, LONG_SEEDS)


PLANTED = {
    "tokens change their owner without a hand-over": (
        "cluster/rebalance.sql",
        "n.epoch IS NULL AND x.token <> ALL (busy) AS is_free",
        "true AS is_free",
    ),
    "tokens are passed on that memory still counts": (
        "cluster/pass_tokens.sql",
        "IF pass_tokens.version = g.version OR pass_tokens.version IS NULL THEN",
        "IF true THEN",
    ),
    "tokens are passed on without being asked for in time": (
        "cluster/rebalance.sql",
        "AND x.asked_at <= t - g.handover_timeout",
        "AND x.asked_at <= t",
    ),
    "a dead member keeps its place": (
        "cluster/join_group.sql",
        "JOIN nodes n ON n.epoch = m.epoch AND n.state = 'active'",
        "JOIN nodes n ON n.epoch = m.epoch",
    ),
    "a stale fence is accepted": (
        "cluster/check_item.sql",
        "AND i.fence = check_item.fence\n    AND i.state = 'held'",
        "",
    ),
}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(db: Db, name: str) -> None:
    file, original, replacement = PLANTED[name]
    apply_functions(db.url, "watchbill", Mutant(name, file, original, replacement, "").apply(SOURCE))
    with pytest.raises(Failure, match="seed"):
        run_many(db, 1000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_member_that_trusts_its_clock_too_long_is_found(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lease, ownership):
        monkeypatch.setattr(module, "USED_PART", 1.6)
    with pytest.raises(Failure, match="has the owners"):
        run_many(db, 1000)


def test_the_checker_of_writes_finds_what_is_wrong() -> None:
    good = [Write("k", 1, 10), Write("k", 1, 10), Write("k", 2, 11), Write("l", 1, 11)]
    assert check_journal(good) == []
    assert check_journal([*good, Write("k", 1, 10)]) != []
    assert check_journal([*good, Write("k", 2, 10)]) != []
