"""What holds for every schedule at every instant that a datetime can hold, from year 1 to 9999."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.unit.cron.oracle_parser import read
from tests.unit.cron.strategies import Case, cases
from watchbill.cron import Cron, InvalidInstant
from watchbill.cron.compiler import Policy

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
SECOND = timedelta(seconds=1)

near_the_start = st.timedeltas(timedelta(0), timedelta(days=3)).map(lambda elapsed: FIRST + elapsed)
near_the_end = st.timedeltas(timedelta(0), timedelta(days=3)).map(lambda left: LAST - left)
anywhen = st.datetimes(timezones=st.just(UTC))
moments = near_the_start | near_the_end | anywhen

RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def build(case: Case) -> Cron:
    return Cron(case.pattern, case.zone, case.dst)


def instant(moment: datetime) -> timedelta:
    """To compare with: == between datetimes of two zones is false in a repeated hour."""
    return moment - datetime(1970, 1, 1, tzinfo=UTC)


@RELAXED
@given(cases(), moments)
def test_next_is_later_and_prev_is_earlier_for_every_schedule(case: Case, moment: datetime) -> None:
    cron = build(case)
    for at in (moment, case.instant):
        after, before = cron.next(at), cron.prev(at)
        assert after is None or instant(after) > instant(at)
        assert before is None or instant(before) < instant(at)


@RELAXED
@given(cases(), moments, moments)
def test_next_and_prev_are_neighbours_in_one_set(case: Case, one: datetime, other: datetime) -> None:
    assume(not any(alternative.modifier for alternative in read(case.pattern, case.zone)))
    cron = build(case)
    for at in (one, case.instant):
        check_neighbours(cron, at)
    check_order(cron, *sorted((one, other)))


def check_neighbours(cron: Cron, at: datetime) -> None:
    after, before = cron.next(at), cron.prev(at)
    if after is not None:
        assert cron.matches(after)
        assert maybe_instant(cron.prev(after)) == (instant(at) if cron.matches(at) else maybe_instant(before))
        just_before = after.astimezone(UTC) - SECOND
        assert maybe_instant(cron.next(just_before)) == instant(after)
    if before is not None:
        assert cron.matches(before)
        assert maybe_instant(cron.next(before)) == (instant(at) if cron.matches(at) else maybe_instant(after))


def check_order(cron: Cron, earlier: datetime, later: datetime) -> None:
    first, second = cron.next(earlier), cron.next(later)
    assert second is None or (first is not None and instant(first) <= instant(second))
    last, one_before = cron.prev(later), cron.prev(earlier)
    assert one_before is None or (last is not None and instant(one_before) <= instant(last))


def maybe_instant(moment: datetime | None) -> timedelta | None:
    return None if moment is None else instant(moment)


@pytest.mark.parametrize("policy", ["default", "skip", "once", "both"])
@pytest.mark.parametrize("zone", ["UTC", "+14:00", "-12:00", "America/New_York", "Asia/Manila", "Australia/Sydney"])
@pytest.mark.parametrize(
    "pattern", ["* * * * * *", "0 0 * * *", "0 0 1 1 *", "59 59 23 31 12 *", "@every 1h", "E0Y", "S0D"]
)
def test_first_and_last_runs_stay_within_the_calendar(pattern: str, zone: str, policy: Policy) -> None:
    cron = Cron(pattern, zone, policy)
    assert cron.prev(FIRST) is None
    assert cron.next(LAST) is None
    first, last = cron.next(FIRST), cron.prev(LAST)
    assert first is not None
    assert last is not None
    assert (first.year, last.year) in [(1, 9999), (2, 9999), (1, 9998)]
    assert first.utcoffset() is not None
    for moment in (first, last):
        assert cron.matches(moment)
    for moment in (FIRST, LAST):
        cron.matches(moment)


def test_runs_outside_the_local_calendar_are_omitted() -> None:
    assert Cron("* * * * *", "+14:00").prev(LAST) == datetime(9999, 12, 31, 9, 59, tzinfo=UTC)
    assert Cron("* * * * *", "-12:00").next(FIRST) == datetime(1, 1, 1, 12, 0, tzinfo=UTC)
    assert Cron("* * * * * TZ:-12:00", "+14:00").next(FIRST) == datetime(1, 1, 1, 12, 0, tzinfo=UTC)
    assert Cron("* * * * *", "+14:00").next(FIRST) == datetime(1, 1, 1, 0, 1, tzinfo=UTC)


@example(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
@example(datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))))
@given(st.just(datetime.min.replace(tzinfo=timezone(timedelta(seconds=1)))))
def test_an_instant_outside_the_calendar_is_an_error(moment: datetime) -> None:
    cron = Cron("0 9 * * *")
    for ask in (cron.next, cron.prev, cron.matches, cron.window, cron.time_until_next):
        with pytest.raises(InvalidInstant, match="outside the years 1 to 9999"):
            ask(moment)
