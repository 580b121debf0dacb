"""`watchbill dead`, `queues`, `nodes` and `stats`: show dead jobs, queues, nodes and counts, and act on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from watchbill.cli.arguments import (
    AfterJob,
    OnlyQueue,
    OnlyTenant,
    OnlyType,
    complete_node,
    complete_queue,
    complete_type,
    read_since,
)
from watchbill.cli.bulk import DryRun, Rate, Yes, change_all
from watchbill.cli.filters import Where, read_where
from watchbill.cli.help import command_group
from watchbill.cli.jobs import list_ as list_jobs
from watchbill.cli.known_names import check_used
from watchbill.cli.output import (
    AsJson,
    Usage,
    format_local_time,
    pluralize,
    print_facts,
    print_json,
    print_records,
    print_table,
    show_age,
)
from watchbill.cli.reasons import tell_causes
from watchbill.cli.screen import is_terminal, say
from watchbill.cli.spark import draw_bar, draw_spark
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import figure_operations, job_operations, limit_operations, schedule_operations
from watchbill.errors import name_commands
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.bulk_operation import ChangeKind
from watchbill.model.figures import DIMENSIONS, GRAINS, OUTCOMES, Figure, sum_by_name
from watchbill.model.job import NodeRecord, Pause, QueueCount
from watchbill.model.limit_records import QueueRule
from watchbill.model.schedule import ScheduleStats
from watchbill.model.states import WAITS

dead = command_group("List, group, retry and purge dead jobs. Without a command: list.")
queues = command_group("List, pause and resume queues and types. Without a command: list.")
nodes = command_group("List, show and drain nodes. Without a command: list.")
stats = command_group(
    "Count jobs now, and what has ended by minute, hour, day, queue or type. Without a command: show."
)

Limit = Annotated[int, typer.Option(min=1, help="At most this many.")]

# The columns of `queues list`. A terminal shows only those that have jobs. `unsupported`: no node handles the type.
_MOST_JOBS_OF_NODE = 100
_CHART_WIDTH = 24
_COLUMNS = (*WAITS, "running", "suspended", "blocked", "succeeded", "dead", "canceled")


@dead.command("list", reads=True, over_cells="joined")
def list_dead(
    ctx: typer.Context,
    type: OnlyType = None,
    queue: OnlyQueue = None,
    tenant: OnlyTenant = None,
    after: AfterJob = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead jobs, newest first."""
    list_jobs(ctx, ["dead"], type, queue, tenant, after, limit, as_json)


@dead.command(reads=True, over_cells="joined")
def groups(ctx: typer.Context, type: OnlyType = None, tenant: OnlyTenant = None, as_json: AsJson = False) -> None:
    """Group dead jobs by type and error. Messages that differ in numbers, ids and quoted texts count as one."""
    found = ctx.obj.run(job_operations.dead_groups(type=type, tenant=tenant))
    short = {} if as_json else ctx.obj.shorten_ids([group.example for group in found])
    print_records(
        found,
        ("count", LongName("type"), "last", "example", Wrapped("message")),
        lambda g: (g.count, g.type, g.last, short[g.example], (g.message or "").partition("\n")[0]),
        as_json=as_json,
        empty="No job is dead.",
    )


def _add_dead_command(kind: ChangeKind, meaning: str) -> None:
    @dead.command(kind, help=meaning)
    def command(
        ctx: typer.Context,
        type: OnlyType = None,
        queue: OnlyQueue = None,
        tenant: OnlyTenant = None,
        message: Annotated[str | None, typer.Option(help="Only jobs with exactly this error message.")] = None,
        where: Where = None,
        limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
        rate: Rate = None,
        dry_run: DryRun = False,
        yes: Yes = False,
    ) -> None:
        wanted = read_where(where, state="dead", type=type, queue=queue, tenant=tenant, message=message)
        change_all(ctx.obj, kind, wanted, text=where, rate=rate, most=limit, dry_run=dry_run, yes=yes)


_add_dead_command("retry", "Run dead jobs again, with fresh attempts.")
_add_dead_command("purge", "Delete dead jobs with their attempts.")

Queue = Annotated[str | None, typer.Argument(help="The queue.", autocompletion=complete_queue)]
Type = Annotated[
    str | None,
    typer.Option(help="A task's type; with a queue: this type in that queue only.", autocompletion=complete_type),
]


