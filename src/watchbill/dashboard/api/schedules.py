"""Schedules, their slots, and patterns. SQL commands are written by operators only."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from watchbill.client import schedule_operations
from watchbill.client.operations import Operation, Statement
from watchbill.cron import Cron
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.jobs import Payload, Priority, refuse_other_work, write_payload
from watchbill.dashboard.api.router import refuse_other_tenant
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
from watchbill.dashboard.problems import Problem
from watchbill.model.schedule import Missed, Overlap, Reason, ScheduleFilter, ScheduleRecord, SlotOutcome, SlotRecord
from watchbill.model.schedule import Status as ScheduleStatus
from watchbill.model.tenant import DEFAULT_TENANT
from watchbill.redaction import Redaction

_DURATIONS = ("every", "jitter", "timeout", "expires", "grace", "deadline")
_MOST_PREVIEWED = 100
Long = Annotated[Text, Field(max_length=1000)]


class ScheduleChange(Body):
    """What to change of a schedule; null resets to the default. Durations are seconds. Give `pattern`, `every` or
    `at`, or none: then it runs on demand."""

    pattern: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    every: Annotated[Seconds, Field(ge=1)] | None = None
    at: Instant | None = None
    tz: Annotated[Name, Field(max_length=100)] | None = None
    dst: Literal["default", "skip", "once", "both"] | None = None
    start: Instant | None = None
    end: Instant | None = None
    max_runs: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    jitter: Seconds | None = None
    type: Name | None = None
    payload: Payload | None = None
    version: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    command: Annotated[Text, Field(min_length=1)] | None = Field(None, description="A SQL command; operators only.")
    role: Name | None = Field(None, description="The database role of the command.")
    queue: Annotated[Name, Field(max_length=100)] | None = None
    priority: Priority | None = None
    max_attempts: Annotated[int, Field(ge=1, le=32767)] | None = None
    retry: dict[str, Any] | None = None
    timeout: Seconds | None = None
    expires: Seconds | None = None
    missed: Missed | None = None
    catch_up: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    grace: Seconds | None = None
    overlap: Overlap | None = None
    deadline: Seconds | None = None
    run_on_start: bool | None = None
    enabled: bool | None = None
    description: Long | None = None
    category: Name | None = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None
    context: dict[str, Any] | None = None


class NewSchedule(ScheduleChange):
    """A new schedule. Durations are seconds."""

    name: Name
    tenant: Name | None = None


class ScheduleQuery(Query):
    tenant: Name | None = None
    category: Name | None = None
    tag: Name | None = None
    status: ScheduleStatus | None = None
    after: Name | None = Field(None, description="`next` of the page before.")
    limit: Limit = 50


class SlotQuery(Query):
    before: Instant | None = Field(None, description="Only slots before this one.")
    outcome: SlotOutcome | None = None
    limit: Limit = 50


class PreviewQuery(Query):
    count: Annotated[Number, Field(ge=1, le=_MOST_PREVIEWED)] = 10


class Run(Body):
    payload: Payload | None = None
    overlap: Overlap = "allow"


class Pattern(Body):
    pattern: Annotated[Text, Field(min_length=1, max_length=1000)]
    tz: Annotated[Name, Field(max_length=100)] = "UTC"
    dst: Literal["default", "skip", "once", "both"] = "default"
    count: Annotated[int, Field(ge=1, le=_MOST_PREVIEWED)] = 10


class Started(Answer):
    job: UUID


class Explained(Answer):
    """What a pattern means, and its next instants."""

    description: str
    next: list[Instant]


class Instants(Answer):
    items: list[Instant]


ScheduleItem = describe(ScheduleRecord, "Schedule", start=Instant | None, end=Instant | None)
Schedules = list_of(ScheduleItem, "Schedules", next=str | None)
SlotItem = describe(SlotRecord, "Slot")
Slots = list_of(SlotItem, "Slots", "The latest first. For the next page, `before` is the last slot.")
ReasonItem = describe(Reason, "ScheduleReason")
Reasons = list_of(ReasonItem, "ScheduleReasons")


async def find(call: Call[None, ScheduleQuery]) -> dict[str, Any]:
    query = call.query
    wanted = ScheduleFilter(
        tenant=query.tenant, category=query.category, tag=query.tag, status=query.status, after=query.after,
        limit=query.limit,
    )  # fmt: skip
    found = await call.run(schedule_operations.find(wanted))
    is_full = len(found) == query.limit
    items = [_hide(each, call.board.redaction) for each in found]
    return {"items": items, "next": found[-1].name if is_full and query.limit else None}


async def add(call: Call[NewSchedule, None]) -> Reply:
    body = call.body
    tenant = body.tenant or call.tenant or DEFAULT_TENANT
    refuse_other_tenant(call.identity, tenant)
    _refuse_command(call, body.command, body.role)
    refuse_other_work(call.identity, body.type or "", body.queue or "default")
    definition = {
        **_write_definition(call, body, exclude={"tenant"}),
        "tenant": tenant,
        "created_by": call.identity.name,
    }
    async with call.acting_for(tenant) as transaction:
        found = await transaction.run(schedule_operations.add(definition))
    return Reply(_hide(found, call.board.redaction), 201)


async def show(call: Call[None, None]) -> ScheduleRecord:
    return _hide(await _find_one(call), call.board.redaction)


async def change(call: Call[ScheduleChange, None]) -> ScheduleRecord:
    body, found = call.body, await _find_one(call)
    _refuse_command(call, body.command, body.role)
    _refuse_other_schedule(call, found)
    queue = body.queue or "default" if "queue" in body.model_fields_set else found.queue
    refuse_other_work(call.identity, body.type or found.type or "", queue)
    changes = _write_definition(call, body)
    async with call.acting_for(found.tenant) as transaction:
        changed = await transaction.run(schedule_operations.update(found.name, changes, found.tenant))
    return _hide(changed, call.board.redaction)


async def remove(call: Call[None, None]) -> dict[str, bool]:
    return await _act(call, schedule_operations.remove)


async def enable(call: Call[Any, None]) -> dict[str, bool]:
    return await _act(call, schedule_operations.enable)


async def disable(call: Call[Any, None]) -> dict[str, bool]:
    return await _act(call, schedule_operations.disable)


async def run(call: Call[Run, None]) -> Reply:
    found = await _find_one(call)
    _refuse_other_schedule(call, found)
    payload = call.body.payload
    if payload is not None:
        write_payload(call, payload)
    async with call.acting_for(found.tenant) as transaction:
        job = await transaction.run(schedule_operations.run_now(found.name, payload, found.tenant, call.body.overlap))
    return Reply({"job": job}, 201)


async def list_slots(call: Call[None, SlotQuery]) -> dict[str, Any]:
    found, query = await _find_one(call), call.query
    slots = await call.run(
        schedule_operations.history(found.name, query.before, query.limit, found.tenant, query.outcome)
    )
    redaction = call.board.redaction
    return {
        "items": [
            replace(each, result=redaction.hide("result", each.result, type=found.type),
                    error=None if each.error is None else redaction.hide_text(each.error))
            for each in slots
        ]
    }  # fmt: skip


async def preview(call: Call[None, PreviewQuery]) -> dict[str, Any]:
    found = await _find_one(call)
    return {"items": await call.run(schedule_operations.preview(found.name, call.query.count, found.tenant))}


async def why(call: Call[None, None]) -> dict[str, Any]:
    found = await _find_one(call)
    return {"items": await call.run(schedule_operations.why(found.name, found.tenant))}


async def explain(call: Call[Pattern, None]) -> dict[str, Any]:
    body = call.body
    cron = Cron(body.pattern, body.tz, body.dst)
    return {"description": cron.explain(), "next": cron.upcoming(body.count, datetime.now(UTC))}


async def _find_one(call: Call[Any, Any]) -> ScheduleRecord:
    """The schedule with the number in the path, as the caller may see it."""
    number = read_number(call.path["number"])
    if number is None:
        raise _no_such(call)

    def find_it() -> Operation[ScheduleRecord]:
        rows = yield Statement("schedule_name", (number,))
        if not rows:
            raise _no_such(call)
        return (yield from schedule_operations.get(*rows[0]))

    async with call.acting(read_only=True) as transaction:
        return await transaction.run(find_it())


def _no_such(call: Call[Any, Any]) -> Problem:
    return Problem(404, f"There is no schedule {call.path['number'][:30]}.", hint="GET /schedules lists their ids.")


async def _act(call: Call[Any, None], verb: Any) -> dict[str, bool]:
    found = await _find_one(call)
    _refuse_other_schedule(call, found)
    async with call.acting_for(found.tenant) as transaction:
        await transaction.run(verb(found.name, found.tenant))
    return {"changed": True}


def _refuse_command(call: Call[Any, Any], command: str | None, role: str | None) -> None:
    if (command is not None or role is not None) and not call.identity.may("operator"):
        raise Problem(403, f"{call.identity.name} is a {call.identity.role}; SQL commands need the role operator.")


def _refuse_other_schedule(call: Call[Any, Any], found: ScheduleRecord) -> None:
    _refuse_command(call, found.command, found.role)
    refuse_other_work(call.identity, found.type or "", found.queue)


def _write_definition(call: Call[Any, Any], body: ScheduleChange, exclude: set[str] | None = None) -> dict[str, Any]:
    """The fields that were given, as SQL takes them."""
    found = body.model_dump(include=body.model_fields_set, exclude=exclude)
    for name in _DURATIONS:
        if found.get(name) is not None:
            found[name] = f"{found[name]} seconds"
    for name in ("payload", "context"):
        if found.get(name) is not None:
            write_payload(call, found[name])
    return found


def _hide(found: ScheduleRecord, redaction: Redaction) -> ScheduleRecord:
    return replace(
        found,
        payload=redaction.hide("payload", found.payload, type=found.type),
        last_error=None if found.last_error is None else redaction.hide_text(found.last_error),
    )
