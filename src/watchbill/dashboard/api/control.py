"""Alerts, silences, the audit, and API keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from watchbill.client import alert_operations, job_operations, key_operations
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.jobs import AuditItem
from watchbill.dashboard.api.shapes import (
    Answer,
    Body,
    Instant,
    Limit,
    Name,
    Number,
    Query,
    Seconds,
    Text,
    describe,
    list_of,
    read_number,
)
from watchbill.dashboard.identity import Role
from watchbill.dashboard.problems import Problem
from watchbill.model.alert_records import AlertRecord, SilenceRecord
from watchbill.model.api_key import ApiKey

# -- Alerts


AlertItem = describe(AlertRecord, "Alert")
Alerts = list_of(AlertItem, "Alerts")
SilenceItem = describe(SilenceRecord, "Silence")
Silences = list_of(SilenceItem, "Silences")
Audit = list_of(AuditItem, "Audit", "The newest first. For the next page, `before` is the last id.")


class AlertQuery(Query):
    since: Instant | None = Field(None, description="Also alerts that were cleared since.")
    rule: Name | None = None
    limit: Limit = 50


class NewSilence(Body):
    """Keeps alerts back. Give `lasting` in seconds, or `until`."""

    matcher: dict[str, Name | list[Name]] = Field(description="Such as rule, subject or tenant.")
    lasting: Seconds | None = None
    until: Instant | None = None
    reason: Annotated[Text, Field(max_length=500)] | None = None

    @model_validator(mode="after")
    def _ends_once(self) -> NewSilence:
        if (self.lasting is None) == (self.until is None):
            raise ValueError("give lasting or until")
        return self


class RuleBody(Body):
    """Values of a rule, for one subject or for all."""

    rule: Name
    subject: Text = ""
    above: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] | None = None
    lasting: Seconds | None = None
    severity: Literal["info", "warning", "critical"] | None = None
    is_enabled: bool | None = None


class AuditQuery(Query):
    before: Annotated[Number, Field(ge=1, lt=2**53)] | None = Field(None, description="Only rows before this id.")
    since: Instant | None = None
    subject: Name | None = Field(None, description="A kind and a name, such as `queue mail`.")
    tenant: Name | None = None
    actor: Name | None = None
    action: Name | None = None
    limit: Limit = 50


class Made(Answer):
    id: int


async def list_alerts(call: Call[None, AlertQuery]) -> dict[str, Any]:
    query = call.query
    found = await call.run(alert_operations.alerts(since=query.since, rule=query.rule, limit=query.limit))
    hide_text = call.board.redaction.hide_text
    return {"items": [replace(each, reason=hide_text(each.reason)) for each in found]}


async def list_silences(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(alert_operations.silences())}


async def add_silence(call: Call[NewSilence, None]) -> dict[str, int]:
    body = call.body
    silence = alert_operations.add_silence(body.matcher, lasting=body.lasting, until=body.until, reason=body.reason)
    return {"id": await call.run(silence)}


async def end_silence(call: Call[None, None]) -> dict[str, bool]:
    number = read_number(call.path["number"])
    if number is None or not await call.run(alert_operations.end_silence(number)):
        raise Problem(404, f"There is no silence {call.path['number'][:30]} that holds.")
    return {"changed": True}


async def set_rule(call: Call[RuleBody, None]) -> dict[str, bool]:
    change: Any = call.body.model_dump(exclude={"rule", "subject"}, exclude_none=True)
    await call.run(alert_operations.set_rule(call.body.rule, call.body.subject, **change))
    return {"changed": True}


async def list_audit(call: Call[None, AuditQuery]) -> dict[str, Any]:
    return {"items": await call.run(job_operations.audit(**call.query.model_dump()))}


# -- Keys

KeyItem = describe(ApiKey, "Key")
Keys = list_of(KeyItem, "Keys", "Also keys that have expired or were revoked.")


class NewKeyBody(Body):
    """A new API key. With `tenant` its role is reader or producer."""

    name: Name
    role: Role
    tenant: Name | None = None
    queues: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)
    types: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = Field(
        None, description="Requests a second."
    )
    expires: Seconds | None = Field(None, description="Seconds from now.")


class NewKey(Answer):
    """`key` is shown only now."""

    id: str
    key: str


async def list_keys(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(key_operations.keys())}


async def add_key(call: Call[NewKeyBody, None]) -> Reply:
    body = call.body
    expires_at = None if body.expires is None else datetime.now(UTC) + timedelta(seconds=body.expires)
    made = await call.run(
        key_operations.add_key(
            body.name, body.role, tenant=body.tenant, queues=body.queues, types=body.types, rate=body.rate,
            expires_at=expires_at,
        )
    )  # fmt: skip
    return Reply({"id": made.id, "key": made.key}, 201)


async def revoke_key(call: Call[None, None]) -> dict[str, bool]:
    try:
        await call.run(key_operations.revoke_key(call.path["name"]))
    except key_operations.NoSuchKey as error:
        raise Problem(404, error.message) from None
    return {"changed": True}
