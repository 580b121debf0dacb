"""Loads the dump of schema 11 into a database of its own, and reads what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from tests.servers import Server

DUMP = Path(__file__).parent / "schema_0011"
_COLUMNS = """
    SELECT c.relname, array_agg(a.attname::text)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    GROUP BY c.relname
"""

Columns = dict[str, list[str]]  # by table
Rows = dict[str, set[str]]  # by table, each row as JSON


class OldSchema(NamedTuple):
    url: str  # of the role that owns the schema: row security binds it
    superuser_url: str


@contextmanager
def load_schema(server: Server) -> Iterator[OldSchema]:
    name = server.create_database()
    owner = f"{name}_owner"
    identifiers = {"name": sql.Identifier(name), "owner": sql.Identifier(owner)}
    server.execute(sql.SQL("CREATE ROLE {owner} LOGIN").format(**identifiers))
    try:
        server.execute(sql.SQL("ALTER DATABASE {name} OWNER TO {owner}").format(**identifiers))
        loaded = OldSchema(server.url(name, owner), server.url(name))
        with psycopg.connect(loaded.url) as connection:
            for file in sorted(DUMP.iterdir()):
                connection.execute(file.read_bytes())
        yield loaded
    finally:
        server.drop_database(name)
        server.execute(sql.SQL("DROP ROLE {owner}").format(**identifiers))


def read_columns(connection: psycopg.Connection[Any]) -> Columns:
    return dict(connection.execute(_COLUMNS).fetchall())


def read_rows(connection: psycopg.Connection[Any], columns: Columns) -> Rows:
    """Every row of these tables, with these columns."""
    statement = sql.SQL("SELECT to_jsonb(x) FROM (SELECT {columns} FROM watchbill.{table}) x")
    rows: Rows = {}
    for table, names in columns.items():
        chosen = sql.SQL(", ").join(map(sql.Identifier, names))
        found = connection.execute(statement.format(columns=chosen, table=sql.Identifier(table)))
        rows[table] = {json.dumps(row, sort_keys=True) for (row,) in found}
    return rows
