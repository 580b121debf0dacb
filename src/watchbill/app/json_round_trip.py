"""Finds values that JSON or PostgreSQL cannot store, and values that do not come out of JSON as they went in.

pydantic restores what a parameter's type says. Where the type says nothing (no annotation, `Any`, a bare `dict`), a
datetime would arrive as text and a set as a list; and a model may lose some of its fields. So the arguments of a job
are read again and compared before they are sent, unless their types are known to be restored exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

_INTEGER_RANGE = (-(2**63), 2**63 - 1)

# Types of pydantic's core schema that JSON restores exactly; containers do if their parts do.
_SCALARS = {
    "str", "int", "bool", "float", "none", "literal", "enum", "uuid", "decimal", "date", "time", "datetime", "timedelta"
}  # fmt: skip
_CONTAINERS = {"list", "set", "frozenset", "dict", "nullable", "default", "tuple"}
_PARTS = ("schema", "items_schema", "keys_schema", "values_schema")


def is_restored_exactly(schema: dict[str, Any]) -> bool:
    """Whether every value of this pydantic core schema comes out of JSON as it went in."""
    kind = schema.get("type")
    if kind in _SCALARS:
        return True
    if kind == "typed-dict":
        closed = schema.get("extra_behavior") != "allow"
        return closed and all(is_restored_exactly(field["schema"]) for field in schema["fields"].values())
    if kind not in _CONTAINERS:
        return False
    parts = [part for name in _PARTS if (part := schema.get(name)) is not None]
    flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    return bool(flat) and all(map(is_restored_exactly, flat))


def find_lost(sent: Any, restored: Any, path: str) -> Iterator[tuple[str, str]]:
    """Compares arguments with what JSON restores of them; yields each place where they differ, and how."""
    if isinstance(sent, dict) and isinstance(restored, dict):
        if sent.keys() != restored.keys():
            yield path, "its keys would arrive as text"
            return
        for key, value in sent.items():
            yield from find_lost(value, restored[key], f"{path}.{key}".lstrip("."))
    elif isinstance(sent, list | tuple) and isinstance(restored, list | tuple):
        for index, (one, other) in enumerate(zip(sent, restored, strict=False)):
            yield from find_lost(one, other, f"{path}[{index}]")
    elif not isinstance(sent, type(restored)) or (_has_fields(sent) and type(sent) is not type(restored)):
        yield path, f"{_describe(sent)} would arrive as {_describe(restored)}"
    elif _has_fields(sent):
        for name, value in vars(restored).items():
            if name in vars(sent):
                yield from find_lost(vars(sent)[name], value, f"{path}.{name}")


def find_unstorable(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields each place in a value that JSON or PostgreSQL cannot store, and why."""
    match value:
        case dict():
            for key, each in value.items():
                if "\0" in str(key):
                    yield f"{path}.{key!r}".lstrip("."), "a NUL character in a key"
                yield from find_unstorable(each, f"{path}.{key}".lstrip("."))
        case list() | tuple():
            for index, each in enumerate(value):
                yield from find_unstorable(each, f"{path}[{index}]")
        case float() if not isfinite(value):
            yield path, f"JSON has no {value}"
        case bool():
            return
        case int() if not _INTEGER_RANGE[0] <= value <= _INTEGER_RANGE[1]:
            yield path, f"{shorten(value)} needs more than 64 bits; send it as text"
        case str() if "\0" in value:
            yield path, "PostgreSQL's JSON has no NUL character"
        case str() if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path, "half of a surrogate pair is not a character"


def shorten(value: object) -> str:
    """Formats a value for an error message, in at most 80 characters."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} too deep to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _has_fields(value: Any) -> bool:
    """Whether a value is a pydantic model, or a dataclass without slots."""
    kind = type(value)
    return hasattr(value, "__dict__") and (hasattr(kind, "model_fields") or hasattr(kind, "__dataclass_fields__"))


def _describe(value: Any) -> str:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    return f"{'an' if type(value).__name__[0] in 'aeioAEIO' else 'a'} {type(value).__name__}"
