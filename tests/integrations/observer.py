"""A second connection to the callers' database, and how their transactions end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg

from tests.servers import Server
from watchbill.postgres.migrate import Source, migrate


class Observer:
    """A second connection: what everybody else sees."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def jobs(self) -> set[UUID]:
        return {row[0] for row in self.connection.execute("SELECT id FROM watchbill.jobs")}

    def notes(self) -> int:
        [(number,)] = self.connection.execute("SELECT count(*) FROM notes")
        return int(number)


class Surprise(Exception):
    """Ends a transaction."""


@contextmanager
def surprised(block: AbstractContextManager[Any]) -> Iterator[None]:
    """A block of the driver's that ends with an exception."""
    with suppress(Surprise), block:
        yield
        raise Surprise


@contextmanager
def new_database(server: Server, *, schema: bool) -> Iterator[str]:
    name = server.create_database()
    if schema:
        migrate(server.url(name), "watchbill", Source.of_package("watchbill.store"))
    yield server.url(name)
    server.drop_database(name)
