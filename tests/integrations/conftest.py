"""Callers of every driver, on one database that holds their notes and the App's jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.callers import Caller
from tests.integrations.drivers import CALLERS
from tests.integrations.observer import Observer, new_database
from tests.servers import Server
from watchbill import App

collect_ignore = ["django_site"]


@pytest.fixture(scope="module")
def onlooker(server: Server) -> Iterator[Observer]:
    """One database for all, which holds the callers' notes too: one per test would take most of the time."""
    with new_database(server, schema=True) as url:
        observer = Observer(url)
        observer.connection.execute("CREATE TABLE notes (n int)")
        yield observer
        observer.connection.close()


@pytest.fixture
def other(onlooker: Observer) -> Observer:
    """Of an empty queue, and a page without notes."""
    for table in (
        "notes",
        *(f"watchbill.{name}" for name in ("jobs", "finished_jobs", "idempotency", "claims", "nodes")),
    ):
        onlooker.connection.execute(f"DELETE FROM {table}".encode())
    return onlooker


@pytest.fixture
def home(other: Observer) -> str:
    """The database in which the caller has his notes and the App its jobs."""
    return other.url


@pytest.fixture
def app() -> App:
    """It has no database of its own that could be reached: whatever works here works on the caller's connection."""
    return App("postgresql://127.0.0.1:1/x")


@pytest.fixture(params=CALLERS, ids=lambda caller: caller.__name__)
def kind(request: pytest.FixtureRequest) -> type[Caller]:
    found: type[Caller] = request.param
    return found


@pytest.fixture
def caller(kind: type[Caller], home: str) -> Iterator[Caller]:
    caller = kind(home)
    yield caller
    caller.close()


@pytest.fixture(scope="module")
def second_installation(server: Server) -> Iterator[str]:
    with new_database(server, schema=True) as url:
        yield url
