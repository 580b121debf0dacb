"""`watchbill nodes`: who works."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from watchbill.cli.jobs import AsJson
from watchbill.cli.output import command_group, print_json, print_table

app = command_group("List nodes and drain them. Alone: list.")


@app.callback(invoke_without_command=True)
def nodes(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        list_(ctx)


@app.command("list")
def list_(
    ctx: typer.Context,
    gone: Annotated[bool, typer.Option("--all", help="Also those that have left or were lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """List nodes, the newest first."""
    from watchbill.client import plans

    found = ctx.obj.run(plans.nodes(gone=gone))
    if as_json:
        print_json([asdict(node) for node in found])
        return
    rows = [(n.name, n.app, n.state, n.claimed, _ago(n.heartbeat_at), _ago(n.started_at), n.epoch) for n in found]
    print_table(("name", "app", "state", "claimed", "last beat", "started", "epoch"), rows)


@app.command()
def drain(ctx: typer.Context, name: Annotated[str, typer.Argument(help="The node's name.")]) -> None:
    """Ask a node to finish what it runs and stop."""
    from watchbill.client import plans

    if not ctx.obj.run(plans.drain(name)):
        typer.echo(f"no active node is named {name}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{name} drains")


def _ago(moment: datetime | None) -> str:
    return "" if moment is None else f"{(datetime.now(UTC) - moment).total_seconds():.0f} s ago"
