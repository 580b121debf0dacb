"""The job that the running code belongs to; set by the worker, read by logs."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol
from uuid import UUID


class JobLike(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...


current: ContextVar[JobLike | None] = ContextVar("watchbill_current_job", default=None)


def log_fields(job: JobLike) -> dict[str, object]:
    """The `extra=` of a log record about this job, for code outside of its handler."""
    return {"job_id": str(job.id), "attempt": job.attempt}
