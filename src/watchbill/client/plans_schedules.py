"""What a client can ask for about schedules: plans, as in `plans.py`."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import Any
from uuid import UUID

import orjson

from watchbill.client.plans import Plan, Rows, Statement
from watchbill.cron.zones import UnknownZone, load_zone
from watchbill.errors import WatchbillError
from watchbill.model.schedule import Reason, ScheduleFilter, ScheduleRecord, ScheduleStats, SlotRecord
from watchbill.store.refusals import Invalid


class NoSuchSchedule(WatchbillError):
    """There is no schedule of this name."""


class UnknownTask(WatchbillError):
    """No live node handles this type of task."""

    exit_code = 2


def add(definition: dict[str, Any]) -> Plan[ScheduleRecord]:
    yield Statement("add_schedule", (orjson.dumps(definition).decode(),))
    return (yield from get(definition["name"], definition.get("tenant", "default")))


def update(name: str, changes: dict[str, Any], tenant: str) -> Plan[ScheduleRecord]:
    if changes:
        yield from _of_one("update_schedule", name, tenant, (name, orjson.dumps(changes).decode(), tenant))
    return (yield from get(name, tenant))


def remove(name: str, tenant: str) -> Plan[None]:
    yield from _of_one("remove_schedule", name, tenant, (name, tenant))


def enable(name: str, tenant: str) -> Plan[None]:
    yield from _of_one("enable_schedule", name, tenant, (name, tenant))


def disable(name: str, tenant: str) -> Plan[None]:
    yield from _of_one("disable_schedule", name, tenant, (name, tenant))


def run_now(name: str, payload: dict[str, Any] | None, tenant: str) -> Plan[UUID]:
    """The id of the job; None as payload: the schedule's own."""
    found = yield from get(name, tenant)
    if found.type is None and found.command is None:
        raise Invalid(f"Schedule {name!r} runs nothing: its slots are only events.")
    chosen = None if payload is None else orjson.dumps(payload).decode()
    ((job,),) = yield from _of_one("run_schedule", name, tenant, (name, tenant, chosen))
    assert isinstance(job, UUID)
    return job


def get(name: str, tenant: str) -> Plan[ScheduleRecord]:
    ((*row,),) = yield from _of_one("schedule", name, tenant, (name, tenant))
    return ScheduleRecord(*row)


def differences(name: str, tenant: str) -> Plan[list[tuple[str, Any, Any]]]:
    """What differs from the code: the option, what the code says, and what stands."""
    return [
        (option, code, stands) for option, code, stands in (yield Statement("schedule_differences", (name, tenant)))
    ]


def find(wanted: ScheduleFilter) -> Plan[list[ScheduleRecord]]:
    params = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    return [ScheduleRecord(*row) for row in (yield Statement("schedules", params))]


def history(name: str, before: datetime | None, limit: int, tenant: str) -> Plan[list[SlotRecord]]:
    """The latest first. That of a schedule that was removed is found no more by its name."""
    rows = yield Statement("slots", (name, tenant, before, limit))
    if not rows:
        yield from get(name, tenant)
    return [SlotRecord(*row) for row in rows]


def preview(name: str, count: int, tenant: str) -> Plan[list[datetime]]:
    """In its own zone."""
    zone = zone_of((yield from get(name, tenant)))
    rows = yield Statement("preview_schedule", (name, count, tenant))
    return [instant.astimezone(zone) for (instant,) in rows]


def zone_of(found: ScheduleRecord) -> tzinfo:
    """UTC where this machine does not know it: the database has zones of its own."""
    try:
        return load_zone(found.tz).info
    except UnknownZone:
        return UTC


def why(name: str, tenant: str) -> Plan[list[Reason]]:
    rows = yield from _of_one("why_schedule", name, tenant, (name, tenant))
    return [Reason(*row) for row in rows]


def stats() -> Plan[ScheduleStats]:
    ((*row,),) = yield Statement("schedule_stats")
    return ScheduleStats(*row)


def ensure_known(type: str) -> Plan[None]:
    """That a live node handles this type: a slip of the pen would wait for ever."""
    known = [name for (name,) in (yield Statement("node_types"))]
    if type not in known:
        near = get_close_matches(type, known, n=1)
        raise UnknownTask(
            f"No live node handles a task of type {type!r}.",
            hint=f"Did you mean {near[0]!r}?" if near else "Start a worker that has it first.",
        )


def _of_one(query: str, name: str, tenant: str, params: tuple[Any, ...]) -> Plan[Rows]:
    """What is answered about one schedule: no row, NULL or false when there is none."""
    rows = yield Statement(query, params)
    if not rows or (len(rows[0]) == 1 and rows[0][0] in (None, False)):
        names = [each for (each,) in (yield Statement("schedule_names", (tenant,)))]
        raise no_such(name, tenant, names)
    return rows


def no_such(name: str, tenant: str, names: list[str]) -> NoSuchSchedule:
    near = get_close_matches(name, names, n=1)
    place = "" if tenant == "default" else f" of tenant {tenant!r}"
    hint = f"Did you mean {near[0]!r}?" if near else "`watchbill schedules` lists them."
    return NoSuchSchedule(f"There is no schedule {name!r}{place}.", hint=hint)
