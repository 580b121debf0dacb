"""Values that json.loads refuses become texts; all others stay as they are."""

from __future__ import annotations

import json

from watchbill.postgres.readable_json import MAX_DEPTH, load_json


def nest(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_ordinary_json_is_read_as_by_python() -> None:
    text = '{"a": [1, 2.5, "x", null, true], "b": {"c": -12345678901234567890}}'
    assert load_json(text) == load_json(text.encode()) == json.loads(text)


def test_a_long_number_becomes_a_text() -> None:
    assert load_json(f'{{"a": -{"1" * 5000}, "b": [7]}}') == {"a": "(a number of 5000 digits)", "b": [7]}


def test_a_number_that_no_float_can_be_becomes_a_text() -> None:
    given = f'{{"a": -{"1" * 400}.5, "b": {"7" * 309}, "c": 2.5}}'
    assert load_json(given) == {"a": "(a number of 400 digits)", "b": int("7" * 309), "c": 2.5}


def test_deep_nesting_becomes_a_text() -> None:
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        assert load_json(nest(depth)) == f"(JSON of {2 * depth} characters, nested too deep to be shown)"
    value = load_json(nest(MAX_DEPTH))
    assert json.dumps(value, indent=2)
    assert load_json(f'{{"n": {"1" * 5000}, "deep": {nest(500)}}}').startswith("(JSON of ")
