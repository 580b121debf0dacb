"""The pytest plugin. It is loaded in every pytest run on the machine, so it imports nothing until a fixture is used."""

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
    from watchbill.testing.session import TestSession

VARIABLE = "WATCHBILL_TEST_DATABASE_URL"  # TEST_VARIABLE of watchbill.settings, which is not imported here


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "database for the fixture `watchbill`, instead of one on the project's embedded server"
    parser.getgroup("watchbill").addoption("--watchbill-database-url", metavar="URL", help=meaning)
    parser.addini("watchbill_database_url", meaning)


@pytest.fixture(scope="session")
def watchbill_database_url(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[str | None]:
    """The address of the database for the tests; None means a database on the embedded server. Override this fixture to
    make a database yourself.

    Each process of pytest-xdist gets its own database on the same server. In a Django project with pytest-django it is
    Django's test database.
    """
    named = pytestconfig.getoption("watchbill_database_url") or os.environ.get(VARIABLE)
    url = named or pytestconfig.getini("watchbill_database_url") or None
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if url is None and (django_url := _find_django_database_url(request)):
        yield django_url
        return
    if url is None or process is None:
        yield url
        return
    from watchbill.testing.database import beside

    with _hide_traceback(), beside(url, process) as own:
        yield own


@pytest.fixture(scope="session")
def watchbill_database(pytestconfig: pytest.Config, watchbill_database_url: str | None) -> Iterator[Database]:
    """The database of this process's tests. Give `watchbill_database.url` to an engine or a server of your own."""
    from watchbill.testing.database import open_database

    with _hide_traceback(), open_database(watchbill_database_url, pytestconfig.rootpath) as database:
        yield database


@pytest.fixture(scope="session")
def _watchbill_session(watchbill_database: Database) -> Iterator[TestSession]:
    from watchbill.testing.session import TestSession

    session = TestSession(watchbill_database)
    yield session
    session.close()


@pytest.fixture
def watchbill_tenant() -> str | None:
    """The tenant for which a test acts. Override it in a module or a class: a test that uses `watchbill` then acts for
    that tenant."""
    return None


@pytest.fixture
def watchbill(_watchbill_session: TestSession, watchbill_tenant: str | None) -> Iterator[Watchbill]:
    """An empty queue in which every App of this process keeps its jobs while the test runs."""
    from watchbill.testing.fixture import Watchbill

    with _hide_traceback():
        _watchbill_session.empty_database()
    with _watchbill_session.active(watchbill_tenant):
        yield Watchbill(_watchbill_session)


def _find_django_database_url(request: pytest.FixtureRequest) -> str | None:
    """Returns the address of Django's test database, if this is a Django project that keeps its jobs there."""
    integration = sys.modules.get("watchbill.integrations.django.application")
    if integration is None or not request.config.pluginmanager.hasplugin("django"):
        return None
    if integration.app.connection is None:  # the project keeps its jobs in another database
        return None
    request.getfixturevalue("django_db_setup")
    url: str = integration.app.database_url
    return url


@contextmanager
def _hide_traceback() -> Iterator[None]:
    """Shows an error of Watchbill as its message and hint, without a traceback."""
    from watchbill.errors import WatchbillError

    try:
        yield
    except WatchbillError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
