"""Schedules in English: the exact words of many, and that no two different ones sound alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.cron.strategies import Case, cases
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import Policy
from watchbill.cron.zones import UnknownZone, listed_names, load_zone

EXPLAINED = Path(__file__).with_name("explained.txt").read_text().splitlines()
PATTERNS = list(zip(EXPLAINED[::2], EXPLAINED[1::2], strict=True))
ALPHABET = "0123456789*/,-LWE+#SMDYHQmT? "


@pytest.mark.parametrize(("pattern", "text"), PATTERNS)
def test_documented_patterns_are_explained_word_for_word(pattern: str, text: str) -> None:
    cron = Cron(pattern)
    assert f"{cron.frequency()}: {cron.explain()}" == text.strip()


def test_list_of_explained_patterns_is_long_enough() -> None:
    assert len(PATTERNS) >= 150


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            "skip",
            "skipped times are left out and repeated ones run once",
        ),
        (
            "once",
            "skipped times run at the change and repeated ones run once",
        ),
        (
            "both",
            "skipped times run at the change and repeated ones run twice",
        ),
    ],
)
def test_explanation_mentions_the_dst_policy(policy: Policy, words: str) -> None:
    plain = Cron("30 2 * * *", "America/New_York").explain()
    assert Cron("30 2 * * *", "America/New_York", policy).explain() == f"{plain}; when clocks change, {words}"


def test_explanation_omits_the_dst_policy_of_a_fixed_offset() -> None:
    assert Cron("30 2 * * *", "+09:00", "skip").explain() == Cron("30 2 * * *", "+09:00").explain()


def test_explanation_mentions_the_anchor() -> None:
    cron = Cron("@every 2h", anchor=datetime(2025, 1, 1, 9, 30, 15, 500, tzinfo=UTC))
    assert cron.explain() == "every 2 hours, counted from 2025-01-01 09:30:15 UTC"


def test_zones_with_different_clocks_have_different_names() -> None:
    by_name: dict[str, object] = {}
    for name in listed_names():
        try:
            segments = tuple(load_zone(name).segments)
        except UnknownZone:  # the system's tzdata may be older than the package's
            continue
        assert by_name.setdefault(Cron("0 9 * * *", name).explain(), segments) == segments or name == "UTC"


def instants(cron: Cron, around: datetime) -> list[datetime | None]:
    """A fingerprint: what the schedule does around an instant, at the clock changes of a year, and in other years."""
    probes = [around, around + timedelta(days=1)]
    days = [(month, day) for month in (1, 2, 3, 4, 6, 9, 10, 11) for day in (2, 9, 30 - month)]
    probes += [datetime(2024, month, day, 12, tzinfo=UTC) for month, day in days]
    found: list[datetime | None] = []
    for probe in probes:
        found += [*cron.upcoming(2, probe), cron.prev(probe)]
    return [None if moment is None else moment.astimezone(UTC) for moment in found]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Case, str]:
    """A pattern and one that differs in a character or two."""
    case = draw(cases())
    # A repeated or lost day can tell patterns apart that mean the same on every other day.
    assume("zone: a day lost or gained" not in case.drawn)
    text = case.pattern
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.sampled_from(ALPHABET)) + text[at + draw(st.integers(0, 1)) :]
    return case, text


def check(case: Case, other: str) -> None:
    one = Cron(case.pattern, case.zone, case.dst)
    try:
        two = Cron(other, case.zone, case.dst)
    except InvalidPattern:
        assume(False)
    if one.explain() == two.explain():
        assert instants(one, case.instant) == instants(two, case.instant)


RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@settings(RELAXED, max_examples=200)
@given(pairs())
def test_equal_explanations_mean_equal_schedules(pair: tuple[Case, str]) -> None:
    check(*pair)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(RELAXED, max_examples=50_000)
@given(pairs())
def test_equal_explanations_mean_equal_schedules_in_many_cases(pair: tuple[Case, str]) -> None:
    check(*pair)
