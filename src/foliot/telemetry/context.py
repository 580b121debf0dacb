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


current: ContextVar[JobLike] = ContextVar("foliot_current_job")


def job_of_context() -> tuple[str | None, int | None]:
    job = current.get(None)
    return (None, None) if job is None else (str(job.id), job.attempt)
