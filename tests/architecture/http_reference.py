"""docs/reference/http.md, made of the table of endpoints; `reference_tables.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pydantic import RootModel

from watchbill.dashboard.api.call import Endpoint
from watchbill.dashboard.api.endpoints import TABLE
from watchbill.dashboard.api.openapi import make_document


def http_reference() -> str:
    document = make_document()
    parts = []
    for module, rows in groupby(TABLE, key=lambda endpoint: endpoint.handle.__module__.rpartition(".")[2]):
        parts.append(f"## {module.replace('_', ' ').capitalize()}\n")
        parts += [_describe(row, document) for row in rows]
    return "\n".join(parts)


def _describe(endpoint: Endpoint, document: dict[str, Any]) -> str:
    path = endpoint.path.replace(":path}", "}")
    found = document["paths"][path][endpoint.method.lower()]
    role = "anyone" if endpoint.role is None else f"role {endpoint.role}"
    lines = [f"### {endpoint.method} {path}", "", f"{endpoint.summary}. For: {role}.", ""]
    lines += [f"- query `{name}`" for name in _names(found, "query")]
    if endpoint.body is not None:
        lines.append(f"- body: {_describe_body(endpoint)}")
    if endpoint.takes_key:
        lines.append("- header `Idempotency-Key`")
    answer = "" if endpoint.answer is None else f" {', '.join(f'`{name}`' for name in endpoint.answer.model_fields)}"
    lines.append(f"- answers {' or '.join(map(str, endpoint.statuses))}:{answer or f' {endpoint.media_type}'}")
    if endpoint.errors:
        lines.append(f"- errors of its own: {', '.join(map(str, endpoint.errors))}")
    if endpoint.sql:
        lines.append(f"- SQL: {', '.join(f'`{name}`' for name in endpoint.sql)}")
    return "\n".join(lines) + "\n"


def _names(found: dict[str, Any], place: str) -> Iterator[str]:
    return (each["name"] for each in found["parameters"] if each["in"] == place)


def _describe_body(endpoint: Endpoint) -> str:
    assert endpoint.body is not None
    if issubclass(endpoint.body, RootModel):
        return "an array" + (", or newline-delimited JSON" if endpoint.takes_lines else "")
    return ", ".join(f"`{name}`" for name in endpoint.body.model_fields) or "an empty object, or nothing"
