"""Requests of tenants: a middleware, and views that enqueue."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from shop.tasks import ship
from watchbill.integrations.django import app

current_tenant: ContextVar[str | None] = ContextVar("current_tenant", default=None)


def find_tenant() -> str | None:
    return current_tenant.get()


class TenantMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = current_tenant.set(request.headers.get("X-Tenant"))
        try:
            return self.get_response(request)
        finally:
            current_tenant.reset(token)


def enqueue(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"tenant": ship.enqueue(1).get().tenant})


async def enqueue_async(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"tenant": (await (await ship.aenqueue(1)).aget()).tenant})


def nested(request: HttpRequest) -> HttpResponse:
    """A request within a request."""
    from django.test import Client

    inner: Any = Client().get("/enqueue", headers={"X-Tenant": "inner"})
    return JsonResponse({"inner": inner.json()["tenant"], "outer": ship.enqueue(1).get().tenant})


def schedule(request: HttpRequest) -> HttpResponse:
    app.schedules.add("nightly", "@daily", task=ship, arguments={"order": 1})
    return JsonResponse({"tenant": app.schedules.get("nightly").tenant})


urlpatterns = [
    path("enqueue", enqueue), path("enqueue_async", enqueue_async), path("nested", nested), path("schedule", schedule),
]  # fmt: skip
