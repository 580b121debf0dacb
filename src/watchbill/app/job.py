"""Job: what enqueueing returns, and where a result is waited for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from watchbill.client.operations import Operation
from watchbill.errors import WatchbillError
from watchbill.model.durations import Duration, seconds

if TYPE_CHECKING:
    from watchbill.client.job_operations import Ending
    from watchbill.model.job import JobRecord

R = TypeVar("R", covariant=True)
T = TypeVar("T")


class OperationRunner(Protocol):
    """Runs operations on the database of an App: in the transaction of a caller's connection, in the one that Django
    has open, or else in transactions of its own; `run_apart` always in its own."""

    def run(self, operation: Operation[T], connection: Any = None) -> T: ...
    async def arun(self, operation: Operation[T], connection: Any = None) -> T: ...
    def run_apart(self, operation: Operation[T]) -> T: ...
    def run_until_answered(self, make: Callable[[], Operation[T]]) -> T: ...
    async def arun_until_answered(self, make: Callable[[], Operation[T]]) -> T: ...
    async def arun_apart(self, operation: Operation[T]) -> T: ...
    @property
    def cell(self) -> str | None: ...
    def is_in_transaction(self, connection: Any = None) -> bool: ...
    def find_tenant(self) -> str | None: ...


class ResultDecoder(Protocol[R]):
    """A Task, which turns the stored result into a Python value."""

    def decode_result(self, value: Any) -> R: ...


class JobFailed(WatchbillError):
    """The job is dead; `error` describes its last attempt, with the traceback of the worker."""

    def __init__(self, job_id: UUID, error: dict[str, Any] | None) -> None:
        self.job_id, self.error = job_id, error or {}
        kind, message = self.error.get("type", "error"), self.error.get("message", "unknown")
        super().__init__(f"Job {job_id} is dead: {kind}: {message}", hint=self.error.get("traceback"))


class JobCanceled(WatchbillError):
    """The job was canceled, so it has no result."""


class NotCommitted(WatchbillError):
    """The job is in a transaction that has not committed, so no worker can see it."""


@dataclass(eq=False, repr=False)
class Job(Generic[R]):
    """A job that was enqueued: its `id`, whether it was `created` now, and its result once it has one."""

    _runner: OperationRunner
    _task: ResultDecoder[R] | None  # None: this process does not know the task
    _id: UUID | int  # an integer until it is read: a bulk makes many jobs whose ids are not
    _may_be_uncommitted: bool = False  # it was enqueued in a transaction of the caller
    _created: bool = True
    _payload_differs: bool = False

    @property
    def id(self) -> UUID:
        """A UUIDv7."""
        if isinstance(self._id, int):
            self._id = UUID(int=self._id)
        return self._id

    @property
    def created(self) -> bool:
        """False when its idempotency key was already used: then this is the first job with that key."""
        return self._created

    @property
    def payload_differs(self) -> bool:
        """True when its idempotency key was already used with another payload."""
        return self._payload_differs

    @property
    def cell(self) -> str | None:
        """The cell that has the job; None if the App has no cells."""
        return self._runner.cell

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def get(self, *, connection: Any = None) -> JobRecord:
        """Reads the job as it is now."""
        from watchbill.client import job_operations

        return self._runner.run(job_operations.get(self.id), connection)

    async def aget(self, *, connection: Any = None) -> JobRecord:
        from watchbill.client import job_operations

        return await self._runner.arun(job_operations.get(self.id), connection)

    def signal(self, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None) -> str:
        """Sends a signal to the job, for a step that waits for this name. Of signals with the same `key` the job gets
        the first only. Returns `stored`, `woken` (the job waited for it), `duplicate` or `finished`."""
        from watchbill.client import job_operations

        return self._runner.run(job_operations.signal(self.id, name, payload, key=key), connection)

    async def asignal(self, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None) -> str:
        from watchbill.client import job_operations

        return await self._runner.arun(job_operations.signal(self.id, name, payload, key=key), connection)

    def result(self, timeout: Duration | None = None) -> R:
        """Waits until the job has ended. Raises JobFailed, JobCanceled or TimeoutError, and NotCommitted if no worker
        can see the job."""
        from psycopg import Error

        ended = self._runner.run(self._find_ending()) if self._may_be_uncommitted else None
        for pause in _pauses(timeout):
            ended = ended or self._runner.run_until_answered(self._read_ending)
            if ended is not None:
                return self._read_result(*ended)
            time.sleep(pause)
        reason: str | None = None
        with suppress(WatchbillError, Error):
            reason = self._runner.run_apart(self._find_reason())
        raise self._make_timeout_error(timeout, reason)

    async def aresult(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109  (the sync twin's name)
        from psycopg import Error

        ended = await self._runner.arun(self._find_ending()) if self._may_be_uncommitted else None
        for pause in _pauses(timeout):
            ended = ended or await self._runner.arun_until_answered(self._read_ending)
            if ended is not None:
                return self._read_result(*ended)
            await asyncio.sleep(pause)
        reason: str | None = None
        with suppress(WatchbillError, Error):
            reason = await self._runner.arun_apart(self._find_reason())
        raise self._make_timeout_error(timeout, reason)

    def decode_result(self, value: Any) -> R:
        """Turns the result as JSON into a Python value."""
        return self._task.decode_result(value) if self._task is not None else value

    def _find_ending(self) -> Operation[Ending | None]:
        from watchbill.client import job_operations

        return job_operations.ending(self.id)

    def _read_ending(self) -> Operation[Ending | None]:
        """Read outside of the caller's transaction: an old snapshot would never show that the job has ended."""
        from watchbill.client import job_operations

        ended = yield from self._find_ending()
        if ended is None and self._may_be_uncommitted:
            if not (yield from job_operations.exists(self.id)):
                raise NotCommitted(
                    f"Job {self.id} is in a transaction that has not committed, so no worker sees it yet.",
                    hint="Wait for its result after the commit.",
                )
            self._may_be_uncommitted = False
        return ended

    def _read_result(self, state: str, result: Any, error: dict[str, Any] | None) -> R:
        if state == "dead":
            raise JobFailed(self.id, error)
        if state == "canceled":
            raise JobCanceled(f"Job {self.id} was canceled: {(error or {}).get('message')}")
        return self.decode_result(result)

    def _find_reason(self) -> Operation[str]:
        """The deciding reason why the job has not ended, such as that no node is alive."""
        from watchbill.client import job_operations

        reasons = yield from job_operations.why(self.id)
        return reasons[0].reason

    def _make_timeout_error(self, timeout: Duration | None, reason: str | None) -> TimeoutError:
        waited = f"job {self.id} has not ended within {0 if timeout is None else seconds(timeout):g} s"
        return TimeoutError(waited if reason is None else f"{waited}: {reason}")


class FlowJob(Job[R]):
    """The job that starts a scheduled chain or group. `result()` waits for the end of all its jobs, and returns the
    result of the last one, or a list if there are several."""

    def _find_ending(self) -> Operation[Ending | None]:
        from watchbill.client import job_operations

        started = yield from job_operations.ending(self.id)
        if started is None or started[0] != "succeeded":
            return started
        return (yield from job_operations.ending(UUID(started[1]["end"])))


def _pauses(timeout: Duration | None) -> Iterator[float]:
    """Yields the pauses between two looks at a job: a tenth of the time waited so far, between 2 ms and 0.5 s, and
    never past the timeout."""
    began, longest = time.monotonic(), math.inf if timeout is None else seconds(timeout)
    while (waited := time.monotonic() - began) < longest:
        yield min(0.5, max(0.002, waited / 10), longest - waited)
    yield 0.0
