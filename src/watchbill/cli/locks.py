"""`watchbill locks` and `watchbill cluster`: which process holds a lock, which node leads a group."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from watchbill.cli.arguments import complete_lock
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, print_json, print_records
from watchbill.cli.screen import say
from watchbill.client import lock_operations
from watchbill.model.lock import LockRecord

app = command_group("List and release named locks. Without a command: list.")
cluster = command_group("Show who leads the groups of this cluster. Without a command: leader.")

Name = Annotated[str, typer.Argument(help="The lock's name.", autocompletion=complete_lock)]


@app.command("list", reads=True)
def list_locks(
    ctx: typer.Context,
    free: Annotated[bool, typer.Option("--all", help="Also locks that are free; they are kept for a day.")] = False,
    as_json: AsJson = False,
) -> None:
    """List locks by name. An expired lock belongs to its holder until another caller acquires it."""
    print_records(
        ctx.obj.run(lock_operations.locks(free=free)),
        ("name", "state", "holder", "fence", "acquired", "expires"),
        lambda lock: (lock.name, lock.state, lock.holder, lock.fence, lock.acquired_at, lock.expires_at),
        as_json=as_json,
        empty="No lock is held.",
    )


@app.command()
def release(
    ctx: typer.Context,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show who holds it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a lock away from its holder, whose checks fail from now on. Exits with 1 if it is not held."""
    found: list[LockRecord] = ctx.obj.run(lock_operations.locks(name=name))
    if not found:
        say(f"lock {name} is not held", err=True)
        raise typer.Exit(1)
    (lock,) = found
    if dry_run:
        if as_json:
            print_json(asdict(lock))
        else:
            say(f"lock {name} is held by {lock.holder} under fence {lock.fence}")
        return
    if not yes:
        typer.confirm(f"Release lock {name}, which {lock.holder} holds?", abort=True)
    is_released = ctx.obj.run(lock_operations.release(name))
    if as_json:
        print_json({"name": name, "released": is_released, "holder": lock.holder, "fence": lock.fence})
    else:
        say(f"lock {name} {'released' if is_released else 'was released meanwhile'}")
    raise typer.Exit(0 if is_released else 1)


@cluster.callback()
def make_group() -> None:
    """Does nothing, but makes Typer treat this as a group: it would take a group of one command for the command."""


@cluster.command(reads=True)
def leader(
    ctx: typer.Context,
    group: Annotated[str | None, typer.Argument(help="The group; without it, all groups.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the leader of a group, or of all groups. Exits with 1 if the group has no leader."""
    found = ctx.obj.run(lock_operations.leaders(group))
    print_records(
        found,
        ("group", "leader", "term", "elected", "lease ends", "epoch"),
        lambda one: (one.group, one.name, one.term, one.elected_at, one.expires_at, one.epoch),
        as_json=as_json,
        empty=f"group {group} has no leader" if group else "No group has a leader.",
    )
    raise typer.Exit(1 if group and not found else 0)
