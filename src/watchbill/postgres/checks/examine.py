"""All checks in order. What cannot be looked at without a connection says so, and is no second fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from watchbill.errors import NoDatabase, SettingsError
from watchbill.postgres.address import Address, find_address
from watchbill.postgres.checks.claims import check_claims
from watchbill.postgres.checks.finding import Finding, Patient, open_for_checks
from watchbill.postgres.checks.machine import check_embedded, check_leftovers, check_python, check_zones
from watchbill.postgres.checks.path import check_listen, check_pooler
from watchbill.postgres.checks.schedules import check_schedules
from watchbill.postgres.checks.server import (
    check_clock,
    check_connections,
    check_role_defaults,
    check_schema,
    check_server,
    check_transactions,
)
from watchbill.postgres.checks.zone_table import check_zone_table
from watchbill.postgres.connect import Connection
from watchbill.postgres.embedded import find_project
from watchbill.postgres.migration_files import Source
from watchbill.settings import Settings

_OF_SERVER: dict[str, Callable[[Patient], Finding]] = {
    "server": check_server,
    "schema": check_schema,
    "clock": check_clock,
    "zones": check_zones,
    "zone table": check_zone_table,
    "pooler": check_pooler,
    "listen": check_listen,
    "connections": check_connections,
    "role defaults": check_role_defaults,
    "transactions": check_transactions,
    "claims": check_claims,
    "schedules": check_schedules,
}


def examine(
    source: Source, load: Callable[[], Settings], project: Path | None = None, **aids: Any
) -> Iterator[Finding]:
    """`load` gives the settings, whose faults are findings too; `aids` are fields of Patient, for tests."""
    project = project or find_project()
    yield check_python()
    try:
        settings = load()
    except SettingsError as error:
        yield Finding("settings", "wrong", error.message, error.hint or "")
        yield from _skipped(["embedded", "leftovers", "connection", *_OF_SERVER], "the settings")
        return
    yield Finding("settings", "ok", _described(settings))
    yield check_embedded(project, settings)
    yield check_leftovers()
    try:
        address = find_address(settings, project)
        connection = open_for_checks(address.url)
    except NoDatabase as error:
        yield Finding("connection", "wrong", error.message, error.hint or "")
        yield from _skipped(list(_OF_SERVER), "the connection")
        return
    yield from _of_server(
        connection, address, settings, Patient(project, source, settings, address.url, connection, **aids)
    )


def _of_server(connection: Connection, address: Address, settings: Settings, patient: Patient) -> Iterator[Finding]:
    with connection:
        secure = "encrypted" if connection.pgconn.ssl_in_use else "not encrypted"
        yield Finding("connection", "ok", f"{address}, {secure}.")
        for name, check in _OF_SERVER.items():
            try:
                yield check(patient)
            except psycopg.Error as error:
                yield Finding(
                    name, "wrong", f"PostgreSQL refused to be asked: {error}", "Ask as a role with more rights."
                )


def _described(settings: Settings) -> str:
    return ", ".join(f"{name} from {origin}" for name, origin in settings.origins.items()) or "All at their defaults."


def _skipped(checks: list[str], lacking: str) -> Iterator[Finding]:
    return (Finding(check, "skipped", f"Not looked at without {lacking}.") for check in checks)
