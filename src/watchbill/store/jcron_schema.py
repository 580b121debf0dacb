"""The schema jcron: the cron engine by pattern, for people and programs that know the JCRON guide.

The first installation in a database writes it and signs the schema's comment; only that one writes it again. Who finds
another's, or a schema that no Watchbill made, leaves it alone and says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.resources import files

from psycopg import sql

from watchbill.errors import SettingsError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migration_plan import advisory_key

_SIGNATURE = "Watchbill's cron functions, written by the installation in schema {owner}; version {version}"
_SIGNED = re.compile(r"Watchbill's cron functions, written by the installation in schema (.+); version \w+")
_FOUND = """
    SELECT coalesce(obj_description(oid, 'pg_namespace'), ''), (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid)
    FROM pg_namespace n WHERE nspname = %s
"""


class JcronSchema:
    """What an installation's own would be like, and what is there."""

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
        """Whether there is none, and this role may not make one."""
        [(may_create,)] = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
        return not may_create and self._found(connection)[0] is None

    def obstacle(self, connection: Connection) -> str | None:
        """Why nobody should write it."""
        comment, _ = self._found(connection)
        if comment is None:
            return None
        signed = _SIGNED.fullmatch(comment)
        if signed is None:
            return "it is not Watchbill's; set jcron_schema to another name"
        [(lives,)] = connection.execute("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (signed[1],))
        return f"it belongs to the installation in schema {signed[1]}" if signed[1] != self.owner and lives else None

    def is_current(self, connection: Connection) -> bool:
        """Whether it is ours, of this version, and whole: dropping the owner takes the functions alone."""
        comment, count = self._found(connection)
        return comment == self._signature and count >= self._functions.count("CREATE OR REPLACE FUNCTION")

    def statements(self) -> str:
        """With the engine's schema as search_path: the names in the bodies are bound when they are read."""
        name = sql.Identifier(self.name)
        begin = "CREATE SCHEMA IF NOT EXISTS {jcron};\nSET LOCAL search_path = {owner}, pg_temp;\n"
        sign = "\nCOMMENT ON SCHEMA {jcron} IS {signature};\n"
        return (
            sql.SQL(begin + self._functions + sign)
            .format(jcron=name, owner=sql.Identifier(self.owner), signature=self._signature)
            .as_string(None)
        )

    def _found(self, connection: Connection) -> tuple[str | None, int]:
        """The schema's comment and how many functions it has; no comment without a schema."""
        row = connection.execute(_FOUND, (self.name,)).fetchone()
        return (None, 0) if row is None else (str(row[0]), int(row[1]))


def install_jcron(url: str, schema: str, jcron_schema: str, report: Callable[[str], None]) -> None:
    jcron = JcronSchema(schema, jcron_schema)
    with Connection.connect(url, application_name="watchbill migrate") as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", advisory_key(f"jcron {jcron_schema}"))
        obstacle = jcron.obstacle(connection)
        if jcron.is_forbidden(connection):
            report(f"no schema {jcron_schema}: this role may not create schemas in this database")
        elif obstacle:
            report(f"schema {jcron_schema} is left alone: {obstacle}")
        elif not jcron.is_current(connection):
            connection.execute(jcron.statements().encode())
            report(f"schema {jcron_schema}")


def jcron_script(connection: Connection | None, schema: str, jcron_schema: str) -> str:
    """The same for psql; without a connection for an empty database."""
    jcron = JcronSchema(schema, jcron_schema)
    obstacle = connection and jcron.obstacle(connection)
    if obstacle:
        return f"\n-- schema {jcron_schema} is left alone: {obstacle}\n"
    if connection and jcron.is_current(connection):
        return ""
    return f"\n-- schema {jcron_schema}\nBEGIN;\n{jcron.statements()}COMMIT;\n"
