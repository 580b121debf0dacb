"""Reads the named SQL statements of clients, workers and schedulers from the files in `queries/`, where each begins
with a line such as `-- name: claim`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import LiteralString

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries(dict[str, str]):
    """The queries of one installation, by name: `queries["claim"]`."""

    def __init__(self, schema: str) -> None:
        super().__init__({name: _insert_schema(text, schema) for name, text in _read_templates().items()})
        self.schema = schema


@cache
def queries(schema: str) -> Queries:
    return Queries(schema)


@cache
def _read_templates() -> dict[str, LiteralString]:
    """Reads the texts of all queries, by name. A text has `{schema}` in place of the schema's name."""
    found: dict[str, LiteralString] = {}
    for file in sorted(files("watchbill.store").joinpath("queries").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
            for name, text in zip(parts[::2], parts[1::2], strict=True):
                assert name not in found, f"two queries are called {name}"
                found[name] = text.strip()
    return found


def _insert_schema(template: LiteralString, schema: str) -> str:
    text = "\n".join(line for line in template.splitlines() if not line.startswith("--"))
    return sql.SQL(text).format(schema=sql.Identifier(schema)).as_string()
