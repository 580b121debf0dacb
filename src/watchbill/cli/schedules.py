"""`watchbill schedules`: write, look at and act on schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli import schedule_options as options
from watchbill.cli.cron import Count, instant, print_instants
from watchbill.cli.jobs import AsJson, Usage, json_object
from watchbill.cli.output import command_group, print_json

if TYPE_CHECKING:
    from watchbill.app.rules import Changes, FindTask, Rule
    from watchbill.cli.output import GlobalOptions
    from watchbill.client.plans import Plan
    from watchbill.model.schedule import ScheduleRecord

app = command_group("Write, list and run schedules, and ask why one does not fire. Alone: list.")

Name = Annotated[str, typer.Argument(help="The schedule's name.")]
Tenant = Annotated[str, typer.Option(help="The tenant.")]


@app.callback(invoke_without_command=True)
def schedules(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_(ctx)


@app.command("list")
def list_(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    category: Annotated[str | None, typer.Option(help="Only in this category.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    status: Annotated[str | None, typer.Option(help="Only with this status.")] = None,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="The page after this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List schedules by name."""
    from typing import get_args

    from watchbill.cli.schedule_views import as_data, print_list
    from watchbill.client import plans_schedules as plans
    from watchbill.model.schedule import ScheduleFilter, Status

    if status is not None and status not in get_args(Status):
        raise Usage(f"There is no status {status!r}.", hint=f"The words are {', '.join(get_args(Status))}.")
    wanted = ScheduleFilter(tenant=tenant, category=category, tag=tag, status=status, after=after, limit=limit)  # type: ignore[arg-type]
    found = ctx.obj.run(plans.find(wanted))
    if as_json:
        print_json([as_data(schedule) for schedule in found])
    else:
        print_list(found)


