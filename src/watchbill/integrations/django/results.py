"""A job as Django's TaskResult, read through Django's own connection, so that a transaction sees its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.tasks.base import Task, TaskError, TaskResult, TaskResultStatus
from django.utils import timezone
from django.utils.module_loading import import_string

from watchbill.client import foreign
from watchbill.client.plans import Plan, Statement
from watchbill.integrations.django.application import app
from watchbill.model.job import AttemptRecord, JobRecord
from watchbill.store.queries import queries

_STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "canceled": TaskResultStatus.FAILED,
}
_ATTEMPTS = ("succeeded", "skipped", "failed", "timed_out", "canceled")  # what Django counts: a handler came to an end


@dataclass(frozen=True)
class Found:
    """A job with its attempts."""

    job: JobRecord
    attempts: list[AttemptRecord]


def find_result(job_id: UUID, backend: str) -> TaskResult | None:
    """None when there is no such job, or it is none of a Django task."""
    found = _find(job_id)
    task = _task_of(found.job.type) if found else None
    return _result(found, task, backend) if found and task else None


def _find(job_id: UUID) -> Found | None:
    connection = app.connection
    if connection is None:  # the jobs are in none of Django's databases
        return app.run(_plan(job_id))
    return foreign.run(_plan(job_id), connection, queries(app.settings.schema), call="get_result")


def _plan(job_id: UUID) -> Plan[Found | None]:
    rows = yield Statement("job_as_text", (str(job_id),))
    return _reader().validate_json(rows[0][0]) if rows else None


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Found)


def _task_of(path: str) -> Task | None:
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None


def _result(found: Found, task: Task, backend: str) -> TaskResult:
    job = found.job
    ended = [attempt for attempt in found.attempts if attempt.outcome in _ATTEMPTS]
    starts = [each.started_at or each.ended_at for each in ended]
    workers = [each.holder or "" for each in ended]
    if job.state == "running":
        starts.append(job.started_at or job.claimed_at or job.updated_at)
        workers.append(job.holder or "")
    result = TaskResult(
        task=task.using(priority=job.priority, queue_name=job.queue, run_after=_run_after(job), backend=backend),
        id=str(job.id),
        status=_STATUS.get(job.state, TaskResultStatus.READY),
        enqueued_at=as_django(job.created_at),
        started_at=as_django(starts[0]) if starts else None,
        last_attempted_at=as_django(starts[-1]) if starts else None,
        finished_at=as_django(job.finished_at),
        args=job.payload.get("args", []),
        kwargs=job.payload.get("kwargs", {}),
        backend=backend,
        errors=_errors(found),
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", job.result)  # as Django's own backends do
    return result


def _run_after(job: JobRecord) -> datetime | None:
    """None for a job that was to run at once; a later attempt's time is not what the caller had asked for."""
    return as_django(job.run_at) if job.attempt == 0 and job.run_at > job.created_at else None


def _errors(found: Found) -> list[TaskError]:
    """One per attempt that failed; and the last word on a job that ended without one (canceled, or lost too often)."""
    failed = [each.error for each in found.attempts if each.error and each.outcome in ("failed", "timed_out")]
    last = found.job.error if found.job.state in ("dead", "canceled") else None
    return [error_of(each) for each in failed + ([last] if last and last not in failed else [])]


def error_of(told: dict[str, Any]) -> TaskError:
    if "type" not in told:
        name = "watchbill.JobCanceled" if told.get("kind") == "canceled" else "watchbill.JobFailed"
    else:
        name = f"{told.get('module', 'builtins')}.{told['type']}"
    return TaskError(exception_class_path=name, traceback=told.get("traceback") or str(told.get("message", "")))


def as_django(moment: datetime | None) -> datetime | None:
    """Aware or naive, as USE_TZ says."""
    from django.conf import settings

    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)
