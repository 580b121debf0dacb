"""Every worked example of the language, forwards and backwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.unit.cron.examples import CALENDAR, CLOCK_CHANGES, JCRON, REJECTED, Example, examples
from watchbill.cron import Cron, InvalidPattern

WITHOUT_MODIFIERS = examples(CLOCK_CHANGES) + examples(CALENDAR)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def in_utc(moments: list[datetime]) -> list[datetime]:
    return [moment.astimezone(UTC) for moment in moments]


@pytest.mark.parametrize("example", WITHOUT_MODIFIERS + examples(JCRON))
def test_upcoming_returns_the_documented_runs(example: Example) -> None:
    pattern, zone, start, runs = example
    assert in_utc(Cron(pattern, zone).upcoming(len(runs) or 1, at(start))) == [at(run) for run in runs]


@pytest.mark.parametrize("example", WITHOUT_MODIFIERS)
def test_prev_returns_the_documented_runs_backwards(example: Example) -> None:
    pattern, zone, start, runs = example
    cron = Cron(pattern, zone)
    for earlier, later in pairwise(runs):
        found = cron.prev(at(later))
        assert found is not None
        assert found.astimezone(UTC) == at(earlier)
    if runs:
        before_all = cron.prev(at(runs[0]))
        assert before_all is None or before_all.astimezone(UTC) <= at(start)


@pytest.mark.parametrize("example", WITHOUT_MODIFIERS)
def test_matches_is_true_at_a_run_and_false_a_second_before(example: Example) -> None:
    pattern, zone, _, runs = example
    cron = Cron(pattern, zone)
    for run in runs:
        assert cron.matches(at(run))
        assert not cron.matches(at(run) - timedelta(seconds=1))


@pytest.mark.parametrize("pattern", REJECTED)
def test_unsupported_syntax_is_rejected(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Cron(pattern)


def test_window_has_the_documented_length() -> None:
    window = Cron("0 0 9 * * 1 E1W").window(at("2025-10-06 00:00:00"))
    assert window is not None
    assert window.duration == timedelta(days=13, hours=14, minutes=59, seconds=59)
