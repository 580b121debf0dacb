"""The schema jcron: the cron engine by pattern, for people and programs that know the JCRON guide.

The first installation in a database writes it and signs it in the schema's comment; only that installation writes it
again. An installation that finds a schema of another one, or of another program, does not change it and reports that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.resources import files

from psycopg import sql

from watchbill.errors import SettingsError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import run_locked

_SIGNATURE = "Watchbill's cron functions, written by the installation in schema {owner}; version {version}"
_SIGNED = re.compile(r"Watchbill's cron functions, written by the installation in schema (.+); version \w+")
_FOUND = """
    SELECT coalesce(obj_description(oid, 'pg_namespace'), ''), (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid)
    FROM pg_namespace n WHERE nspname = %s
"""


class JcronSchema:
    """The schema that this installation would write, compared with the schema that the database has."""

    def __init__(self, owner: str, name: str) -> None:
        if name == owner:
            raise SettingsError(
                f"jcron_schema and schema are both {owner}.", hint="Give the wrappers a schema of their own."
            )
        self.owner, self.name = owner, name
        self._functions = (files("watchbill.store") / "jcron" / "functions.sql").read_text(encoding="utf-8")
        version = hashlib.sha256(self._functions.encode()).hexdigest()[:12]
        self._signature = _SIGNATURE.format(owner=owner, version=version)

    def is_forbidden(self, connection: Connection) -> bool:
        """Whether the schema does not exist and this role may not create it."""
        [(may_create,)] = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
        return not may_create and self._read_schema(connection)[0] is None

    def obstacle(self, connection: Connection) -> str | None:
        """Why this installation must not write the schema; None if it may."""
        comment, _ = self._read_schema(connection)
        if comment is None:
            return None
        signed = _SIGNED.fullmatch(comment)
        if signed is None:
            return "it is not Watchbill's; set jcron_schema to another name"
        [(lives,)] = connection.execute("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (signed[1],))
        return f"it belongs to the installation in schema {signed[1]}" if signed[1] != self.owner and lives else None

    def is_current(self, connection: Connection) -> bool:
        """Whether this installation wrote it, in this version, and no function is missing.

        Dropping the owner's schema drops the functions and leaves the schema with its comment.
        """
        comment, count = self._read_schema(connection)
        return comment == self._signature and count >= self._functions.count("CREATE OR REPLACE FUNCTION")

    def statements(self) -> str:
        """Runs with the engine's schema as search_path, because the names in the bodies are bound at creation."""
        name = sql.Identifier(self.name)
        begin = "CREATE SCHEMA IF NOT EXISTS {jcron};\nSET LOCAL search_path = {owner}, pg_temp;\n"
        sign = "\nCOMMENT ON SCHEMA {jcron} IS {signature};\n"
        return (
            sql.SQL(begin + self._functions + sign)
            .format(jcron=name, owner=sql.Identifier(self.owner), signature=self._signature)
            .as_string(None)
        )

    def _read_schema(self, connection: Connection) -> tuple[str | None, int]:
        """The schema's comment and the number of its functions; (None, 0) without a schema."""
        row = connection.execute(_FOUND, (self.name,)).fetchone()
        return (None, 0) if row is None else (str(row[0]), int(row[1]))


def install_jcron(url: str, schema: str, jcron_schema: str, report: Callable[[str], None]) -> None:
    jcron = JcronSchema(schema, jcron_schema)

    def write(connection: Connection) -> str | None:
        if jcron.is_forbidden(connection):
            return f"no schema {jcron_schema}: this role may not create schemas in this database"
        if obstacle := jcron.obstacle(connection):
            return f"schema {jcron_schema} is left alone: {obstacle}"
        if jcron.is_current(connection):
            return None
        connection.execute(jcron.statements().encode())
        return f"schema {jcron_schema}"

    if message := run_locked(url, f"jcron {jcron_schema}", write, report=report):
        report(message)


def jcron_script(connection: Connection | None, schema: str, jcron_schema: str) -> str:
    """The schema as a script for psql; without a connection, for an empty database."""
    jcron = JcronSchema(schema, jcron_schema)
    obstacle = connection and jcron.obstacle(connection)
    if obstacle:
        return f"\n-- schema {jcron_schema} is left alone: {obstacle}\n"
    if connection and jcron.is_current(connection):
        return ""
    return f"\n-- schema {jcron_schema}\nBEGIN;\n{jcron.statements()}COMMIT;\n"
