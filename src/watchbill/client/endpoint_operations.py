"""Operations on endpoints of connectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from watchbill.client.limit_operations import read_rates
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
    return [EndpointRecord(tenant, name, read_rates(rates), *more) for tenant, name, rates, *more in rows]


def set_endpoint(name: str, definition: Mapping[str, Any], tenant: str) -> Operation[None]:
    yield Statement("set_endpoint", (name, json.dumps(dict(definition)), tenant), (str,))


def remove_endpoint(name: str, tenant: str) -> Operation[bool]:
    ((is_removed,),) = yield Statement("remove_endpoint", (name, tenant), (bool,))
    return bool(is_removed)


def read_endpoint(tenant: str, name: str) -> Operation[EndpointForJob | None]:
    rows = yield Statement("read_endpoint", (tenant, name), EndpointForJob)
    return EndpointForJob(*rows[0]) if rows else None


def keep_notification(
    delivery: UUID, fence: int, job: UUID, finished_at: datetime, type: str, data: Mapping[str, Any]
) -> Operation[dict[str, Any] | None]:
    """Keeps in a delivery what it says of the job that has ended. Returns it as it is stored, with the keys in the
    database's order; None if the job runs again."""
    content = json.dumps({"type": type, "data": dict(data)})
    ((kept,),) = yield Statement("keep_notification", (delivery, fence, job, finished_at, content), (dict,))
    return kept  # type: ignore[no-any-return]


def report_endpoint(tenant: str, name: str, outcome: str) -> Operation[bool]:
    """Returns whether this report has disabled the endpoint."""
    ((is_disabled,),) = yield Statement("report_endpoint", (tenant, name, outcome), (bool,))
    return bool(is_disabled)
