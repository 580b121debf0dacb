"""`watchbill schedules`: add, list, show, change, run and remove schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, tzinfo
from getpass import getuser
from typing import Annotated, Any, get_args

import typer

from watchbill.app.application import App
from watchbill.app.schedule_definition import FindTask, check_arguments, define, redefine
from watchbill.cli import schedule_options
from watchbill.cli.arguments import OnlyTenant, act_for_tenant, complete_schedule
from watchbill.cli.cron import Count, print_instants, read_instant
from watchbill.cli.discovery import find_app_or_none
from watchbill.cli.help import command_group
from watchbill.cli.jobs import read_json_object
from watchbill.cli.output import (
    AsJson,
    GlobalOptions,
    Usage,
    format_zone_time,
    print_facts,
    print_json,
    print_records,
    print_table,
    show_json,
)
from watchbill.cli.screen import paint, say
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import schedule_operations
from watchbill.cron import Cron
from watchbill.errors import name_commands
from watchbill.model.durations import show_duration
from watchbill.model.schedule import FLOW, Reason, ScheduleFilter, ScheduleMetrics, ScheduleRecord, SlotRecord, Status

app = command_group("Write, list and run schedules, and ask why one does not fire. Without a command: list.")

_KINDS = {"hand": "by hand", "start": "on start", "backfill": "backfill"}  # how slots are called that no clock made
Name = Annotated[str, typer.Argument(help="The schedule's name.", autocompletion=complete_schedule)]
Tenant = Annotated[str, typer.Option(help="The tenant.", callback=act_for_tenant)]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Also a task that no live node handles.")]


@app.command("list", reads=True, over_cells="joined")
def list_(
    ctx: typer.Context,
    tenant: OnlyTenant = None,
    category: Annotated[str | None, typer.Option(help="Only in this category.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    status: Annotated[str | None, typer.Option(help="Only with this status.")] = None,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="The page after this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List schedules by name."""
    if status is not None and status not in get_args(Status):
        raise Usage(f"The status {status!r} is invalid.", hint=f"It can be {', '.join(get_args(Status))}.")
    wanted = ScheduleFilter(tenant=tenant, category=category, tag=tag, status=status, after=after, limit=limit)  # type: ignore[arg-type]
    found = ctx.obj.run(schedule_operations.find(wanted))
    metrics = ctx.obj.run(schedule_operations.recent_metrics(found))
    if as_json:
        print_json([asdict(s) | {"health": _read_health(s, metrics).health} for s in found])
        return
    empty = "There are no schedules. To add one: watchbill schedules add NAME '0 9 * * *' --task TYPE"
    print_records(
        found,
        (LongName("name"), LongName("when"), LongName("runs"), "next", "last", "outcome", "jobs", LongName("remarks")),
        lambda s: (
            _show_name(s),
            _show_timing(s),
            _show_task(s),
            _show_time(s, s.next_run),
            _show_time(s, s.last_run),
            s.last_outcome,
            s.runs,
            _show_remarks(s, _read_health(s, metrics)),
        ),
        as_json=False,
        empty=empty if found else ctx.obj.explain_empty(empty),
    )


