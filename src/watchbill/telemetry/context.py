"""The job that the running code belongs to. The worker sets it, and log lines show it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol
from uuid import UUID


class JobLike(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...
    def add_lines(self, lines: Sequence[str]) -> None:
        """Keeps lines that its code has logged."""


current: ContextVar[JobLike | None] = ContextVar("watchbill_current_job", default=None)
may_log_secrets: ContextVar[bool] = ContextVar("watchbill_may_log_secrets", default=False)
"""Whether a library runs whose log lines may show a secret. They are not stored with the job."""


def log_fields(job: JobLike) -> dict[str, object]:
    """Returns the `extra=` for a log line about this job, for code that runs outside of the job's handler."""
    return {"job_id": str(job.id), "attempt": job.attempt}
