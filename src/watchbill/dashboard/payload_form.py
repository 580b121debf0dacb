"""A form for the arguments of a task, made from the JSON schema of its parameters. What a field of a form cannot hold
is written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watchbill.dashboard.problems import Problem

PREFIX = "p."  # of the names of these fields in the form
_KINDS = {"string": "text", "integer": "whole", "number": "number", "boolean": "choice"}
_YES_NO = ("true", "false")


@dataclass(frozen=True)
class PayloadField:
    """A parameter. A `choice` has one of `choices`; `json` is what has no simple field."""

    name: str
    kind: Literal["text", "whole", "number", "choice", "json"]
    is_needed: bool
    value: str = ""
    choices: Sequence[str] = ()
    note: str = ""

    @property
    def field(self) -> str:
        return PREFIX + self.name


def list_fields(schema: Mapping[str, Any]) -> list[PayloadField]:
    needed = schema.get("required", ())
    return [_make_field(name, rule, name in needed) for name, rule in schema.get("properties", {}).items()]


def _make_field(name: str, rule: Mapping[str, Any], is_needed: bool) -> PayloadField:
    simple, can_be_null = _leave_out_null(rule)
    kind, choices = _find_kind(simple)
    has_default = "default" in rule and rule["default"] is not None
    value = _write(rule["default"], kind) if has_default else ""
    if kind == "choice" and (can_be_null or not is_needed):
        choices = ("", *choices)
    notes = [str(simple[each]) for each in ("format", "description") if each in simple]
    if not is_needed and not has_default:
        notes.append("may be empty")
    return PayloadField(name, kind, is_needed, value, choices, ", ".join(notes))


def _leave_out_null(rule: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The rule of a value that may also be null, and whether it may."""
    kept = [each for each in rule.get("anyOf", ()) if each.get("type") != "null"]
    return (kept[0], True) if len(kept) == 1 and len(rule["anyOf"]) == 2 else (rule, False)


def _find_kind(rule: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    if "enum" in rule and all(isinstance(each, str) for each in rule["enum"]):
        return "choice", tuple(rule["enum"])
    kind = _KINDS.get(str(rule.get("type")), "json")
    return kind, _YES_NO if kind == "choice" else ()


def _write(value: Any, kind: str) -> str:
    return value if kind in ("text", "choice") and isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_fields(schema: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a form. An empty field that is not needed is left out."""
    payload: dict[str, Any] = {}
    for field in list_fields(schema):
        text = given.get(field.field, "")
        if text.strip() or (field.is_needed and field.kind == "text"):
            payload[field.name] = _read(field, text)
        elif field.is_needed:
            raise Problem(422, f"{field.name} is empty.")
    return payload


def _read(field: PayloadField, text: str) -> Any:
    if field.kind == "text" or (field.kind == "choice" and field.choices[-2:] != _YES_NO):
        return text
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        what = {"whole": "a whole number", "number": "a number", "choice": "true or false"}.get(field.kind, "JSON")
        raise Problem(422, f"{field.name} is not {what}: {error}.") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")
