"""`watchbill limits`: who holds a limit, who waits for it, and how to change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Literal

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_json, print_records, print_table, show_age
from watchbill.cli.screen import say
from watchbill.cli.table import LongName
from watchbill.client import limit_operations
from watchbill.model.durations import show_duration
from watchbill.model.limit_records import LimitRecord, RateRecord
from watchbill.model.limits import Rate

app = command_group("List, show, set and clear limits and rates. Without a command: list.")

MOST_WAITERS_COUNTED = 10_000
Name = Annotated[
    str, typer.Argument(help="Its name; task:TYPE, tenant:NAME and queue:NAME belong to a task, a tenant and a queue.")
]
Most = Annotated[int, typer.Option("--limit", min=1, help="At most this many keys and jobs.")]


@app.command("list", reads=True)
def list_limits(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List limits and rates, with how many jobs run and wait under them. Jobs that are dead or wait for a retry, and
    keep an ordered key, are counted as kept."""
    print_records(
        ctx.obj.run(limit_operations.limits()),
        (
            LongName("name"),
            "max",
            "rate",
            "running",
            "kept",
            "waiting",
            "when full",
            "changed",
            LongName("declared by"),
        ),
        lambda limit: (
            limit.name,
            limit.max,
            show_rates(limit.rates),
            limit.holders - limit.kept,
            limit.kept or "",
            _show_waiters(limit.waiters),
            limit.when_full,
            "by an operator" if limit.changed else "",
            limit.owner,
        ),
        as_json=as_json,
        empty="There are no limits. Declare them in code, or: watchbill limits set",
    )


@app.command(reads=True)
def show(ctx: typer.Context, name: Name, limit: Most = 50, as_json: AsJson = False) -> None:
    """Show the keys of a limit, and the jobs that hold them. Exits with 1 if there is no such limit."""
    found = ctx.obj.run(limit_operations.show(name, limit=limit))
    if as_json:
        print_json({"limit": None, "keys": [], "holders": []} if found is None else asdict(found))
        raise typer.Exit(1 if found is None else 0)
    if found is None:
        say(f"there is no limit {name}", err=True)
        raise typer.Exit(1)
    rule, keys, holders = found.limit, found.keys, found.holders
    if rule is not None:
        say(f"{name}: {describe_rule(rule)}")
    if keys:
        columns = (LongName("key"), "running", "kept", "longest", "waiting", "oldest", "next start")
        rows = [
            (_show_key(key.key), key.holders - key.kept, key.kept or "", show_age(key.held_since),
             _show_waiters(key.waiters), show_age(key.waiting_since), key.next_at)
            for key in keys
        ]  # fmt: skip
        print_table(columns, rows)
    if holders:
        short = ctx.obj.shorten_ids([each.job_id for each in holders])
        print_table(
            (LongName("key"), "job", LongName("type"), "state", LongName("node"), "since"),
            [
                (_show_key(each.key), short[each.job_id], each.type, each.state, each.node, each.since)
                for each in holders
            ],
        )


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    max: Annotated[int | None, typer.Option("--max", min=0, help="How many jobs of a key run at once.")] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COUNT/DURATION",
            help="How many jobs start in a time, such as 10/1m; none removes all rates. Several: give it again.",
        ),
    ] = None,
    evenly: Annotated[bool, typer.Option("--evenly", help="Space the starts of these rates.")] = False,
    when_full: Annotated[
        Literal["wait", "discard", "replace"] | None,
        typer.Option(metavar="wait|discard|replace", help="What a job does that finds its key full."),
    ] = None,
    when_dead: Annotated[
        Literal["continue", "pause"] | None,
        typer.Option(metavar="continue|pause", help="Of order:TYPE: whether a dead job keeps its key."),
    ] = None,
) -> None:
    """Change a limit, or make one, for all nodes. The change stands until the code declares something else.

    A limit that you make holds for jobs that have its key: a task that declares no limit gives its jobs none."""
    if all(each is None for each in (max, rate, when_full, when_dead)):
        raise Usage("There is nothing to change.", hint="Give --max, --rate, --when-full or --when-dead.")
    rates = None if rate is None else [] if rate == ["none"] else [read_rate(each, evenly=evenly) for each in rate]
    if evenly and not rates:
        raise Usage("--evenly says how a rate starts jobs, and there is none.", hint="Give --rate, such as 10/1m.")
    known = [each.name for each in ctx.obj.run(limit_operations.limits())]
    rule = ctx.obj.run(limit_operations.set_limit(name, max=max, rates=rates, when_full=when_full, when_dead=when_dead))
    say(f"{name}: {describe_rule(rule)}" if rule is not None else f"{name} changed")
    if name not in known:
        say(_describe_new_limit(name, known), err=True)


