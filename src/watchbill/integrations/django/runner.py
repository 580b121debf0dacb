"""Runs a task of django.tasks as a handler, with Django's context and signals, and reads a job as Django's
TaskResult."""

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
from watchbill.model.decisions import Permanent, Skip, Snooze
from watchbill.model.job import AttemptRecord, JobRecord
from watchbill.store.queries import queries
from watchbill.worker.outcomes import describe_error
from watchbill.worker.run import Run, current_job

_STATUS = {
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "canceled": TaskResultStatus.FAILED,
}
_ATTEMPTS = ("succeeded", "skipped", "failed", "timed_out", "canceled")  # Django counts attempts with these outcomes


@dataclass(frozen=True)
class Found:
    """A job with its attempts."""

    job: JobRecord
    attempts: list[AttemptRecord]


def find_result(job_id: UUID, backend: str) -> TaskResult | None:
    """Finds the result of a task. Returns None if there is no such job, or if it is not the job of a Django task."""
    found = _read_found(job_id)
    task = _import_task(found.job.type) if found else None
    return _make_result(found, task, backend) if found and task else None


def _read_found(job_id: UUID) -> Found | None:
    connection = app.connection
    if connection is None:  # the project keeps its jobs in a database that is not one of Django's
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
        task=task.using(priority=job.priority, queue_name=job.queue, run_after=_find_run_after(job), backend=backend),
        id=str(job.id),
        status=_STATUS.get(job.state, TaskResultStatus.READY),
        enqueued_at=as_django_datetime(job.created_at),
        started_at=as_django_datetime(starts[0]) if starts else None,
        last_attempted_at=as_django_datetime(starts[-1]) if starts else None,
        finished_at=as_django_datetime(job.finished_at),
        args=job.payload.get("args", []),
        kwargs=job.payload.get("kwargs", {}),
        backend=backend,
        errors=_list_errors(found),
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", job.result)  # TaskResult is frozen; Django's backends set it like this
    return result


def _find_run_after(job: JobRecord) -> datetime | None:
    """Returns when the caller asked the job to run; None if at once. The time of a later attempt does not count."""
    return as_django_datetime(job.run_at) if job.attempt == 0 and job.run_at > job.created_at else None


def _list_errors(found: Found) -> list[TaskError]:
    """Returns an error for each failed attempt, and the error of a job that ended without a failed attempt, because it
    was canceled or lost too often."""
    failed = [each.error for each in found.attempts if each.error and each.outcome in ("failed", "timed_out")]
    last = found.job.error if found.job.state in ("dead", "canceled") else None
    return [make_task_error(each) for each in failed + ([last] if last and last not in failed else [])]


def make_task_error(error: dict[str, Any]) -> TaskError:
    if "type" not in error:
        name = "watchbill.JobCanceled" if error.get("kind") == "canceled" else "watchbill.JobFailed"
    else:
        name = f"{error.get('module', 'builtins')}.{error['type']}"
    return TaskError(exception_class_path=name, traceback=error.get("traceback") or str(error.get("message", "")))


def as_django_datetime(moment: datetime | None) -> datetime | None:
    """Returns the datetime with a time zone, or without one if Django's setting USE_TZ is off."""
    from django.conf import settings

    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def make_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    """Returns a handler for a Django task. The handler takes `args` and `kwargs`, as they are in the payload, and
    passes them to the task's function."""
    made = _make_async_runner if asyncio.iscoroutinefunction(task.func) else _make_blocking_runner
    return _name_after_task(made(task, backend, alias), task)


def _make_blocking_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    def run_django_task(args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006  (never changed)
        result = _read_result(task, alias) or _make_unfinished_result(task, alias, args, kwargs)
        task_started.send_robust(backend, task_result=result)
        try:
            value = normalize_json(task.func(*_make_context_arguments(task, result), *args, **kwargs))
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
        result = await _aread_result(task, alias) or _make_unfinished_result(task, alias, args, kwargs)
        await task_started.asend_robust(backend, task_result=result)
        try:
            value = normalize_json(await task.func(*_make_context_arguments(task, result), *args, **kwargs))
            _set_succeeded(result, value)
        except BaseException as error:
            if _set_failed(result, error):
                await task_finished.asend_robust(backend, task_result=result)
            raise
        await task_finished.asend_robust(backend, task_result=result)
        return value

    return run_django_task


def _name_after_task(runner: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Gives the runner the name of the task's function, for messages. Its attribute `runs` is the task's own
    function."""
    runner.__module__, runner.__qualname__ = task.func.__module__, task.func.__qualname__
    runner.__name__, runner.__doc__ = task.func.__name__, task.func.__doc__
    runner.runs = task.func  # type: ignore[attr-defined]
    return runner


def _make_context_arguments(task: Task, result: TaskResult) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


# -- the TaskResult that the handler gets. Earlier attempts are read only for a task with context, or for a retry.


def _needs_history(task: Task) -> bool:
    return task.takes_context or current_job().attempt > 1


def _read_result(task: Task, alias: str) -> TaskResult | None:
    return find_result(current_job().id, alias) if _needs_history(task) else None


async def _aread_result(task: Task, alias: str) -> TaskResult | None:
    return await sync_to_async(find_result)(current_job().id, alias) if _needs_history(task) else None


def _make_unfinished_result(task: Task, alias: str, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    job = current_job()
    started = timezone.now() - timedelta(seconds=job.age)
    return TaskResult(
        task=task.using(queue_name=job.queue, priority=job.claimed.priority),
        id=str(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_django_datetime(_read_enqueued_at(job)),
        started_at=started,
        last_attempted_at=started,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[app.node_name],
    )


def _read_enqueued_at(job: Run) -> datetime:
    """Returns when the job was enqueued, which its id says: it begins with the time in milliseconds."""
    return datetime.fromtimestamp(int.from_bytes(job.claimed.id[:6]) / 1000, UTC)


# -- how the end of a run changes Django's TaskResult


def _set_succeeded(result: TaskResult, value: Any) -> None:
    _set_fields(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)


def _set_failed(result: TaskResult, error: BaseException) -> bool:
    """Sets the result of a failed attempt. Returns whether the whole job has ended, and not only this attempt."""
    job = current_job()
    if isinstance(error, Skip):
        _set_succeeded(result, None)
        return True
    if isinstance(error, Snooze) or job.stopping == "released":
        return False
    result.errors.append(make_task_error(describe_error(error, "retryable")))
    if not isinstance(error, Permanent) and job.stopping != "canceled" and job.attempt < job.max_attempts:
        return False
    _set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    return True


def _set_fields(result: TaskResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # TaskResult is frozen; Django's own backends set its fields like this