@queues.command("list", reads=True, over_cells="joined")
def list_queues(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List queues and count their jobs by state. Finished jobs count for one hour. `≈` marks an estimate."""
    counts, pauses = ctx.obj.run(job_operations.stats()), ctx.obj.run(job_operations.pauses())
    rules = ctx.obj.run(limit_operations.queue_rules())
    if as_json:
        print_json(_make_data(counts, pauses) | {"rules": [asdict(rule) for rule in rules]})
        return
    _print_queues(counts, pauses, ctx.obj.explain_empty)
    for rule in rules:
        say(f"queue {rule.name}: {_describe_rule(rule)}")


@queues.command("why", reads=True)
def why_queue(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.", autocompletion=complete_queue)],
    as_json: AsJson = False,
) -> None:
    """Count why jobs of a queue do not run, with an example each. Exits with 1 if a person must act."""
    tell_causes(ctx.obj, queue=queue, as_json=as_json)


@queues.command()
def pause(
    ctx: typer.Context,
    queue: Queue = None,
    type: Type = None,
    reason: Annotated[str | None, typer.Option(help="Shown in the list.")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Also a name that nothing uses.")] = False,
) -> None:
    """Start no jobs of a queue or type until it is resumed; running jobs continue."""
    subject = _describe_target(queue, type)
    if not unchecked:
        check_used(ctx.obj, queue, type)
    changed = ctx.obj.run(job_operations.pause(queue=queue, type=type, reason=reason))
    say(f"{subject} {'paused' if changed else 'was paused already'}")


@queues.command()
def resume(ctx: typer.Context, queue: Queue = None, type: Type = None) -> None:
    """Start jobs of a queue or type again."""
    subject = _describe_target(queue, type)
    changed = ctx.obj.run(job_operations.resume(queue=queue, type=type))
    say(f"{subject} {'resumed' if changed else 'was not paused'}")
    raise typer.Exit(0 if changed else 1)


def _describe_target(queue: str | None, type: str | None) -> str:
    if queue is None and type is None:
        raise Usage("pause and resume need a queue or a type.", hint="Give a queue, --type TYPE, or both.")
    return " ".join(f"{kind} {name}" for kind, name in (("queue", queue), ("type", type)) if name)


def _make_data(counts: list[QueueCount], pauses: list[Pause]) -> dict[str, Any]:
    return {"counts": [asdict(count) for count in counts], "pauses": [asdict(pause) for pause in pauses]}


def _describe_rule(rule: QueueRule) -> str:
    parts = [] if rule.max is None else [f"at most {rule.max:,} at once, {rule.running:,} run"]
    parts += [] if rule.fair_by is None else [f"fair by {rule.fair_by}"]
    parts += [f"{share or 'without a value'} has {weight} per turn" for share, weight in (rule.shares or {}).items()]
    parts += [] if rule.token_group is None else [f"routed to the nodes of {rule.token_group}"]
    return "; ".join(parts) or "no limit"


def _print_queues(counts: list[QueueCount], pauses: list[Pause], explain_empty: Callable[[str], str]) -> None:
    by_queue: dict[str, dict[str, list[QueueCount]]] = defaultdict(lambda: defaultdict(list))
    for count in counts:
        by_queue[count.queue][count.column].append(count)
    paused = {pause.queue: _show_pause(pause) for pause in pauses if pause.queue and not pause.type}
    for queue in paused:
        _ = by_queue[queue]
    shown = {count.column for count in counts} | ({"ready"} if is_terminal() else set(_COLUMNS))
    columns = [name for name in _COLUMNS if name in shown]
    rows = [
        (name, *(_show_count(found[column]) for column in columns), _show_oldest(found["ready"]), paused.get(name))
        for name, found in sorted(by_queue.items())
    ]
    if rows:
        print_table((LongName("queue"), *columns, "oldest", Wrapped("paused by")), rows)
    else:
        say(explain_empty("There are no jobs, and none has finished in the last hour."), err=True)
    for pause in pauses:
        if pause.type:
            say(f"paused: {describe_pause(pause)}")


def describe_pause(pause: Pause) -> str:
    """Returns what is paused, by whom, since when, and why."""
    parts = [f"{kind} {name}" for kind, name in (("type", pause.type), ("queue", pause.queue)) if name]
    return f"{' in '.join(parts)}, by {_show_pause(pause)}"


def _show_pause(pause: Pause) -> str:
    """Returns who paused the queue or type, since when, and why."""
    reason = f": {pause.reason}" if pause.reason else ""
    return f"{pause.by or 'unknown'} since {format_local_time(pause.at)} ({show_age(pause.at) or '0 s'}){reason}"


def _show_count(counts: list[QueueCount]) -> str:
    total = sum(count.count for count in counts)
    return f"{'≈ ' if any(count.estimated for count in counts) else ''}{total:,}"


def _show_oldest(ready: list[QueueCount]) -> str:
    """Returns how long the oldest ready job has been due."""
    return show_age(min((count.oldest for count in ready if count.oldest), default=None))


@nodes.command("list", reads=True, over_cells="joined")
def list_nodes(
    ctx: typer.Context,
    gone: Annotated[bool, typer.Option("--all", help="Also nodes that have left or were lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """List nodes, newest first."""
    print_records(
        ctx.obj.run(job_operations.nodes(gone=gone)),
        (
            LongName("name"),
            LongName("app"),
            "state",
            "claimed",
            "capacity",
            "processed",
            "last beat",
            "started",
            LongName("leads"),
            Wrapped("labels"),
            Wrapped("queues"),
        ),
        lambda n: (
            n.name,
            n.app,
            n.state,
            n.claimed,
            n.capacity,
            n.processed,
            _show_ago(n.heartbeat_at),
            _show_ago(n.started_at),
            ", ".join(n.leads),
            ", ".join(f"{name}={value}" for name, value in n.labels.items()),
            ", ".join(n.queues or ()),
        ),
        as_json=as_json,
        empty="No node is alive. To start one: watchbill worker",
    )


@nodes.command("show", reads=True)
def show_node(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The node's name.", autocompletion=complete_node)],
    as_json: AsJson = False,
) -> None:
    """Show a node and the jobs that it runs. Of several with this name, the newest. Exits with 1 if there is none."""
    node = next((each for each in ctx.obj.run(job_operations.nodes(gone=True)) if each.name == name), None)
    if node is None:
        say(name_commands(f"No node is named {name}. `watchbill nodes --all` lists them."), err=True)
        raise typer.Exit(1)
    conditions = write_conditions([Condition("state", "=", ("running",)), Condition("node", "=", (name,))])
    jobs = ctx.obj.run(job_operations.read_page(conditions, limit=_MOST_JOBS_OF_NODE)).jobs
    if as_json:
        print_json(asdict(node) | {"jobs": [asdict(job) for job in jobs]})
        return
    facts = {title: value for title, value in _describe_node(node).items() if value not in (None, "")}
    print_facts(facts)
    if jobs:
        say("")
        short = ctx.obj.shorten_ids([job.id for job in jobs])
        print_table(
            ("job", LongName("type"), LongName("queue"), "attempt", "runs since"),
            [
                (short[job.id], job.type, job.queue, f"{job.attempt + 1}/{job.max_attempts}", show_age(job.started_at))
                for job in jobs
            ],
        )


def _describe_node(node: NodeRecord) -> dict[str, object]:
    return {
        "name": node.name, "app": node.app, "state": node.state, "epoch": node.epoch, "host": node.host,
        "pid": node.pid,
        "started": format_local_time(node.started_at), "last beat": _show_ago(node.heartbeat_at),
        "lease until": format_local_time(node.lease_expires_at), "claimed": node.claimed, "capacity": node.capacity,
        "processed": node.processed, "queues": ", ".join(node.queues or ()), "types": ", ".join(node.types or ()),
        "leads": ", ".join(node.leads), "labels": ", ".join(f"{name}={value}" for name, value in node.labels.items()),
    }  # fmt: skip


@nodes.command()
def drain(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The node's name.", autocompletion=complete_node)],
    as_json: AsJson = False,
) -> None:
    """Ask a node to finish its running jobs and stop. Exits with 1 if no active node has this name."""
    is_asked = ctx.obj.run(job_operations.drain(name))
    if as_json:
        print_json({"name": name, "drains": is_asked})
    elif is_asked:
        say(f"{name} drains")
    else:
        say(f"no active node is named {name}", err=True)
    raise typer.Exit(0 if is_asked else 1)


def _show_ago(moment: datetime | None) -> str:
    return f"{age} ago" if (age := show_age(moment)) else ""


By = Annotated[
    str | None, typer.Option(help="What has ended instead, by minute, hour, day, queue, type or tenant.", metavar="BY")
]
Since = Annotated[str | None, typer.Option(help="Since when: an instant, or how long ago, such as 2h.")]


@stats.command("show", reads=True, over_cells="joined")
def show_stats(ctx: typer.Context, by: By = None, since: Since = None, as_json: AsJson = False) -> None:
    """Count jobs by queue, and schedules. `≈` marks an estimate. With `--by`: what has ended."""
    if by is not None:
        _print_figures(ctx, by, since, as_json=as_json)
        return
    if since is not None:
        raise Usage("--since needs --by.", hint="For example: watchbill stats --by hour --since 2d")
    counts, pauses = ctx.obj.run(job_operations.stats()), ctx.obj.run(job_operations.pauses())
    schedules = ctx.obj.run(schedule_operations.stats())
    if as_json:
        print_json(_make_data(counts, pauses) | {"schedules": asdict(schedules)})
        return
    _print_queues(counts, pauses, ctx.obj.explain_empty)
    say(_summarize_schedules(schedules))


def _print_figures(ctx: typer.Context, by: str, since: str | None, *, as_json: bool) -> None:
    """Prints what has ended, over time or by name. Figures that are not counted from history yet have a mark."""
    if by not in (*GRAINS, *DIMENSIONS):
        words = ", ".join((*GRAINS, *DIMENSIONS))
        raise Usage(f"--by {by} is invalid.", hint=f"It is one of {words}.")
    grain, dimension = (by, "all") if by in GRAINS else ("hour", by)
    found = ctx.obj.run(figure_operations.figures(dimension, grain, since=None if since is None else read_since(since)))
    chart, charts = (["runs"], _draw_figures(found, by)) if is_terminal() else ([], {})
    if by in DIMENSIONS:
        found = sum_by_name(found)
    print_records(
        found,
        ("from" if by in GRAINS else LongName(by), *chart, *OUTCOMES, "mean run", "mean wait", "counted"),
        lambda f: (
            f.at if by in GRAINS else f.name,
            *([charts.get(f.at if by in GRAINS else f.name, "")] if chart else []),
            *(f"{number:,}" if (number := getattr(f, name)) else "" for name in OUTCOMES),
            _show_mean(f.run_seconds, f.runs),
            _show_mean(f.wait_seconds, f.runs),
            "" if f.is_counted else "not yet",
        ),
        as_json=as_json,
        empty="Nothing has ended in this time, as far as nodes have reported.",
    )


def _draw_figures(found: Sequence[Figure], by: str) -> dict[datetime | str, str]:
    """Returns a bar for each time, or for each name its runs in each hour."""
    if by in GRAINS:
        most = max((figure.runs for figure in found), default=0)
        return {figure.at: draw_bar(figure.runs, most, _CHART_WIDTH) for figure in found}
    hours = sorted({figure.at for figure in found})
    runs: dict[str, dict[datetime, int]] = defaultdict(dict)
    for figure in found:
        runs[figure.name][figure.at] = figure.runs
    return {name: draw_spark([by_hour.get(hour, 0) for hour in hours], _CHART_WIDTH) for name, by_hour in runs.items()}


def _show_mean(seconds: float, runs: int) -> str:
    return f"{seconds / runs:.3f} s" if runs else ""


@stats.command("rebuild")
def rebuild_stats(
    ctx: typer.Context,
    since: Annotated[str, typer.Option(help="Since when: an instant of the last 89 days, or how long ago.")],
    as_json: AsJson = False,
) -> None:
    """Count the hours since then again from history. A node does it, within minutes."""
    first = ctx.obj.run(figure_operations.rebuild(read_since(since)))
    if as_json:
        print_json({"since": first})
    else:
        say(f"counting again from {format_local_time(first)} on")


def _summarize_schedules(found: ScheduleStats) -> str:
    summary = pluralize(found.schedules, "schedule") + ("+" if found.capped else "")
    for number, what in ((found.due, "due"), (found.late, "late"), (found.orphaned, "orphaned")):
        summary += f", {number:,} {what}" if number else ""
    summary += f", {pluralize(found.overdue, 'run')} overdue" if found.overdue else ""
    return summary + (f"; next at {found.next_run:%Y-%m-%d %H:%M:%S %Z}" if found.next_run else "")
