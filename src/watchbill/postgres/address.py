"""Finds the address of the database, and explains failed connections. No message contains a password."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from watchbill._version import install_command
from watchbill.errors import NoDatabase

if TYPE_CHECKING:
    from watchbill.settings import Settings

_SET_IT = f"""Set its address in one of these ways:
  --database-url postgresql://user@host/database   (or database_url= in Python)
  WATCHBILL_DATABASE_URL or DATABASE_URL in the environment
  database_url in watchbill.toml or [tool.watchbill] of pyproject.toml
Or let `watchbill up` or App(embedded=True) start a PostgreSQL for this project. That needs
{install_command("embedded")}."""
_START_IT = """This project has an embedded PostgreSQL (the setting embedded), and it does not run.
`watchbill up` starts it, and so does a program that uses its App; other commands do not."""

_START_STOPPED = """`watchbill up` starts it, and so does a program whose App uses it; other commands do not.
To use another database, give its address: --database-url, WATCHBILL_DATABASE_URL, or database_url in watchbill.toml."""
_START_EMBEDDED = """This is the embedded server of a project, and it does not run.
`watchbill up` starts it, and starts it again if it ends."""
_NOTHING_LISTENS = "nothing listens there"
_UNKNOWN_HOST = "the host name is unknown"
_NO_PRIMARY = "None of the hosts is the primary now. During a failover, wait until there is one."

# Triples: a part of an error text of the server or libpq, our explanation, and a hint. The first match counts.
_FAILURES = (
    ("password authentication failed", "the password was refused", "Correct the password in the URL, or in ~/.pgpass."),
    ("no password supplied", "a password is needed", "Put it in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("no pg_hba.conf entry", "the server does not admit this client", "Add a line for it to the server's pg_hba.conf."),
    ("Connection refused", _NOTHING_LISTENS, "Start PostgreSQL, or correct host and port."),
    ("No such file or directory", _NOTHING_LISTENS, "Start PostgreSQL, or correct the socket directory."),
    ("failed to resolve host", _UNKNOWN_HOST, "Correct the host in the database URL."),
    (
        "timeout expired",
        "no answer in time",
        "Check host, port and firewall; connect_timeout=N in the URL waits longer.",
    ),
    ("too many clients", "all connections are in use", "Raise max_connections, or use a pooler."),
    ("remaining connection slots", "all connections are in use", "Raise max_connections, or use a pooler."),
    ("starting up", "the server is starting up", "Try again in a moment."),
    ("shutting down", "the server is shutting down", "Wait until it is back."),
    ("hot standby mode", "it is a standby", _NO_PRIMARY),
    ("is read-only", "it is a standby", _NO_PRIMARY),
)
# These reasons stay until someone corrects them, so a call need not wait for the database.
_LASTING = ("the password was refused", "a password is needed", "the server does not admit this client", _UNKNOWN_HOST)


@dataclass(frozen=True)
class Address:
    """A database URL and where it was set. Its text contains no password."""

    url: str = field(repr=False)
    origin: str

    def __str__(self) -> str:
        return f"{describe(parse_url(self.url))} (from {self.origin})"


def find_address(settings: Settings, project: Path | None = None) -> Address:
    """Returns the address in the settings, or else that of the project's embedded server, if that runs. Does not start
    a server."""
    if settings.database_url:
        return Address(settings.database_url, settings.origins.get("database_url", "the settings"))
    from watchbill.postgres.embedded import find_project, find_running_url, has_data

    project = project or find_project()
    url = find_running_url(project)
    if url is None:
        if has_data(project):
            raise NoDatabase(f"The embedded PostgreSQL of {project} is stopped.", hint=_START_STOPPED)
        raise NoDatabase("No database address is set.", hint=_START_IT if settings.embedded else _SET_IT)
    return Address(url, "the embedded server of this project")


def parse_url(url: str) -> dict[str, Any]:
    """Splits a database URL into its parts. For an invalid URL, raises an error without libpq's message, because that
    may quote the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        parts = None
    if parts is None or _has_misread_password(url, parts):
        invalid = NoDatabase(
            "The database URL is invalid (it is hidden, because it may contain a password).",
            hint="Write postgresql://user:password@host:5432/database; in user and password "
            "percent-encode special characters (@ is %40, / is %2F, % is %25).",
        )
        invalid.may_pass = False
        raise invalid from None
    return dict(parts)


