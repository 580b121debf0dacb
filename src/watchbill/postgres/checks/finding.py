"""What a check returns, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from psycopg import sql

from watchbill.postgres.connect import Connection
from watchbill.postgres.migration_files import Source
from watchbill.settings import Settings

State = Literal["ok", "note", "wrong", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor. `note` is worth knowing and no fault; `wrong` comes with the way out."""

    check: str
    state: State
    says: str
    hint: str = ""


def _local_clock() -> datetime:
    return datetime.now(UTC)


@dataclass
class Patient:
    """What the checks look at. The connection is open when a check of the server runs."""

    project: Path
    source: Source
    settings: Settings
    url: str = field(repr=False)
    connection: Connection
    clock: Callable[[], datetime] = _local_clock
    old_transaction: float = 300.0

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """In binary form, which no DateStyle can spoil."""
        return self.connection.execute(query.encode(), parameters, prepare=False, binary=True).fetchall()

    def ask_schema(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """`{schema}` stands for ours."""
        return self.ask(query.replace("{schema}", sql.Identifier(self.settings.schema).as_string(None)), *parameters)

    def connect(self) -> Connection:
        """One more connection, as every process of ours would open it."""
        return open_for_checks(self.url)

    @cached_property
    def is_pooled(self) -> bool:
        """A pooler invents the process number that it tells its client."""
        return self.ask("SELECT pg_backend_pid()") != [(self.connection.info.backend_pid,)]

    @cached_property
    def is_standby(self) -> bool:
        return self.ask("SELECT pg_is_in_recovery()") == [(True,)]


def open_for_checks(url: str) -> Connection:
    return Connection.connect(url, autocommit=True, prepare_threshold=None, application_name="watchbill doctor")
