"""The calendar: which slots a week or a month has, and what became of those that are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import schedule_operations
from watchbill.cron import Cron, InvalidPattern
from watchbill.dashboard import charts
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.pages.schedules import LEGEND, describe_timing, find_outcome
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.visit import get_visit
from watchbill.model.schedule import ScheduleFilter, ScheduleRecord, SlotRecord

MOST_SCHEDULES = 500  # of more, the page shows how many slots each hour has
MOST_READ = 2000
MOST_A_DAY = 6  # a schedule that fires more often is listed once for the whole time
MOST_SLOTS = 5000
MOST_INSTANTS = 20_000  # that are computed for one page
_VIEWS = {"week": 7, "month": 42}


@dataclass(frozen=True, order=True)
class Entry:
    """A slot of a day. `outcome` is None for one that is still to come."""

    at: datetime
    schedule: str
    tenant: str
    outcome: str | None = None
    job: str | None = None


@dataclass
class Day:
    date: date
    is_today: bool
    is_outside: bool  # of the month that is shown
    entries: list[Entry] = field(default_factory=list)
    hours: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(self.hours.values())

    @property
    def heat(self) -> Markup:
        return charts.heat_row(f"Slots per hour of {self.date:%d %b}", [self.hours[hour] for hour in range(24)])


@dataclass
class Frequent:
    """A schedule that fires too often to list each slot, and how its slots of this time ended."""

    schedule: ScheduleRecord
    when: str
    outcomes: Counter[str] = field(default_factory=Counter)


async def show_calendar(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    view = request.query_params.get("view", "week")
    if view not in _VIEWS:
        raise Problem(422, "A calendar shows a week or a month.", hint="Use ?view=week or ?view=month.")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        zone = make_timepiece(request, frame.now).zone
        today = frame.now.astimezone(zone).date()
        shown = _read_date(request.query_params.get("from"), today)
        first = _find_first(view, shown)
        days = [
            Day(day, day == today, view == "month" and day.month != shown.month)
            for day in (first + timedelta(days=number) for number in range(_VIEWS[view]))
        ]
        begin, end = _start_of(first, zone), _start_of(first + timedelta(days=len(days)), zone)
        found = await transaction.run(schedule_operations.find(ScheduleFilter(limit=MOST_READ)))
        past = await transaction.fetch("web_slots_between", (begin, min(end, frame.now), MOST_SLOTS))
    frequent = {each.id: Frequent(each, describe_timing(each)) for each in found if _is_frequent(each, frame.now)}
    _add_past(days, {each.id: each for each in found}, frequent, past, zone)
    is_complete = _add_future(days, found, frequent, max(begin, frame.now), end, zone)
    for day in days:
        day.entries.sort()
    step = timedelta(days=7) if view == "week" else timedelta(days=31)
    values = {
        "view": view,
        "days": days,
        "weeks": [days[start : start + 7] for start in range(0, len(days), 7)],
        "shown": shown,
        "before": first - timedelta(days=7) if view == "week" else shown.replace(day=1) - timedelta(days=1),
        "after": first + step if view == "week" else (shown.replace(day=1) + step).replace(day=1),
        "frequent": list(frequent.values()),
        "is_dense": len(found) > MOST_SCHEDULES,
        "schedules": len(found),
        "is_complete": is_complete and len(past) < MOST_SLOTS,
        "zone_name": make_timepiece(request, frame.now).zone_name,
        "legend": charts.explain_squares(LEGEND[:-1]),
        "square": _draw_square,
    }
    return show(request, "calendar.html", frame, values)


def _read_date(text: str | None, today: date) -> date:
    try:
        found = date.fromisoformat(text) if text else today
    except ValueError:
        found = None
    if found is None or not 1971 <= found.year <= 9000:
        raise Problem(422, "The value of from is not a date.", hint="Write ?from=2026-03-29.")
    return found


def _find_first(view: str, shown: date) -> date:
    start = shown if view == "week" else shown.replace(day=1)
    return start - timedelta(days=start.weekday())


def _start_of(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _is_frequent(schedule: ScheduleRecord, now: datetime) -> bool:
    day = list(islice(_list_instants(schedule, now, now + timedelta(days=1)), MOST_A_DAY + 1))
    return len(day) > MOST_A_DAY


def _list_instants(schedule: ScheduleRecord, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The slots of a schedule that are to come, from `begin` on."""
    if not schedule.enabled or (schedule.end is not None and schedule.end < begin):
        return
    begin = max(begin, schedule.start) if schedule.start is not None else begin
    if schedule.pattern is not None:
        try:
            cron = Cron(schedule.pattern, schedule.tz, schedule.dst)  # type: ignore[arg-type]
        except InvalidPattern:  # this machine does not know the zone
            return
        yield from cron.between(begin, end)
    elif schedule.next_run is not None:
        instant = schedule.next_run
        while instant < end:
            if instant >= begin:
                yield instant
            if not schedule.every:
                return
            skipped = max(int((begin - instant) / schedule.every), 0)
            instant += schedule.every * max(skipped, 1)


def _add_past(
    days: Sequence[Day],
    schedules: dict[int, ScheduleRecord],
    frequent: dict[int, Frequent],
    rows: Sequence[Sequence[object]],
    zone: tzinfo,
) -> None:
    by_date = {day.date: day for day in days}
    for schedule_id, *row in rows:
        slot, schedule = SlotRecord(*row), schedules.get(schedule_id)  # type: ignore[arg-type, call-overload]
        local = slot.slot.astimezone(zone)
        day = by_date.get(local.date())
        if schedule is None or day is None:
            continue
        day.hours[local.hour] += slot.count
        if schedule.id in frequent:
            frequent[schedule.id].outcomes[find_outcome(slot)] += slot.count
        else:
            job = str(slot.job_id) if slot.job_id else None
            day.entries.append(Entry(local, schedule.name, schedule.tenant, find_outcome(slot), job))


def _add_future(
    days: Sequence[Day],
    schedules: Sequence[ScheduleRecord],
    frequent: dict[int, Frequent],
    begin: datetime,
    end: datetime,
    zone: tzinfo,
) -> bool:
    """Adds what is to come. Returns False if that was too much to compute all of it."""
    by_date, left = {day.date: day for day in days}, MOST_INSTANTS
    for schedule in schedules:
        for instant in islice(_list_instants(schedule, begin, end), left):
            left -= 1
            local = instant.astimezone(zone)
            day = by_date.get(local.date())
            if day is None:
                continue
            day.hours[local.hour] += 1
            if schedule.id not in frequent:
                day.entries.append(Entry(local, schedule.name, schedule.tenant))
    return left > 0


def _draw_square(outcome: str | None) -> Markup:
    return charts.slot_squares(outcome or "to come", [charts.Square(outcome, "")] if outcome else [], most=1)


ROUTES: list[BaseRoute] = [Route("/calendar", show_calendar, methods=["GET"])]
