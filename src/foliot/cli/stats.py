"""`foliot stats`: the same numbers as `foliot queues`, for scripts and for those who look for this name."""

from __future__ import annotations

import typer

from foliot.cli.jobs import AsJson
from foliot.cli.output import command_group
from foliot.cli.queues import list_

app = command_group()


@app.command()
def stats(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Count jobs by queue and state."""
    list_(ctx, as_json)
