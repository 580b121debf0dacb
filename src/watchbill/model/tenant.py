"""The tenant for which this thread or asyncio task acts. `app.tenant(...)` sets it, and a client sends it to the
database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

DEFAULT_TENANT = "default"
acting_tenant: ContextVar[str | None] = ContextVar("watchbill_tenant", default=None)  # None if no tenant was set


@contextmanager
def acting_for(tenant: str) -> Iterator[None]:
    if not tenant or not isinstance(tenant, str):
        raise ValueError(f"tenant={tenant!r} is invalid: give a text that is not empty")
    token = acting_tenant.set(tenant)
    try:
        yield
    finally:
        acting_tenant.reset(token)
