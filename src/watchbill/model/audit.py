"""The audit: what operators did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A row of the table `audit`. `subject` is a kind and a name, such as `queue mail`. Any session can set `actor`;
    `login_role` is the role that had opened it."""

    id: int
    at: datetime
    actor: str
    login_role: str
    action: str
    subject: str
    tenant: str | None
    detail: dict[str, Any] | None