@app.command()
def clear(
    ctx: typer.Context,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the limit.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Undo changes of a limit, or free an ordered key (order:TYPE:VALUE) that a dead job keeps.

    A limit that an operator has made is removed, and so is one without changes that no running node declares any more.
    Exits with 1 if there was nothing to undo."""
    if name.startswith("order:") and name.count(":") > 1:
        found = ctx.obj.run(limit_operations.show(name))
        dead = None if found is None else next((each.job_id for each in found.holders if each.state == "dead"), None)
        described = None if dead is None else f"the dead job {dead} keeps it"
        nothing = f"no dead job keeps {name}"
    else:
        rule = ctx.obj.run(limit_operations.find(name))
        described = None if rule is None else describe_rule(rule)
        nothing = (
            f"there is no limit {name}"
            if rule is None
            else f"{name} is as {rule.owner} has declared it; only a limit that no running node declares is removed"
        )
    if described is None:
        say(nothing, err=True)
        raise typer.Exit(1)
    if dry_run:
        say(f"{name}: {described}")
        return
    if not yes:
        typer.confirm(f"Clear {name}?", abort=True)
    is_changed = ctx.obj.run(limit_operations.clear_limit(name))
    say(f"{name} cleared" if is_changed else nothing)
    raise typer.Exit(0 if is_changed else 1)


def read_rate(text: str, *, evenly: bool) -> Rate:
    count, _, per = text.partition("/")
    try:
        return Rate(int(count), per=per, evenly=evenly)
    except ValueError:
        raise Usage(
            f"--rate {text} is invalid.",
            hint="Give COUNT/DURATION, such as 10/1m: a whole number from 1 on, and at most 366 days.",
        ) from None


def _describe_new_limit(name: str, known: list[str]) -> str:
    """Says that a limit was made, in case its name is misspelt, and for which jobs it holds."""
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    parts = [f"{name} is new: no code declares it."]
    parts += [f"Did you mean {near[0]}?"] if near else []
    if not name.startswith(("queue:", "tenant:", "order:")):
        parts.append("It holds only for jobs that are enqueued with this limit key.")
    return " ".join(parts)


def _show_key(key: str) -> str:
    """Shows a key as people write it: without `key:`, with which the keys of named limits begin."""
    return key.removeprefix("key:")


def show_rates(rates: Sequence[RateRecord]) -> str:
    shown = [f"{rate.count} per {show_duration(rate.per)}" + ", evenly" * rate.evenly for rate in rates]
    return " and ".join(shown)


def _show_waiters(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count:,}+" if count >= MOST_WAITERS_COUNTED else f"{count:,}"


def describe_rule(limit: LimitRecord) -> str:
    parts = [] if limit.max is None else [f"at most {limit.max} at once"]
    parts += [show_rates(limit.rates)] if limit.rates else []
    parts += [f"when full: {limit.when_full}"] if limit.when_full not in (None, "wait") else []
    parts += [f"when dead: {limit.when_dead}"] if limit.when_dead not in (None, "continue") else []
    parts += ["changed by an operator"] if limit.changed else []
    return "; ".join(parts) or "no limit"
