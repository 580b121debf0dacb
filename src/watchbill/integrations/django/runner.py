"""Runs a Django task as a handler: with its context, its signals and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from watchbill.client import caller_connection
from watchbill.client.operations import Operation, Statement
from watchbill.integrations.django.application import app
from watchbill.model.job import AttemptRecord, JobRecord
from watchbill.model.signals import Permanent, Skip, Snooze
from watchbill.store.queries import queries
from watchbill.worker.outcomes import describe_error
from watchbill.worker.run import Run, current_job

_STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "canceled": TaskResultStatus.FAILED,
}
_ATTEMPTS = ("succeeded", "skipped", "failed", "timed_out", "canceled")  # Django counts those whose handler has ended


@dataclass(frozen=True)
class Found:
    """A job with its attempts."""

    job: JobRecord
    attempts: list[AttemptRecord]


def find_result(job_id: UUID, backend: str) -> TaskResult | None:
    """Finds the result of a task; None if there is no such job, or it is not of a Django task."""
    found = _read_found(job_id)
    task = _import_task(found.job.type) if found else None
    return _make_result(found, task, backend) if found and task else None


def _read_found(job_id: UUID) -> Found | None:
    connection = app.connection
    if connection is None:  # the jobs are in another database
        return app.producer.run(_read_job(job_id))
    return caller_connection.run(_read_job(job_id), connection, queries(app.settings.schema), call="get_result")


def _read_job(job_id: UUID) -> Operation[Found | None]:
    rows = yield Statement("job_as_text", (str(job_id),))
    return _make_adapter().validate_json(rows[0][0]) if rows else None


@cache
def _make_adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Found)


def _import_task(path: str) -> Task | None:
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None


def _make_result(found: Found, task: Task, backend: str) -> TaskResult:
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
        errors=_list_errors(found),
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", job.result)  # as Django's own backends do
    return result


def _run_after(job: JobRecord) -> datetime | None:
    """When the caller asked the job to run; None if at once. The time of a later attempt does not count."""
    return as_django(job.run_at) if job.attempt == 0 and job.run_at > job.created_at else None


def _list_errors(found: Found) -> list[TaskError]:
    """One per failed attempt; and the error of a job that ended without one (canceled, or lost too often)."""
    failed = [each.error for each in found.attempts if each.error and each.outcome in ("failed", "timed_out")]
    last = found.job.error if found.job.state in ("dead", "canceled") else None
    return [task_error(each) for each in failed + ([last] if last and last not in failed else [])]


def task_error(error: dict[str, Any]) -> TaskError:
    if "type" not in error:
        name = "watchbill.JobCanceled" if error.get("kind") == "canceled" else "watchbill.JobFailed"
    else:
        name = f"{error.get('module', 'builtins')}.{error['type']}"
    return TaskError(exception_class_path=name, traceback=error.get("traceback") or str(error.get("message", "")))


def as_django(moment: datetime | None) -> datetime | None:
    """Aware or naive, as USE_TZ says."""
    from django.conf import settings

    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def make_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    """A handler that takes the parameters of the payload, not those of the function."""
    made = _make_async_runner if asyncio.iscoroutinefunction(task.func) else _make_blocking_runner
    return _name_after_task(made(task, backend, alias), task)


def _make_blocking_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    def run_django_task(args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006  (never changed)
        result = _read_result(task, alias) or _new_result(task, alias, args, kwargs)
        task_started.send_robust(backend, task_result=result)
        try:
            value = normalize_json(task.func(*_context_arguments(task, result), *args, **kwargs))
            _set_succeeded(result, value)
        except BaseException as error:
            if _set_failed(result, error):
                task_finished.send_robust(backend, task_result=result)
            raise
        task_finished.send_robust(backend, task_result=result)
        return value

    return run_django_task


def _make_async_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    async def run_django_task(args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006
        result = await _aread_result(task, alias) or _new_result(task, alias, args, kwargs)
        await task_started.asend_robust(backend, task_result=result)
        try:
            value = normalize_json(await task.func(*_context_arguments(task, result), *args, **kwargs))
            _set_succeeded(result, value)
        except BaseException as error:
            if _set_failed(result, error):
                await task_finished.asend_robust(backend, task_result=result)
            raise
        await task_finished.asend_robust(backend, task_result=result)
        return value

    return run_django_task


def _name_after_task(runner: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Gives the runner the name of the task's function, for messages. `runs` says which task it runs."""
    runner.__module__, runner.__qualname__ = task.func.__module__, task.func.__qualname__
    runner.__name__, runner.__doc__ = task.func.__name__, task.func.__doc__
    runner.runs = task.func  # type: ignore[attr-defined]
    return runner


def _context_arguments(task: Task, result: TaskResult) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


# -- the result so far. Only a task with context, or an attempt after the first, needs the earlier attempts.


def _needs_history(task: Task) -> bool:
    return task.takes_context or current_job().attempt > 1


def _read_result(task: Task, alias: str) -> TaskResult | None:
    return find_result(current_job().id, alias) if _needs_history(task) else None


async def _aread_result(task: Task, alias: str) -> TaskResult | None:
    return await sync_to_async(find_result)(current_job().id, alias) if _needs_history(task) else None


def _new_result(task: Task, alias: str, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    job = current_job()
    started = timezone.now() - timedelta(seconds=job.age)
    return TaskResult(
        task=task.using(queue_name=job.queue, priority=job.claimed.priority),
        id=str(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_django(_enqueued_at(job)),
        started_at=started,
        last_attempted_at=started,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[app.node_name],
    )


def _enqueued_at(job: Run) -> datetime:
    """A job's id begins with the milliseconds at which it was made."""
    return datetime.fromtimestamp(int.from_bytes(job.claimed.id[:6]) / 1000, UTC)


# -- the end of the run


def _set_succeeded(result: TaskResult, value: Any) -> None:
    _set_fields(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)


def _set_failed(result: TaskResult, error: BaseException) -> bool:
    """Returns whether the job has ended, and not only this attempt."""
    job = current_job()
    if isinstance(error, Skip):
        _set_succeeded(result, None)
        return True
    if isinstance(error, Snooze) or job.stopping == "released":
        return False
    result.errors.append(task_error(describe_error(error, "retryable")))
    if not isinstance(error, Permanent) and job.stopping != "canceled" and job.attempt < job.max_attempts:
        return False
    _set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    return True


def _set_fields(result: TaskResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # it is frozen; Django's own backends do the same
