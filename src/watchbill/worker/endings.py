"""Endings of runs that the settler sends together."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from watchbill.worker.run import Claimed, Outcome, Run

Success = tuple[Claimed, float, bytes | None, Run | None]  # job, start, result, and the run if an observer wants it


@dataclass(slots=True)
class Ending:
    """The end of a run that did not simply succeed, or of a claimed job that was not started."""

    claimed: Claimed
    outcome: Outcome
    started: float | None = None
    run: Run | None = None
    logs: str | None = None  # the last lines of the run, if they are to be stored
    error: bytes | None = field(init=False)  # the error of the outcome as JSON

    def __post_init__(self) -> None:
        self.error = None if self.outcome.error is None else orjson.dumps(self.outcome.error)


@dataclass(slots=True)
class EndingBatch:
    """Endings that are settled together, in one or two statements: one for successes, one for all others."""

    succeeded: list[Success] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)  # fences of the claims whose last jobs are in this batch
    refused: EndingBatch | None = None  # an ending that the server refused; this batch records a failure instead of it

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.endings)

    @property
    def jobs(self) -> list[Claimed]:
        return [success[0] for success in self.succeeded] + [ending.claimed for ending in self.endings]

    @property
    def fences(self) -> list[int]:
        return [claimed.fence for claimed in self.jobs]

    @property
    def ids(self) -> list[bytes]:
        return [claimed.id for claimed in self.jobs]

    @property
    def has_single_attempt(self) -> bool:
        """Whether the batch has a job with one attempt whose handler was started."""
        started = [s[0] for s in self.succeeded] + [e.claimed for e in self.endings if e.started is not None]
        return any(claimed.max_attempts == 1 for claimed in started)

    def count_bytes(self) -> int:
        """Returns how many bytes the results and errors of the batch have."""
        results = [result for _, _, result, _ in self.succeeded if result is not None]
        for ending in self.endings:
            results += [value for value in (ending.outcome.result, ending.error) if value is not None]
        return sum(map(len, results)) + sum(len(ending.logs) for ending in self.endings if ending.logs is not None)

    def split_off(self, ids: set[bytes]) -> EndingBatch:
        """Moves these jobs into a batch of their own, which closes no claim."""
        taken = EndingBatch(
            [s for s in self.succeeded if s[0].id in ids], [e for e in self.endings if e.claimed.id in ids]
        )
        self.succeeded = [success for success in self.succeeded if success[0].id not in ids]
        self.endings = [ending for ending in self.endings if ending.claimed.id not in ids]
        return taken

    def split_in_half(self) -> tuple[EndingBatch, EndingBatch]:
        """Returns two batches with these jobs, which close no claim."""
        middle = len(self) // 2
        rest = max(0, middle - len(self.succeeded))
        first = EndingBatch(self.succeeded[:middle], self.endings[:rest])
        return first, EndingBatch(self.succeeded[middle:], self.endings[rest:])

    def keep_open(self, fence: int) -> bool:
        """Takes this claim off the list of claims to close, because one of its jobs has not ended. Returns whether the
        claim was on the list."""
        closes = fence in self.closed
        if closes:
            self.closed.remove(fence)
        return closes

    def add(self, other: EndingBatch) -> None:
        self.succeeded += other.succeeded
        self.endings += other.endings
        self.closed += other.closed
