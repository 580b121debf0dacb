"""Steps of a job: what is stored of them, and the errors that they raise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from watchbill.errors import WatchbillError

StepKind = Literal["run", "sleep", "value", "signal", "jobs", "undo", "published"]


@dataclass(frozen=True)
class StepRecord:
    """A stored step of a job."""

    name: str
    kind: str  # run, sleep, value, signal, jobs, undo or published
    state: str  # done, failed, raised, timed_out, waiting, retrying or begun
    run: int  # which run of the job has stored it
    tries: int
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    result: Any
    error: dict[str, Any] | None
    signals: list[str] | None = None  # for the first of which it waits
    ask: Any = None  # what the people who answer have to know


@dataclass(frozen=True)
class WaitingStep:
    """A step in which a suspended job waits."""

    job_id: UUID
    tenant: str
    type: str
    queue: str
    name: str
    kind: str
    since: datetime
    until: datetime | None
    signals: list[str] | None
    ask: Any
    idempotency_key: str | None


@dataclass(frozen=True)
class Signal:
    """A signal that a step has read."""

    name: str
    payload: Any
    key: str | None
    sent_by: str  # the actor or the database user of the sender
    sent_at: datetime


class StepError(WatchbillError):
    """Another attempt at the job would end the same: if such an error leaves the handler, the job is dead."""

    is_permanent = True


class StepFailed(StepError):
    """The function of a step has raised an error. In the run in which that happens, `__cause__` has the error. If it
    leaves the handler then, the attempt has failed, and the next one runs the step again. If the handler catches it and
    begins another step, the failure is stored, and each later run raises it again."""

    def __init__(self, step: str, error: dict[str, Any], *, is_stored: bool) -> None:
        self.step, self.error, self.is_permanent = step, error, is_stored
        what = f"{error.get('type', 'error')}: {error.get('message', 'unknown')}"
        super().__init__(f"Step {step} has failed: {what}", hint=error.get("traceback") if is_stored else None)


class StepMismatch(StepError):
    """The code does not fit to what an earlier run of the job has stored, so the job does not go on."""


class StepNotStored(StepError):
    """The result of a step cannot be stored."""


class WaitOutsideBranch(StepError):
    """A wait was called in an asyncio task that is neither the handler nor a branch of `steps.gather`."""


class SignalTimeout(StepError):
    """No signal came in time."""

    def __init__(self, step: str, names: tuple[str, ...]) -> None:
        self.step, self.names = step, names
        super().__init__(f"Step {step}: no signal {' or '.join(names)} came in time.")


class StepUnknown(StepError):
    """A step that runs at most once began in an earlier run, which has ended before it was known how the step ends."""

    def __init__(self, step: str) -> None:
        self.step = step
        super().__init__(
            f"Step {step} began in an earlier run, and it is unknown whether it has ended. With once=True it does not "
            "run again.",
            hint="Find out what it has done. Catch StepUnknown if the handler can go on without it.",
        )


class SuspensionSwallowed(StepError):
    """The handler has caught the exception with which a step leaves it, and has returned."""


class Unwind(BaseException):
    """A step raises this to leave the handler: the job sleeps, its node ends, the node has lost the job, or the job
    undoes its steps. It is not an Exception, so that `except Exception` does not catch it. `outcome` is how the run
    ends; `waits` are the names of the steps in which a suspended job waits, None: all that are open."""

    def __init__(
        self,
        outcome: Literal["suspended", "released", "undone"],
        why: str,
        *,
        waits: tuple[str, ...] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(why)
        self.outcome, self.waits, self.error = outcome, waits, error
