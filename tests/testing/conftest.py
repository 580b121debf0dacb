"""Our own fixture, used as a user would, on the server that the rest of the suite runs on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import BINARIES
from tests.servers import Server
from watchbill.postgres.embedded import Binaries
from watchbill.testing.session import TestSession


@pytest.fixture(scope="module", autouse=True)
def _no_apps_of_other_tests() -> None:
    """A drain runs the tasks of every App of the process. Apps of earlier tests are in cycles until this collects
    them, and one with a task of the same type would run a job that a test expects to wait."""
    gc.collect()


@pytest.fixture(scope="session")
def test_server(start_server: Callable[[Binaries], Server]) -> Server:
    return start_server(BINARIES[0])


@pytest.fixture(scope="session")
def watchbill_database_url(test_server: Server) -> Iterator[str]:
    name = test_server.create_database()
    yield test_server.url(name)
    test_server.drop_database(name)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> TestSession:
    """What the fixture `watchbill` enters; not entered here."""
    found: TestSession = request.getfixturevalue("_watchbill_session")
    return found


@pytest.fixture
def given_database(test_server: Server) -> Iterator[str]:
    """An empty database for a test project of its own."""
    name = test_server.create_database()
    yield test_server.url(name)
    test_server.drop_database(name)
