"""Queues, types, failures, pauses, limits and tenants: what flows, what stops it, and how much may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from watchbill.client import figure_operations, job_operations, limit_operations, tenant_operations
from watchbill.client.tenant_operations import Erasure
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.shapes import (
    Answer,
    Body,
    Flag,
    Instant,
    Limit,
    Name,
    Query,
    Text,
    describe,
    list_of,
    shape,
)
from watchbill.dashboard.figures import read_queues
from watchbill.dashboard.problems import Problem
from watchbill.model.figures import FailureGroup, Figure, QueueFigures, sum_by_name
from watchbill.model.job import CauseCount, Pause
from watchbill.model.limit_records import LimitRecord, RateRecord
from watchbill.model.limits import LARGEST_COUNT, LONGEST_PER_SECONDS, Rate
from watchbill.model.tenant_record import ErasureRecord, TenantRecord

ERASURE_SECONDS = 10.0  # for which one request works
_DAY = timedelta(days=1)

# -- Figures

QueueItem = describe(QueueFigures, "Queue", trend=list[int])
Queues = list_of(QueueItem, "Queues", "Counts come from samples; `ended` and the others from the last hour.")
CauseItem = describe(CauseCount, "Cause")
Causes = list_of(CauseItem, "Causes", "Why jobs do not run, the most frequent cause first.")
FailureItem = describe(FailureGroup, "Failure", failure=str)
Failures = list_of(FailureItem, "Failures", "Attempts that have failed in the same way, the last group first.")


class TypeItem(Answer):
    """A type of task: what has ended in the last hour. `is_handled`: a live node has it."""

    type: str
    is_handled: bool
    succeeded: int
    failed: int
    dead: int
    run_seconds: float
    wait_seconds: float


Types = list_of(TypeItem, "Types")


class CauseQuery(Query):
    queue: Name | None = None
    type: Name | None = None
    tenant: Name | None = None


class FailureQuery(Query):
    since: Instant | None = Field(None, description="Only groups that have failed since. Default: a day.")
    limit: Limit = 50


async def list_queues(call: Call[None, None]) -> dict[str, Any]:
    async with call.acting() as transaction:
        return {"items": await read_queues(transaction)}


async def list_types(call: Call[None, None]) -> dict[str, Any]:
    hour = datetime.now(UTC) - timedelta(hours=1)
    async with call.acting() as transaction:
        handled = set(await transaction.run(job_operations.handled_types()))
        ended = await transaction.run(figure_operations.figures("type", "minute", since=hour))
    sums = {each.name: each for each in sum_by_name(ended)}
    names = sorted(handled | sums.keys())
    return {"items": [_describe_type(name, name in handled, sums.get(name)) for name in names]}


def _describe_type(name: str, is_handled: bool, sums: Figure | None) -> dict[str, Any]:
    words = ("succeeded", "failed", "dead", "run_seconds", "wait_seconds")
    return {"type": name, "is_handled": is_handled, **{word: getattr(sums, word) if sums else 0 for word in words}}


async def why(call: Call[None, CauseQuery]) -> dict[str, Any]:
    query = call.query
    found = await call.run(job_operations.count_causes(queue=query.queue, type=query.type, tenant=query.tenant))
    hide_text = call.board.redaction.hide_text
    return {"items": [replace(each, reason=hide_text(each.reason)) for each in found]}


async def list_failures(call: Call[None, FailureQuery]) -> dict[str, Any]:
    since = call.query.since or datetime.now(UTC) - _DAY
    found = await call.run(figure_operations.failures(since=since, limit=call.query.limit))
    redaction = call.board.redaction
    items = []
    for each in found:
        shown = redaction.hide("error", {"message": each.message}, type=each.type)
        message = shown["message"] if isinstance(shown, dict) else str(shown)
        items.append({**{name: getattr(each, name) for name in FailureItem.model_fields},
                      "failure": str(each.failure), "message": message})  # fmt: skip
    return {"items": items}


# -- Pauses


class NewPause(Body):
    """A queue, a type, or a type in a queue."""

    queue: Name | None = None
    type: Name | None = None
    reason: Annotated[Text, Field(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _names_something(self) -> NewPause:
        if self.queue is None and self.type is None:
            raise ValueError("give queue or type")
        return self


class PauseQuery(Query):
    queue: Name | None = None
    type: Name | None = None


PauseItem = describe(Pause, "Pause")
Pauses = list_of(PauseItem, "Pauses")


async def list_pauses(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(job_operations.pauses())}


async def pause(call: Call[NewPause, None]) -> dict[str, bool]:
    body = call.body
    return {"changed": await call.run(job_operations.pause(queue=body.queue, type=body.type, reason=body.reason))}


async def resume(call: Call[None, PauseQuery]) -> dict[str, bool]:
    query = call.query
    if query.queue is None and query.type is None:
        raise Problem(422, "Say what to resume: queue, type or both.")
    return {"changed": await call.run(job_operations.resume(queue=query.queue, type=query.type))}


# -- Limits


class RateBody(Body):
    """At most `count` jobs start in any `per` seconds; `evenly` spaces them."""

    count: Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
    per: Annotated[float, Field(gt=0, le=LONGEST_PER_SECONDS, allow_inf_nan=False)]
    evenly: bool = False


class LimitBody(Body):
    """The rule of a limit. `rates` take the place of all its rates."""

    max: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] | None = None
    rates: Annotated[list[RateBody], Field(max_length=10)] | None = None
    when_full: Literal["wait", "discard", "replace"] | None = None
    when_dead: Literal["continue", "pause"] | None = None


RateItem = describe(RateRecord, "Rate")
LimitItem = describe(LimitRecord, "Limit", rates=list[RateItem])  # type: ignore[valid-type]
Limits = list_of(LimitItem, "Limits")


async def list_limits(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(limit_operations.limits())}


async def set_limit(call: Call[LimitBody, None]) -> LimitRecord:
    body, name = call.body, _read_name(call)
    rates = None if body.rates is None else [Rate(each.count, per=each.per, evenly=each.evenly) for each in body.rates]
    found = await call.run(
        limit_operations.set_limit(name, max=body.max, rates=rates, when_full=body.when_full, when_dead=body.when_dead)
    )
    if found is None:
        raise Problem(422, "The limit has no rule.", hint="Give max or rates.")
    return found


async def clear_limit(call: Call[None, None]) -> dict[str, bool]:
    return {"changed": await call.run(limit_operations.clear_limit(_read_name(call)))}


# -- Tenants


class QuotaBody(Body):
    """Quotas to set; null removes one."""

    running: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    unfinished: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    payload_bytes: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    per_minute: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    heartbeats: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None


class EraseQuery(Query):
    force: Flag = Field(False, description="End running jobs at once.")


TenantItem = describe(TenantRecord, "Tenant")
Tenants = list_of(TenantItem, "Tenants")
ErasureItem = shape(
    "Erasure",
    "What was deleted by this request. Until `is_done`, ask again: `waiting` says what the erasure waits for.",
    tenant=str,
    deleted=dict[str, int],
    payloads=int,
    waiting=str | None,
    is_done=bool,
)


async def list_tenants(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(tenant_operations.tenants())}


async def set_tenant(call: Call[QuotaBody, None]) -> dict[str, bool]:
    quotas = call.body.model_dump(include=call.body.model_fields_set)
    return {"changed": await call.run(tenant_operations.set_tenant(_read_name(call), quotas))}


async def erase_tenant(call: Call[None, EraseQuery]) -> Reply:
    """Erases parts, each in a transaction of its own, for as long as one request may take."""
    store = call.board.app.producer.runtime.large_payloads.store
    erasure = Erasure(_read_name(call), force=call.query.force, wait=ERASURE_SECONDS, store=store)
    while not erasure.is_over:
        row = await call.run(tenant_operations.erase_part(erasure.tenant, erasure.force))
        await asyncio.sleep(await asyncio.to_thread(erasure.note, row))
    return Reply(_describe_erasure(erasure.record), 200 if erasure.is_done else 202)


def _describe_erasure(record: ErasureRecord) -> dict[str, Any]:
    names: Iterable[str] = ErasureItem.model_fields
    return {name: getattr(record, name) for name in names}


def _read_name(call: Call[Any, Any]) -> str:
    name = call.path["name"]
    if not 1 <= len(name) <= 200 or "\0" in name:
        raise Problem(422, "The name in the path has 1 to 200 characters.")
    return name
