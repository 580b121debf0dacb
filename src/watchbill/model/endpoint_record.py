"""Values that are read from the database about endpoints of connectors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watchbill.model.limit_records import RateRecord


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint with its limit. `auth` has references to secrets. `changed`: an operator has changed what the code
    declares."""

    tenant: str
    name: str
    rates: list[RateRecord]
    kind: str
    base_url: str
    headers: dict[str, str]
    auth: dict[str, Any] | None
    hosts: list[str]
    timeout: float | None
    max: int | None
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    owner: str | None
    changed: bool
    created_by: str
    created_at: datetime
    updated_at: datetime
    ordered: bool
