"""Makes the OpenAPI 3.1 document from the table of endpoints. Its schemas are those of pydantic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from watchbill._version import __version__
from watchbill.dashboard.api.call import KEY_HEADER, TENANT_HEADER, Endpoint
from watchbill.dashboard.api.endpoints import PREFIX, TABLE
from watchbill.dashboard.api.shapes import ProblemAnswer
from watchbill.dashboard.problems import MEDIA_TYPE

_REFERENCE = "#/components/schemas/{model}"
_PLACE = re.compile(r"\{(\w+)(:path)?\}")
_KEY = {"type": "string", "minLength": 1, "maxLength": 200}
_Model = type[BaseModel]


def make_document(root: str = "") -> dict[str, Any]:
    """The document of an API that is mounted under `root`."""
    return {**_make_rest(), "servers": [{"url": f"{root}{PREFIX}"}]}


@cache
def _make_rest() -> dict[str, Any]:
    references, components = _make_schemas()
    paths: dict[str, Any] = {}
    for endpoint in TABLE:
        path = paths.setdefault(_PLACE.sub(r"{\1}", endpoint.path), {})
        path[endpoint.method.lower()] = _describe(endpoint, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Watchbill",
            "version": __version__,
            "description": "Jobs, schedules and nodes of one installation. Numbers with 64 bits are strings.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: wb_..."}},
        },
    }


def _make_schemas() -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    wanted: dict[tuple[_Model, JsonSchemaMode], None] = {(ProblemAnswer, "serialization"): None}
    for endpoint in TABLE:
        if endpoint.answer is not None:
            wanted[endpoint.answer, "serialization"] = None
        if endpoint.body is not None:
            wanted[endpoint.body, "validation"] = None
    references, definitions = models_json_schema(list(wanted), ref_template=_REFERENCE)
    return {**references}, definitions["$defs"]


def _describe(endpoint: Endpoint, references: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.handle.__module__.rpartition(".")[2]],
        "x-role": endpoint.role,
        "x-sql": list(endpoint.sql),
        "parameters": list(_list_parameters(endpoint)),
        "responses": _describe_answers(endpoint, references),
        "security": [{"key": []}, {}] if endpoint.role is None else [{"key": []}],
    }
    if endpoint.body is not None:
        schema = {"schema": references[endpoint.body, "validation"]}
        content = {"application/json": schema}
        if endpoint.takes_lines:
            content["application/x-ndjson"] = {"schema": {"type": "string", "description": "One object in each line."}}
        found["requestBody"] = {"required": _has_required(endpoint.body), "content": content}
    return found


def _has_required(model: _Model) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def list_statuses(endpoint: Endpoint) -> list[int]:
    """All statuses with which an endpoint may answer, apart from those of a broken or strange request: a foreign host
    (421) and a method that the address does not take (405)."""
    found = {*endpoint.statuses, 401, 403, 422, 429, 503, *endpoint.errors}
    return sorted(found | ({400, 413, 415} if endpoint.body is not None else set()))


def _describe_answers(endpoint: Endpoint, references: dict[Any, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status in list_statuses(endpoint):
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if status >= 400:
            answer["content"] = {MEDIA_TYPE: {"schema": references[ProblemAnswer, "serialization"]}}
        elif endpoint.answer is not None:
            answer["content"] = {"application/json": {"schema": references[endpoint.answer, "serialization"]}}
        else:
            answer["content"] = {endpoint.media_type: {}}
        answers[str(status)] = answer
    return answers


def _list_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for match in _PLACE.finditer(endpoint.path):
        yield {"name": match[1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if endpoint.query is not None:
        schema = endpoint.query.model_json_schema()
        for name, each in schema["properties"].items():
            found = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": each}
            yield found | ({"description": each["description"]} if "description" in each else {})
    if endpoint.takes_key:
        yield {"name": KEY_HEADER, "in": "header", "required": False, "schema": _KEY}
    if endpoint.method != "GET":
        about = "The tenant for which a key that is bound to none acts."
        yield {"name": TENANT_HEADER, "in": "header", "required": False, "schema": _KEY, "description": about}
