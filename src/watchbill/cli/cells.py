"""`--cell all`: runs a command in each cell and joins what it prints, as one table with a column `cell`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import typer

from watchbill.cli.joined import Joined, joining
from watchbill.cli.output import Usage, print_json
from watchbill.cli.screen import line_prefix, paint, say
from watchbill.cli.table import print_columns
from watchbill.errors import WatchbillError

Joining = Literal["joined", "apart"]  # how a command works with `--cell all`


def run_in_each(ctx: Any, run: Callable[[], object], how: Joining) -> None:
    """Runs a command in each cell. A cell that does not answer is said on stderr, and the others are still shown."""
    options = ctx.obj
    joined, worst = Joined(), 0
    for name in list_cells(options):
        ctx.obj = replace(options, cell=name)
        joined.enter(name)
        tokens = joining.set(joined if how == "joined" else None), line_prefix.set(f"{name}: ")
        if how == "apart":
            line_prefix.set("")
            say(paint(f"cell {name}", bold=True))
        try:
            run()
        except typer.Exit as end:
            worst = max(worst, end.exit_code)
        except WatchbillError as error:
            line_prefix.set("")
            say(f"cell {name}: {error.message}", err=True)
            worst = max(worst, error.exit_code)
        finally:
            joining.reset(tokens[0])
            line_prefix.reset(tokens[1])
    ctx.obj = options
    _show(joined)
    if worst:
        raise typer.Exit(worst)


def _show(joined: Joined) -> None:
    if joined.has_data:
        print_json(joined.data)
    for known, rows in joined.tables:
        print_columns(list(known.values()), [[row.get(column, "") for column in known] for row in rows])
    if joined.empty is not None and not joined.tables:
        say(joined.empty, err=True)


def list_cells(options: Any) -> list[str]:
    """The names of all cells of the project."""
    names = [cell.name for cell in replace(options, cell=None).find_settings().cells]
    if not names:
        raise Usage("--cell all is for a project with cells.", hint="Name them in [cells] of watchbill.toml.")
    return names
