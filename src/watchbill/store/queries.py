"""Named queries: every statement that Python sends stands in a .sql file as `-- name: claim`, never in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import LiteralString

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The queries of one installation, by name: `queries["claim"]`."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._texts = {name: _with_schema(text, schema) for name, text in _templates().items()}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


@cache
def queries(schema: str) -> Queries:
    return Queries(schema)


@cache
def _templates() -> dict[str, LiteralString]:
    found: dict[str, LiteralString] = {}
    for file in sorted(files("watchbill.store").joinpath("queries").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
            found.update(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))
    return found


def _with_schema(template: LiteralString, schema: str) -> str:
    text = "\n".join(line for line in template.splitlines() if not line.startswith("--"))
    return sql.SQL(text).format(schema=sql.Identifier(schema)).as_string()
