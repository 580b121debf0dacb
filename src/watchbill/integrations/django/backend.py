"""A backend for django.tasks (Django 6): tasks declared with Django's own decorator are jobs of Watchbill.

    TASKS = {"default": {"BACKEND": "watchbill.integrations.django.backend.WatchbillBackend"}}

A task is registered with the project's App when Django makes it, under the type `module.function`; its payload has
`args` and `kwargs`, as plain JSON, which is what Django promises to a task.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued
from django.utils import timezone
from django.utils.json import normalize_json

from watchbill.integrations.django.application import app
from watchbill.integrations.django.runner import find_result, make_runner
from watchbill.model.durations import Duration
from watchbill.model.retry import Retry

_OPTIONS = ("retry", "timeout", "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchbillTask(Task):
    """Django's Task with Watchbill's options too: `send.using(timeout=30, idempotency_key="k").enqueue(...)`."""

    retry: int | Retry | None = None
    timeout: Duration | None = None
    tenant: str | None = None
    idempotency_key: str | None = None
    idempotency_window: Duration | None = None

    def using(self, **changes: Any) -> WatchbillTask:
        """Returns a copy of the task with changed options: Django's (priority, queue_name, run_after, backend) or
        Watchbill's."""
        known = {field.name for field in fields(self)} - {"func", "takes_context"}
        if unknown := changes.keys() - known:
            raise TypeError(f"using() has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class WatchbillBackend(BaseTaskBackend):
    """Enqueues in the transaction that Django has open on the database that holds the jobs."""

    watchbill_app = app  # the App recognizes its backends by this attribute
    task_class = WatchbillTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._defaults = _read_options(alias, self.options)

    def validate_task(self, task: Task) -> None:
        """Django calls this for each task it makes, so it also registers the task with the App."""
        super().validate_task(task)
        known = app.tasks.get(task.module_path)
        if known is None or getattr(known.function, "runs", None) is not task.func:
            app.tasks.pop(task.module_path, None)  # the task exists already if its module was reloaded
            app.task(type=task.module_path, queue=task.queue_name)(make_runner(task, type(self), self.alias))

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        self.validate_task(task)
        _check_arguments(task, args, kwargs)
        args, kwargs = _to_json(task, list(args)), _to_json(task, dict(kwargs))
        job = app.enqueue(task.module_path, {"args": args, "kwargs": kwargs}, **self._make_job_options(task))
        if not job.created:  # an earlier job has the same idempotency key
            return self.get_result(str(job.id))
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def _make_job_options(self, task: Task) -> Any:
        own = {"retry", "timeout", "tenant", "idempotency_key", "idempotency_window"}
        given = {name: value for name in own if (value := getattr(task, name, None)) is not None}
        return {
            "queue": task.queue_name,
            "priority": int(task.priority),
            "run_at": None if task.run_after is None else _make_aware(task.run_after),
            **self._defaults,
            **given,
        }

    def get_result(self, result_id: str) -> TaskResult:
        try:
            wanted = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        result = find_result(wanted, self.alias)
        if result is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    def check(self, **kwargs: Any) -> list[Any]:
        from django.apps import apps

        if apps.is_installed("watchbill.integrations.django"):
            return []
        return [
            checks.Error(
                f"TASKS[{self.alias!r}] uses Watchbill, but Watchbill is not installed in this project.",
                hint='Add "watchbill.integrations.django" to INSTALLED_APPS.',
                id="watchbill.E002",
            )
        ]


def _read_options(alias: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Reads OPTIONS of the backend, which are the defaults for its tasks."""
    if unknown := options.keys() - set(_OPTIONS):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]['OPTIONS'] has {', '.join(sorted(unknown))}; it may have {', '.join(_OPTIONS)}"
        )
    found = dict(options)
    if isinstance(found.get("retry"), Mapping):
        found["retry"] = Retry(**found["retry"])
    return found


def _check_arguments(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses arguments that the function does not take. Django's own Task passes on whatever it gets."""
    whole = inspect.signature(task.func)
    own = list(whole.parameters.values())[1:] if task.takes_context else list(whole.parameters.values())
    signature = whole.replace(parameters=own)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}. It takes {signature}.") from None


def _to_json(task: Task, value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        hint = " Send its primary key." if _contains_model(value) else ""
        raise TypeError(f"{task.module_path}: its arguments must be JSON. {error}.{hint}") from None


def _contains_model(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value
    return any(isinstance(each, Model) for each in values)


def _make_aware(moment: datetime) -> datetime:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
