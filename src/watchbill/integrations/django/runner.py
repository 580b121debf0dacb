"""Runs a Django task as a handler of ours: its context, its signals, its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.tasks.base import Task, TaskContext, TaskResult, TaskResultStatus
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from watchbill.integrations.django.application import app
from watchbill.integrations.django.results import as_django, error_of, find_result
from watchbill.model.signals import Permanent, Skip, Snooze
from watchbill.worker.failures import describe
from watchbill.worker.run import Run, current_job


def make_runner(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    """Its parameters are those of the payload, not the function's."""
    made = _asynchronous if asyncio.iscoroutinefunction(task.func) else _blocking
    return _named(made(task, backend, alias), task)


def _blocking(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    def run(args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006  (never changed)
        result = _found(task, alias) or _result(task, alias, args, kwargs)
        task_started.send_robust(backend, task_result=result)
        try:
            value = normalize_json(task.func(*_context(task, result), *args, **kwargs))
            _succeeded(result, value)
        except BaseException as error:
            if _failed(result, error):
                task_finished.send_robust(backend, task_result=result)
            raise
        task_finished.send_robust(backend, task_result=result)
        return value

    return run


def _asynchronous(task: Task, backend: type, alias: str) -> Callable[..., Any]:
    async def run(args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006
        result = await _afound(task, alias) or _result(task, alias, args, kwargs)
        await task_started.asend_robust(backend, task_result=result)
        try:
            value = normalize_json(await task.func(*_context(task, result), *args, **kwargs))
            _succeeded(result, value)
        except BaseException as error:
            if _failed(result, error):
                await task_finished.asend_robust(backend, task_result=result)
            raise
        await task_finished.asend_robust(backend, task_result=result)
        return value

    return run


def _named(runner: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """After the function, for messages; by `runs` the backend knows whose runner it is."""
    runner.__module__, runner.__qualname__ = task.func.__module__, task.func.__qualname__
    runner.__name__, runner.__doc__ = task.func.__name__, task.func.__doc__
    runner.runs = task.func  # type: ignore[attr-defined]
    return runner


def _context(task: Task, result: TaskResult) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


# -- the result so far. Only a task with context, or an attempt after the first, has a history to be read.


def _needs_history(task: Task) -> bool:
    return task.takes_context or current_job().attempt > 1


def _found(task: Task, alias: str) -> TaskResult | None:
    return find_result(current_job().id, alias) if _needs_history(task) else None


async def _afound(task: Task, alias: str) -> TaskResult | None:
    return await sync_to_async(find_result)(current_job().id, alias) if _needs_history(task) else None


def _result(task: Task, alias: str, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    job = current_job()
    started = timezone.now() - timedelta(seconds=job.age)
    return TaskResult(
        task=task.using(queue_name=job.queue, priority=job.claimed.priority),
        id=str(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_django(_made_at(job)),
        started_at=started,
        last_attempted_at=started,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[app.node_name],
    )


def _made_at(job: Run) -> datetime:
    """An id begins with the milliseconds at which it was made."""
    return datetime.fromtimestamp(int.from_bytes(job.claimed.id[:6]) / 1000, UTC)


# -- its end


def _succeeded(result: TaskResult, value: Any) -> None:
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)


def _failed(result: TaskResult, error: BaseException) -> bool:
    """Whether this was the end of the job, and not of an attempt only."""
    job = current_job()
    if isinstance(error, Skip):
        _succeeded(result, None)
        return True
    if isinstance(error, Snooze) or job.stopping == "released":
        return False
    result.errors.append(error_of(describe(error, "retryable")))
    if not isinstance(error, Permanent) and job.stopping != "canceled" and job.attempt < job.max_attempts:
        return False
    _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    return True


def _set(result: TaskResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # frozen for its readers; Django's own backends do the same
