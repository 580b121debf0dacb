"""`db` is a database with the schema, shared by a server's tests and wiped before each; `own_db` is a new one.

For mutants.py the environment may name a running server and a template database with other functions in it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import _migrated
from tests.servers import Server
from tests.store.harness import T0, Db
from watchbill.postgres.embedded import Binaries, EmbeddedServer


@dataclass
class Borrowed:
    """Stands in for the embedded server that another process has started."""

    url: str


@pytest.fixture(scope="session")
def start_server(start_server: Callable[[Binaries], Server]) -> Callable[[Binaries], Server]:
    url, template = os.environ.get("WATCHBILL_TEST_SERVER"), os.environ.get("WATCHBILL_TEST_TEMPLATE")
    if not url or not template:
        return start_server
    embedded, numbers = cast("EmbeddedServer", Borrowed(url)), itertools.count(os.getpid() * 1000)
    return lambda binaries: Server(binaries, Path(), embedded, {"schema": template}, numbers)


@pytest.fixture(scope="session")
def shared_db() -> Iterator[Callable[[Server], Db]]:
    """Keeps the database, and its connections with their compiled functions, from test to test; a test that failed
    amid a transaction takes it along."""
    kept: dict[str, Db] = {}

    def ask(server: Server) -> Db:
        if server.url() in kept and not kept[server.url()].is_idle():
            kept.pop(server.url()).close()
        if server.url() not in kept:
            kept[server.url()] = db = Db(server.url(server.create_database(template(server))))
            # A session that is to wait here waits as long as a busy machine takes.
            db.execute("ALTER FUNCTION watchbill.settle SET lock_timeout = '1min'")
        return kept[server.url()]

    yield ask
    for db in kept.values():
        db.close()


@pytest.fixture
def db(server: Server, shared_db: Callable[[Server], Db]) -> Iterator[Db]:
    db = shared_db(server)
    db.now = T0
    db.wipe()
    yield db
    db.rest()
    db.assert_sound(is_planted=True)


@pytest.fixture
def own_db(schema_database: str) -> Iterator[Db]:
    db = Db(schema_database)
    try:
        yield db
        db.rest()  # what a failed test has left locked would block the next line, which no time-out ends then
        db.assert_sound(is_planted=True)
    finally:
        db.close()


def template(server: Server) -> str:
    if "schema" not in server.templates:
        server.templates["schema"] = _migrated(server)
    return server.templates["schema"]
