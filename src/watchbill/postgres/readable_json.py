"""Reads JSON that PostgreSQL stores and Python refuses: numbers of over 4,300 digits or beyond what a float can be, and
very deep nesting.

One such payload must not break a list of many jobs. Texts stand in for such values.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DIGITS = 4300  # Python refuses to convert more
MAX_DEPTH = 200  # what json.dumps can write with indentation, whatever calls it


_LONG_NUMBER = re.compile("[0-9]{309}")  # shorter ones are finite floats


def load_json(data: str | bytes) -> Any:
    """Reads JSON. A number that is too long, or a value that is nested too deep, becomes a text that says so."""
    text = data.decode() if isinstance(data, bytes) else data
    try:
        if _LONG_NUMBER.search(text) is None:
            value = json.loads(text)
        else:
            value = json.loads(text, parse_int=_read_integer, parse_float=_read_float)
    except RecursionError:
        return _describe_depth(text)
    return _describe_depth(text) if len(text) > MAX_DEPTH and _is_deeper(value, MAX_DEPTH) else value


def _read_integer(text: str) -> int | str:
    return int(text) if len(text) < MAX_DIGITS else f"(a number of {len(text.lstrip('-'))} digits)"


def _read_float(text: str) -> float | str:
    found = float(text)
    return found if math.isfinite(found) else f"(a number of {len(text.partition('.')[0].lstrip('-'))} digits)"


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
