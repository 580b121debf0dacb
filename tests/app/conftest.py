"""One suite for both colours: `ask("add", ...)` is app.schedules.add(...), or awaits aadd(...)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from watchbill import App, Retry

Ask = Callable[..., Any]


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database, name="shop")

    @app.task(type="report", queue="reports", retry=Retry(max_attempts=3), timeout=300, executor="thread")
    def report(region: str = "eu") -> str:
        return f"report of {region}"

    @app.task(type="hello")
    async def hello() -> None: ...

    yield app
    app.close()


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, app: App) -> Ask:
    def blocking(name: str, *args: Any, **options: Any) -> Any:
        return getattr(app.schedules, name)(*args, **options)

    def awaited(name: str, *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            try:
                return await getattr(app.schedules, f"a{name}")(*args, **options)
            finally:
                await app.aclose()

        return asyncio.run(call())

    return blocking if request.param == "sync" else awaited