def _has_misread_password(url: str, parts: Mapping[str, Any]) -> bool:
    """Whether libpq took a part of the password for the host, port or database, because a character was not encoded."""
    if "@" in str(parts.get("host", "")):
        return True
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    return "@" in path or not re.fullmatch(r"[\d,]*", str(parts.get("port", "")))


def describe(parts: Mapping[str, Any]) -> str:
    """Returns database, host, port and user as a text, with libpq's defaults for missing parts."""
    user = parts.get("user") or os.environ.get("PGUSER") or getpass.getuser()
    database = parts.get("dbname") or os.environ.get("PGDATABASE") or user
    host = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    return f'database "{database}" at {_describe_hosts(str(host), str(port))} as user "{user}"'


def _describe_hosts(host: str, port: str) -> str:
    """Returns `host:port`; for several hosts `a, b (port 5432)`, or `a:5432, b:5433` if their ports differ."""
    hosts, ports = host.split(","), [each or "5432" for each in port.split(",")]
    if len(hosts) == 1:
        return f"{host}:{port}"
    if len(set(ports)) == 1:
        return f"{', '.join(hosts)} (port {ports[0]})"
    return ", ".join(f"{each}:{its_port}" for each, its_port in zip_longest(hosts, ports, fillvalue="?"))


class _Failure(NamedTuple):
    reason: str
    hint: str
    may_pass: bool


def explain_failures(
    errors: Sequence[tuple[Mapping[str, Any], psycopg.OperationalError]], parts: Mapping[str, Any]
) -> NoDatabase:
    """Returns the exception for tries that have failed: pairs of the parameters of a try and its error. `parts` are the
    parameters of all."""
    found = [_explain_failure(str(error), tried) for tried, error in errors]
    if len({failure.reason for failure in found}) == 1:
        reason, hint = found[0].reason, found[0].hint
    else:
        hosts = [str(tried.get("host") or tried.get("hostaddr")) for tried, _ in errors]
        reason = "; ".join(f"{host}: {failure.reason}" for host, failure in zip(hosts, found, strict=True))
        hint = next((failure.hint for failure in found if not failure.may_pass), _NO_PRIMARY)
    explained = NoDatabase(f"Cannot connect to {describe(parts)}: {reason}.", hint=hint)
    explained.may_pass = all(failure.may_pass for failure in found)
    return explained


def _explain_failure(error: str, parts: Mapping[str, Any]) -> _Failure:
    text = error.split("\nMultiple connection attempts")[0]
    if "does not exist" in text:
        missing = text.split("FATAL:")[-1].strip()
        return _Failure(missing, "Create it, or correct the database URL.", may_pass=False)
    for sign, reason, hint in _FAILURES:
        if sign in text:
            if reason == _NOTHING_LISTENS and (home := _find_embedded_home(parts)) is not None:
                hint = f"{_START_EMBEDDED} Its log is {home / 'server.log'}."
            return _Failure(reason, hint, may_pass=reason not in _LASTING)
    message = text.split(" failed: ")[-1].splitlines()[0].strip().removesuffix(".")
    return _Failure(message, "This message is from PostgreSQL's client library.", may_pass=True)


def _find_embedded_home(parts: Mapping[str, Any]) -> Path | None:
    """Returns the directory `.watchbill` of an embedded server, if the host of the address is its socket directory."""
    home = Path(str(parts.get("host", ""))).parent
    return home if (home / "holders.lock").is_file() else None
