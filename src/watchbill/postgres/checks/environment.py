"""Checks of this machine, of the server, and of what is between them."""

from __future__ import annotations

import re
import secrets
import sys
import zoneinfo
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from watchbill.errors import NoDatabase, WatchbillError
from watchbill.postgres.checks.target import Finding, Target, open_for_checks
from watchbill.postgres.connect import SESSION_DEFAULTS, Connection
from watchbill.postgres.embedded import find_running_url
from watchbill.postgres.embedded.home import find_home, find_leftovers
from watchbill.postgres.embedded.launch import choose_binaries
from watchbill.settings import OWN_CONNECTIONS, POOLS, Settings

_OLDEST_PYTHON = (3, 11)
_OLDEST_SERVER = 15
_MAX_CLOCK_SKEW_SECONDS = 5.0
_SAME_SESSION_TRIES = 5
_NOTIFICATION_TIMEOUT_SECONDS = 5.0
# Time zones that are not compared: names that are not places, and names that PostgreSQL reads as abbreviations with a
# fixed offset.
_NOT_PLACES = {"localtime", "Factory", "EET", "WET", "CET", "MET", "EST", "MST", "HST"}
_STARTS = re.compile(r"^(\S+ \S+) \S+ \[\d+\] LOG:  starting PostgreSQL", re.MULTILINE)
_READY = re.compile(r"^(\S+ \S+) \S+ \[\d+\] LOG:  database system is ready to accept", re.MULTILINE)


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding("python", "wrong", f"Python {version} is too old.", "Watchbill needs Python 3.11 or newer.")
    if psycopg.pq.__impl__ == "python":
        says = f"Python {version}; psycopg {psycopg.__version__} runs without its C implementation, which is slow."
        return Finding("python", "note", says, "Install it: pip install 'psycopg[binary]'")
    return Finding("python", "ok", f"Python {version}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__}).")


def check_embedded_server(project: Path, settings: Settings) -> Finding:
    if not (project / ".watchbill").exists():
        return Finding("embedded", "ok", f"No embedded server in {project}; `watchbill up` would create one.")
    try:
        home = find_home(project)
        home.ensure_own()
        binaries = choose_binaries(home.data, settings.embedded_binaries)
    except WatchbillError as error:
        return Finding("embedded", "wrong", error.message, error.hint or "")
    state = "runs" if find_running_url(project) else "is stopped"
    seconds = _read_start_seconds(home.log)
    last_start = f"; its last start took {seconds:.2f} s" if seconds is not None else ""
    return Finding("embedded", "ok", f"The server in {home.directory} {state}{last_start}. {binaries}.")


def _read_start_seconds(log: Path) -> float | None:
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return None
    started = [*_STARTS.finditer(text)]
    ready = _READY.search(text, started[-1].end()) if started else None
    if ready is None:
        return None
    return (datetime.fromisoformat(ready[1]) - datetime.fromisoformat(started[-1][1])).total_seconds()


def check_leftovers() -> Finding:
    found = [*find_leftovers()]
    if not found:
        return Finding("leftovers", "ok", "No data of deleted projects.")
    says = f"{len(found)} projects that no longer exist have data: {', '.join(str(p) for _, p in found[:5])}."
    return Finding("leftovers", "note", says, "\n".join(f"rm -r {directory}" for directory, _ in found[:5]))


def check_server(target: Target) -> Finding:
    number = target.connection.info.server_version
    version = f"PostgreSQL {number // 10000}.{number % 10000}"
    if number // 10000 < _OLDEST_SERVER:
        return Finding("server", "wrong", f"{version} is too old.", "Watchbill needs PostgreSQL 15 or newer.")
    if target.is_standby:
        hint = "Set database_url to the primary, or list all hosts: postgresql://a,b/database finds the primary."
        return Finding("server", "wrong", f"{version} is a standby, which is read-only.", hint)
    return Finding("server", "ok", f"{version}.")


