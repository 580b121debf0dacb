"""Statements that any driver can send and read: every parameter is text, and each row is one text, a JSON array.

Drivers differ in how they send and read UUIDs, times, intervals and arrays, and users replace their codecs. Text they
all treat alike. A query casts each parameter (`%s::uuid`), so the text is cast once more (`%s::text::uuid`), and a
statement around the query makes the JSON. The session's IntervalStyle must not matter, so intervals become seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from types import GenericAlias
from typing import Any, NamedTuple, get_args, get_type_hints

import orjson

from watchbill.client.operations import Rows, Statement
from watchbill.postgres.readable_json import load_json

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\))?s(?=::)")


class TextQuery(NamedTuple):
    """A query whose parameters are text. `names` are those of its parameters, in order, if it has named ones."""

    sql: str
    names: tuple[str, ...]


def as_text(statement: Statement, query: str) -> tuple[str, Sequence[Any]]:
    """The query and the parameters to send. Without columns they stay as they are: then a driver needs no help."""
    if statement.columns is None:
        assert not isinstance(statement.params, dict)
        return query, tuple(statement.params)
    made = _make_text_query(query, statement.columns)
    given = statement.params
    values = [given[name] for name in made.names] if isinstance(given, dict) else given
    return made.sql, tuple(_format(value) for value in values)


def read_rows(statement: Statement, rows: Rows) -> Rows:
    """The rows with values of the statement's types."""
    if statement.columns is None:
        return rows
    read = _row_reader(statement.columns)
    return [read(_load(text)) for (text,) in rows]


def _load(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # a number that is too long, which another program has stored
        return load_json(text)


@lru_cache(maxsize=100)
def _make_text_query(query: str, columns: type | tuple[Any, ...]) -> TextQuery:
    names = tuple(found[1] for found in _PLACEHOLDER.finditer(query) if found[1])
    inner = _PLACEHOLDER.sub("%s::text", query)
    kinds = _column_types(columns)
    aliases = ", ".join(f"c{number}" for number in range(len(kinds)))
    values = ", ".join(
        f"extract(epoch FROM r.c{number})" if _is_interval(kind) else f"r.c{number}"
        for number, kind in enumerate(kinds)
    )
    text = f"WITH r ({aliases}) AS ({inner}) SELECT json_build_array({values})::text FROM r"  # noqa: S608  (only our own texts)
    return TextQuery(text, names)


def _column_types(columns: type | tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(columns, tuple):
        return columns
    assert is_dataclass(columns)
    hints = get_type_hints(columns)
    return tuple(hints[field.name] for field in fields(columns))


def _is_interval(kind: Any) -> bool:
    return kind is timedelta or timedelta in get_args(kind)


@cache
def _row_reader(columns: type | tuple[Any, ...]) -> Callable[[Any], tuple[Any, ...]]:
    from pydantic import TypeAdapter

    row: Any = GenericAlias(tuple, _column_types(columns))
    return TypeAdapter(row).validate_python


def _format(value: Any) -> str | None:
    """A value in PostgreSQL's text format."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds()} seconds"
        case list() | tuple():
            return f"{{{','.join(map(_quote_element, value))}}}"
        case _:
            return str(value)


def _quote_element(value: Any) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
