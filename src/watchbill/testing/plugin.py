"""The pytest plugin. It is loaded in every pytest run on the machine: nothing is imported until a fixture is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from watchbill.testing.database import Database
    from watchbill.testing.fixture import Watchbill
    from watchbill.testing.stage import DatabaseStage

VARIABLE = "WATCHBILL_TEST_DATABASE_URL"


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "database for the fixture `watchbill`, instead of one on the project's embedded server"
    parser.getgroup("watchbill").addoption("--watchbill-database-url", metavar="URL", help=meaning)
    parser.addini("watchbill_database_url", meaning)


@pytest.fixture(scope="session")
def watchbill_database_url(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[str | None]:
    """The database that was named; None: one on the embedded server. Override it to give one of your own making.

    Each process of pytest-xdist has its own, beside the one that was named. In a Django project with pytest-django it
    is Django's test database.
    """
    named = pytestconfig.getoption("watchbill_database_url") or os.environ.get(VARIABLE)
    url = named or pytestconfig.getini("watchbill_database_url") or None
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if url is None and (of_django := _of_django(request)):
        yield of_django
        return
    if url is None or process is None:
        yield url
        return
    from watchbill.testing.database import beside

    with _in_words(), beside(url, process) as own:
        yield own


@pytest.fixture(scope="session")
def watchbill_database(pytestconfig: pytest.Config, watchbill_database_url: str | None) -> Iterator[Database]:
    """The database of this process's tests: give `watchbill_database.url` to an engine or a server of your own."""
    from watchbill.postgres.embedded import find_project
    from watchbill.settings import Settings
    from watchbill.testing.database import embedded_database, named_database

    with _in_words():
        project = find_project(pytestconfig.rootpath)
        environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
        settings = Settings.load(project=project, environ=environ)
        with (
            embedded_database(project, settings.schema, settings.embedded_binaries)
            if watchbill_database_url is None
            else named_database(watchbill_database_url, settings.schema)
        ) as database:
            yield database


@pytest.fixture(scope="session")
def _watchbill_stage(watchbill_database: Database) -> Iterator[DatabaseStage]:
    from watchbill.testing.stage import DatabaseStage

    stage = DatabaseStage(watchbill_database)
    yield stage
    stage.close()


@pytest.fixture
def watchbill(_watchbill_stage: DatabaseStage) -> Iterator[Watchbill]:
    """An empty queue in which every App of this process keeps its jobs while the test runs."""
    from watchbill.testing.fixture import Watchbill

    with _in_words():
        _watchbill_stage.sweep()
    with _watchbill_stage.active():
        yield Watchbill(_watchbill_stage)


def _of_django(request: pytest.FixtureRequest) -> str | None:
    """Where Django's own tests are, if this is such a project: jobs are in its transactions."""
    integration = sys.modules.get("watchbill.integrations.django.application")
    if integration is None or not request.config.pluginmanager.hasplugin("django"):
        return None
    if integration.app.connection is None:  # the jobs are in none of Django's databases
        return None
    request.getfixturevalue("django_db_setup")
    url: str = integration.app.database_url
    return url


@contextmanager
def _in_words() -> Iterator[None]:
    """What is wrong, and the way out, without a traceback through our own code."""
    from watchbill.errors import WatchbillError

    try:
        yield
    except WatchbillError as error:
        pytest.fail(str(error), pytrace=False)
