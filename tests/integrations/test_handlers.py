"""Handlers that complete their job in a transaction of their own, under a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg2  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.worker.conftest import Workbench
from watchbill import App, Retry, Task, current_job

NOTE = "INSERT INTO notes VALUES (1)"


@pytest.fixture
def bench(schema_database: str) -> Iterator[Workbench]:
    workbench = Workbench(schema_database)
    workbench.sql("CREATE TABLE notes (n int)")
    yield workbench
    workbench.app.close()


def with_sqlalchemy(app: App, url: str) -> Task[[bool], int]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)

    @app.task(retry=Retry(max_attempts=1))
    def note(fail: bool) -> int:
        with Session(engine) as session, session.begin():
            session.execute(sa.text(NOTE))
            current_job().guard(connection=session)
            current_job().complete(42, connection=session)
            return 42 // (not fail)

    return note


def with_psycopg2(app: App, url: str) -> Task[[bool], int]:
    @app.task(retry=Retry(max_attempts=1))
    def note(fail: bool) -> int:
        connection = psycopg2.connect(url)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(NOTE)
                current_job().complete(42, connection=connection)
                return 42 // (not fail)
        finally:
            connection.close()

    return note


def with_asyncpg(app: App, url: str) -> Task[[bool], int]:
    @app.task(retry=Retry(max_attempts=1))
    async def note(fail: bool) -> int:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute(NOTE)
                await current_job().aguard(connection=connection)
                await current_job().acomplete(42, connection=connection)
                return 42 // (not fail)
        finally:
            await connection.close()

    return note


def work(bench: Workbench, event: str) -> None:
    """Until this has happened."""

    async def until() -> None:
        async with bench.working():
            await bench.until(lambda: told)

    told: list[Any] = []
    bench.app.on(event)(lambda **what: told.append(what))
    asyncio.run(until())


DRIVERS = [with_sqlalchemy, with_psycopg2, with_asyncpg]


@pytest.mark.parametrize("driver", DRIVERS)
def test_writes_and_completion_commit_together(bench: Workbench, driver: Any) -> None:
    job = driver(bench.app, bench.url).enqueue(fail=False)
    work(bench, "job_completed")
    found = job.get()
    assert (found.state, found.result, found.run) == ("succeeded", 42, 1)
    assert bench.sql("SELECT count(*) FROM notes") == [(1,)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_failed_handler_rolls_back_writes_and_completion(bench: Workbench, driver: Any) -> None:
    job = driver(bench.app, bench.url).enqueue(fail=True)
    work(bench, "job_died")
    found = job.get()
    assert (found.state, found.error["type"]) == ("dead", "ZeroDivisionError")
    assert bench.sql("SELECT count(*) FROM notes") == [(0,)]
