"""The harness of benchmarks/: what it names exists, disturbed runs are repeated, the report says what it should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks import rounds
from benchmarks.__main__ import _compared, _turns
from benchmarks.agenda import MEASURES, Measure
from benchmarks.contestant import Contestant, Failed
from benchmarks.goals import GOALS, verdicts
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.peers import PEERS
from benchmarks.report import medians_of, report
from benchmarks.rounds import Care, Turn, take_rounds

QUIET, BUSY = 0.0, 1.0


def measured(runs: dict[str, list[float | None]]) -> Measure:
    """A measure that gives each peer's runs one after the other: cores of others, or None for a failure."""

    def run(contestant: Contestant, sizes: Sizes) -> Run:
        other = runs[contestant.peer.name].pop(0)
        if other is None:
            raise Failed("it did not start")
        return {"rate": 1000.0, "other_cpu": other}

    return Measure("drain", run, tuple(runs))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(rounds, "wait_until_quiet", lambda limit: None)
    return []


def take(runs: dict[str, list[float | None]], tell: Callable[[str], None], repeat: int = 2) -> dict[str, list[Run]]:
    measure = measured(runs)
    done = take_rounds([Turn(measure, peer) for peer in runs], Sizes(), Care(repeat), tell)
    return {turn.peer: done[turn] for turn in done}


def test_every_goal_and_measure_names_a_peer_that_exists() -> None:
    named = {peer for measure in MEASURES.values() for peer in measure.peers}
    assert named == set(PEERS)
    sides = [side for goal in GOALS for side in (goal.over, goal.under) if side]
    assert [side for side in sides if side.peer not in MEASURES[side.measure].peers] == []


def test_disturbed_run_is_repeated_and_discarded(told: list[str]) -> None:
    runs: dict[str, list[float | None]] = {"watchbill": [QUIET, BUSY, QUIET], "pgqueuer": [QUIET, QUIET]}
    done = take(runs, told.append)
    assert [run["other_cpu"] for run in done["watchbill"]] == [QUIET, QUIET]
    assert runs == {"watchbill": [], "pgqueuer": []}


def test_benchmark_runs_alternate_between_peers(told: list[str]) -> None:
    take({"watchbill": [QUIET, QUIET], "pgqueuer": [QUIET, QUIET]}, told.append)
    assert [line.split()[1] for line in told] == ["watchbill", "pgqueuer", "watchbill", "pgqueuer"]


def test_compared_measures_alternate() -> None:
    chosen = [MEASURES[name] for name in ("drain", "held", "clean")]
    assert [[measure.name for measure in together] for together in _compared(chosen)] == [["drain"], ["clean", "held"]]
    assert [[measure.name for measure in together] for together in _compared(chosen[:2])] == [["drain"], ["held"]]
    turns = _turns([MEASURES["clean"], MEASURES["held"]], ["watchbill", "watchbill-crowd"])
    assert [(turn.measure.name, turn.peer) for turn in turns] == [
        ("clean", "watchbill"), ("held", "watchbill"), ("clean", "watchbill-crowd"), ("held", "watchbill-crowd"),
    ]  # fmt: skip


def test_measure_that_is_always_disturbed_is_reported_with_a_mark(told: list[str]) -> None:
    done = take({"watchbill": [BUSY] * 9}, told.append, repeat=1)
    assert len(done["watchbill"]) == 1
    assert any(line.startswith("watchbill ~") for line in report({"drain": done}))


def test_failing_peer_is_dropped_and_others_continue(told: list[str]) -> None:
    done = take({"celery": [None] * 9, "watchbill": [QUIET] * 9}, told.append)
    assert list(done) == ["watchbill"]
    assert sum("failed" in line for line in told) == 2


def test_report_is_printed_even_if_measures_failed() -> None:
    nothing: dict[str, list[Run]] = {}
    stood_still = {"watchbill": [{"rate": 0.0}], "pgqueuer": [{"rate": 0.0}]}
    lines = list(report({"deep": nothing, "drain": stood_still, "clean": stood_still, "held": stood_still}))
    assert "\ndeep: nobody could be measured" in lines
    assert [line for line in lines if " = " in line] == []


def test_report_ends_with_ratios_and_goals() -> None:
    results = {
        "drain": {"watchbill": [{"rate": 60_000.0}, {"rate": 70_000.0}], "graphile-worker": [{"rate": 32_500.0}]},
        "pickup": {"watchbill": [{"p50": 1.0, "p99": 9.0}], "celery": [{"p50": 2.0}]},
    }
    lines = list(report(results))
    assert "drain: watchbill / graphile-worker = 2.00" in lines
    assert "pickup: watchbill / celery = 0.50  (less is better)" in lines
    wanted = {verdict.text: verdict.met for verdict in verdicts(medians_of(results))}
    assert wanted == {"drain: watchbill / graphile-worker": True, "pickup: p50, ms": True, "pickup: p99, ms": False}
