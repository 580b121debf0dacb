"""What a handler raises on purpose must make sense, else the attempt fails with the words of the mistake."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from watchbill import Retry, RetryAfter, Snooze


@pytest.mark.parametrize("signal", [Snooze, RetryAfter])
@pytest.mark.parametrize("delay", [float("nan"), float("inf"), -1, 1e12, timedelta(days=-1)])
def test_a_delay_is_a_sensible_number(signal: type[Snooze | RetryAfter], delay: float | timedelta) -> None:
    with pytest.raises(ValueError, match="must be within 0 and"):
        signal(delay)


@pytest.mark.parametrize("signal", [Snooze, RetryAfter])
def test_a_delay_is_seconds_or_a_timedelta(signal: type[Snooze | RetryAfter]) -> None:
    assert (signal(0).delay, signal(1.5).delay, signal(timedelta(minutes=1)).delay) == (0, 1.5, 60)


@pytest.mark.parametrize("attempts", [1.5, True, "3", None])
def test_attempts_are_counted_in_whole_numbers(attempts: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        Retry(max_attempts=attempts)
