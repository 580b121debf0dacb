"""`watchbill cron`: what a pattern means, and when it fires."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Iterator
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

import typer

from watchbill.cli.help import Command, command_group
from watchbill.cli.output import Usage, print_json
from watchbill.cli.screen import Painted, paint, say, say_lines
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import check_schedule
from watchbill.cron.extensions import check_zone
from watchbill.cron.tokens import Token
from watchbill.cron.zones import load_zone

app = command_group("Try patterns: next, prev, between, explain, check, preview.")

Pattern = Annotated[str, typer.Argument(help="A pattern, in quotes: '0 9 * * MON-FRI'.")]
ZoneName = Annotated[str, typer.Option("--tz", help="The time zone of the schedule.")]
Dst = Annotated[
    Literal["default", "skip", "once", "both"],
    typer.Option(metavar="default|skip|once|both", help="What happens when the clocks change."),
]
Count = Annotated[int, typer.Option("-n", "--count", min=1, max=100_000, help="How many.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON list of instants in UTC.")]


class TakesPattern(Command):
    """A command that explains why it got too many arguments: the pattern was not quoted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's UsageError, or that of the copy of click inside newer versions of Typer
            if "extra argument" in getattr(error, "message", ""):
                error.message += (  # type: ignore[attr-defined]
                    "\nA pattern is one argument: put it in quotes, or the shell splits it and replaces"
                    " its stars by names of files."
                )
            raise


@app.command("next", cls=TakesPattern)
def next_(
    pattern: Pattern,
    tz: ZoneName = "UTC",
    after: Annotated[str | None, typer.Option(help="After this instant; default: now.")] = None,
    count: Count = 1,
    dst: Dst = "default",
    as_json: AsJson = False,
) -> None:
    """Show when a pattern fires next."""
    print_instants(Cron(pattern, tz, dst).upcoming(count, read_instant(after, tz)), as_json=as_json)


@app.command(cls=TakesPattern)
def prev(
    pattern: Pattern,
    tz: ZoneName = "UTC",
    before: Annotated[str | None, typer.Option(help="Before this instant; default: now.")] = None,
    count: Count = 1,
    dst: Dst = "default",
    as_json: AsJson = False,
) -> None:
    """Show when a pattern fired last."""
    cron, moment = Cron(pattern, tz, dst), read_instant(before, tz)
    found: list[datetime] = []
    while len(found) < count and (earlier := cron.prev(moment)) is not None:
        found.append(earlier)
        moment = earlier
    print_instants(found, as_json=as_json)


