"""The schema jcron: SQL functions that take a cron pattern, for people and programs that know the JCRON guide.

The first installation in a database creates the schema and puts its own name into the schema's comment. Only that
installation updates it. An installation that finds the schema of another one, or of another program, leaves it alone
and reports that."""

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
    """The schema jcron of one installation. The methods compare it with the schema of that name in the database."""

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
        """Whether the schema is missing, and the role of this connection may not create schemas."""
        [(may_create,)] = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')")
        return not may_create and self._read_schema(connection)[0] is None

    def find_obstacle(self, connection: Connection) -> str | None:
        """Returns why this installation must not write the schema, or None if it may."""
        comment, _ = self._read_schema(connection)
        if comment is None:
            return None
        signed = _SIGNED.fullmatch(comment)
        if signed is None:
            return "it is not Watchbill's; set jcron_schema to another name"
        [(lives,)] = connection.execute("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (signed[1],))
        return f"it belongs to the installation in schema {signed[1]}" if signed[1] != self.owner and lives else None

    def is_up_to_date(self, connection: Connection) -> bool:
        """Whether the schema jcron in the database was written by this installation, in this version, and has all its
        functions.

        The functions may be missing: if somebody drops the schema of the installation, the functions go with it, and
        the schema jcron stays with its comment.
        """
        comment, count = self._read_schema(connection)
        return comment == self._signature and count >= self._functions.count("CREATE OR REPLACE FUNCTION")

    def make_statements(self) -> str:
        """Returns the SQL that writes the schema. The search_path is the installation's schema, because PostgreSQL
        looks up the names in a function's body when the function is created."""
        name = sql.Identifier(self.name)
        begin = "CREATE SCHEMA IF NOT EXISTS {jcron};\nSET LOCAL search_path = {owner}, pg_temp;\n"
        sign = "\nCOMMENT ON SCHEMA {jcron} IS {signature};\n"
        return (
            sql.SQL(begin + self._functions + sign)
            .format(jcron=name, owner=sql.Identifier(self.owner), signature=self._signature)
            .as_string(None)
        )

    def _read_schema(self, connection: Connection) -> tuple[str | None, int]:
        """Returns the schema's comment and the number of its functions; (None, 0) if there is no schema."""
        row = connection.execute(_FOUND, (self.name,)).fetchone()
        return (None, 0) if row is None else (str(row[0]), int(row[1]))


def install_jcron(url: str, schema: str, jcron_schema: str, report: Callable[[str], None]) -> None:
    jcron = JcronSchema(schema, jcron_schema)

    def write_schema(connection: Connection) -> str | None:
        if jcron.is_forbidden(connection):
            return f"no schema {jcron_schema}: this role may not create schemas in this database"
        if obstacle := jcron.find_obstacle(connection):
            return f"schema {jcron_schema} is left alone: {obstacle}"
        if jcron.is_up_to_date(connection):
            return None
        connection.execute(jcron.make_statements().encode())
        return f"schema {jcron_schema}"

    if message := run_locked(url, f"jcron {jcron_schema}", write_schema, report=report):
        report(message)


def jcron_script(connection: Connection | None, schema: str, jcron_schema: str) -> str:
    """Returns the SQL of the schema as a script for psql. Without a connection, the script is for an empty database."""
    jcron = JcronSchema(schema, jcron_schema)
    obstacle = connection and jcron.find_obstacle(connection)
    if obstacle:
        return f"\n-- schema {jcron_schema} is left alone: {obstacle}\n"
    if connection and jcron.is_up_to_date(connection):
        return ""
    return f"\n-- schema {jcron_schema}\nBEGIN;\n{jcron.make_statements()}COMMIT;\n"
