"""Schedules: the list with the last slots as squares, and one schedule with its rule, next runs and past slots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations, schedule_operations
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.zones import load_zone
from watchbill.dashboard import charts
from watchbill.dashboard.charts.slots import SQUARES
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.dashboard.words import write_coarse_duration, write_duration
from watchbill.errors import WatchbillError
from watchbill.model.schedule import FLOW, ScheduleFilter, ScheduleMetrics, ScheduleRecord, SlotRecord

MOST_SCHEDULES = 200
NEXT_RUNS = 10
MOST_AUDITED = 50  # schedules of other tenants with the same name are among these
LEGEND = ("succeeded", "retried", "dead", "overdue", "running", "skipped", "missed", "clock")
TABS = ("all", "overdue", "failing", "orphaned", "disabled")
_STATUSES = ("failing", "orphaned", "disabled")
_LONGEST_PATTERN = 1000
_ZONE_OF_TEXT = re.compile(r", [^,]+ time$")
_OUTCOMES = {
    "succeeded": "succeeded", "fired": "succeeded", "skipped": "skipped", "missed": "missed", "canceled": "canceled",
    "failed": "dead", "timed_out": "dead", "lost": "dead",
}  # fmt: skip
_URGENCY = {"dead": 1, "late": 2, "failed": 3, "running": 5}


@dataclass(frozen=True)
class Row:
    """A schedule of the list. `kind` and `remark` say what is not as usual."""

    schedule: ScheduleRecord
    when: str
    zone: str
    squares: Markup
    metrics: ScheduleMetrics | None
    kind: str | None
    remark: str


@dataclass(frozen=True)
class Run:
    """A run to come: on the clock of the schedule and in UTC, how long after the one before, and a change of clocks."""

    at: datetime
    utc: datetime
    after: str
    clock_change: str | None


async def show_schedules(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    tab = request.query_params.get("show", "all")
    after = request.query_params.get("after")
    status: Any = tab if tab in _STATUSES else None
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        wanted = ScheduleFilter(status=status, after=after, limit=MOST_SCHEDULES)
        found = await transaction.run(schedule_operations.find(wanted))
        shown = [each for each in found if tab != "overdue" or each.overdue is not None]
        metrics = await transaction.run(schedule_operations.recent_metrics(shown)) if shown else {}
        slots = await read_slots(transaction, [each.id for each in shown])
        stats = await transaction.run(schedule_operations.stats())
    rows = [_make_row(each, metrics.get((each.name, each.tenant)), slots.get(each.id, []), frame.now) for each in shown]
    values = {
        "rows": sorted(rows, key=_urgency),
        "stats": stats,
        "tab": tab if tab in TABS else "all",
        "tabs": TABS,
        "next_after": found[-1].name if len(found) == MOST_SCHEDULES else None,
        "legend": charts.explain_squares(LEGEND),
    }
    return show(request, "schedules.html", frame, values)


async def read_slots(
    transaction: Transaction, schedules: Sequence[int], most: int = SQUARES
) -> Mapping[int, list[SlotRecord]]:
    """The last slots of these schedules, each from the oldest to the newest."""
    found: dict[int, list[SlotRecord]] = {}
    if schedules:
        for schedule, *row in await transaction.fetch("web_slots", (list(schedules), most)):
            found.setdefault(schedule, []).append(SlotRecord(*row))
    return found


def _make_row(
    schedule: ScheduleRecord, metrics: ScheduleMetrics | None, slots: Sequence[SlotRecord], now: datetime
) -> Row:
    zone = schedule_operations.schedule_zone(schedule)
    squares = draw_squares(f"The last {len(slots)} slots of {schedule.name}", slots, zone)
    kind, remark = find_remark(schedule, slots, now)
    return Row(schedule, describe_timing(schedule), "" if schedule.tz == "UTC" else schedule.tz, squares, metrics, kind,
               remark)  # fmt: skip


def _urgency(row: Row) -> tuple[int, datetime]:
    far = datetime.max.replace(tzinfo=UTC)
    rank = 6 if row.schedule.status == "disabled" else _URGENCY.get(row.kind or "", 4)
    return rank, row.schedule.next_run or far


def describe_timing(schedule: ScheduleRecord) -> str:
    """When it fires, in words."""
    if schedule.pattern is not None:
        try:
            text = Cron(schedule.pattern, schedule.tz, schedule.dst).explain()  # type: ignore[arg-type]
        except InvalidPattern:  # this machine does not know the zone
            return schedule.pattern
        return _ZONE_OF_TEXT.sub("", text)  # the page names the zone itself
    if schedule.every is not None:
        return f"every {write_duration(schedule.every.total_seconds())}"
    if schedule.at is not None:
        return f"once, at {schedule.at.astimezone(schedule_operations.schedule_zone(schedule)):%Y-%m-%d %H:%M}"
    return "when the cluster starts" if schedule.run_on_start else "on demand"


def find_remark(schedule: ScheduleRecord, slots: Sequence[SlotRecord], now: datetime) -> tuple[str | None, str]:
    """What is not as usual, the worst first."""
    if schedule.overdue is not None:
        return "dead", f"overdue since {_name_instant(schedule.overdue, schedule, now)}"
    if not schedule.enabled:
        return "canceled", "disabled"
    if schedule.orphaned:
        return "late", "orphaned: no node's code has it"
    failures = sum(slot.outcome in ("failed", "timed_out", "lost") for slot in slots[-6:])
    if failures:
        return "failed", f"{failures} of the last {min(len(slots), 6)} died"
    missed = [slot for slot in slots[-6:] if slot.outcome == "missed"]
    if missed:
        count = sum(slot.count for slot in missed)
        return "late", f"{count} {'slot' if count == 1 else 'slots'} missed"
    if schedule.running:
        started = next((slot.started_at for slot in reversed(slots) if slot.finished_at is None), None)
        length = f", {write_duration((now - started).total_seconds())}" if started else ""
        return "running", f"running{length}"
    change = _find_clock_change(schedule, now)
    return ("clock", f"clocks change on {change.day} {change:%b}") if change else (None, "")


def _name_instant(instant: datetime, schedule: ScheduleRecord, now: datetime) -> str:
    zone = schedule_operations.schedule_zone(schedule)
    local = instant.astimezone(zone)
    is_today = local.date() == now.astimezone(zone).date()
    return f"{local:%H:%M}" if is_today else f"{local.day} {local:%b %H:%M}"


def _find_clock_change(schedule: ScheduleRecord, now: datetime, days: int = 14) -> datetime | None:
    """The next change of clocks in the zone of a pattern, if it is near."""
    if schedule.pattern is None:
        return None
    zone = schedule_operations.schedule_zone(schedule)
    offset = now.astimezone(zone).utcoffset()
    for day in range(1, days + 1):
        local = (now + timedelta(days=day)).astimezone(zone)
        if local.utcoffset() != offset:
            return local
    return None


# -- Slots


def draw_squares(label: str, slots: Sequence[SlotRecord], zone: tzinfo, *, most: int = SQUARES) -> Markup:
    squares, before = [], None
    for slot in slots:
        offset = slot.slot.astimezone(zone).utcoffset()
        outcome = find_outcome(slot)
        squares.append(charts.Square(outcome, _name_slot(slot, outcome, zone), before not in (None, offset)))
        before = offset
    return charts.slot_squares(label, squares, most=most)


def find_outcome(slot: SlotRecord) -> str:
    """A word of the legend."""
    if slot.outcome is None:
        if slot.overdue_at is not None:
            return "overdue"
        return "running" if slot.started_at is not None else "waiting"
    if slot.outcome == "succeeded" and (slot.attempt or 1) > 1:
        return "retried"
    return _OUTCOMES.get(slot.outcome, "canceled")


def _name_slot(slot: SlotRecord, outcome: str, zone: tzinfo) -> str:
    local = slot.slot.astimezone(zone)
    length = f", {write_duration(slot.duration.total_seconds())}" if slot.duration is not None else ""
    many = f" to {slot.until.astimezone(zone):%H:%M}, {slot.count} slots" if slot.until is not None else ""
    return f"{local.day} {local:%b %H:%M}{many}: {outcome}{length}"


# -- One schedule


async def show_schedule(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    query = request.query_params
    name, tenant = query.get("name", ""), query.get("tenant") or identity.tenant or "default"
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        found = await transaction.run(schedule_operations.get(name, tenant))
        reasons = await transaction.run(schedule_operations.why(name, tenant))
        metrics = await transaction.run(schedule_operations.recent_metrics([found]))
        slots = (await read_slots(transaction, [found.id])).get(found.id, [])
        differences = []
        if found.differs_from_code:
            differences = await transaction.run(schedule_operations.differences(name, tenant))
        audit = await transaction.run(job_operations.audit(subject=f"schedule {name}", limit=MOST_AUDITED))
        is_tried = "pattern" in query
        upcoming = [] if is_tried else await transaction.run(schedule_operations.preview(name, NEXT_RUNS, tenant))
    zone = schedule_operations.schedule_zone(found)
    pattern = query.get("pattern", found.pattern or "")
    tried = explain(pattern, found.tz, found.dst, frame.now) if pattern else None
    kind, remark = find_remark(found, slots, frame.now)
    values = {
        "schedule": found,
        "when": describe_timing(found),
        "kind": kind,
        "remark": remark,
        "reasons": [f"{reason.reason[:1].upper()}{reason.reason[1:]}" for reason in reasons],
        "metrics": metrics.get((found.name, found.tenant)),
        "pattern": pattern,
        "is_tried": is_tried,
        "tried": tried,
        "runs": tried["runs"] if tried and is_tried else list_runs(upcoming, zone, frame.now),
        "squares": draw_squares(f"The last {len(slots)} slots", slots, zone),
        "legend": charts.explain_squares(LEGEND),
        "slots": [(slot, find_outcome(slot)) for slot in reversed(slots)],
        "bars": _draw_bars(slots, found, zone),
        "differences": differences,
        "audit": [each for each in audit if each.tenant in (None, tenant)][:10],
        "own_zone": zone,
        "zone_name": found.tz,
        "task": name_task(found),
        "may_change": may_change(identity, found),
    }
    return show(request, "schedule.html", frame, values)


def name_task(found: ScheduleRecord) -> str:
    if found.command is not None:
        return f"SQL: {' '.join(found.command.split())[:200]}"
    if found.type == FLOW:
        return "flow: " + ", ".join(dict.fromkeys(str(job["type"]) for job in found.payload["jobs"]))
    return found.type or "only an event"


def may_change(identity: Identity, found: ScheduleRecord) -> bool:
    """A producer changes schedules of its queues and types; SQL commands belong to operators."""
    if not identity.may("producer") or (found.command is not None and not identity.may("operator")):
        return False
    return identity.may_use(found.type or "", found.queue)


def list_runs(instants: Sequence[datetime], zone: tzinfo, now: datetime) -> list[Run]:
    """The runs to come, with what the clocks do between them."""
    runs: list[Run] = []
    before: datetime | None = None
    for instant in instants:
        local, utc = instant.astimezone(zone), instant.astimezone(UTC)
        last = before or now.astimezone(zone)
        change = None
        if last.utcoffset() != local.utcoffset():
            shift = (local.utcoffset() or timedelta()) - (last.utcoffset() or timedelta())
            way = "forward" if shift > timedelta() else "back"
            change = f"The clocks go {way} by {write_coarse_duration(abs(shift.total_seconds()))} before this run."
        gap: float | None = (utc - before.astimezone(UTC)).total_seconds() if before else None
        runs.append(Run(local, utc, _write_gap(gap), change))
        before = local
    return runs


def _write_gap(seconds: float | None) -> str:
    """Up to two days in hours, so that a day of 23 or 25 hours is seen."""
    if seconds is None:
        return ""
    hours = seconds / 3600
    return f"{hours:g} h" if 1 <= hours <= 48 and hours.is_integer() else write_duration(seconds)


def explain(pattern: str, tz: str, dst: str, now: datetime) -> dict[str, Any]:
    """What a pattern means and when it fires next, or what is wrong with it."""
    try:
        cron = Cron(pattern[:_LONGEST_PATTERN], tz, dst)  # type: ignore[arg-type]
        runs = list_runs(cron.upcoming(NEXT_RUNS, now), load_zone(tz).info, now)
    except InvalidPattern as error:
        return {"meaning": None, "problem": error.message, "hint": error.hint, "runs": []}
    except (ValueError, OverflowError) as error:
        return {"meaning": None, "problem": str(error), "hint": None, "runs": []}
    return {"meaning": cron.explain(), "problem": None, "hint": None, "runs": runs}


async def explain_pattern(request: Request) -> Response:
    """What the script asks for while a person types a pattern."""
    visit = get_visit(request)
    identity = visit.require("reader")
    query = request.query_params
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
    found = explain(query.get("pattern", ""), query.get("tz") or "UTC", query.get("dst") or "default", frame.now)
    runs = [f"{run.at:%a %d %b %H:%M %Z}" for run in found["runs"][:3]]
    text = found["meaning"] or " ".join(filter(None, (found["problem"], found["hint"])))
    return JSONResponse({"is_valid": found["problem"] is None, "text": text, "next": runs})


def _draw_bars(slots: Sequence[SlotRecord], found: ScheduleRecord, zone: tzinfo) -> Markup | None:
    """How long each slot took."""
    if not any(slot.duration for slot in slots):
        return None
    bars = []
    for slot in slots:
        outcome = find_outcome(slot)
        state = {"retried": "failed", "overdue": "paused", "waiting": "queued", "skipped": "canceled",
                 "missed": "canceled"}.get(outcome, outcome)  # fmt: skip
        seconds = slot.duration.total_seconds() if slot.duration is not None else None
        is_open = seconds is None and outcome in ("running", "overdue")
        local = slot.slot.astimezone(zone)
        value = None if is_open else seconds or 0.0
        bars.append(charts.Bar(f"{local.day} {local:%b %H:%M}", value, state, _name_slot(slot, outcome, zone)))
    limit = (found.deadline.total_seconds(), "deadline") if found.deadline else None
    return charts.bars(f"Run time of the last {len(slots)} slots", bars, limit=limit)


def read_name(fields: Mapping[str, str]) -> tuple[str, str]:
    name = fields.get("name", "")
    if not name:
        raise Problem(422, "The field name is empty.")
    return name, fields.get("tenant") or "default"


def describe_problem(error: Exception) -> str:
    if isinstance(error, Problem):
        return error.detail
    return f"{error.message} {error.hint or ''}".strip() if isinstance(error, WatchbillError) else str(error)


ROUTES: list[BaseRoute] = [
    Route("/schedules", show_schedules, methods=["GET"]),
    Route("/schedules/explain", explain_pattern, methods=["GET"]),
    Route("/schedule", show_schedule, methods=["GET"]),
]