def check_clock(target: Target) -> Finding:
    """Compares the clocks of this machine and of the server. Watchbill uses the server's clock; this machine's clock
    matters where a program computes a run_at."""
    before = target.clock()
    [(there,)] = target.query("SELECT clock_timestamp()")
    after = target.clock()
    uncertainty = (after - before).total_seconds() / 2
    skew = (there - before).total_seconds() - uncertainty
    if abs(skew) - uncertainty > _MAX_CLOCK_SKEW_SECONDS:
        direction = "behind" if skew > 0 else "ahead of"
        says = f"This machine's clock is {abs(skew):.0f} s {direction} the server's."
        return Finding("clock", "wrong", says, "Synchronize both with NTP (timedatectl set-ntp true).")
    return Finding("clock", "ok", f"The clocks agree within {abs(skew) + uncertainty:.2f} s.")


def check_zones(target: Target) -> Finding:
    """Compares the time zone data of Python and of the server: Python may compute the next time of a schedule, and the
    server show it."""
    here = zoneinfo.available_timezones() - _NOT_PLACES
    if "Europe/Berlin" not in here:
        return Finding("zones", "wrong", "Python has no time zone data.", "Install it: pip install tzdata")
    there = {name for (name,) in target.query("SELECT name FROM pg_timezone_names")}
    both = sorted(here & there)
    differing = _find_differing_zones(target, both) + sorted(here - there)
    if differing:
        names = ", ".join(differing[:20])
        says = f"Python and the server disagree on {len(differing)} of {len(here)} zones: {names}."
        hint = "Update the older data: `pip install -U tzdata` here, the package tzdata on the server."
        return Finding("zones", "note", says, hint)
    return Finding("zones", "ok", f"Python and the server agree on {len(both)} zones.")


def _find_differing_zones(target: Target, names: list[str]) -> list[str]:
    """Returns the zones whose offsets differ between Python and the server, at one of four instants of the coming year.
    Any change of rules that matters now affects one of these instants."""
    instants = [target.clock() + timedelta(days=91 * quarter) for quarter in range(4)]
    query = """
        SELECT name, array_agg(extract(epoch FROM (at AT TIME ZONE name) - (at AT TIME ZONE 'UTC'))::int ORDER BY at)
        FROM unnest(%s::text[]) AS name, unnest(%s::timestamptz[]) AS at GROUP BY name ORDER BY name
    """
    return [name for name, offsets in target.query(query, names, instants) if offsets != _read_offsets(name, instants)]


def _read_offsets(name: str, instants: list[datetime]) -> list[int]:
    zone = zoneinfo.ZoneInfo(name)
    offsets = (instant.astimezone(zone).utcoffset() for instant in instants)
    return [int(offset.total_seconds()) for offset in offsets if offset is not None]


def check_pooler(target: Target) -> Finding:
    if not target.is_pooled:
        return Finding("pooler", "ok", "None: connections go directly to the server.")
    if not _shares_sessions(target):
        return Finding("pooler", "ok", "A pooler that gives each client a session of its own.")
    faults = []
    if not target.settings.listen_url:
        hint = "Set listen_url (WATCHBILL_LISTEN_URL) to the server's direct address."
        faults.append(("LISTEN does not work through it", hint))
    if target.settings.prepared_statements and _loses_prepared_statements(target):
        hint = "Set prepared_statements to false, or max_prepared_statements in PgBouncer 1.21 or newer."
        faults.append(("it loses prepared statements", hint))
    if not faults:
        return Finding("pooler", "ok", "A pooler in transaction mode, and Watchbill is configured for it.")
    says, hints = zip(*faults, strict=True)
    return Finding("pooler", "wrong", f"A pooler in transaction mode: {'; '.join(says)}.", "\n".join(hints))


def _shares_sessions(target: Target) -> bool:
    """Whether the pooler shares sessions: two connected clients get the same session of the server.

    This tries several times, because other clients may take the session in between.
    """
    own_pid = "SELECT pg_backend_pid()"
    with open_for_checks(target.url) as other:
        tries = range(_SAME_SESSION_TRIES)
        return any(target.query(own_pid) == other.execute(own_pid, prepare=False).fetchall() for _ in tries)


def _loses_prepared_statements(target: Target) -> bool:
    """Whether prepared statements fail through the pooler. Two clients prepare a statement under the same name, which
    works in a shared session only if the pooler renames statements."""
    name = f"watchbill_doctor_{secrets.token_hex(4)}"
    with open_for_checks(target.url) as other:
        results = [client.pgconn.prepare(name.encode(), b"SELECT 1") for client in (target.connection, other)]
    duplicate_prepared_statement = b"42P05"
    states = [result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) for result in results]
    if duplicate_prepared_statement in states:
        target.connection.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name)), prepare=False)
    return duplicate_prepared_statement in states


