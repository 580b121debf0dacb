"""The setting WATCHBILL, and the address of the database from DATABASES.

    WATCHBILL = {"DATABASE": "default", "SCHEMA": "watchbill", "CONCURRENCY": 20}

The dictionary takes every setting of Watchbill, in capitals, and a few that only Django needs (`_DJANGO_ONLY`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.utils import ConnectionDoesNotExist

from watchbill.errors import SettingsError

_DJANGO_ONLY: dict[str, Any] = {
    "DATABASE": "default",  # the alias, in DATABASES, of the database that holds the jobs
    "NAME": None,  # the name of the App; None means that of the project
    "DISCOVER": None,  # the Django apps whose tasks.py is imported; None means all
    "MIGRATE": True,  # whether `manage.py migrate` also creates Watchbill's schema
    "TENANT_FROM": None,  # a function, or its import path, that returns the tenant of the current request
}


def read_option(name: str) -> Any:
    return _read_setting().get(name, _DJANGO_ONLY[name])


def find_alias() -> str | None:
    """Returns the alias of the Django database that holds the jobs. None if the jobs are in another database, whose
    address is a setting."""
    named = read_option("DATABASE")
    return None if named is None or "DATABASE_URL" in _read_setting() else str(named)


def read_given_settings() -> dict[str, Any]:
    """Returns the settings for an App, and where each was found."""
    found = {name.lower(): value for name, value in _read_setting().items() if name not in _DJANGO_ONLY}
    origins = {name: f"WATCHBILL[{name.upper()!r}]" for name in found}
    if (database := find_alias()) is not None:
        found["database_url"], origins["database_url"] = make_address(database), f"DATABASES[{database!r}]"
    return {**found, "origins": origins}


def _read_setting() -> Mapping[str, Any]:
    from django.conf import settings

    try:
        found = getattr(settings, "WATCHBILL", {})
    except ImproperlyConfigured as error:
        raise SettingsError(
            f"Django's settings cannot be read: {error}", hint="Use `python manage.py watchbill ...`."
        ) from error
    if not isinstance(found, Mapping):
        raise SettingsError(
            f"WATCHBILL must be a dict, not {found!r}.", hint='For example WATCHBILL = {"CONCURRENCY": 20}.'
        )
    if small := [name for name in found if not str(name).isupper()]:
        raise SettingsError(
            f"WATCHBILL has the invalid name {small[0]!r}.",
            hint=f"Its names are in capitals: {str(small[0]).upper()!r}.",
        )
    return found


def make_address(database: str) -> str:
    """Returns the address of one of DATABASES, with its OPTIONS for libpq. In a test, that of the test database."""
    try:
        connection = connections[database]
    except ConnectionDoesNotExist as error:
        raise SettingsError(
            f"WATCHBILL['DATABASE'] is {database!r}, which DATABASES does not have.",
            hint=f"It has {', '.join(connections)}.",
        ) from error
    if connection.vendor != "postgresql":
        raise SettingsError(
            f"DATABASES[{database!r}] is {connection.vendor}, but jobs are stored in PostgreSQL.",
            hint='Name another of DATABASES, WATCHBILL = {"DATABASE": "jobs"}, '
            'or none of them, WATCHBILL = {"DATABASE": None}: '
            "then `manage.py watchbill up` starts a PostgreSQL for the jobs, or DATABASE_URL says where one is; "
            "and jobs are enqueued at once, outside your transactions.",
        )
    return _build_url(connection.get_connection_params(), connection.settings_dict["OPTIONS"])


def _build_url(params: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} - {"client_encoding"}
    words = {name: str(value) for name, value in params.items() if name in known and value not in (None, "")}
    if role := options.get("assume_role"):  # libpq does not know this option; Django sets the role after connecting
        words["options"] = f"{words.get('options', '')} -c role={_escape_spaces(role)}".lstrip()
    database = words.pop("dbname", "")
    return f"postgresql:///{quote(database, safe='')}?{urlencode(words, quote_via=quote)}"


def _escape_spaces(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
