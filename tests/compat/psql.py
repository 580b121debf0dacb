"""A session as a person at psql has it: text in, rows out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg.rows import namedtuple_row


class Psql:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True, row_factory=namedtuple_row)
        self.notices: list[str] = []
        self.connection.add_notice_handler(lambda notice: self.notices.append(notice.message_primary or ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def __call__(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows, or [] for a statement without any."""
        cursor = self.connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *parameters: Any) -> Any:
        """The only value of the only row."""
        [row] = self(statement, *parameters)
        [value] = row
        return value

    @contextmanager
    def begin(self) -> Iterator[Psql]:
        """A second session with a transaction that is rolled back at the end."""
        with Psql(self.url) as other, other.connection.transaction(force_rollback=True):
            yield other

    def pass_time(self, interval: str) -> None:
        """Moves the clock of the engine; NOW() of the server stays."""
        self("UPDATE watchbill.installation SET clock_offset = clock_offset + %s::interval", interval)
