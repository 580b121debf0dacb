"""Modifiers: windows, periods that overlap, clock changes inside them, and leaps over very many triggers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cron.test_fuzz import steps_of
from watchbill.cron import Cron
from watchbill.cron.pattern import Modifier
from watchbill.cron.periods import apply_modifier, undo_modifier


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def walk(pattern: str, zone: str, start: str, count: int) -> list[str]:
    return [f"{run.astimezone(UTC):%Y-%m-%d %H:%M:%S}" for run in Cron(pattern, zone).upcoming(count, at(start))]


@pytest.mark.parametrize(
    ("pattern", "start", "expected"),
    [
        ("E0Y", "2024-05-05 12:00:00", "2024-12-31 23:59:59"),
        ("E0Q", "2024-05-05 12:00:00", "2024-06-30 23:59:59"),
        ("E1Q", "2024-11-05 12:00:00", "2025-03-31 23:59:59"),
        ("S0Q", "2024-11-05 12:00:00", "2025-01-01 00:00:00"),
        ("E1M", "2024-01-31 00:00:00", "2024-02-29 23:59:59"),
        ("S0M", "2024-01-31 00:00:00", "2024-02-01 00:00:00"),
        ("S0Y", "2024-02-29 00:00:00", "2025-01-01 00:00:00"),
        ("E0m", "2024-05-05 12:00:30", "2024-05-05 12:00:59"),
        ("S1m", "2024-05-05 12:00:30", "2024-05-05 12:01:00"),
        ("E0S", "2024-05-05 12:00:30", "2024-05-05 12:00:31"),
        ("S0S", "2024-05-05 12:00:30", "2024-05-05 12:00:31"),
        ("E0D", "2024-05-05 23:59:59", "2024-05-06 23:59:59"),
        ("S0M0W", "2025-01-30 12:00:00", "2025-02-24 00:00:00"),
        ("S1M2W3D", "2024-01-15 10:00:00", "2024-02-15 00:00:00"),
        ("E0DT12H30M", "2024-05-05 12:00:00", "2024-05-06 12:29:59"),
        ("0 9 * * * S0D", "2024-05-05 08:00:00", "2024-05-06 00:00:00"),
        ("0 9 * * * S0D", "2024-05-05 00:00:00", "2024-05-06 00:00:00"),
        ("0 9 * * MON E1W", "2025-10-06 00:00:00", "2025-10-19 23:59:59"),
        ("0 9 * * MON E1W", "2025-10-06 09:00:00", "2025-10-26 23:59:59"),
        ("0 0 29 2 * E0M", "2024-03-01 00:00:00", "2028-02-29 23:59:59"),
    ],
)
def test_next_applies_the_modifier(pattern: str, start: str, expected: str) -> None:
    assert walk(pattern, "UTC", start, 1) == [expected]


def test_upper_case_m_means_months_and_lower_case_minutes() -> None:
    assert Cron("E1M").next(at("2024-01-15 10:00:00")) == at("2024-02-29 23:59:59")
    assert Cron("E1m").next(at("2024-01-15 10:00:00")) == at("2024-01-15 10:01:59")
    assert Cron("E1H1M").next(at("2024-01-15 10:00:00")) == at("2024-01-15 12:00:59")


def test_a_window_has_its_trigger_and_its_end() -> None:
    window = Cron("0 10 * * * S2H", "Asia/Tokyo").window(at("2024-05-05 00:00:00"))
    assert window is not None
    assert (window.trigger.hour, window.end.hour, window.duration) == (10, 12, timedelta(hours=2))


def test_a_modifier_alone_is_counted_from_the_argument() -> None:
    start = at("2024-05-05 12:00:00") + timedelta(microseconds=5)
    window = Cron("E0D", "Asia/Tokyo").window(start)
    assert window is not None
    assert window.trigger == start
    assert window.duration == timedelta(hours=2, minutes=59, seconds=58, microseconds=999_995)


def test_alternative_that_ends_first_gives_the_window() -> None:
    window = Cron("0 9 * * * E0M | 0 10 * * * E0D").window(at("2024-05-05 00:00:00"))
    assert window is not None
    assert (window.trigger.hour, window.end) == (10, at("2024-05-05 23:59:59"))


def test_overlapping_windows_end_in_order_but_prev_sees_all_of_them() -> None:
    cron = Cron("0 9 * * * E1W")
    assert cron.next(at("2024-05-06 00:00:00")) == at("2024-05-19 23:59:59")
    assert cron.prev(at("2024-05-19 23:59:59")) == at("2024-05-12 23:59:59")
    assert cron.matches(at("2024-05-12 23:59:59"))


NEW_YORK, HAVANA, APIA, ST_JOHNS = "America/New_York", "America/Havana", "Pacific/Apia", "America/St_Johns"


def test_hour_modifier_ends_in_both_passes_of_a_repeated_hour() -> None:
    expected = ["2024-11-03 04:59:59", "2024-11-03 05:59:59", "2024-11-03 06:59:59", "2024-11-03 07:59:59"]
    assert walk("E0H", NEW_YORK, "2024-11-03 04:30:00", 4) == expected


def test_hour_modifier_starts_in_both_passes_of_a_repeated_hour() -> None:
    expected = ["2024-11-03 05:00:00", "2024-11-03 06:00:00", "2024-11-03 07:00:00"]
    assert walk("S0H", NEW_YORK, "2024-11-03 04:30:00", 3) == expected
    assert walk("S0H", NEW_YORK, "2024-11-03 05:30:00", 1) == ["2024-11-03 06:00:00"]


def test_a_skipped_hour_ends_at_the_change() -> None:
    expected = ["2024-03-10 06:59:59", "2024-03-10 07:00:00", "2024-03-10 07:59:59"]
    assert walk("E0H", NEW_YORK, "2024-03-10 06:30:00", 3) == expected


def test_a_midnight_that_comes_twice_starts_the_day_twice() -> None:
    assert walk("S0D", HAVANA, "2024-11-02 12:00:00", 3) == [
        "2024-11-03 04:00:00",
        "2024-11-03 05:00:00",
        "2024-11-04 05:00:00",
    ]


def test_a_skipped_day_ends_at_the_change() -> None:
    assert walk("E0D", APIA, "2011-12-29 12:00:00", 3) == [
        "2011-12-30 09:59:59",
        "2011-12-30 10:00:00",
        "2011-12-31 09:59:59",
    ]


@pytest.mark.parametrize("pattern", ["E0H", "S0H", "E0D", "S0D", "E0m", "S0W"])
@pytest.mark.parametrize("zone", [NEW_YORK, HAVANA, APIA, ST_JOHNS])
def test_prev_returns_the_runs_of_next_backwards(pattern: str, zone: str) -> None:
    cron = Cron(pattern, zone)
    changes = ["2024-03-09 12:00:00", "2024-11-02 12:00:00", "2011-12-29 12:00:00", "1987-10-24 12:00:00"]
    for start in changes:
        runs = cron.upcoming(60, at(start))
        back = [run.astimezone(UTC) for run in reversed(runs[:-1])]
        moment = runs[-1]
        for expected in back:
            found = cron.prev(moment)
            assert found is not None
            assert found.astimezone(UTC) == expected
            assert cron.matches(found)
            moment = found


def test_an_end_is_never_before_its_trigger() -> None:
    cron = Cron("30 1 * * * E0H", NEW_YORK, "both")
    window = cron.window(at("2024-11-03 05:45:00"))  # between the two passes of 01:30
    assert window is not None
    assert (window.trigger.astimezone(UTC), window.end.astimezone(UTC)) == (
        at("2024-11-03 06:30:00"),
        at("2024-11-03 06:59:59"),
    )


def test_prev_finds_an_earlier_trigger_with_a_later_result() -> None:
    """From 01:55, first pass, ten minutes lead to 02:05:59; from 01:30, second pass and later, to 01:40:59."""
    cron = Cron("@every 35m E10m", NEW_YORK, anchor=at("2024-11-03 05:55:00"))
    found = cron.prev(at("2024-11-03 07:10:00"))
    assert found is not None
    assert found.astimezone(UTC) == at("2024-11-03 07:05:59")


@pytest.mark.parametrize("pattern", ["* * * * * * S0Y", "* * * * * * S0m0Y", "* * * * * * E9Y", "S0S0Y", "E0S0Y"])
@pytest.mark.parametrize("zone", ["UTC", NEW_YORK])
def test_next_and_prev_skip_millions_of_triggers_quickly(pattern: str, zone: str) -> None:
    cron = Cron(pattern, zone)
    moment = at("2024-05-05 12:00:00")
    cron.next(moment)
    assert steps_of(lambda: (cron.next(moment), cron.prev(moment))) < 40_000


HUNDREDS = ["E" + "0Y0S" * 240, "S" + "1Y1W" * 240, "S" + "0M0W0Q" * 160, "E" + "3H2M1D9S" * 120]


@pytest.mark.parametrize("body", ["", "0 9 * * MON ", "* * * * * * "])
@pytest.mark.parametrize("modifier", HUNDREDS)
def test_modifier_with_hundreds_of_steps_needs_bounded_work(modifier: str, body: str) -> None:
    cron = Cron(body + modifier, NEW_YORK)
    for moment in map(at, ("2024-05-05 12:00:00", "2024-11-03 05:45:00", "2024-11-03 06:15:00")):
        cron.next(moment)
        assert steps_of(lambda: cron.next(moment)) < 100_000  # noqa: B023  called at once
        assert steps_of(lambda: cron.prev(moment)) < 100_000  # noqa: B023


steps = st.lists(st.tuples(st.sampled_from("YQMWDHmS"), st.integers(0, 4)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=300)
@given(steps, st.booleans(), st.integers(-(10**11), 3 * 10**11))
def test_undo_modifier_inverts_apply_modifier(steps: list[tuple[Any, int]], to_end: bool, wall: int) -> None:
    modifier = Modifier(to_end, tuple(steps))
    latest = undo_modifier(modifier, wall)
    assert apply_modifier(modifier, latest) <= wall < apply_modifier(modifier, latest + 1)


@pytest.mark.parametrize("pattern", ["E{n}Y", "S{n}M", "0 9 * * * E{n}W", "0 9 * * * S{n}H", "E0D{n}D"])
@pytest.mark.parametrize("count", ["99999999999", "9" * 300])
def test_counts_beyond_the_calendar_have_no_result(pattern: str, count: str) -> None:
    cron = Cron(pattern.replace("{n}", count))
    assert cron.next(at("2024-01-01 00:00:00")) is None
    assert cron.prev(at("2024-01-01 00:00:00")) is None


@pytest.mark.parametrize(
    ("pattern", "previous", "following"),
    [
        ("E8000Y", None, None),
        ("S8000M", "2023-12-01 00:00:00", "2690-09-01 00:00:00"),
        ("0 9 * * * E8000W", "2023-12-31 23:59:59", "2177-05-04 23:59:59"),
        ("0 9 * * * S8000H", "2023-12-31 17:00:00", "2024-11-29 17:00:00"),
        ("E0D8000D", "2023-12-31 23:59:59", "2045-11-26 23:59:59"),
    ],
)
def test_large_counts_have_a_result_within_the_calendar(
    pattern: str, previous: str | None, following: str | None
) -> None:
    cron = Cron(pattern)
    assert cron.prev(at("2024-01-01 00:00:00")) == (previous and at(previous))
    assert cron.next(at("2024-01-01 00:00:00")) == (following and at(following))


def test_a_modifier_keeps_the_order_of_wall_times() -> None:
    modifier = Modifier(to_end=True, steps=(("M", 1), ("W", 2), ("H", 3)))
    results = [apply_modifier(modifier, wall) for wall in range(0, 400 * 86_400, 7_777)]
    assert results == sorted(results)
