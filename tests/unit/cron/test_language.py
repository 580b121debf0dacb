"""What patterns mean, beyond the worked examples: the corners of the grammar, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from watchbill.cron import Cron

YEAR = datetime(2023, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)


def runs(pattern: str, start: str = "2023-01-01", end: str = "2023-01-08") -> list[str]:
    """The runs of a pattern in the first week of 2023, which begins on a Sunday, without what all have in common."""
    first, last = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (start, end))
    return [f"{run:%d %H:%M:%S}" for run in Cron(pattern).between(first, last)]


def days(pattern: str, start: str = "2023-01-01", end: str = "2023-02-01") -> list[int]:
    return [int(run[:2]) for run in runs(pattern, start, end)]


SAME = [
    ("0 0 * * 0", "0 0 * * 7"),
    ("0 0 * * 0", "0 0 * * sun"),
    ("0 0 * * 5-7", "0 0 * * 5,6,0"),
    ("0 0 * * FRI-SUN", "0 0 * * 5,6,0"),
    ("0 0 * * 5-1", "0 0 * * 5,6,0,1"),
    ("0 0 * * 7-2", "0 0 * * 0,1,2"),
    ("0 0 * * 0-7", "0 0 * * 0-6"),
    ("0 0 * * 7-7", "0 0 * * 0"),
    ("0 0 * * 7-0", "0 0 * * 0"),
    ("0 0 * * 5-2/2", "0 0 * * 5,0,2"),
    ("0 0 * * 1/2", "0 0 * * 1,3,5,7"),
    ("0 0 * * */2", "0 0 * * 0,2,4,6"),
    ("0 0 * * 7L", "0 0 * * SUN#L"),
    ("0 0 * * 0L", "0 0 * * 7#-1"),
    ("0 22-4/2 * * *", "0 22,0,2,4 * * *"),
    ("0 23-4/2 * * *", "0 23,1,3 * * *"),
    ("0 23-23 * * *", "0 23 * * *"),
    ("50-10/5 3 * * *", "50,55,0,5,10 3 * * *"),
    ("58-1 0 0 * * *", "58,59,0,1 0 0 * * *"),
    ("0 0 1 NOV-FEB *", "0 0 1 11,12,1,2 *"),
    ("0 0 1 11-2/2 *", "0 0 1 11,1 *"),
    ("0 0 1 DEC/1 *", "0 0 1 12 *"),
    ("5/15 3 * * *", "5,20,35,50 3 * * *"),
    ("0 0 25/3 * *", "0 0 25,28,31 * *"),
    ("*/99999999999999999999 3 * * *", "0 3 * * *"),
    ("007 03 001 01 *", "7 3 1 1 *"),
    ("0 0 L * *", "0 0 L,L * *"),
    ("0 0 1,1-3,2 * *", "0 0 1-3 * *"),
    ("0 0 ? * 1", "0 0 * * 1"),
    ("0 0 1 * ?", "0 0 1 * *"),
    ("0 0 ? * ?", "0 0 * * *"),
    ("0 0 * * +1", "0 0 * * 1"),
    ("0 0 */1 * 1", "0 0 * * *"),
    ("0 0 1 * +*", "0 0 1 * *"),
    ("0 0 0 * * * *", "0 0 * * *"),
    ("0 9 * * * WOY:52-2", "0 9 * * * WOY:52,53,1,2"),
    ("0 9 * * * WOY:*", "0 9 * * *"),
    ("WOY:3", "0 0 0 * * * WOY:3"),
    ("WOY:3 TZ:UTC", "TZ:UTC WOY:3 0 0 * * *"),
    ("WOY:3 E0D", "0 0 * * * WOY:3 E0D"),
    ("  0\t9 * * *\t ", "0 9 * * *"),
    ("0 9 * * *|0 9 * * *", "0 9 * * *"),
    ("0 9 * * * EOD:E0D", "0 9 * * * E0D"),
    ("0 9 * * * SOD:E0D", "0 9 * * * E0D"),
    ("0 9 * * * E1H30M", "0 9 * * * E1H30m"),
    ("0 9 * * * E1DT30M", "0 9 * * * E1D30m"),
    ("0 9 * * * E1H2D30M", "0 9 * * * E1H2D30m"),
    ("@every 1h30m", "@every 90m"),
    ("@every 1d", "@every 24h"),
    ("@every 30m1h", "@every 90m"),
    ("@hourly", "0 * * * *"),
    ("@annually", "@yearly"),
    ("@midnight", "@daily"),
    ("0 9 * * * TZ=UTC", "CRON_TZ=UTC 0 9 * * *"),
    ("0 9 * * * TZ:-00:00", "0 9 * * *"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equivalent_patterns_have_the_same_runs(one: str, other: str) -> None:
    first, second = Cron(one), Cron(other)
    assert list(first.between(*YEAR)) == list(second.between(*YEAR))
    assert first.prev(YEAR[0]) == second.prev(YEAR[0])


def test_a_day_field_restricts_unless_it_is_a_star_or_a_question_mark() -> None:
    assert days("0 0 13 * 5") == [6, 13, 20, 27]
    assert days("0 0 14 * 5") == [6, 13, 14, 20, 27]
    assert days("0 0 */15 * 5") == [1, 6, 13, 16, 20, 27, 31]


def test_plus_requires_both_day_fields() -> None:
    assert days("0 0 1-7 * +MON") == [2]
    assert days("0 0 13-15 * +5L,SAT") == [14]


def test_lists_of_day_specials_take_the_union() -> None:
    assert days("0 0 1,15W,L-2,LW * *") == [1, 16, 29, 31]
    assert days("0 0 * * MON#1,FRIL,WEDW2") == [2, 4, 27]


def test_a_working_day_stays_in_its_month() -> None:
    assert days("0 0 1W * *") == [2]  # Sunday the 1st
    assert days("0 0 1W * *", "2023-04-01", "2023-05-01") == [3]  # Saturday the 1st
    assert days("0 0 LW * *", "2023-04-01", "2023-05-01") == [28]  # Sunday the 30th
    assert days("0 0 30W * *", "2023-04-01", "2023-05-01") == [28]
    assert days("0 0 L-29W * *", "2023-04-01", "2023-05-01") == [3]


def test_weeks_of_the_month_start_on_monday() -> None:
    assert days("0 0 * * 0W1") == [1]
    assert days("0 0 * * 1W1") == []
    assert days("0 0 * * 1W2") == [2]
    assert days("0 0 * * 0W5") == [29]


def test_weekdays_are_counted_from_both_ends() -> None:
    assert days("0 0 * * 0#1,0#5") == [1, 29]
    assert days("0 0 * * 0#-5") == [1]
    assert days("0 0 * * 4#5,4#-5") == []


def test_year_field_ends_at_3000_but_no_year_field_does_not() -> None:
    moment = datetime(3500, 1, 1, tzinfo=UTC)
    assert Cron("0 0 0 1 1 * *").next(moment) == datetime(3501, 1, 1, tzinfo=UTC)
    assert Cron("0 0 0 1 1 * */1").next(moment) is None
    assert Cron("0 0 0 1 1 * */1").prev(moment) == datetime(3000, 1, 1, tzinfo=UTC)
    assert Cron("0 0 0 1 1 * 2990/5").prev(moment) == datetime(3000, 1, 1, tzinfo=UTC)


def test_pattern_that_never_fires_has_no_next_and_no_prev() -> None:
    for pattern in ("0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 29 2 * 2025-2027", "0 0 * 2 1W5 WOY:30", "@reboot"):
        for year in (1, 2024, 9999):
            assert Cron(pattern).next(datetime(year, 3, 1, tzinfo=UTC)) is None
            assert Cron(pattern).prev(datetime(year, 3, 1, tzinfo=UTC)) is None


def test_a_time_that_is_always_skipped_never_fires_under_skip() -> None:
    cron = Cron("30 2 * 3 SUN#2", "America/New_York", "skip")
    assert cron.next(datetime(2024, 1, 1, tzinfo=UTC)) is None
    last = cron.prev(datetime(2024, 1, 1, tzinfo=UTC))
    assert last is not None
    assert last.year == 2006


def test_cached_answer_is_correct_on_a_day_that_begins_twice() -> None:
    """St. John's went back from 00:01 to 23:01, so that a day began twice."""
    cron = Cron("30 0,30 0 * * *", "America/St_Johns")
    change = datetime(2010, 11, 7, 2, 31, tzinfo=UTC)
    second_midnight = change + timedelta(minutes=59)
    for _ in range(2):
        found = cron.next(second_midnight + timedelta(seconds=10))
        assert found is not None
        assert found.astimezone(UTC) == second_midnight + timedelta(minutes=30, seconds=30)


