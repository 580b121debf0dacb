"""All Apps of the process on the test database, and the programs that it starts as well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from watchbill.app.staging import staged
from watchbill.settings import Settings, for_children
from watchbill.testing.connections import StagedAsyncClient, StagedClient, Stock
from watchbill.testing.database import Database


class DatabaseStage:
    """Lives for a whole run, so that its connections do; a test enters it with `active`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lines = Stock()

    @cached_property
    def client(self) -> StagedClient:
        client = StagedClient(self.database.url, schema=self.database.schema)
        client.installation = self.database.installation
        return client

    @cached_property
    def aclient(self) -> StagedAsyncClient:
        client = StagedAsyncClient(self.database.url, schema=self.database.schema)
        client.installation = self.database.installation
        return client

    @property
    def after_sending(self) -> Callable[[], None] | None:
        return self.client.on_sent

    def settings(self, given: Mapping[str, Any]) -> Settings:
        return Settings.load(**{**given, **self._ours, "embedded": False})

    @property
    def _ours(self) -> dict[str, str]:
        url = self.database.url
        return {"database_url": url, "listen_url": url, "schema": self.database.schema}

    def sweep(self) -> None:
        """Before each test."""
        with self.client.connection() as connection:
            self.database.sweeper.sweep(connection)

    @contextmanager
    def active(self) -> Iterator[None]:
        with _environment(self._ours), staged(self):
            yield

    def close(self) -> None:
        self.client.hang_up()
        self.aclient.hang_up()
        self.lines.close()


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """For what a test starts: `watchbill worker`, the child of a process task, a command."""
    ours: dict[str, str | None] = {f"WATCHBILL_{name.upper()}": value for name, value in settings.items()}
    ours |= for_children("the test that started this", **settings)  # an App of theirs may have another one in its code
    ours["WATCHBILL_TEST_DATABASE_URL"] = None  # the plugin's word, no setting of theirs
    before = {name: os.environ.get(name) for name in ours}
    _set(ours)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
