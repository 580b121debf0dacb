"""Members of token groups in the test's own process, on a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.waiting import until
from watchbill import App


class Bench:
    """An app and its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url, lease=30)

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def until(self, condition: Callable[[], object]) -> None:
        until(condition)


@pytest.fixture
def bench(schema_database: str) -> Iterator[Bench]:
    made = Bench(schema_database)
    yield made
    made.app.close()
