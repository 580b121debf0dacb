"""Which job the code that is running belongs to; set by the worker, read by logs."""

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


def about(job: JobLike) -> dict[str, object]:
    """For `extra=` of what we log about a job, from outside its handler."""
    return {"job_id": str(job.id), "attempt": job.attempt}


def job_of_context() -> tuple[str | None, int | None]:
    job = current.get()
    return (None, None) if job is None else (str(job.id), job.attempt)
