"""What the parser makes of a filter: conditions, which the database turns into SQL of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from watchbill.errors import WatchbillError


class FilterError(WatchbillError):
    """A filter is invalid. `column` counts from 1."""

    exit_code = 2

    def __init__(self, problem: str, text: str, column: int, hint: str) -> None:
        pointer = f"  {text}\n  {' ' * (column - 1)}^\n" if text.isprintable() else ""
        super().__init__(f"The filter is invalid at column {column}: {problem}.", hint=pointer + hint)
        self.column = column


@dataclass(frozen=True, slots=True)
class Condition:
    """One term of a filter. `operator` is =, like, has, <, <=, > or >=; it holds for one of the values, or for none of
    them if `is_negated`. `path` leads to a value in payload or meta."""

    field: str
    operator: str
    values: tuple[Any, ...]
    is_negated: bool = False
    path: tuple[str, ...] = ()


def write_conditions(conditions: Sequence[Condition]) -> str:
    """Returns the JSON array that the SQL functions take."""
    return orjson.dumps([_describe(each) for each in conditions]).decode()


def _describe(condition: Condition) -> dict[str, Any]:
    described: dict[str, Any] = {
        "field": condition.field,
        "operator": condition.operator,
        "values": list(condition.values),
    }
    if condition.is_negated:
        described["is_negated"] = True
    return described | ({"path": list(condition.path)} if condition.path else {})