@app.command(cls=TakesPattern)
def between(
    pattern: Pattern,
    start: Annotated[str, typer.Argument(help="From this instant on.")],
    end: Annotated[str, typer.Argument(help="Before this instant.")],
    tz: ZoneName = "UTC",
    dst: Dst = "default",
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Show every time a pattern fires between two instants."""
    runs = Cron(pattern, tz, dst).between(read_instant(start, tz), read_instant(end, tz))
    print_instants(list(islice(runs, limit)), as_json=as_json)
    if next(runs, None) is not None:
        say(f"Only the first {limit:,} are shown; --limit shows more.", err=True)


@app.command(cls=TakesPattern)
def explain(pattern: Pattern, tz: ZoneName = "UTC", dst: Dst = "default") -> None:
    """Say in English what a pattern means."""
    say(Cron(pattern, tz, dst).explain())


@app.command(cls=TakesPattern)
def check(pattern: Pattern, tz: ZoneName = "UTC") -> None:
    """Say whether a pattern is valid, or what is wrong and where. Exits with 1 if it is invalid or never fires."""
    try:
        cron = Cron(pattern, tz)
    except InvalidPattern as error:
        say_lines(str(error), err=True)
        raise typer.Exit(1) from None
    if not cron.at_start and cron.next(datetime.now(UTC)) is None:
        say(f"valid, but it never fires again: {cron.explain()}", err=True)
        raise typer.Exit(1)
    say(f"valid: {cron.explain()} ({cron.frequency()})")


@app.command(cls=TakesPattern)
def preview(
    pattern: Pattern,
    tz: ZoneName = "UTC",
    after: Annotated[str | None, typer.Option(help="Start with the month of this instant; default: now.")] = None,
    months: Annotated[int, typer.Option(min=1, max=24, help="How many months.")] = 3,
    dst: Dst = "default",
) -> None:
    """Draw the coming runs on a calendar, and mark the days on which the clocks change."""
    cron = Cron(pattern, tz, dst)
    say(cron.explain())
    say_lines(Painted(draw_months(cron, read_instant(after, tz), months)))


def read_instant(text: str | None, tz: str) -> datetime:
    """Reads an ISO instant. If it has no UTC offset, it is in the time zone `tz`."""
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "Write 2026-03-29, 2026-03-29T02:30 or 2026-03-29T02:30+01:00."
        raise Usage(f"The instant {text!r} is invalid.", hint=hint) from None
    if moment.tzinfo is not None:
        return moment
    check_zone(Token(tz, 0, tz))
    return moment.replace(tzinfo=load_zone(tz).info)


def print_instants(found: list[datetime], *, as_json: bool) -> None:
    if as_json:
        print_json([f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for moment in found])
        return
    for moment in found:
        say(f"{moment.isoformat(sep=' ')}  {moment:%a}")
    if not found:
        say("never", err=True)
        raise typer.Exit(1)


# -- the calendar that `preview` draws: how often a pattern fires on each day, and when the clocks change

_CELL_WIDTH = 6
_MAX_COUNTED_RUNS = 20_000  # a limit, because counting a pattern that fires every second would take minutes
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (without a zone, because it is added to local times)


class ClockChange(NamedTuple):
    zone: str
    before: datetime
    after: datetime

    @property
    def day(self) -> date:
        return min(self.before, self.after).date()

    def __str__(self) -> str:
        before, after = (f"{wall:%H:%M}" for wall in (self.before, self.after))
        if self.before.date() != self.after.date():
            before, after = f"{_show_day(self.before)} {before}", f"{_show_day(self.after)} {after}"
        return f"* {_show_day(self.day)} {self.day.year}: in {self.zone} the clock goes from {before} to {after}"


def draw_months(cron: Cron, start: datetime, months: int) -> str:
    first = start.astimezone(load_zone(cron.tz).info).date().replace(day=1)
    shown = [month for n in range(months) if (month := _add_months(first, n)) is not None]
    runs, counted_until = _count_runs(cron, start, shown[-1])
    changes = [change for month in shown for change in _find_clock_changes(cron, month)]
    change_days = {change.day for change in changes}
    pictures = [_draw_month(month, runs, counted_until, change_days) for month in shown]
    legend = "below each day: how often it fires    +: not counted any more    *: the clocks change on that day"
    notes = "\n".join([legend, *map(str, changes)])
    return "\n\n".join([*pictures, paint(Painted(notes), dim=True)])


def _show_day(day: date) -> str:
    return f"{day.day} {day:%B}"


def _add_months(first: date, months: int) -> date | None:
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return date(year, month + 1, 1) if year <= MAXYEAR else None


def _count_runs(cron: Cron, start: datetime, last_month: date) -> tuple[Counter[date], date | None]:
    """Returns how often the pattern fires on each local day, and the first day that was not counted any more."""
    runs: Counter[date] = Counter()
    end = datetime.max.replace(tzinfo=UTC)
    if (following := _add_months(last_month, 1)) is not None:
        # Two days after the end of the month in UTC, when the month is over in every time zone.
        end = datetime.combine(following, datetime.min.time(), UTC) + timedelta(days=2)
    for number, moment in enumerate(cron.between(start, end)):
        if number >= _MAX_COUNTED_RUNS:
            return runs, moment.date()
        runs[moment.date()] += 1
    return runs, None


def _draw_month(first: date, runs: Counter[date], counted_until: date | None, change_days: set[date]) -> str:
    """Draws a month with two lines per week: the days, and below each day how often the pattern fires."""
    title = f"{first:%B %Y}".center(7 * _CELL_WIDTH)
    lines = [paint(title, bold=True), "".join(map(_draw_dim, calendar.day_abbr))]
    for week in calendar.monthcalendar(first.year, first.month):
        days = [first.replace(day=number) if number else None for number in week]
        lines.append("".join(_draw_dim(f"{day.day}{'*' * (day in change_days)}" if day else "") for day in days))
        lines.append("".join(_draw_count(day, runs, counted_until) if day else " " * _CELL_WIDTH for day in days))
    return "\n".join(lines)


def _draw_dim(text: str) -> str:
    return paint(text.rjust(_CELL_WIDTH), dim=True)


def _draw_count(day: date, runs: Counter[date], counted_until: date | None) -> str:
    if counted_until is not None and day >= counted_until:
        return "+".rjust(_CELL_WIDTH)
    count = runs[day]
    return paint(str(count).rjust(_CELL_WIDTH), "green", bold=True) if count else ".".rjust(_CELL_WIDTH)


def _find_clock_changes(cron: Cron, month: date) -> Iterator[ClockChange]:
    parts = check_schedule(cron.pattern, cron.tz, cron.dst).parts
    length = calendar.monthrange(month.year, month.month)[1]
    begin = (datetime.combine(month, datetime.min.time()) - _EPOCH) // timedelta(seconds=1)
    for zone in map(load_zone, dict.fromkeys([cron.tz, *(part.zone for part in parts if part.zone)])):
        segment = zone.segment(begin - 86_400)
        while segment.end < begin + (length + 1) * 86_400:
            following = zone.segment(segment.end)
            before, after = (_EPOCH + timedelta(seconds=segment.end + part.offset) for part in (segment, following))
            change = ClockChange(zone.name, before, after)
            if change.day.replace(day=1) == month:
                yield change
            segment = following
