"""Where the database is, and what to say when it is not there. No password ever leaves this module in a message."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from watchbill.errors import NoDatabase

if TYPE_CHECKING:
    from watchbill.settings import Settings

_WAYS = """Say where it is in one of these ways:
  --database-url postgresql://user@host/database   (or database_url= in Python)
  WATCHBILL_DATABASE_URL or DATABASE_URL in the environment
  database_url in watchbill.toml or [tool.watchbill] of pyproject.toml
  `watchbill up` or App(embedded=True), which start a PostgreSQL of this project's own (pip install 'watchbill[embedded]')"""
_START_IT = """This project is to have a PostgreSQL of its own (the setting embedded), and that does not run.
Programs start it when they use their App, and so does `watchbill up`; other commands only join."""

# (what the server or libpq says, what we say, what to do); the first match counts.
_FAILURES = (
    ("password authentication failed", "the password was refused", "Correct the password in the URL, or in ~/.pgpass."),
    ("no password supplied", "a password is needed", "Put it in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("no pg_hba.conf entry", "the server lets no such client in", "Add a line for it to the server's pg_hba.conf."),
    ("Connection refused", "nothing listens there", "Start PostgreSQL, or correct host and port."),
    ("No such file or directory", "nothing listens there", "Start PostgreSQL, or correct the socket directory."),
    ("failed to resolve host", "the host name is unknown", "Correct the host in the database URL."),
    (
        "timeout expired",
        "no answer in time",
        "Check host, port and firewall; connect_timeout=N in the URL waits longer.",
    ),
    ("too many clients", "all connections are in use", "Raise max_connections, or use a pooler."),
    ("remaining connection slots", "all connections are in use", "Raise max_connections, or use a pooler."),
    ("starting up", "the server is starting up", "Try again in a moment."),
    ("shutting down", "the server is shutting down", "Wait until it is back."),
)


@dataclass(frozen=True)
class Address:
    """A database URL and the place that named it. Printing one shows no password."""

    url: str = field(repr=False)
    origin: str

    def __str__(self) -> str:
        return f"{describe(parse(self.url))} (from {self.origin})"


def find_address(settings: Settings, project: Path | None = None) -> Address:
    """The address in the settings, else that of the project's running embedded server. Starts nothing."""
    if settings.database_url:
        return Address(settings.database_url, settings.origins.get("database_url", "the settings"))
    from watchbill.postgres.embedded import find_project, running_url

    url = running_url(project or find_project())
    if url is None:
        raise NoDatabase("No database is known.", hint=_START_IT if settings.embedded else _WAYS)
    return Address(url, "the embedded server of this project")


def parse(url: str) -> dict[str, Any]:
    """The URL's parts. What libpq says of a URL that it cannot read may quote the password, so it is not passed on."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        parts = None
    if parts is None or "@" in str(parts.get("host", "")):
        raise NoDatabase(
            "The database URL cannot be read (it is not shown, since it may hold a password).",
            hint="Write postgresql://user:password@host:5432/database; in user and password "
            "percent-encode special characters (@ is %40, / is %2F, % is %25).",
        ) from None
    return dict(parts)


def describe(parts: Mapping[str, Any]) -> str:
    """Database, host, port and user in words, with libpq's own fallbacks."""
    user = parts.get("user") or os.environ.get("PGUSER") or getpass.getuser()
    database = parts.get("dbname") or os.environ.get("PGDATABASE") or user
    host = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    return f'database "{database}" at {host}:{port} as user "{user}"'


def explain_failure(error: psycopg.OperationalError, parts: Mapping[str, Any]) -> NoDatabase:
    text = str(error).split("\nMultiple connection attempts")[0]
    where = describe(parts)
    if "does not exist" in text:
        missing = text.split("FATAL:")[-1].strip()
        return NoDatabase(f"Cannot connect to {where}: {missing}.", hint="Create it, or correct the database URL.")
    for sign, reason, hint in _FAILURES:
        if sign in text:
            return NoDatabase(f"Cannot connect to {where}: {reason}.", hint=hint)
    said = text.split(" failed: ")[-1].splitlines()[0].strip()
    return NoDatabase(f"Cannot connect to {where}: {said}", hint="This is what PostgreSQL's client library said.")
