"""The schema jcron: the cron engine by pattern, for people and programs that know the JCRON guide.

The first installation in a database writes it and signs the schema's comment; only that one writes it again. Who finds
another's, or a schema that no Foliot made, leaves it alone and says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.resources import files

from psycopg import sql

from foliot.errors import SettingsError
from foliot.postgres.connect import Connection
from foliot.postgres.migration_plan import advisory_key

_SIGNATURE = "Foliot's cron functions, written by the installation in schema {owner}; version {version}"
_SIGNED = re.compile(r"Foliot's cron functions, written by the installation in schema (.+); version \w+")


def install_jcron(url: str, schema: str, jcron_schema: str, report: Callable[[str], None]) -> None:
    if jcron_schema == schema:
        raise SettingsError(
            f"jcron_schema and schema are both {schema}.", hint="Give the wrappers a schema of their own."
        )
    functions = (files("foliot.store") / "jcron" / "functions.sql").read_text(encoding="utf-8")
    version = hashlib.sha256(functions.encode()).hexdigest()[:12]
    signature = _SIGNATURE.format(owner=schema, version=version)
    with Connection.connect(url, application_name="foliot migrate") as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", advisory_key(f"jcron {jcron_schema}"))
        comment = _comment(connection, jcron_schema)
        obstacle = _obstacle(connection, schema, jcron_schema, comment)
        if obstacle:
            report(f"schema {jcron_schema} is left alone: {obstacle}")
        elif comment != signature:
            _write(connection, schema, jcron_schema, functions, signature)
            report(f"schema {jcron_schema}")


def _comment(connection: Connection, jcron_schema: str) -> str | None:
    """What stands on the schema; empty if nothing, None without a schema."""
    query = "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = %s"
    row = connection.execute(query, (jcron_schema,)).fetchone()
    return None if row is None else str(row[0])


def _obstacle(connection: Connection, schema: str, jcron_schema: str, comment: str | None) -> str | None:
    if comment is None:
        [(may_create,)] = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
        return None if may_create else "this role may not create schemas in this database"
    signed = _SIGNED.fullmatch(comment)
    if signed is None:
        return "it is not Foliot's; set jcron_schema to another name"
    [(lives,)] = connection.execute("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (signed[1],))
    return f"it belongs to the installation in schema {signed[1]}" if signed[1] != schema and lives else None


def _write(connection: Connection, schema: str, jcron_schema: str, functions: str, signature: str) -> None:
    """With the engine's schema as search_path: the names in the bodies are bound when they are read."""
    name = sql.Identifier(jcron_schema)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    connection.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(sql.Identifier(schema)))
    connection.execute(sql.SQL(functions).format(jcron=name))
    connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(name, signature))
