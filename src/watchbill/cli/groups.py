"""`watchbill groups`, `tokens` and `pins`: which node owns which tokens, and which keys are pinned to nodes."""

from __future__ import annotations

import shutil
import string
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, pluralize, print_json, print_records
from watchbill.cli.screen import Painted, is_terminal, paint, say
from watchbill.cli.table import Wrapped
from watchbill.client import cluster_operations
from watchbill.model.cluster import GroupRecord, TokenOwner, TokenRange
from watchbill.model.durations import seconds, show_duration

groups = command_group("List and remove token groups. Without a command: list.")
tokens = command_group("Show who owns tokens, list what moved, and divide tokens again. Without a command: show.")
pins = command_group("Add, list and clear pins. Without a command: list.")

Group = Annotated[str | None, typer.Argument(help="The group; without it, the only one there is.")]
OfGroup = Annotated[str | None, typer.Option("--group", help="The group; without it, the only one there is.")]

_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red", "bright_cyan", "bright_yellow", "bright_magenta")
_LETTERS = string.ascii_uppercase
_BAR_WIDTH, _MAP_LINES = 30, 4


@groups.command("list", reads=True)
def list_groups(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List token groups with their members, and what they wait for."""
    print_records(
        ctx.obj.run(cluster_operations.groups()),
        ("group", "tokens", "owned", "moving", "pins", "leader", Wrapped("members"), Wrapped("waits for")),
        lambda g: (
            g.name, f"{g.total:,}", f"{g.owned:,}", f"{g.moving:,}", f"{g.pins:,}", g.leader,
            ", ".join(g.members), g.waits_for,
        ),
        as_json=as_json,
        empty="There are no token groups.",
    )  # fmt: skip


@groups.command()
def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The group.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a token group with its pins, items and history. Refused while it has living members or routed jobs."""
    found = _find_group(ctx, name)
    if not yes:
        typer.confirm(f"Remove group {found.name}, its {pluralize(found.pins, 'pin')} and its items?", abort=True)
    ctx.obj.run(cluster_operations.remove_group(found.name))
    if as_json:
        print_json({"group": found.name, "removed": True})
    else:
        say(f"group {found.name} removed")


@tokens.command(reads=True)
def show(ctx: typer.Context, group: Group = None, as_json: AsJson = False) -> None:
    """Show who owns the tokens of a group, and how balanced they are."""
    found = _find_group(ctx, group)
    owners = ctx.obj.run(cluster_operations.token_owners(found.name))
    ranges = ctx.obj.run(cluster_operations.token_ranges(found.name))
    if as_json:
        data = {"owners": [asdict(owner) for owner in owners], "ranges": [asdict(each) for each in ranges]}
        print_json(asdict(found) | data)
        return
    _print_summary(found)
    letters = {owner.node: _LETTERS[index % len(_LETTERS)] for index, owner in enumerate(o for o in owners if o.node)}
    colours = {node: _COLOURS[index % len(_COLOURS)] for index, node in enumerate(letters)}
    say()
    _print_owners(found, owners, letters, colours)
    say()
    _print_map(found.total, ranges, letters, colours)
    if found.waits_for:
        say()
        say(paint(f"waits: {found.waits_for}", "yellow"))


@tokens.command()
def rebalance(ctx: typer.Context, group: Group = None, as_json: AsJson = False) -> None:
    """Ask the leader of a group to divide the tokens again."""
    found = _find_group(ctx, group)
    ctx.obj.run(cluster_operations.request_rebalance(found.name))
    if as_json:
        print_json({"group": found.name, "requested": True, "leader": found.leader})
    else:
        say(f"group {found.name}: {found.leader or 'the next leader'} divides its tokens again")


@tokens.command(reads=True)
def history(
    ctx: typer.Context,
    group: Group = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the rebalances of a group, the latest first."""
    print_records(
        ctx.obj.run(cluster_operations.rebalances(_find_group(ctx, group).name, limit)),
        ("at", "moved", "nodes before", "nodes after", "leader", "took", Wrapped("reason")),
        lambda r: (
            r.at, f"{r.moved:,}", len(r.nodes_before), len(r.nodes_after), r.leader, show_duration(r.duration), r.reason
        ),
        as_json=as_json,
        empty="No tokens have moved yet.",
    )  # fmt: skip


@pins.command("list", reads=True)
def list_pins(
    ctx: typer.Context,
    group: OfGroup = None,
    created_by: Annotated[str | None, typer.Option(help="Only pins of this creator.")] = None,
    as_json: AsJson = False,
) -> None:
    """List pins by key. A pin without an owner matches no node: its key waits."""
    print_records(
        ctx.obj.run(cluster_operations.pins(_find_group(ctx, group, "--group ").name, created_by=created_by)),
        ("key", "owner", "places", "created by", "expires", Wrapped("reason")),
        lambda p: (
            p.key, p.owner or ("" if p.has_match else "no match"), ", ".join(p.patterns), p.created_by, p.expires_at,
            p.reason,
        ),
        as_json=as_json,
        empty="No key is pinned.",
    )  # fmt: skip


@pins.command()
def add(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(help="The key.")],
    places: Annotated[
        list[str], typer.Argument(help='LIKE patterns of node names, or labels as JSON, as in {"gpu": "a100"}.')
    ],
    group: OfGroup = None,
    reason: Annotated[str | None, typer.Option(help="Shown in the list.")] = None,
    expires: Annotated[str | None, typer.Option(help="When it ends, from now: 30d, 12h.")] = None,
    created_by: Annotated[str | None, typer.Option(help="Who sets it; by default the database's user.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Add alternatives to the pin that the key has.")] = False,
    as_json: AsJson = False,
) -> None:
    """Pin a key to nodes. The first place that matches a member counts."""
    found = _find_group(ctx, group, "--group ")
    wanted = [{"key": key, "reason": reason} | _read_pin_target(place) for place in places]
    try:
        length = None if expires is None else seconds(expires)
    except ValueError as error:
        raise Usage(f"--expires is invalid: {error}") from None
    if length is not None and not length > 0:
        raise Usage(f"--expires {expires} is invalid.", hint="Give how long the pin lasts from now on: 30d, 12h.")
    ctx.obj.run(cluster_operations.pin(found.name, wanted, created_by=created_by, expires=length, append=append))
    if as_json:
        (pin,) = ctx.obj.run(cluster_operations.pins(found.name, key=key))
        print_json(asdict(pin))
    else:
        say(f"key {key} of group {found.name} pinned to {', then '.join(places)}")


@pins.command()
def clear(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Argument(help="The key.")] = None,
    group: OfGroup = None,
    created_by: Annotated[str | None, typer.Option(help="All pins of this creator.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All pins of the group.")] = False,
    as_json: AsJson = False,
) -> None:
    """Clear the pins of a key, of a creator, or all. Exits with 1 if there were none."""
    if sum((key is not None, created_by is not None, everything)) != 1:
        raise Usage("pins clear needs a key, --created-by or --all.", hint="Give exactly one of them.")
    found = _find_group(ctx, group, "--group ")
    count = ctx.obj.run(cluster_operations.clear_pins(found.name, key=key, created_by=created_by))
    if as_json:
        print_json({"group": found.name, "cleared": count})
    else:
        say(f"{pluralize(count, 'pin')} cleared")
    raise typer.Exit(0 if count else 1)


def _find_group(ctx: typer.Context, name: str | None, option: str = "") -> GroupRecord:
    """Returns the group of that name, or without a name the only group there is. `option` is the option that takes the
    name, for the hint of an error."""
    if name is not None:
        found: GroupRecord = ctx.obj.run(cluster_operations.group(name))
        return found
    every: list[GroupRecord] = ctx.obj.run(cluster_operations.groups())
    if len(every) != 1:
        names = ", ".join(each.name for each in every)
        raise Usage(
            "There are no token groups." if not every else f"There are {len(every)} token groups: {names}.",
            hint="A member makes one when it joins."
            if not every
            else f"Name the one you mean: {option}{every[0].name}",
        )
    return every[0]


def _read_pin_target(place: str) -> dict[str, object]:
    """Reads to which nodes a key is pinned: a pattern for their names, or labels as JSON."""
    if not place.startswith("{"):
        return {"pattern": place}
    try:
        return {"labels": orjson.loads(place)}
    except orjson.JSONDecodeError:
        raise Usage(f"{place!r} is not JSON.", hint='Labels are an object, as in {"gpu": "a100"}.') from None


# -- how `tokens show` draws the owners


def _print_summary(group: GroupRecord) -> None:
    leader = f"led by {group.leader}" if group.leader else "without a leader"
    even = "" if group.largest is None else f", {group.smallest:,} to {group.largest:,} each"
    say(
        paint(group.name, bold=True),
        f": {pluralize(group.total, 'token')}, {pluralize(len(group.members), 'member')}{even}, "
        f"{leader}, version {group.version}",
    )


def _print_owners(
    group: GroupRecord, owners: list[TokenOwner], letters: dict[str | None, str], colours: dict[str | None, str]
) -> None:
    """Prints a bar for each owner. The longest bar has the full width."""
    longest = max((owner.tokens for owner in owners), default=0) or 1
    width = max((len(owner.node or "no owner") for owner in owners), default=0)
    for owner in owners:
        bar = "█" * round(_BAR_WIDTH * owner.tokens / longest)
        letter = letters.get(owner.node, ".")
        more = [f"{owner.pins:,} pinned"] * bool(owner.pins)
        more += [f"{owner.leaving:,} leave"] * bool(owner.leaving) + [f"{owner.arriving:,} arrive"] * bool(
            owner.arriving
        )
        share = 100 * owner.tokens / group.total
        say(
            paint(f"{letter}  {(owner.node or 'no owner').ljust(width)}", colours.get(owner.node)),
            f"  {owner.tokens:>9,}  {share:5.1f} %  ",
            paint(bar.ljust(_BAR_WIDTH), colours.get(owner.node)),
            f"  {', '.join(more)}" if more else "",
        )


def _print_map(
    total: int, ranges: list[TokenRange], letters: dict[str | None, str], colours: dict[str | None, str]
) -> None:
    """Prints a map of all tokens. Each cell stands for some consecutive tokens, and shows the letter of the node that
    owns most of them. A small letter means that some of these tokens are moving to another node."""
    columns = min(shutil.get_terminal_size().columns if is_terminal() else 80, 100) - 2
    cells = min(total, columns * _MAP_LINES)
    line: list[Painted] = []
    for cell in range(cells):
        first, last = cell * total // cells, (cell + 1) * total // cells - 1
        owner, moves = _find_main_owner(ranges, first, last)
        letter = letters.get(owner, ".")
        line.append(paint(letter.lower() if moves else letter, colours.get(owner)))
        if len(line) == columns or cell == cells - 1:
            say("  ", *line)
            line.clear()


def _find_main_owner(ranges: list[TokenRange], first: int, last: int) -> tuple[str | None, bool]:
    counts: Counter[str | None] = Counter()
    moves = False
    for each in ranges:
        if each.first <= last and each.last >= first:
            counts[each.owner] += min(each.last, last) - max(each.first, first) + 1
            moves = moves or each.next is not None
    return (counts.most_common(1)[0][0] if counts else None), moves
