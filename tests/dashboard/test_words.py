"""How numbers, durations and times are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from watchbill.dashboard import words
from watchbill.dashboard.words import Timepiece

NOW = datetime(2026, 10, 20, 14, 40, 53, 123000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.0031, "3 ms"),
        (0.42, "0.4 s"),
        (9.949, "9.9 s"),
        (9.96, "10 s"),
        (59.7, "1 min"),
        (473, "7 min 53 s"),
        (3600, "1 h"),
        (22_320, "6 h 12 min"),
        (3 * 86_400 + 4 * 3600, "3 d 4 h"),
        (40 * 86_400, "40 d"),
        (730 * 86_400, "2.0 years"),
        (-5, "-5.0 s"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert words.write_duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown", "short"),
    [
        (None, "-", "-"),
        (0, "0", "0"),
        (12_400, "12,400", "12,400"),
        (418_200, "418,200", "418 k"),
        (4_187_000, "4,187,000", "4.2 M"),
        (2**63, "9,223,372,036,854,775,808", "9,223,372,037 G"),
        (0.25, "0.2", "0.2"),
    ],
)
def test_numbers(number: float | None, shown: str, short: str) -> None:
    assert words.write_number(number) == shown
    assert words.write_short_number(number) == short


def test_an_estimate_says_so() -> None:
    assert words.write_number(12_400, is_estimate=True) == "≈ 12,400"
    assert words.write_short_number(4_200_000, is_estimate=True) == "≈ 4.2 M"


def test_shares_rates_and_sizes() -> None:
    assert [words.write_share(*each) for each in ((0, 0), (0, 9), (1, 250), (92, 100))] == ["-", "0 %", "0.4 %", "92 %"]
    assert [words.write_rate(each) for each in (None, 0, 0.01, 0.4, 92, 1880)] == [
        "-",
        "0",
        "0.01",
        "0.4",
        "92",
        "1,880",
    ]
    assert [words.write_bytes(each) for each in (0, 999, 1200, 65_536, 10**7)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "66 kB",
        "10 MB",
    ]


def test_times_are_those_of_the_zone() -> None:
    paris = Timepiece(NOW, ZoneInfo("Europe/Paris"), "Europe/Paris")
    assert paris.write_exact(NOW) == "2026-10-20 16:40:53.123 Europe/Paris"
    assert paris.write_clock(NOW) == "16:40:53"
    assert paris.write_minute(NOW) == "16:40"


@pytest.mark.parametrize(
    ("away", "relative", "clock"),
    [
        (timedelta(0), "now", "14:40:53"),
        (timedelta(seconds=41), "in 41 s", "14:41:34"),
        (timedelta(minutes=-7, seconds=-53), "7 min ago", "14:33:00"),
        (timedelta(days=-1), "1 d ago", "19 Oct 14:40"),
        (timedelta(days=-400), "1.1 years ago", "2025-09-15"),
    ],
)
def test_relative_times(away: timedelta, relative: str, clock: str) -> None:
    timepiece = Timepiece(NOW)
    assert timepiece.write_relative(NOW + away) == relative
    assert timepiece.write_clock(NOW + away) == clock
