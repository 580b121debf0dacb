"""API keys, as they are listed. The key itself is shown once, and only its hash is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    """`id` is the public part of the key. `state` is valid, expired or revoked."""

    id: str
    name: str
    role: str
    tenant: str | None
    queues: list[str]
    types: list[str]
    rate: float | None
    state: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
