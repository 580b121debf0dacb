"""Declared with Django 6's own decorator."""

import asyncio
from typing import Any

from django.tasks import TaskContext, task

from shop.models import Order
from watchbill import Permanent, Skip, current_job

calls: list[Any] = []


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail", priority=7)
async def count_orders(*items: str) -> dict[str, Any]:
    return {"items": items, "orders": await Order.objects.acount()}


@task(takes_context=True)
def flaky(context: TaskContext, fail: int) -> list[Any]:
    calls.append((context.attempt, context.task_result.status, context.task_result.id, str(current_job().id)))
    if context.attempt <= fail:
        raise ZeroDivisionError(f"attempt {context.attempt}")
    return [context.attempt, len(context.task_result.errors)]


@task(takes_context=True)
async def aflaky(context: TaskContext) -> int:
    await asyncio.sleep(0)
    if context.attempt == 1:
        raise ZeroDivisionError
    return context.attempt


@task
def give_up() -> None:
    raise Permanent("no way")


@task
def skip() -> None:
    raise Skip("nothing to do")


@task
def not_json() -> Any:
    return object()


@task(backend="once")
def once() -> None:
    raise LookupError("only once")
