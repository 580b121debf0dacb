"""Batch: one call of a handler runs many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watchbill.model.decisions import Decision
from watchbill.model.durations import Duration, seconds
from watchbill.model.option_names import suggest_options

LARGEST_BATCH = 10_000  # the most jobs that one call may run
LONGEST_BATCH_WAIT_SECONDS = 60.0  # a job that waits on its node for others is not available to other nodes


@suggest_options
@dataclass(frozen=True)
class Batch:
    """How many jobs one call of the handler runs: up to `size`. A job waits on its node for others of its type, but not
    longer than `wait`."""

    size: int
    wait: Duration = 0.5

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= LARGEST_BATCH:
            raise ValueError(
                f"Batch(size={self.size!r}) is invalid: size must be a whole number from 1 to {LARGEST_BATCH:,}"
            )
        try:
            found = seconds(self.wait)
        except ValueError as error:
            raise ValueError(f"Batch(wait={self.wait!r}) is invalid: {error}") from None
        if not 0 <= found <= LONGEST_BATCH_WAIT_SECONDS:
            raise ValueError(
                f"Batch(wait={self.wait!r}) is invalid: wait must be between 0 and {LONGEST_BATCH_WAIT_SECONDS:g} s"
            )

    @property
    def wait_seconds(self) -> float:
        return seconds(self.wait)


class BatchFailed(Decision):
    """A handler raises this if some jobs of the batch have failed: `errors` has an exception for each of them, by its
    index among the items. The other jobs succeed; `results` may have a result for each item, in order.

    Each exception means the same as for a single job: `Skip`, `Snooze`, `RetryAfter` and `Permanent` work here too.
    """

    def __init__(self, errors: Mapping[int, BaseException], *, results: list[Any] | None = None) -> None:
        for index, error in errors.items():
            if type(index) is not int or not isinstance(error, BaseException):
                raise TypeError(
                    f"BatchFailed({{{index!r}: {error!r}}}) is invalid: give an exception for each index, such as "
                    '{0: ValueError("why")}'
                )
        super().__init__(f"{len(errors)} jobs of the batch have failed")
        self.errors, self.results = dict(errors), results
