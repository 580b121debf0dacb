"""Reads JSON that PostgreSQL stores and Python refuses: numbers of over 4,300 digits, and very deep nesting.

One such payload must not break a list of many jobs. Texts stand in for such values.
"""

from __future__ import annotations

import json
from typing import Any

MAX_DIGITS = 4300  # Python refuses to convert more
MAX_DEPTH = 200  # what json.dumps can write with indentation, whatever calls it


def load_json(data: str | bytes) -> Any:
    """Reads JSON. A number that is too long, or a value that is nested too deep, becomes a text that says so."""
    text = data.decode() if isinstance(data, bytes) else data
    try:
        try:
            value = json.loads(text)
        except ValueError:
            value = json.loads(text, parse_int=_read_number)
    except RecursionError:
        return _describe_depth(text)
    return _describe_depth(text) if len(text) > MAX_DEPTH and _is_deeper(value, MAX_DEPTH) else value


def _read_number(digits: str) -> int | str:
    return int(digits) if len(digits) < MAX_DIGITS else f"(a number of {len(digits.lstrip('-'))} digits)"


def _describe_depth(text: str) -> str:
    return f"(JSON of {len(text)} characters, nested too deep to be shown)"


def _is_deeper(value: object, depth: int) -> bool:
    """Goes down level by level, so that it needs no stack."""
    level = [value]
    for _ in range(depth):
        level = [part for each in level for part in _list_parts(each)]
        if not level:
            return False
    return True


def _list_parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return [part for part in value.values() if isinstance(part, dict | list)]
    return [part for part in value if isinstance(part, dict | list)] if isinstance(value, list) else []
