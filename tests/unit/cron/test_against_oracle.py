"""The engine against the oracle, on patterns of the whole grammar and instants around clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.cron.oracle import Oracle, Undecided
from tests.unit.cron.strategies import PRODUCTIONS, Case, cases
from tests.unit.cron.tally import Tally
from watchbill.cron import Cron

SECOND = timedelta(seconds=1)
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


def in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def compare(case: Case, tally: Tally) -> None:
    tally.add(case.drawn)
    cron, oracle = Cron(case.pattern, case.zone, case.dst), Oracle(case.pattern, case.zone, case.dst)
    try:
        after, before = oracle.next(case.instant), oracle.prev(case.instant)
        second = None if after is None else oracle.next(after)
    except (Undecided, OverflowError):  # the latter beyond year 9999, where the oracle ends
        tally.undecided += 1
        return
    assert in_utc(cron.next(case.instant)) == after
    assert in_utc(cron.prev(case.instant)) == before
    if after is not None and second is not None:
        assert in_utc(cron.next(after)) == second
        assert cron.matches(after)
    assert cron.matches(case.instant) == oracle.matches(case.instant)
    trigger = oracle.trigger(case.instant)
    if trigger is not None:
        window = cron.window(case.instant)
        assert window is not None
        assert in_utc(window.trigger) == trigger


def run(examples: int, capsys: pytest.CaptureFixture[str]) -> Tally:
    tally = Tally("engine against oracle")

    @settings(RELAXED, max_examples=examples)
    @given(cases())
    def check(case: Case) -> None:
        compare(case, tally)

    check()
    with capsys.disabled():
        print(tally.report())
    return tally


@pytest.mark.timeout(400)  # the oracle is slow, and the machine may be busy
def test_engine_and_oracle_agree(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(700, capsys)
    assert tally.undecided < tally.cases / 3
    assert len(PRODUCTIONS - set(tally.shares)) <= 5  # a small run may miss the rarest; the large one may not


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_engine_and_oracle_agree_on_a_hundred_thousand_cases(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(110_000, capsys)
    assert tally.cases - tally.undecided >= 100_000
    assert set(tally.shares) >= PRODUCTIONS
    assert min(tally.shares.values()) >= 1
