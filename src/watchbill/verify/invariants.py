"""Reads the invariants: the named queries of the files in `invariants/`.

Each query returns what contradicts it: the subject, what is wrong with it, and for the kind E also the version of the
row. A query that `scans` a table looks at a part of it at a time: `{table}` is the table or one of its partitions, and
`{part}` says which rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, LiteralString
from uuid import UUID

from psycopg import sql

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FIELD = re.compile(r"^-- (kind|scans|says): (.+)$", re.MULTILINE)

# S holds in every snapshot, so one look decides. E holds soon: a second look decides.
Kind = Literal["S", "E"]


@dataclass(frozen=True)
class Invariant:
    """What is always true. `table` is the table of which it looks at parts, with the column of a job's id, if any;
    None if it looks at small tables as a whole."""

    name: str
    kind: Kind
    says: str
    table: str | None
    job_column: str | None
    query: LiteralString

    def write(self, schema: str, part: Part) -> sql.Composed:
        """The statement that looks at this part."""
        return sql.SQL(self.query).format(
            schema=sql.Identifier(schema),
            table=sql.Identifier(schema, part.relation or self.table or ""),
            part=part.write(self.job_column),
        )


@dataclass(frozen=True)
class Part:
    """Some pages of a table or of a partition; or what is about one job; or everything."""

    relation: str | None = None
    first: int | None = None
    end: int | None = None
    job: UUID | None = None

    def write(self, job_column: str | None) -> sql.Composable:
        if self.job is not None and job_column is not None:
            return sql.SQL("x.{} = {}").format(sql.Identifier(job_column), sql.Literal(self.job))
        if self.first is None or self.end is None:
            return sql.SQL("true")
        pages = (sql.Literal(f"({page},0)") for page in (self.first, self.end))
        return sql.SQL("x.ctid >= {}::tid AND x.ctid < {}::tid").format(*pages)


@cache
def read_invariants() -> tuple[Invariant, ...]:
    found: list[Invariant] = []
    for file in sorted(files("watchbill.verify").joinpath("invariants").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
            found += [_read(name, text) for name, text in zip(parts[::2], parts[1::2], strict=True)]
    assert len({each.name for each in found}) == len(found), "two invariants have the same name"
    return tuple(found)


def _read(name: str, text: str) -> Invariant:
    fields = dict(_FIELD.findall(text))
    table, _, column = fields.get("scans", "").partition(" by ")
    query = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return Invariant(name, fields["kind"], fields["says"], table or None, column or None, query)
