"""What a check of the doctor examines (`Target`) and returns (`Finding`)."""

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


@dataclass(frozen=True)
class Finding:
    """One line that `watchbill doctor` prints. A `note` is not a fault; `wrong` comes with a hint how to repair it."""

    check: str
    state: Literal["ok", "note", "wrong", "skipped"]
    says: str
    hint: str = ""


@dataclass
class Target:
    """An installation under examination, with an open connection to its database."""

    project: Path
    source: Source
    settings: Settings
    url: str = field(repr=False)
    connection: Connection
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    old_transaction_seconds: float = 300.0

    def query(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Reads rows in binary format, which does not depend on the session's DateStyle."""
        return self.connection.execute(query.encode(), parameters, prepare=False, binary=True).fetchall()

    def query_schema(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Reads rows with a query in which `{schema}` stands for Watchbill's schema."""
        return self.query(query.replace("{schema}", sql.Identifier(self.settings.schema).as_string(None)), *parameters)

    @cached_property
    def is_pooled(self) -> bool:
        """Whether the connection goes through a pooler: a pooler reports another process number than the server
        does."""
        return self.query("SELECT pg_backend_pid()") != [(self.connection.info.backend_pid,)]

    @cached_property
    def is_standby(self) -> bool:
        return self.query("SELECT pg_is_in_recovery()") == [(True,)]


def open_for_checks(url: str) -> Connection:
    """Opens a connection with the same options as a worker's."""
    return Connection.connect(url, autocommit=True, prepare_threshold=None, application_name="watchbill doctor")
