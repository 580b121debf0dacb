"""Whether arguments come out of JSON as they went in.

What a parameter's type says, pydantic restores. Where it says nothing (no annotation, `Any`, a bare `dict`), a datetime
would arrive as text and a set as a list; and a model may well lose what it holds. So what is sent is read again and
compared, unless the types are such that nothing can be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

# Of pydantic's core schema: what is restored exactly, if all that it is made of is. Floats are checked in the text.
_LEAVES = {
    "str", "int", "bool", "float", "none", "literal", "enum", "uuid", "decimal", "date", "time", "datetime", "timedelta"
}  # fmt: skip
_HOLDERS = {"list", "set", "frozenset", "dict", "nullable", "default", "tuple"}
_PARTS = ("schema", "items_schema", "keys_schema", "values_schema")


def nothing_is_lost(schema: dict[str, Any]) -> bool:
    """Whether a type is made of such as JSON restores, so that nobody need look at its values."""
    kind = schema.get("type")
    if kind in _LEAVES:
        return True
    if kind == "typed-dict":
        closed = schema.get("extra_behavior") != "allow"
        return closed and all(nothing_is_lost(field["schema"]) for field in schema["fields"].values())
    if kind not in _HOLDERS:
        return False
    parts = [part for name in _PARTS if (part := schema.get(name)) is not None]
    flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    return bool(flat) and all(map(nothing_is_lost, flat))


def lost(sent: Any, back: Any, path: str) -> Iterator[tuple[str, str]]:
    """Where the two differ, and how."""
    if isinstance(sent, dict) and isinstance(back, dict):
        if sent.keys() != back.keys():
            yield path, "its keys would arrive as text"
            return
        for key, value in sent.items():
            yield from lost(value, back[key], f"{path}.{key}".lstrip("."))
    elif isinstance(sent, list | tuple) and isinstance(back, list | tuple):
        for index, (one, other) in enumerate(zip(sent, back, strict=False)):
            yield from lost(one, other, f"{path}[{index}]")
    elif not isinstance(sent, type(back)) or (_has_fields(sent) and type(sent) is not type(back)):
        yield path, f"{_a(sent)} would arrive as {_a(back)}"
    elif _has_fields(sent):
        for name, value in vars(back).items():
            if name in vars(sent):
                yield from lost(vars(sent)[name], value, f"{path}.{name}")


def _has_fields(value: Any) -> bool:
    """A model, or a dataclass with a dictionary of its own."""
    kind = type(value)
    return hasattr(value, "__dict__") and (hasattr(kind, "model_fields") or hasattr(kind, "__dataclass_fields__"))


def _a(value: Any) -> str:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    return f"{'an' if type(value).__name__[0] in 'aeioAEIO' else 'a'} {type(value).__name__}"
