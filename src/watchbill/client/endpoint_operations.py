"""Operations on endpoints of connectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from watchbill.client.operations import Operation, Statement
from watchbill.model.endpoint_record import EndpointRecord


class EndpointForJob(NamedTuple):
    """What a worker reads of an endpoint."""

    kind: str
    base_url: str
    headers: dict[str, str]
    auth: dict[str, Any] | None
    hosts: list[str]
    timeout: float | None
    is_failing: bool
    disabled_reason: str | None


def endpoints(tenant: str | None = None, name: str | None = None) -> Operation[list[EndpointRecord]]:
    rows = yield Statement("endpoints", (tenant, name), EndpointRecord)
    return [EndpointRecord(*row) for row in rows]


def set_endpoint(name: str, definition: Mapping[str, Any], tenant: str) -> Operation[None]:
    yield Statement("set_endpoint", (name, json.dumps(dict(definition)), tenant), (str,))


def remove_endpoint(name: str, tenant: str) -> Operation[bool]:
    ((is_removed,),) = yield Statement("remove_endpoint", (name, tenant), (bool,))
    return bool(is_removed)


def read_endpoint(tenant: str, name: str) -> Operation[EndpointForJob | None]:
    rows = yield Statement("read_endpoint", (tenant, name), EndpointForJob)
    return EndpointForJob(*rows[0]) if rows else None


def report_endpoint(tenant: str, name: str, outcome: str) -> Operation[bool]:
    """Returns whether this report has disabled the endpoint."""
    ((is_disabled,),) = yield Statement("report_endpoint", (tenant, name, outcome), (bool,))
    return bool(is_disabled)
