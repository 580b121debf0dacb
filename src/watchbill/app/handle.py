"""Job: what enqueueing gives back, and where a result is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from watchbill.client import plans
from watchbill.errors import WatchbillError
from watchbill.model.job import Enqueued, JobRecord

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.task import Task

R = TypeVar("R", covariant=True)


class JobFailed(WatchbillError):
    """The job is dead; `error` is what its last attempt left, with the traceback of the worker."""

    def __init__(self, job_id: UUID, error: dict[str, Any] | None) -> None:
        self.job_id, self.error = job_id, error or {}
        kind, message = self.error.get("type", "error"), self.error.get("message", "unknown")
        super().__init__(f"Job {job_id} is dead: {kind}: {message}", hint=self.error.get("traceback"))


class JobCanceled(WatchbillError):
    """The job was canceled, so it has no result."""


class Job(Generic[R]):
    """A job that was enqueued: `id`, whether it was `created` now, and its result in time."""

    def __init__(self, app: App, task: Task[..., R] | None, answer: Enqueued) -> None:
        self._app, self._task, self._answer = app, task, answer

    @property
    def id(self) -> UUID:
        """A UUIDv7."""
        return self._answer.id

    @property
    def created(self) -> bool:
        """False when its idempotency key was known: then this is the first job with that key."""
        return self._answer.created

    @property
    def payload_differs(self) -> bool:
        """True when its idempotency key was known, with another payload."""
        return self._answer.payload_differs

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def get(self) -> JobRecord:
        """The job as it stands."""
        return self._app.jobs.get(self.id)

    async def aget(self) -> JobRecord:
        return await self._app.jobs.aget(self.id)

    def result(self, timeout: float | None = None) -> R:
        """Waits until the job has ended. Raises JobFailed, JobCanceled or TimeoutError."""
        for pause in self._pauses(timeout):
            ended = self._app.run(plans.ending(self.id))
            if ended is not None:
                return self._value(*ended)
            time.sleep(pause)
        raise self._too_late(timeout)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  (the sync twin's name)
        for pause in self._pauses(timeout):
            ended = await self._app.arun(plans.ending(self.id))
            if ended is not None:
                return self._value(*ended)
            await asyncio.sleep(pause)
        raise self._too_late(timeout)

    @staticmethod
    def _pauses(timeout: float | None) -> Iterator[float]:
        """Short at first, longer for longer jobs, and never past the end."""
        began = time.monotonic()
        while timeout is None or time.monotonic() - began < timeout:
            waited = time.monotonic() - began
            yield min(0.5, max(0.002, waited / 10), *(() if timeout is None else (max(0.0, timeout - waited),)))
        yield 0.0

    def _value(self, state: str, result: Any, error: dict[str, Any] | None) -> R:
        if state == "dead":
            raise JobFailed(self.id, error)
        if state == "canceled":
            raise JobCanceled(f"Job {self.id} was canceled: {(error or {}).get('message')}")
        return self._task.decode_result(result) if self._task is not None else result

    def _too_late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"job {self.id} has not ended within {timeout} s")
