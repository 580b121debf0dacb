"""`db` is a database with the schema, shared by a server's tests and wiped before each; `own_db` is a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import _migrated
from tests.servers import Server
from tests.store.harness import T0, Db


@pytest.fixture(scope="session")
def shared_db() -> Iterator[Callable[[Server], Db]]:
    """Keeps the database, and its connections with their compiled functions, from test to test."""
    kept: dict[str, Db] = {}

    def ask(server: Server) -> Db:
        if server.url() not in kept:
            kept[server.url()] = Db(server.url(server.create_database(template(server))))
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
    db.assert_sound()


@pytest.fixture
def own_db(schema_database: str) -> Iterator[Db]:
    db = Db(schema_database)
    try:
        yield db
        db.assert_sound()
    finally:
        db.close()


def template(server: Server) -> str:
    if "schema" not in server.templates:
        server.templates["schema"] = _migrated(server)
    return server.templates["schema"]
