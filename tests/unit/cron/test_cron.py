"""The class that users hold: what goes in, what comes out, what it is worth as a value."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from watchbill.cron import Cron, InvalidInstant, Window

NEW_YORK = ZoneInfo("America/New_York")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_next_returns_datetimes_in_the_zone_of_the_schedule() -> None:
    found = Cron("0 9 * * *", "America/New_York").next(NOON)
    assert found is not None
    assert str(found.tzinfo) == "America/New_York"
    assert found.isoformat() == "2024-05-01T09:00:00-04:00"


def test_pattern_zone_sets_the_time_and_schedule_zone_the_display() -> None:
    found = Cron("0 9 * * * TZ:America/New_York", "Asia/Tokyo").next(NOON)
    assert found is not None
    assert found.isoformat() == "2024-05-01T22:00:00+09:00"


def test_next_accepts_datetimes_of_any_zone() -> None:
    cron = Cron("0 9 * * *")
    for zone in (UTC, NEW_YORK, timezone(timedelta(hours=5, minutes=30))):
        assert cron.next(NOON.astimezone(zone)) == datetime(2024, 5, 2, 9, tzinfo=UTC)


def test_naive_datetime_is_refused() -> None:
    cron = Cron("0 9 * * *")
    naive = datetime(2024, 5, 1, 12)  # noqa: DTZ001
    for ask in (cron.next, cron.prev, cron.matches, cron.window, cron.time_until_next):
        with pytest.raises(InvalidInstant, match="is naive"):
            ask(naive)
    with pytest.raises(InvalidInstant, match="is naive"):
        cron.upcoming(1, naive)
    with pytest.raises(InvalidInstant, match="is naive"):
        cron.between(naive, NOON)
    with pytest.raises(InvalidInstant, match="is naive"):
        Cron("@every 1h", anchor=naive)


def test_value_that_is_not_a_datetime_is_a_type_error() -> None:
    for wrong in (None, "2024-05-01", 0, date(2024, 5, 1)):
        with pytest.raises(TypeError, match="a datetime is needed"):
            Cron("0 9 * * *").next(wrong)  # type: ignore[arg-type]


def test_pattern_or_zone_that_is_not_a_string_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="pattern and tz are strings"):
        Cron(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pattern and tz are strings"):
        Cron("0 9 * * *", NEW_YORK)  # type: ignore[arg-type]


def test_repeated_hour_is_returned_with_its_fold() -> None:
    runs = Cron("0 * * * *", "America/New_York").upcoming(3, datetime(2024, 11, 3, 4, 30, tzinfo=UTC))
    assert [(run.hour, run.fold) for run in runs] == [(1, 0), (1, 1), (2, 0)]
    assert [run.astimezone(UTC).hour for run in runs] == [5, 6, 7]


def test_fold_of_the_argument_is_respected() -> None:
    cron = Cron("*/30 1 * * *", "America/New_York")
    first = datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK)
    after_first, after_second = cron.next(first), cron.next(first.replace(fold=1))
    assert after_first is not None
    assert after_second is not None
    assert after_first.astimezone(UTC) == datetime(2024, 11, 3, 6, 0, tzinfo=UTC)
    assert after_second.astimezone(UTC) == datetime(2024, 11, 4, 6, 0, tzinfo=UTC)


def test_fractions_of_a_second_are_respected() -> None:
    cron = Cron("* * * * * *")
    half = NOON + timedelta(milliseconds=500)
    assert cron.next(half) == NOON + timedelta(seconds=1)
    assert cron.prev(half) == NOON
    assert cron.prev(NOON) == NOON - timedelta(seconds=1)
    assert cron.matches(NOON)
    assert not cron.matches(half)
    assert list(cron.between(half, half + timedelta(seconds=1))) == [NOON + timedelta(seconds=1)]


def test_upcoming_returns_at_most_the_existing_runs() -> None:
    cron = Cron("0 0 0 1 1 * 2025-2026")
    assert [run.year for run in cron.upcoming(5, NOON)] == [2025, 2026]
    assert cron.upcoming(0, NOON) == []
    assert len(cron.upcoming(1, NOON)) == 1


def test_between_includes_its_start_and_not_its_end() -> None:
    cron = Cron("0 12 * * *")
    days = list(cron.between(NOON, NOON + timedelta(days=3)))
    assert [run.day for run in days] == [1, 2, 3]
    assert list(cron.between(NOON, NOON)) == []
    assert list(cron.between(NOON + timedelta(days=1), NOON)) == []


def test_between_is_lazy() -> None:
    runs = Cron("* * * * * *").between(NOON, datetime(9999, 1, 1, tzinfo=UTC))
    assert next(runs) == NOON


def test_time_until_next_returns_the_elapsed_time_or_none() -> None:
    assert Cron("30 12 * * *").time_until_next(NOON) == timedelta(minutes=30)
    assert Cron("0 0 30 2 *").time_until_next(NOON) is None
    just_before = datetime(2024, 11, 3, 0, 59, tzinfo=NEW_YORK)
    assert Cron("0 2 * * *", "America/New_York").time_until_next(just_before) == timedelta(hours=2, minutes=1)


def test_window_of_a_schedule_without_modifier_is_a_point() -> None:
    window = Cron("0 9 * * *").window(NOON)
    assert window == Window(datetime(2024, 5, 2, 9, tzinfo=UTC), datetime(2024, 5, 2, 9, tzinfo=UTC))
    assert window.duration == timedelta(0)
    assert Cron("0 0 30 2 *").window(NOON) is None


def test_equal_crons_compare_and_hash_equal() -> None:
    one, same = Cron("0 9 * * *", "Asia/Tokyo"), Cron("0 9 * * *", "Asia/Tokyo")
    others = [Cron("0 9 * * *"), Cron("1 9 * * *", "Asia/Tokyo"), Cron("0 9 * * *", "Asia/Tokyo", "skip")]
    others.append(Cron("0 9 * * *", "Asia/Tokyo", anchor=NOON))
    assert one == same
    assert hash(one) == hash(same)
    assert all(one != other for other in others)
    assert len({one, same, *others}) == 5
    assert one != "0 9 * * *"


def test_cron_is_immutable() -> None:
    cron = Cron("0 9 * * *")
    with pytest.raises(AttributeError, match="does not change"):
        cron.pattern = "0 10 * * *"
    with pytest.raises(AttributeError, match="does not change"):
        del cron.tz
    with pytest.raises(AttributeError):
        cron.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_cron_survives_copying_and_pickling() -> None:
    cron = Cron("@every 1h", "Asia/Tokyo", "both", NOON)
    for twin in (copy.copy(cron), copy.deepcopy(cron), pickle.loads(pickle.dumps(cron))):
        assert twin == cron
        assert twin.next(NOON) == cron.next(NOON)


def test_cron_repr_can_be_evaluated() -> None:
    for cron in (Cron("0 9 * * *"), Cron("@every 1h", "Asia/Tokyo", "both", NOON)):
        rebuilt = eval(repr(cron), {"Cron": Cron, "datetime": __import__("datetime")})
        assert rebuilt == cron
    assert repr(Cron("0 9 * * *", "Asia/Tokyo")) == "Cron('0 9 * * *', tz='Asia/Tokyo')"
    assert str(Cron("0 9 * * *")) == "0 9 * * *"


def test_threads_may_share_a_cron() -> None:
    cron = Cron("*/7 * * * *", "America/New_York")
    starts = [datetime(year, 3, 9, tzinfo=UTC) for year in range(1900, 2900, 100)]
    expected = [Cron("*/7 * * * *  ", "America/New_York").upcoming(300, start) for start in starts]
    found: list[list[datetime] | None] = [None] * len(starts)

    def ask(index: int) -> None:
        found[index] = cron.upcoming(300, starts[index])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_importing_cron_loads_no_heavy_module() -> None:
    heavy = "psycopg psycopg_pool pydantic orjson typer rich"
    slow = "dataclasses inspect pathlib zoneinfo importlib.resources difflib"
    code = f"import sys, watchbill.cron; print([name for name in '{heavy} {slow}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