def test_at_start_is_true_for_reboot_patterns() -> None:
    assert Cron("@reboot").at_start
    assert Cron("0 9 * * * | @reboot").at_start
    assert not Cron("0 9 * * *").at_start
    assert Cron("@reboot | 0 9 * * *").next(YEAR[0]) == datetime(2023, 1, 1, 9, tzinfo=UTC)


def test_every_counts_from_its_anchor_both_ways() -> None:
    anchor = datetime(2023, 1, 1, 0, 0, 10, 999_999, tzinfo=UTC)
    cron = Cron("@every 90s", anchor=anchor)
    assert cron.next(anchor) == datetime(2023, 1, 1, 0, 1, 40, tzinfo=UTC)
    assert cron.prev(anchor) == datetime(2023, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert cron.prev(datetime(2023, 1, 1, 0, 0, 10, tzinfo=UTC)) == datetime(2022, 12, 31, 23, 58, 40, tzinfo=UTC)


def test_every_with_a_huge_period_fires_only_at_its_anchor() -> None:
    cron = Cron(f"@every {'9' * 900}d")
    assert cron.next(datetime(1969, 1, 1, tzinfo=UTC)) == datetime(1970, 1, 1, tzinfo=UTC)
    assert cron.next(datetime(1970, 1, 1, tzinfo=UTC)) is None


def test_every_ignores_clock_changes_and_respects_week_numbers() -> None:
    cron = Cron("@every 7h WOY:10-11", "America/New_York")
    found = list(cron.between(datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)))
    assert {run.isocalendar().week for run in found} == {10, 11}
    assert len(found) == 48
    assert {int(run.timestamp()) % (7 * 3600) for run in found} == {0}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # found in the reference engine: times in the past, endless loops, zone, seconds and year ignored
        ("0 0 9 * * *", "2025-10-31 09:00:00"),
        ("0 0 0 1,L * *", "2025-10-31 00:00:00"),
        ("30 0 9 * * *", "2025-10-31 09:00:30"),
        ("0 0 0 1 1 * 2027", "2027-01-01 00:00:00"),
        ("0 0 9 * * * TZ:Asia/Tokyo", "2025-10-31 00:00:00"),
    ],
)
def test_patterns_that_the_reference_engine_got_wrong_are_right(pattern: str, expected: str) -> None:
    found = Cron(pattern).next(datetime(2025, 10, 30, 12, tzinfo=UTC))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)
