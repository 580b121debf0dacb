"""The checks of `watchbill doctor`. Each check reports that all is well, or what is wrong and how to repair it.

environment.py  this machine, the server, and what is between them: Python, time zones, clocks, poolers, limits
engine.py       which engine serves the database, and whether the lease fits its failovers
roles.py        who may do what in the schema
schema.py       what is in Watchbill's schema: version, zone table, locks, claims, jobs, schedules
target.py       what a check examines and returns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from watchbill.errors import NoDatabase, SettingsError
from watchbill.postgres.address import find_address
from watchbill.postgres.checks import engine, environment, roles, schema
from watchbill.postgres.checks.target import Finding, Target, open_for_checks
from watchbill.postgres.embedded import find_project
from watchbill.postgres.migration_files import Source
from watchbill.settings import Settings

__all__ = ["Finding", "examine"]

_DATABASE_CHECKS: dict[str, Callable[[Target], Finding]] = {
    "server": environment.check_server,
    "engine": engine.check_engine,
    "failover": engine.check_failover,
    "schema": schema.check_schema,
    "clock": environment.check_clock,
    "zones": environment.check_zones,
    "zone table": schema.check_zone_table,
    "pooler": environment.check_pooler,
    "listen": environment.check_listen,
    "connections": environment.check_connections,
    "roles": roles.check_roles,
    "tenants": roles.check_tenants,
    "commands": roles.check_commands,
    "role defaults": environment.check_role_defaults,
    "transactions": schema.check_transactions,
    "claims": schema.check_claims,
    "jobs": schema.check_jobs,
    "schedules": schema.check_schedules,
}


def examine(
    source: Source, load: Callable[[], Settings], project: Path | None = None, **overrides: Any
) -> Iterator[Finding]:
    """Runs all checks in order, and yields what they find. A check that cannot run counts as skipped, not as a fault.

    `load` reads the settings; an error in them is a finding too. `overrides` are fields of Target, for tests.
    """
    project = project or find_project()
    yield environment.check_python()
    try:
        settings = load()
    except SettingsError as error:
        yield Finding("settings", "wrong", error.message, error.hint or "")
        yield from _skip_checks(["embedded", "leftovers", "connection", *_DATABASE_CHECKS], "valid settings")
        return
    origins = ", ".join(f"{name} from {origin}" for name, origin in settings.origins.items())
    yield Finding("settings", "ok", origins or "All have their default values.")
    yield environment.check_embedded_server(project, settings)
    yield environment.check_leftovers()
    try:
        address = find_address(settings, project)
        connection = open_for_checks(address.url)
    except NoDatabase as error:
        yield Finding("connection", "wrong", error.message, error.hint or "")
        yield from _skip_checks([*_DATABASE_CHECKS], "a connection")
        return
    with connection:
        encryption = "encrypted" if connection.pgconn.ssl_in_use else "not encrypted"
        yield Finding("connection", "ok", f"{address}, {encryption}.")
        target = Target(project, source, settings, address.url, connection, **overrides)
        for name, check in _DATABASE_CHECKS.items():
            try:
                yield check(target)
            except psycopg.errors.InsufficientPrivilege as error:
                says = f"Not checked: {error.diag.message_primary}. See roles."
                yield Finding(name, "skipped", says, "Run the doctor as the owner or as an operator, too.")
            except psycopg.Error as error:
                says = f"PostgreSQL refused the query: {error}"
                yield Finding(name, "wrong", says, "Use a role with more privileges.")


def _skip_checks(checks: list[str], missing: str) -> Iterator[Finding]:
    return (Finding(check, "skipped", f"Not checked: needs {missing}.") for check in checks)
