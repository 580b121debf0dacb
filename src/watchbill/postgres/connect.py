"""Opens connections that neither a role's defaults nor a pooler can surprise.

What a DBA may have set on a role or database (REPEATABLE READ, read-only, a statement_timeout, a German DateStyle) is
overridden by startup options: they cost no round trip, and RESET returns to them. A pooler in transaction mode refuses
such options, rightly, since its server connections are shared; then we connect without them. BEGIN names isolation and
access mode in any case, so transactions are safe behind a pooler too; for single statements there the role's defaults
stand, and `watchbill doctor` names those that bite.

`Connection` and `AsyncConnection` are psycopg's own, opened our way; a pool takes them as its `connection_class`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import psycopg
from psycopg.rows import TupleRow

from watchbill.postgres.address import explain_failure, parse

SESSION_DEFAULTS = {
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
}

# A network peer that vanished without a word is noticed within half a minute, the default lease.
_TRANSPORT = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
    "connect_timeout": "10",
    "client_encoding": "utf8",
    "fallback_application_name": "watchbill",
}


class Connection(psycopg.Connection[TupleRow]):
    """A blocking connection, safe from role defaults."""

    is_pooled = False

    @cached_property
    def kept_cursor(self) -> psycopg.Cursor[TupleRow]:
        """For one statement after the other: a new cursor for each is a third of the driver's work."""
        return self.cursor()

    @classmethod
    def connect(cls, conninfo: str = "", **more: Any) -> Self:
        """`more` is what psycopg takes: autocommit, application_name, ...; and `session` for other SESSION_DEFAULTS."""
        wanted = startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more
        while True:
            try:
                connection = super().connect(**wanted)
                break
            except psycopg.OperationalError as error:
                wanted = _next_try(error, wanted)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        _mark_pooled(connection, wanted)
        return connection


class AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """The same for asyncio."""

    is_pooled = False

    @cached_property
    def kept_cursor(self) -> psycopg.AsyncCursor[TupleRow]:
        return self.cursor()

    @classmethod
    async def connect(cls, conninfo: str = "", **more: Any) -> Self:
        wanted = startup_parameters(conninfo, more.pop("session", SESSION_DEFAULTS)) | more
        while True:
            try:
                connection = await super().connect(**wanted)
                break
            except psycopg.OperationalError as error:
                wanted = _next_try(error, wanted)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await connection.set_read_only(False)
        _mark_pooled(connection, wanted)
        return connection


def _mark_pooled(connection: Connection | AsyncConnection, wanted: Mapping[str, Any]) -> None:
    """Who refused our options shares its sessions: what one client prepares, another stumbles on."""
    connection.is_pooled = "options" not in wanted
    if connection.is_pooled:
        connection.prepare_threshold = None


def startup_parameters(url: str, session: Mapping[str, str] = SESSION_DEFAULTS) -> dict[str, Any]:
    """What the URL says, completed by what we want; the words of the URL and of libpq's variables win."""
    given = parse(url)
    if "PGCONNECT_TIMEOUT" in os.environ:
        given.setdefault("connect_timeout", os.environ["PGCONNECT_TIMEOUT"])
    several_hosts = {"target_session_attrs": "primary"} if "," in str(given.get("host", "")) else {}
    defaults = (f"-c {name}={value}" for name, value in session.items())
    own_options = given.get("options") or os.environ.get("PGOPTIONS", "")
    return {**_TRANSPORT, **several_hosts, **given, "options": " ".join([*defaults, own_options]).strip()}


def _next_try(error: psycopg.OperationalError, wanted: dict[str, Any]) -> dict[str, Any]:
    """Without options, if it was these that were refused: PgBouncer speaks of a startup parameter, RDS Proxy of
    command-line options."""
    refused = "startup parameter" in str(error) or "command-line options" in str(error)
    if not refused or "options" not in wanted:
        raise explain_failure(error, wanted) from error
    return {name: value for name, value in wanted.items() if name != "options"}
