"""What a handler may raise to say how its run ended."""

from __future__ import annotations

from datetime import timedelta

from watchbill.model.retry import waiting_time


class Signal(Exception):
    """The root of what a handler may raise on purpose."""


class Skip(Signal):
    """There is nothing to do: the job succeeds, its attempt is recorded as skipped, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)  # also of an exception, say, that somebody passes on


class Snooze(Signal):
    """Not now: run again after `delay`. No attempt is spent."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"again in {delay}")
        self.delay = waiting_time(delay)


class Permanent(Signal):
    """Trying again cannot help: the job is dead at once."""


class RetryAfter(Signal):
    """This attempt failed; try again after `delay` instead of what the retry policy says."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        super().__init__(message or f"again in {delay}")
        self.delay = waiting_time(delay)