@app.command()
def show(ctx: typer.Context, name: Name, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a schedule with its last slots."""
    from watchbill.cli.schedule_views import as_data, print_history, print_schedule
    from watchbill.client import plans_schedules as plans

    found = ctx.obj.run(plans.get(name, tenant))
    slots = ctx.obj.run(plans.history(name, None, 5, tenant))
    if as_json:
        print_json({**as_data(found), "slots": [as_data(slot) for slot in slots]})
        return
    print_schedule(found, ctx.obj.run(plans.differences(name, tenant)) if found.differs_from_code else [])
    if slots:
        typer.echo("")
        print_history(slots)


@app.command()
def add(
    ctx: typer.Context,
    name: Name,
    pattern: options.Pattern = None,
    every: options.Every = None,
    at: options.At = None,
    tz: options.Zone = None,
    dst: options.Dst = None,
    task: options.Task = None,
    arguments: options.Arguments = None,
    command: options.Command = None,
    role: options.Role = None,
    queue: options.Queue = None,
    priority: options.Priority = None,
    max_attempts: options.MaxAttempts = None,
    timeout: options.Timeout = None,
    missed: options.Missed = None,
    catch_up: options.CatchUp = None,
    grace: options.Grace = None,
    overlap: options.Overlap = None,
    jitter: options.Jitter = None,
    start: options.Start = None,
    end: options.End = None,
    max_runs: options.MaxRuns = None,
    deadline: options.Deadline = None,
    run_on_start: options.RunOnStart = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="Whether it fires.")] = None,
    description: options.Description = None,
    category: options.Category = None,
    tags: options.Tags = None,
    context: options.Context = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Also a task that no live node handles.")] = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Add a schedule: by a pattern, --every, --at, or none of them (on demand)."""
    rule = options.rule_of(ctx.params, tz or "UTC") | _creator()
    rule.pop("pattern", None)
    if not {"task", "command"} & rule.keys():
        hint = "Give --task TYPE or --command 'SELECT ...'; --task none makes it an event and nothing else."
        raise Usage("What is it to run?", hint=hint)
    find = _tasks_here(ctx.obj) if rule.get("task") else _nowhere
    written = ctx.obj.run(_adding(name, pattern, rule, tenant, find, unchecked=unchecked))
    _print_written(written, "added", as_json=as_json)


@app.command()
def update(
    ctx: typer.Context,
    name: Name,
    pattern: options.NewPattern = None,
    every: options.Every = None,
    at: options.At = None,
    tz: options.Zone = None,
    dst: options.Dst = None,
    task: options.Task = None,
    arguments: options.Arguments = None,
    command: options.Command = None,
    role: options.Role = None,
    queue: options.Queue = None,
    priority: options.Priority = None,
    max_attempts: options.MaxAttempts = None,
    timeout: options.Timeout = None,
    missed: options.Missed = None,
    catch_up: options.CatchUp = None,
    grace: options.Grace = None,
    overlap: options.Overlap = None,
    jitter: options.Jitter = None,
    start: options.Start = None,
    end: options.End = None,
    max_runs: options.MaxRuns = None,
    deadline: options.Deadline = None,
    run_on_start: options.RunOnStart = None,
    description: options.Description = None,
    category: options.Category = None,
    tags: options.Tags = None,
    context: options.Context = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Also a task that no live node handles.")] = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Change what is given and leave the rest; `none` takes an option away. Takes effect at once."""
    find = _tasks_here(ctx.obj) if task or arguments else _nowhere
    written = ctx.obj.run(_updating(name, ctx.params, tenant, find, unchecked=unchecked))
    _print_written(written, "updated", as_json=as_json)


@app.command()
def enable(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Let a schedule fire again, from its next slot on."""
    from watchbill.client import plans_schedules as plans

    ctx.obj.run(plans.enable(name, tenant))
    _print_written(ctx.obj.run(plans.get(name, tenant)), "enabled", as_json=False)


@app.command()
def disable(ctx: typer.Context, name: Name, tenant: Tenant = "default") -> None:
    """Let a schedule fire no more until it is enabled; jobs that it made go on."""
    from watchbill.client import plans_schedules as plans

    ctx.obj.run(plans.disable(name, tenant))
    typer.echo(f"{name} disabled")


@app.command()
def remove(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a schedule; its jobs stay."""
    from watchbill.cli.schedule_views import what, when
    from watchbill.client import plans_schedules as plans

    found = ctx.obj.run(plans.get(name, tenant))
    said = f"1 schedule: {name} ({when(found)}; {what(found)}; jobs so far: {found.runs})"
    if found.owner is not None and not found.orphaned:
        said += f"\nThe code of {found.owner} declares it: it comes back with the next node that starts."
        said += f"\nTo stop it for good: watchbill schedules disable {name}"
    if dry_run:
        typer.echo(said)
        return
    if not yes:
        typer.echo(said)
        typer.confirm("Remove it?", abort=True)
    ctx.obj.run(plans.remove(name, tenant))
    typer.echo(f"{name} removed")


@app.command()
def run(
    ctx: typer.Context,
    name: Name,
    arguments: Annotated[str | None, typer.Option(metavar="JSON", help="Other arguments than its own.")] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Enqueue a job of a schedule now, also of a disabled one."""
    from watchbill.app.rules import payload_of
    from watchbill.client import plans_schedules as plans

    payload = None if arguments is None else json_object(arguments, "arguments")
    if payload is not None:
        payload = payload_of(ctx.obj.run(plans.get(name, tenant)), _tasks_here(ctx.obj), payload)
    job = ctx.obj.run(plans.run_now(name, payload, tenant))
    if as_json:
        print_json({"id": job})
    else:
        typer.echo(f"{job}")


@app.command()
def history(
    ctx: typer.Context,
    name: Name,
    before: Annotated[str | None, typer.Option(metavar="INSTANT", help="Only slots before this instant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Show what became of the slots of a schedule, the latest first."""
    from watchbill.cli.schedule_views import as_data, print_history
    from watchbill.client import plans_schedules as plans

    moment = None if before is None else instant(before, "UTC")
    found = ctx.obj.run(plans.history(name, moment, limit, tenant))
    if as_json:
        print_json([as_data(slot) for slot in found])
    elif found:
        print_history(found)
    else:
        typer.echo(f"{name} has had no slot yet")


@app.command()
def preview(
    ctx: typer.Context, name: Name, count: Count = 10, tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Show when a schedule fires next, as it stands. Exit code 1: never."""
    from watchbill.client import plans_schedules as plans

    print_instants(ctx.obj.run(plans.preview(name, count, tenant)), as_json=as_json)


@app.command()
def why(ctx: typer.Context, name: Name, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Say exactly why a schedule does not fire, or when it will. Exit code 1: it does not."""
    from watchbill.cli.schedule_views import as_data, print_reasons
    from watchbill.client import plans_schedules as plans

    reasons = ctx.obj.run(plans.why(name, tenant))
    if as_json:
        print_json([as_data(reason) for reason in reasons])
    else:
        print_reasons(ctx.obj.run(plans.get(name, tenant)), reasons)
    raise typer.Exit(0 if reasons[0].fires else 1)


def _tasks_here(given: GlobalOptions) -> FindTask:
    """Those of the application, if it is found here: they know their parameters, their queue and their retries."""
    from watchbill.cli.discovery import find_quietly

    found = find_quietly(given.settings().app)
    if found is None:
        return _nowhere
    found[0].handlers()  # also finds those that are declared in other modules
    return found[0].tasks.get


def _nowhere(type: str) -> None:
    """No task is asked for, or there is no application."""


def _adding(
    name: str, pattern: str | None, rule: Any, tenant: str, find: FindTask, *, unchecked: bool
) -> Plan[ScheduleRecord]:
    from watchbill.app.rules import define
    from watchbill.client import plans_schedules as plans

    given: Rule = rule
    definition = define(name, pattern, given, find, tenant)
    if not unchecked:
        yield from _ensure_known(definition, find)
    return (yield from plans.add(definition))


def _updating(
    name: str, params: dict[str, Any], tenant: str, find: FindTask, *, unchecked: bool
) -> Plan[ScheduleRecord]:
    from watchbill.app.rules import payload_of, redefine
    from watchbill.client import plans_schedules as plans

    before = yield from plans.get(name, tenant)
    changes: Changes = options.rule_of(params, params.get("tz") or before.tz)  # type: ignore[assignment]
    if not changes:
        raise Usage("Nothing to change.", hint="`watchbill schedules update --help` lists the options.")
    definition = redefine(name, changes, find)
    if "task" not in changes and changes.get("arguments") is not None:
        definition["payload"] = payload_of(before, find, changes["arguments"])
    if not unchecked:
        yield from _ensure_known(definition, find)
    return (yield from plans.update(name, definition, tenant))


def _creator() -> dict[str, str]:
    from getpass import getuser

    try:
        return {"created_by": getuser()}
    except (KeyError, OSError):  # a user without a name, as in many containers
        return {}


def _ensure_known(definition: dict[str, Any], find: FindTask) -> Plan[None]:
    from watchbill.client import plans_schedules as plans

    if definition.get("type") is None or find(definition["type"]) is not None:
        return
    try:
        yield from plans.ensure_known(definition["type"])
    except plans.UnknownTask as error:
        raise plans.UnknownTask(error.message, hint=f"{error.hint} Or say --unchecked.") from None


def _print_written(found: ScheduleRecord, verb: str, *, as_json: bool) -> None:
    from watchbill.cli.schedule_views import as_data, local, until

    if as_json:
        print_json(as_data(found))
        return
    if found.next_run is not None:
        typer.echo(f"{found.name} {verb}; next {local(found.next_run)} ({until(found.next_run)})")
    else:
        more = f": watchbill schedules why {found.name}" if found.status == "ended" else ""
        typer.echo(f"{found.name} {verb}; it is {found.status.replace('_', ' ')}{more}")
