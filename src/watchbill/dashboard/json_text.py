"""Shows JSON as text with marks for its parts. It is written here and not in the browser, so that integers of 64 bits
stay exact."""

from __future__ import annotations

import json
import re
from typing import Any

from markupsafe import Markup, escape

from watchbill.redaction import HIDDEN

MOST_SHOWN_BYTES = 64 * 1024
_SHORT = 60  # an object or a list up to this length stays on its line
_DEEPEST = 100


# Characters that would turn the order of the text around them are written as JSON escapes.
_TURNING = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


def write_json(value: Any) -> str:
    """The text of a value, for a file or a form."""
    return _escape(json.dumps(value, ensure_ascii=False, indent=2))


def write_line(value: Any) -> str:
    """The text of a value on one line."""
    return _escape(json.dumps(value, ensure_ascii=False))


def measure(value: Any) -> int:
    """The bytes of a value as JSON without spaces. Unlike orjson, this takes integers of more than 64 bits."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _escape(text: str) -> str:
    return _TURNING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show_json(value: Any) -> Markup | None:
    """A value as markup; None if it is too long for a page."""
    plain = write_line(value)
    if len(plain.encode("utf-8", "replace")) > MOST_SHOWN_BYTES:
        return None
    return _show(value, 0)


def _show(value: Any, depth: int) -> Markup:
    if isinstance(value, dict | list) and value and depth < _DEEPEST:
        is_short = depth > 0 and len(write_line(value)) <= _SHORT
        return _show_members(value, depth, is_short=is_short)
    if value == HIDDEN:
        return _mark("p", "hidden")
    return escape(write_line(value))


def _show_members(value: dict[str, Any] | list[Any], depth: int, *, is_short: bool) -> Markup:
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    between = escape(" " if is_short else "\n" + "  " * (depth + 1))
    before = escape("" if is_short else between)
    after = escape("" if is_short else "\n" + "  " * depth)
    if isinstance(value, dict):
        members = [
            _mark("k", write_line(name)) + _mark("p", ":") + Markup(" ") + _show(inner, depth + 1)
            for name, inner in value.items()
        ]
    else:
        members = [_show(inner, depth + 1) for inner in value]
    return _mark("p", opening) + before + (_mark("p", ",") + between).join(members) + after + _mark("p", closing)


def _mark(kind: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(kind, text)
