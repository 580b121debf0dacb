"""Exceptions that a handler may raise to decide how its run ends."""

from __future__ import annotations

from watchbill.model.durations import Duration
from watchbill.model.retry import delay_seconds


class Decision(Exception):
    """The base class of the exceptions with which a handler skips, snoozes, retries or gives up its job."""


class Skip(Decision):
    """A handler raises this if there is nothing to do: the job succeeds, and its attempt is recorded as skipped, with
    the reason. `result` is the result of the job, in place of what the handler would have returned."""

    def __init__(self, reason: str = "", *, result: object = None) -> None:
        super().__init__(reason)
        self.reason = str(reason)  # a handler may give an exception that it has caught
        self.result = result


class Snooze(Decision):
    """A handler raises this to run again after `delay`. It costs no attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"again in {delay}")
        self.delay = delay_seconds(delay)


class Permanent(Decision):
    """A handler raises this if a retry cannot help: the job is dead at once."""


class RetryAfter(Decision):
    """A handler raises this if the attempt failed and the next one should start after `delay`, whatever the retry
    policy says."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        super().__init__(message or f"again in {delay}")
        self.delay = delay_seconds(delay)
