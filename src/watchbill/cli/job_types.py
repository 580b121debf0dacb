"""`watchbill types`: why jobs of a type do not run."""

from __future__ import annotations

from typing import Annotated

import typer

from watchbill.cli.arguments import complete_type
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson
from watchbill.cli.reasons import tell_causes

app = command_group("Ask why jobs of a type do not run.")


@app.callback()
def types() -> None:
    pass


@app.command(reads=True)
def why(
    ctx: typer.Context,
    type: Annotated[str, typer.Argument(help="The task's type.", autocompletion=complete_type)],
    as_json: AsJson = False,
) -> None:
    """Count why jobs of a type do not run, with an example each. Exits with 1 if a person must act."""
    tell_causes(ctx.obj, type=type, as_json=as_json)
