"""`psql` is a session in a database of its own that has all facades of SQL; its engine's clock can be moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.psql import Psql
from tests.servers import Server
from watchbill.store.facades import Facade, available_facades, install_facade
from watchbill.store.jcron_schema import install_jcron
from watchbill.testing.database import make_schema

FACADES = [name for name in available_facades() if name in ("jcron", "jobforge", "jobsync")]


@pytest.fixture
def psql(server: Server) -> Iterator[Psql]:
    if "facades" not in server.templates:
        template = server.create_database()
        url = server.url(template)
        make_schema(url, "watchbill")
        install_jcron(url, "watchbill", "jcron", lambda _: None)
        for name in FACADES:
            install_facade(url, Facade.choose("watchbill", name))
        server.templates["facades"] = template
    name = server.create_database(server.templates["facades"])
    with Psql(server.url(name)) as session:
        yield session
    server.drop_database(name)
