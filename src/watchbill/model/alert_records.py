"""Values that are read from the database about alerts, their rules, routes and silences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

Severity = Literal["info", "warning", "critical"]
RouteKind = Literal["webhook", "slack", "mail", "command", "log"]
Matcher = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """An episode: from the moment at which something is wrong until it is well again. `pending`: it has not lasted yet.
    `help` is a command. `above` is None if the rule asks yes or no."""

    id: int
    rule: str
    subject: str
    tenant: str | None
    severity: Severity
    state: Literal["pending", "firing", "cleared"]
    since: datetime
    fired_at: datetime | None
    cleared_at: datetime | None
    announced_at: datetime | None
    is_silenced: bool
    value: float | None
    above: float | None
    unit: str | None
    reason: str
    help: str | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AlertRuleRecord:
    """A rule; with a `subject`, its values for that one. `about` says what a subject is. `unit` is None if the rule
    asks yes or no. `changed_by` is None where the default counts."""

    rule: str
    subject: str
    about: str
    above: float | None
    unit: str | None
    lasting: timedelta
    severity: Severity
    is_enabled: bool
    title: str
    changed_by: str | None
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class AlertRouteRecord:
    """Where alerts are sent. `target` and `secret` are as they were given: references are not resolved."""

    name: str
    kind: RouteKind
    target: str | None
    secret: str | None
    matcher: dict[str, Any]
    is_enabled: bool
    waiting: int
    last_state: str | None
    last_at: datetime | None
    last_error: str | None
    changed_by: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class AlertDelivery:
    """A message to a route. `alert` is None for a test. The receiver gets the same `id` whenever it is sent again."""

    id: UUID
    alert: int | None
    route: str
    event: Literal["raised", "cleared", "test"]
    state: Literal["waiting", "delivered", "given_up"]
    created_at: datetime
    due_at: datetime
    tries: int
    ended_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class SilenceRecord:
    id: int
    matcher: dict[str, Any]
    until: datetime
    reason: str | None
    created_by: str
    created_at: datetime


class RuleChange(TypedDict, total=False):
    """What of a rule is changed."""

    above: float
    lasting: float | str | timedelta
    severity: Severity
    is_enabled: bool
