"""A duration is read alike everywhere: Python, the settings, the environment and the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from watchbill import App, Retry, RetryAfter, Snooze
from watchbill.app.job_options import InvalidOption
from watchbill.app.schedule_definition import InvalidSchedule
from watchbill.errors import SettingsError
from watchbill.model.durations import seconds, show_duration
from watchbill.settings import Settings

SAME = [
    (90, 90),
    (90.0, 90),
    (timedelta(seconds=90), 90),
    ("90", 90),
    ("90s", 90),
    ("1m30s", 90),
    ("1.5m", 90),
    ("1h30m", 5400),
    ("500ms", 0.5),
    ("2d", 172_800),
    ("1w", 604_800),
    (" 5m ", 300),
]
WRONG = ["5 parsecs", "", "m", "5m3", "-5m", "1e3", "nan", "1h 30m", "٣s", True, None, [5]]


def work() -> None: ...


def from_settings(value: Any) -> float:
    return Settings.load(project=Path("/"), environ={}, unknown_type_grace=value).unknown_type_grace


def from_environment(value: Any) -> float:
    variables = {"WATCHBILL_UNKNOWN_TYPE_GRACE": str(value)}
    return Settings.load(project=Path("/"), environ=variables).unknown_type_grace


def from_task(value: Any) -> Any:
    return App().task(timeout=value, executor="thread")(work).options.timeout


def from_using(value: Any) -> Any:
    return App().task(work).using(delay=value).options.delay


def from_retry(value: Any) -> Any:
    return (Retry(backoff="fixed", base=value, jitter=0).policy() or {})["base"]


def from_delays(value: Any) -> Any:
    return (Retry(backoff="list", delays=(value,)).policy() or {})["delays"][0]


def from_schedule(value: Any) -> Any:
    app = App()
    app.declare_schedule("s", "@daily", task=app.task(work), grace=value)
    return next(iter(app.declared)).definition["grace"]


READERS: list[Callable[[Any], Any]] = [
    seconds, from_settings, from_task, from_using, from_retry, from_delays, from_schedule,
    lambda value: Snooze(value).delay, lambda value: RetryAfter(value).delay,
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("given", "expected"), SAME, ids=str)
def test_every_reader_accepts_the_same_durations(read: Callable[[Any], Any], given: Any, expected: float) -> None:
    assert read(given) == expected


@pytest.mark.parametrize(("given", "expected"), [pair for pair in SAME if isinstance(pair[0], str)])
def test_environment_accepts_the_same_durations(given: str, expected: float) -> None:
    assert from_environment(given) == expected


@pytest.mark.parametrize("given", WRONG, ids=repr)
def test_text_that_is_not_a_duration_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: give seconds, a timedelta, or a text such as"):
        seconds(given)


def test_refusals_name_the_option_and_what_would_be_right() -> None:
    for read, error in (
        (from_settings, SettingsError),
        (from_task, InvalidOption),
        (from_using, InvalidOption),
        (from_retry, ValueError),
        (from_delays, ValueError),
        (from_schedule, InvalidSchedule),
    ):
        with pytest.raises(error) as refused:
            read("5 parsecs")
        told = f"{refused.value} {getattr(refused.value, 'hint', '')}"
        assert "'5 parsecs'" in told
        assert "1h30m" in told


@pytest.mark.parametrize(
    ("length", "shown"),
    [(0.25, "250ms"), (1.5, "1.5s"), (60, "1m"), (90, "1m30s"), (5400, "1h30m"), (2_592_000, "30d")],
)
def test_duration_is_shown_as_it_is_written(length: float, shown: str) -> None:
    assert show_duration(timedelta(seconds=length)) == shown
    assert seconds(shown) == length
