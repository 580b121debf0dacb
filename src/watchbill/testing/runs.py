"""What a drain has run, and what it tells the test of it."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from watchbill.errors import WatchbillError
from watchbill.model.signals import RetryAfter
from watchbill.worker.endings import Settled
from watchbill.worker.run import Run, current_job


class DrainFailed(WatchbillError):
    """A run failed otherwise than by an exception of its handler: a time-out, a payload that does not fit."""


class NeverEnding(WatchbillError):
    """More and more jobs became ready."""


@dataclass(frozen=True)
class Ran:
    """One run of a job, and what became of both."""

    id: UUID
    type: str
    attempt: int
    outcome: str  # succeeded, skipped, failed, timed_out, snoozed, canceled or released
    state: str  # the job's: succeeded, queued, failed (and waits for its next attempt), dead or canceled
    error: dict[str, Any] | None = field(default=None, repr=False)
    exception: BaseException | None = field(default=None, repr=False)

    @property
    def is_failure(self) -> bool:
        """RetryAfter is a handler's plan, not its accident."""
        return self.outcome in ("failed", "timed_out") and not isinstance(self.exception, RetryAfter)


@dataclass
class Book:
    """What was run so far, and whether it is enough."""

    limit: int
    raising: bool
    ran: list[Ran] = field(default_factory=list)
    failure: Ran | None = None
    interrupt: BaseException | None = None
    _raised: dict[bytes, BaseException] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        stopped = self.interrupt is not None or (self.raising and self.failure is not None)
        return stopped or len(self.ran) >= self.limit

    def raised(self, error: BaseException) -> None:
        """Called where a handler raised. A worker goes on after anything that a handler raises; Ctrl-C and pytest's
        fail() and skip() are meant for the test."""
        self._raised[current_job().claimed.id] = error
        if not isinstance(error, Exception | CancelledError | SystemExit | GeneratorExit):
            self.interrupt = error

    def settled(self, succeeded: list[Run], endings: list[Settled]) -> None:
        for run in succeeded:
            self._enter(Ran(run.id, run.type, run.attempt, "succeeded", "succeeded"))
        for each in endings:
            if each.state is not None and each.ending.outcome != "unsupported":
                self._enter(self._ran(each, each.state))

    def _ran(self, settled: Settled, state: str) -> Ran:
        ending, claimed = settled.ending, settled.ending.claimed
        raised = self._raised.pop(claimed.id, None)
        job_id = UUID(bytes=claimed.id)
        return Ran(job_id, claimed.type, claimed.attempt + 1, ending.outcome, state, ending.error, raised)

    def _enter(self, ran: Ran) -> None:
        self.ran.append(ran)
        if self.failure is None and ran.is_failure:
            self.failure = ran

    def conclude(self) -> list[Ran]:
        if self.interrupt is not None:
            raise self.interrupt
        if self.raising and self.failure is not None:
            raise _error_of(self.failure)
        if len(self.ran) >= self.limit:
            raise NeverEnding(
                f"The drain has seen {len(self.ran):,} runs, and more may be ready.",
                hint="Does a task enqueue itself, or snooze without a delay? If not: drain(limit=...).",
            )
        return self.ran


def _error_of(ran: Ran) -> BaseException:
    if ran.outcome == "failed" and ran.exception is not None:
        return ran.exception
    told, how = ran.error or {}, ran.outcome.replace("_", " ")
    return DrainFailed(
        f"Attempt {ran.attempt} of {ran.type} has {how} and the job is {ran.state}: {told.get('message')}",
        hint=told.get("traceback"),
    )
