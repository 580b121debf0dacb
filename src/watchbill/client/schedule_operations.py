"""Writing schedules, looking at them and acting on them: operations, as in `operations.py`."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import Any, get_args
from uuid import UUID

import orjson

from watchbill.client.operations import Operation, Rows, Statement
from watchbill.cron.zones import UnknownZone, load_zone
from watchbill.errors import WatchbillError
from watchbill.model.schedule import (
    Overlap,
    Reason,
    ScheduleFilter,
    ScheduleMetrics,
    ScheduleRecord,
    ScheduleStats,
    SlotOutcome,
    SlotRecord,
)
from watchbill.store.refusals import Invalid


class NoSuchSchedule(WatchbillError):
    """There is no schedule of this name."""


class UnknownTask(WatchbillError):
    """No live node handles this type of task."""

    exit_code = 2


def add(definition: dict[str, Any]) -> Operation[ScheduleRecord]:
    yield Statement("add_schedule", (orjson.dumps(definition).decode(),), (Any,))
    return (yield from get(definition["name"], definition.get("tenant", "default")))


def update(name: str, changes: dict[str, Any], tenant: str) -> Operation[ScheduleRecord]:
    if changes:
        params = (name, orjson.dumps(changes).decode(), tenant)
        yield from _query_schedule("update_schedule", name, tenant, params, (bool,))
    return (yield from get(name, tenant))


def changed(owner: str) -> Operation[list[tuple[str, bool]]]:
    """The schedules of an App's code that an operator has changed, and whether they are enabled."""
    return [(name, enabled) for name, enabled in (yield Statement("changed_schedules", (owner,), (str, bool)))]


def remove(name: str, tenant: str) -> Operation[None]:
    yield from _query_schedule("remove_schedule", name, tenant, (name, tenant), (bool,))


def enable(name: str, tenant: str) -> Operation[None]:
    yield from _query_schedule("enable_schedule", name, tenant, (name, tenant), (bool,))


def disable(name: str, tenant: str) -> Operation[None]:
    yield from _query_schedule("disable_schedule", name, tenant, (name, tenant), (bool,))


def run_now(name: str, payload: dict[str, Any] | None, tenant: str, overlap: Overlap = "allow") -> Operation[UUID]:
    """Makes a job now and returns its id. If `payload` is None, the job has the schedule's own payload."""
    found = yield from get(name, tenant)
    if found.type is None and found.command is None:
        raise Invalid(f"Schedule {name!r} runs nothing: its slots are only events.")
    chosen = None if payload is None else orjson.dumps(payload).decode()
    params = (name, tenant, chosen, overlap)
    ((job,),) = yield from _query_schedule("run_schedule", name, tenant, params, (UUID | None,))
    assert isinstance(job, UUID)
    return job


def get(name: str, tenant: str) -> Operation[ScheduleRecord]:
    ((*row,),) = yield from _query_schedule("schedule", name, tenant, (name, tenant), ScheduleRecord)
    return ScheduleRecord(*row)


def differences(name: str, tenant: str) -> Operation[list[tuple[str, Any, Any]]]:
    """Options that differ from the code: the name, the code's value, and the stored value."""
    rows = yield Statement("schedule_differences", (name, tenant))
    return [(option, code, stored) for option, code, stored in rows]


def find(wanted: ScheduleFilter) -> Operation[list[ScheduleRecord]]:
    params = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    return [ScheduleRecord(*row) for row in (yield Statement("schedules", params, ScheduleRecord))]


def history(
    name: str, before: datetime | None, limit: int, tenant: str, outcome: SlotOutcome | None = None
) -> Operation[list[SlotRecord]]:
    """The slots of a schedule, the latest first. The history of a removed schedule is not found by its name."""
    if outcome not in (None, *get_args(SlotOutcome)):
        raise Invalid(f"outcome={outcome!r} is invalid: it can be {', '.join(get_args(SlotOutcome))}.")
    rows = yield Statement("slots", (name, tenant, before, limit, outcome), SlotRecord)
    if not rows:
        yield from get(name, tenant)
    return [SlotRecord(*row) for row in rows]


def preview(name: str, count: int, tenant: str) -> Operation[list[datetime]]:
    """The next slots of a schedule, in its own zone."""
    zone = schedule_zone((yield from get(name, tenant)))
    rows = yield Statement("preview_schedule", (name, count, tenant), (datetime,))
    return [instant.astimezone(zone) for (instant,) in rows]


def schedule_zone(found: ScheduleRecord) -> tzinfo:
    """The zone of a schedule; UTC if this machine does not know it, since the database has its own list of zones."""
    try:
        return load_zone(found.tz).info
    except UnknownZone:
        return UTC


def why(name: str, tenant: str) -> Operation[list[Reason]]:
    rows = yield from _query_schedule("why_schedule", name, tenant, (name, tenant), Reason)
    return [Reason(*row) for row in rows]


def metrics(name: str, since: datetime | None, tenant: str) -> Operation[ScheduleMetrics]:
    """How its runs went, of slots since that instant, or of all that history has."""
    ((*row,),) = yield from _query_schedule("schedule_metrics", name, tenant, (name, since, tenant), ScheduleMetrics)
    return ScheduleMetrics(*row)


def recent_metrics(found: list[ScheduleRecord]) -> Operation[dict[tuple[str, str], ScheduleMetrics]]:
    """How the latest runs of several schedules went, by name and tenant: at most 100 slots each, of 30 days."""
    names, tenants = [each.name for each in found], [each.tenant for each in found]
    rows = yield Statement("recent_schedule_metrics", (names, tenants))
    return {(name, tenant): ScheduleMetrics(*row) for name, tenant, *row in rows}


def stats() -> Operation[ScheduleStats]:
    ((*row,),) = yield Statement("schedule_stats", (), ScheduleStats)
    return ScheduleStats(*row)


def ensure_known(type: str) -> Operation[None]:
    """Refuses a type that no live node handles: jobs of a misspelt type would wait for ever."""
    known = [name for (name,) in (yield Statement("node_types", (), (str,)))]
    if type not in known:
        near = get_close_matches(type, known, n=1)
        raise UnknownTask(
            f"No live node handles a task of type {type!r}.",
            hint=f"Did you mean {near[0]!r}?" if near else "Start a worker that has it first.",
        )


def _query_schedule(
    query: str, name: str, tenant: str, params: tuple[Any, ...], columns: type | tuple[Any, ...]
) -> Operation[Rows]:
    """Runs a query about one schedule. No row, NULL or false means that there is no such schedule."""
    rows = yield Statement(query, params, columns)
    if not rows or (len(rows[0]) == 1 and rows[0][0] in (None, False)):
        raise no_such(name, tenant, (yield from find_names(tenant)))
    return rows


def find_names(tenant: str) -> Operation[list[str]]:
    """The names of a tenant's schedules, up to ten thousand."""
    return [name for (name,) in (yield Statement("schedule_names", (tenant,), (str,)))]


def no_such(name: str, tenant: str, names: list[str]) -> NoSuchSchedule:
    near = get_close_matches(name, names, n=1)
    place = "" if tenant == "default" else f" of tenant {tenant!r}"
    hint = f"Did you mean {near[0]!r}?" if near else "`watchbill schedules` lists them."
    return NoSuchSchedule(f"There is no schedule {name!r}{place}.", hint=hint)