@app.command(reads=True)
def show(ctx: typer.Context, name: Name, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a schedule with its last slots."""
    found = ctx.obj.run(schedule_operations.get(name, tenant))
    slots = ctx.obj.run(schedule_operations.history(name, None, 5, tenant))
    if as_json:
        print_json({**asdict(found), "slots": [asdict(slot) for slot in slots]})
        return
    _print_schedule(
        found, ctx.obj.run(schedule_operations.differences(name, tenant)) if found.differs_from_code else []
    )
    if slots:
        say("")
        _print_history(ctx.obj, found, slots)


@app.command()
@schedule_options.takes_schedule_options("pattern")
def add(
    ctx: typer.Context,
    name: Name,
    pattern: Annotated[str | None, typer.Argument(help="A cron pattern, in quotes: '0 9 * * MON-FRI'.")] = None,
    *,
    unchecked: Unchecked = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Add a schedule: by a pattern, --every, --at, or none of them (on demand)."""
    found = _find_app(ctx.obj, needed=bool(options["task"]) or options["tz"] is None)
    tz = options["tz"] or (None if found is None else found.tz)
    rule: Any = schedule_options.read_rule(options, tz or "UTC") | _name_creator()
    if not {"task", "command"} & rule.keys():
        hint = "Give --task TYPE or --command 'SELECT ...'; with --task none it only fires an event."
        raise Usage("A schedule needs a task or a SQL command.", hint=hint)
    find = _make_task_finder(found)
    definition = define(name, pattern, rule, find, tenant, tz)
    if not unchecked:
        _refuse_unknown_names(ctx.obj, definition, find)
    _print_written(ctx.obj.run(schedule_operations.add(definition)), "added", as_json=as_json)


@app.command()
@schedule_options.takes_schedule_options("enabled")
def update(
    ctx: typer.Context,
    name: Name,
    *,
    unchecked: Unchecked = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Change the given options and keep the others; `none` removes an option. Takes effect at once."""
    before = ctx.obj.run(schedule_operations.get(name, tenant))
    changes: Any = schedule_options.read_rule(options, options["tz"] or before.tz)
    if not changes:
        raise Usage("update needs an option to change.", hint="`watchbill schedules update --help` lists them.")
    found = _find_app(ctx.obj, needed=bool(options["task"] or options["arguments"]) or options["tz"] == "none")
    find = _make_task_finder(found)
    definition = redefine(name, changes, find, None if found is None else found.tz)
    if "task" not in changes and changes.get("arguments") is not None:
        definition["payload"] = check_arguments(before, find, changes["arguments"])
    if not unchecked:
        _refuse_unknown_names(ctx.obj, definition, find)
    written = ctx.obj.run(schedule_operations.update(name, definition, tenant))
    _print_written(written, "updated", as_json=as_json)


@app.command()
def enable(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Let a schedule fire again, from its next slot on."""
    ctx.obj.run(schedule_operations.enable(name, tenant))
    _print_written(ctx.obj.run(schedule_operations.get(name, tenant)), "enabled", as_json=False)


@app.command()
def disable(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Stop a schedule from firing until it is enabled again; its jobs continue."""
    ctx.obj.run(schedule_operations.disable(name, tenant))
    say(f"{name} disabled")


@app.command()
def remove(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a schedule; its jobs stay."""
    found = ctx.obj.run(schedule_operations.get(name, tenant))
    if dry_run or not yes:
        say(f"1 schedule: {name} ({_show_timing(found)}; {_show_task(found)}; jobs so far: {found.runs})")
        if found.owner is not None and not found.orphaned:
            say(f"The code of {found.owner} declares it: the next node that starts adds it again.")
            say(name_commands(f"To stop it permanently: watchbill schedules disable {name}"))
    if dry_run:
        return
    if not yes:
        typer.confirm("Remove it?", abort=True)
    ctx.obj.run(schedule_operations.remove(name, tenant))
    say(f"{name} removed")


@app.command()
def run(
    ctx: typer.Context,
    name: Name,
    arguments: Annotated[str | None, typer.Option(metavar="JSON", help="Other arguments than its own.")] = None,
    overlap: Annotated[
        str, typer.Option(help="While an earlier job has not ended: allow, skip, queue or cancel_previous.")
    ] = "allow",
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Enqueue a job of a schedule now, also of a disabled one."""
    payload = None if arguments is None else read_json_object(arguments, "arguments")
    if payload is not None:
        found = ctx.obj.run(schedule_operations.get(name, tenant))
        payload = check_arguments(found, _make_task_finder(_find_app(ctx.obj, needed=True)), payload)
    job = ctx.obj.run(schedule_operations.run_now(name, payload, tenant, overlap))  # type: ignore[arg-type]
    if as_json:
        print_json({"id": job})
    else:
        say(f"{job}")


@app.command(reads=True)
def history(
    ctx: typer.Context,
    name: Name,
    before: Annotated[str | None, typer.Option(metavar="INSTANT", help="Only slots before this instant.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only with this outcome, such as failed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Show the slots of a schedule and their outcomes, latest first."""
    moment = None if before is None else read_instant(before, "UTC")
    found = ctx.obj.run(schedule_operations.history(name, moment, limit, tenant, outcome))  # type: ignore[arg-type]
    if as_json:
        print_json([asdict(slot) for slot in found])
    elif found:
        _print_history(ctx.obj, ctx.obj.run(schedule_operations.get(name, tenant)), found)
    else:
        say(f"{name} has not fired yet" if outcome is None else f"no slot of {name} is {outcome}")


@app.command(reads=True)
def preview(
    ctx: typer.Context, name: Name, count: Count = 10, tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Show when a schedule fires next. Exits with 1 if it never does."""
    print_instants(ctx.obj.run(schedule_operations.preview(name, count, tenant)), as_json=as_json)


@app.command(reads=True)
def why(ctx: typer.Context, name: Name, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Say exactly why a schedule does not fire, or when it will. Exits with 1 if it does not."""
    reasons = ctx.obj.run(schedule_operations.why(name, tenant))
    if as_json:
        print_json([asdict(reason) for reason in reasons])
    else:
        _print_reasons(ctx.obj.run(schedule_operations.get(name, tenant)), reasons)
    raise typer.Exit(0 if reasons[0].fires else 1)


def _find_app(options: GlobalOptions, *, needed: bool) -> App | None:
    """Returns the App in this directory: it knows the parameters, queue and retries of its tasks, and may set a time
    zone."""
    found = find_app_or_none(options.load_settings().app) if needed else None
    return None if found is None else found[0]


def _make_task_finder(found: App | None) -> FindTask:
    if found is None:
        return lambda _: None
    found.handlers()  # imports the modules that declare tasks, because only then the App knows its tasks
    return found.tasks.get


def _name_creator() -> dict[str, str]:
    try:
        return {"created_by": getuser()}
    except (KeyError, OSError):  # the user has no name, as in many containers
        return {}


def _refuse_unknown_names(options: GlobalOptions, definition: dict[str, Any], find: FindTask) -> None:
    if definition.get("type") is None or find(definition["type"]) is not None:
        return
    try:
        options.run(schedule_operations.ensure_known(definition["type"]))
    except schedule_operations.UnknownTask as error:
        error.hint = f"{error.hint} To add it anyway, give --unchecked."
        raise


def _print_written(found: ScheduleRecord, verb: str, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    if found.next_run is not None:
        say(f"{found.name} {verb}; next {_show_time(found, found.next_run)} ({_show_time_left(found.next_run)})")
    else:
        more = name_commands(f": watchbill schedules why {found.name}") if found.status == "ended" else ""
        say(f"{found.name} {verb}; it is {found.status.replace('_', ' ')}{more}")


# -- how the commands print schedules, slots and reasons

# Fields that `show` does not print under their own names, because it prints them in another form.
_SHOWN_OTHERWISE = {"name", "pattern", "every", "at", "tz", "type", "command", "status", "runs", "enabled", "hash"}
_DEFAULTS = {
    "tenant": "default", "dst": "default", "version": 1, "queue": "default", "priority": 0, "catch_up": 100,
    "run_on_start": False, "orphaned": False, "differs_from_code": False, "successes": 0, "failures": 0, "skips": 0,
    "missed_slots": 0, "running": 0, "failed_attempts": 0,
}  # fmt: skip


def _print_schedule(found: ScheduleRecord, differences: list[tuple[str, Any, Any]]) -> None:
    facts: dict[str, object] = {"name": found.name, "when": _show_timing(found)}
    if found.pattern:
        facts["meaning"] = Cron(found.pattern, found.tz, found.dst).explain()  # type: ignore[arg-type]
    facts |= {"runs": _show_task(found), "status": _show_status(found)}
    if differences:
        facts["in the code"] = ", ".join(f"{option}: {code}" for option, code, _ in differences)
    for name, value in asdict(found).items():
        if name not in _SHOWN_OTHERWISE and value not in (None, [], {}, _DEFAULTS.get(name)):
            facts[name] = _format_value(value, schedule_operations.schedule_zone(found))
    print_facts(facts)


def _print_history(options: GlobalOptions, found: ScheduleRecord, slots: Sequence[SlotRecord]) -> None:
    short = options.shorten_ids([s.job_id for s in slots if s.job_id])
    rows = [
        (_show_slot(found, s), s.outcome or "not ended", _show_time(found, s.started_at), s.duration,
         s.job_id and short[s.job_id], s.node, _show_remark(found, s))
        for s in slots
    ]  # fmt: skip
    print_table(("slot", "outcome", "started", "took", "job", LongName("node"), Wrapped("remark")), rows)


def _print_reasons(found: ScheduleRecord, reasons: list[Reason]) -> None:
    """Prints the reasons. The first line has the instant at which the schedule fires, so no other line repeats it."""
    decisive, when = reasons[0], ""
    fires = paint("fires", "green") if decisive.fires else paint("does not fire", "yellow")
    if decisive.fires and decisive.next_run is not None and decisive.next_run > datetime.now(UTC):
        at = decisive.next_run.astimezone(schedule_operations.schedule_zone(found))
        when = f" {at:%a} {at.isoformat(sep=' ')} ({_show_time_left(at)})"
        reasons = reasons[1:]
    say(paint(found.name, bold=True), " ", fires, when)
    for reason in reasons:
        say(f"  - {reason.reason}")


def _show_name(found: ScheduleRecord) -> str:
    return found.name if found.tenant == "default" else f"{found.name} ({found.tenant})"


def _show_timing(found: ScheduleRecord) -> str:
    zone = "" if found.tz == "UTC" else f" {found.tz}"
    if found.pattern is not None:
        return f"{found.pattern}{zone}"
    if found.every is not None:
        return f"every {show_duration(found.every)}"
    at_start = "when the cluster starts" if found.run_on_start else "on demand"
    return at_start if found.at is None else f"at {_show_time(found, found.at)}"


def _show_task(found: ScheduleRecord) -> str:
    if found.command is not None:
        return f"SQL: {' '.join(found.command.split())[:40]}"
    if found.type == FLOW:
        return "flow: " + ", ".join(dict.fromkeys(job["type"] for job in found.payload["jobs"]))
    return found.type or "only an event"


def _show_status(found: ScheduleRecord) -> str:
    words = [found.status.replace("_", " ")]
    if found.orphaned and found.status != "orphaned":
        words.append("orphaned")
    if found.differs_from_code:
        words.append("differs from code")
    if found.overdue is not None:
        words.append("overdue")
    return ", ".join(words)


def _read_health(found: ScheduleRecord, metrics: dict[tuple[str, str], ScheduleMetrics]) -> ScheduleMetrics:
    """Returns how the latest runs of a schedule went; without runs, if the schedule was removed meanwhile."""
    nothing = ScheduleMetrics(0, None, None, None, None, None, "unknown")
    return metrics.get((found.name, found.tenant), nothing)


def _show_remarks(found: ScheduleRecord, metrics: ScheduleMetrics) -> str:
    """Returns what is not as usual: a status other than ok, and runs that fail."""
    words = [] if (status := _show_status(found)) == "ok" else [status]
    return ", ".join(words if metrics.health in ("healthy", "unknown") else [*words, _show_health(metrics)])


def _show_health(found: ScheduleMetrics) -> str:
    return found.health if found.success_rate is None else f"{found.health} {found.success_rate:g} %"


def _show_time_left(moment: datetime) -> str:
    left = moment - datetime.now(UTC)
    return f"in {show_duration(left)}" if left > timedelta(0) else "due"


def _show_time(found: ScheduleRecord, moment: datetime | None) -> str:
    """Returns a moment as the clock of the schedule's zone shows it."""
    return format_zone_time(moment, schedule_operations.schedule_zone(found))


def _show_slot(found: ScheduleRecord, slot: SlotRecord) -> str:
    first = _show_time(found, slot.slot)
    if slot.kind != "clock":
        return f"{first} ({_KINDS[slot.kind]})"
    return first if slot.until is None else f"{first} to {_show_time(found, slot.until)} ({slot.count})"


def _show_remark(found: ScheduleRecord, slot: SlotRecord) -> str:
    late = "" if slot.overdue_at is None else f"overdue since {_show_time(found, slot.due_by)}"
    text = slot.error or slot.reason or late
    return text.partition("\n")[0] if text else ""


def _format_value(value: Any, zone: tzinfo) -> object:
    if isinstance(value, datetime):
        return value.astimezone(zone).isoformat(sep=" ", timespec="seconds")
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, list):
        return ", ".join(value)
    return show_json(value) if isinstance(value, dict) else value