def check_listen(target: Target) -> Finding:
    """Checks that a notification sent through database_url arrives at listen_url."""
    if target.is_standby:
        return Finding("listen", "skipped", "Not checked on a standby; see server.")
    listen_url = target.settings.listen_url
    if not listen_url and target.is_pooled and _shares_sessions(target):
        return Finding("listen", "skipped", "Not checked through this pooler; see pooler.")
    try:
        with open_for_checks(listen_url or target.url) as listener:
            arrived = _receives_notification(target, listener)
    except NoDatabase as error:
        return Finding("listen", "wrong", f"listen_url: {error.message}", error.hint or "")
    if arrived:
        return Finding("listen", "ok", "A notification arrives.")
    hint = "Set listen_url to the same server and database as database_url, without a pooler between."
    return Finding("listen", "wrong", f"No notification arrived within {_NOTIFICATION_TIMEOUT_SECONDS:.0f} s.", hint)


def _receives_notification(target: Target, listener: Connection) -> bool:
    channel = f"watchbill_doctor_{secrets.token_hex(4)}"
    listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)), prepare=False)
    target.query("SELECT pg_notify(%s, '')", channel)
    notifications = listener.notifies(timeout=_NOTIFICATION_TIMEOUT_SECONDS, stop_after=1)
    return any(notification.channel == channel for notification in notifications)


def check_connections(target: Target) -> Finding:
    settings = target.settings
    needed = settings.worker_connections
    processes = f" in each of {settings.processes} processes" if settings.processes > 1 else ""
    says = (
        f"A worker has up to {needed} connections: {OWN_CONNECTIONS} of its own and {POOLS} pools of "
        f"{settings.pool_size}{processes}"
    )
    if target.is_pooled:
        return Finding("connections", "ok", f"{says}. The pooler decides how many reach the server.")
    limit, used = _read_connection_limit(target)
    if needed > limit:
        hint = (
            "Lower pool_size or processes, use a pooler, or raise max_connections (or the role's or database's limit)."
        )
        return Finding("connections", "wrong", f"{says}. Only {limit} are allowed.", hint)
    return Finding("connections", "ok", f"{says}. {limit} are allowed, so {limit // needed} such fit; {used} in use.")


def _read_connection_limit(target: Target) -> tuple[int, int]:
    """Returns how many connections this role may have, and how many clients are connected. reserved_connections exists
    since PostgreSQL 16. A limit of -1 means unlimited."""
    [(server, role, database, used)] = target.query("""
        SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                 - coalesce(current_setting('reserved_connections', true)::int, 0),
               (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
               (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),
               (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
    """)
    return min(limit for limit in (server, role, database) if limit is not None), used


def check_role_defaults(target: Target) -> Finding:
    """Finds defaults of the role or database that Watchbill's connections do not override."""
    wanted = {name.lower(): value.replace("\\", "") for name, value in SESSION_DEFAULTS.items()}
    wanted["transaction_timeout"] = "0"
    found = target.query(
        "SELECT lower(name), setting FROM pg_settings WHERE lower(name) = ANY (%s) OR name = 'synchronous_commit'"
        " AND source IN ('user', 'database', 'database user') ORDER BY name",
        list(wanted),
    )
    wanted["synchronous_commit"] = "on"
    harmful = [(name, value) for name, value in found if not value.lower().startswith(wanted[name].lower())]
    if not harmful:
        return Finding("role defaults", "ok", "No default of the role or database affects Watchbill.")
    says = "In Watchbill's sessions " + ", ".join(f"{name} is {value!r}" for name, value in harmful) + "."
    role_and_database = [sql.Identifier(name) for name in target.query("SELECT current_user, current_database()")[0]]
    alter = sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {};")
    hints = [alter.format(*role_and_database, sql.SQL(name), wanted[name]).as_string(None) for name, _ in harmful]
    return Finding("role defaults", "wrong", says, "\n".join(hints))
