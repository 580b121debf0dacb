"""What a command prints in several cells, joined to one table with a column `cell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Joined:
    """What a command has printed so far in several cells. A command prints the same tables in each of them, perhaps
    with other columns."""

    cell: str = ""
    tables: list[tuple[dict[str, str], list[dict[str, str]]]] = field(default_factory=list)
    data: list[Mapping[str, Any]] = field(default_factory=list)
    has_data: bool = False
    empty: str | None = None
    _number: int = 0  # of the next table in this cell

    def enter(self, cell: str) -> None:
        self.cell, self._number = cell, 0

    def add_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self._number == len(self.tables):
            self.tables.append(({"cell": "cell"}, []))
        known, found = self.tables[self._number]
        for column in columns:
            known.setdefault(column, column)  # the value has the class of the column, such as LongName
        found += [{"cell": self.cell, **dict(zip(columns, row, strict=True))} for row in rows]
        self._number += 1

    def add_data(self, data: object) -> None:
        self.has_data = True
        rows: list[Any] = data if isinstance(data, list) else [data]
        self.data += [{"cell": self.cell, **row} for row in rows]


joining: ContextVar[Joined | None] = ContextVar("watchbill_joining", default=None)
