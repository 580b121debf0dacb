"""What a handler raises on purpose must make sense, else the attempt fails with the words of the mistake."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from watchbill import App, Retry, RetryAfter, Snooze
from watchbill.app.job_options import InvalidOption


@pytest.mark.parametrize("signal", [Snooze, RetryAfter])
@pytest.mark.parametrize("delay", [float("nan"), float("inf"), -1, 1e12, timedelta(days=-1)])
def test_invalid_delay_is_refused(signal: type[Snooze | RetryAfter], delay: float | timedelta) -> None:
    with pytest.raises(ValueError, match="must be between 0 and"):
        signal(delay)


@pytest.mark.parametrize("signal", [Snooze, RetryAfter])
def test_delay_accepts_seconds_or_a_timedelta(signal: type[Snooze | RetryAfter]) -> None:
    assert (signal(0).delay, signal(1.5).delay, signal(timedelta(minutes=1)).delay) == (0, 1.5, 60)


@pytest.mark.parametrize("attempts", [1.5, True, "3", None])
def test_max_attempts_must_be_a_whole_number(attempts: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        Retry(max_attempts=attempts)


def test_retry_chooses_by_exception() -> None:
    retry = Retry(on=(OSError,), not_on=(FileNotFoundError,))
    assert retry.explain_refusal(ConnectionResetError()) is None
    assert retry.explain_refusal(FileNotFoundError()) == "FileNotFoundError is in not_on of the task's Retry"
    assert retry.explain_refusal(ValueError()) == "ValueError is not in on of the task's Retry"
    assert Retry().explain_refusal(ValueError()) is None
    assert Retry(not_on=(ValueError,)).explain_refusal(KeyError()) is None


@pytest.mark.parametrize("given", [ConnectionError, [ConnectionError], ("ConnectionError",), (int,)])
def test_retry_takes_a_tuple_of_exception_classes(given: Any) -> None:
    with pytest.raises(ValueError, match=r"is invalid: give a tuple of exception classes"):
        Retry(on=given)
    with pytest.raises(ValueError, match=r"Retry\(not_on="):
        Retry(not_on=given)


def test_a_number_stands_for_attempts_with_the_default_waits() -> None:
    task = App().task(retry=5)(print_nothing)
    assert task.options.retry == Retry(max_attempts=5)
    assert task.using(retry=2).options.retry.max_attempts == 2
    assert task.options.retry.policy() is None
    with pytest.raises(InvalidOption, match=r"retry='5' is invalid: give a number of attempts"):
        task.using(retry="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"max_attempts=0\) is invalid"):
        task.using(retry=0)


def test_exceptions_to_retry_belong_to_the_task() -> None:
    app = App()
    task = app.task(retry=Retry(on=(OSError,)))(print_nothing)
    assert task.using(retry=replace(task.options.retry, max_attempts=2)).options.retry.max_attempts == 2
    assert task.using(retry=2).options.retry.max_attempts == 2
    with pytest.raises(InvalidOption, match="belong to its task"):
        task.using(retry=Retry(on=(ValueError,)))
    with pytest.raises(InvalidOption, match="belong to its task"):
        app.enqueue("unknown", retry=Retry(not_on=(ValueError,)))


def print_nothing() -> None: ...
