"""`watchbill cells`: lists the cells, and moves tenants between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from watchbill.cli.cells import list_cells
from watchbill.cli.discovery import find_app_or_none
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, GlobalOptions, Usage, pluralize, print_json, print_table
from watchbill.cli.screen import say
from watchbill.client import move_operations
from watchbill.client.move_operations import TenantMove
from watchbill.errors import WatchbillError

if TYPE_CHECKING:
    from watchbill.client.client import Client

app = command_group("List cells, and move tenants between them. Without a command: list.")


@app.command("list")
def list_all(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the cells and the moves that have not ended."""
    rows = []
    for cell in list_cells(replace(ctx.obj, cell=None)):
        options = replace(ctx.obj, cell=cell)
        address = str(options.find_address(options.find_settings()))
        try:
            found = options.run(move_operations.moves())
        except WatchbillError as error:
            rows.append((cell, address, error.message.rstrip(".")))
            continue
        moves = [f"{each.tenant} is {each.state} ({each.cell})" for each in found if each.state != "moved"]
        rows.append((cell, address, "; ".join(moves)))
    if as_json:
        print_json([dict(zip(("cell", "address", "moves"), row, strict=True)) for row in rows])
    else:
        print_table(("cell", "address", "moves"), rows)


@app.command()
def move(
    ctx: typer.Context,
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    to: Annotated[str, typer.Option(metavar="CELL", help="The cell to which it moves.")],
    origin: Annotated[
        str | None, typer.Option("--from", metavar="CELL", help="The cell where it is. Default: what cell_from says.")
    ] = None,
) -> None:
    """Move the unfinished jobs, schedules, keys and quotas of a tenant to another cell. Run it again to continue.

    Enqueues wait meanwhile, and no job starts. History stays in the old cell. Change your directory afterwards."""
    options = replace(ctx.obj, cell=None)
    cells = list_cells(options)
    old = _find_under_way(options, tenant, to, cells) or origin or _ask_app(options, tenant, cells)
    for name in (old, to):
        if name not in cells:
            raise Usage(f"There is no cell {name!r}.", hint=f"Cells are: {', '.join(cells)}.")
    if old == to:
        raise Usage(f"{tenant} is in cell {to} already.", hint="Name another cell: --to.")
    with _open(options, old) as leaving, _open(options, to) as entering:
        count = TenantMove(tenant, (old, leaving), (to, entering), say).run()
    say(f"{tenant} is in cell {to} now: {pluralize(count, 'row')} moved. Let cell_from say so too.")


def _open(options: GlobalOptions, cell: str) -> Client:
    return replace(options, cell=cell).open_client()


def _find_under_way(options: GlobalOptions, tenant: str, to: str, cells: list[str]) -> str | None:
    """The cell from which a move to this one has begun and not ended."""
    for cell in cells:
        if cell == to:
            continue
        found = replace(options, cell=cell).run(move_operations.moves(tenant))
        if any(each.cell == to and each.state in ("leaving", "departed") for each in found):
            return cell
    with _open(options, to) as client:
        found = client.run(move_operations.moves(tenant))
    return next((each.cell for each in found if each.state in ("arriving", "arrived")), None)


def _ask_app(options: GlobalOptions, tenant: str, cells: list[str]) -> str:
    found = find_app_or_none(options.load_settings().app)
    cell = None if found is None else found[0].find_cell(tenant)
    if cell is None:
        raise Usage(f"It is not known in which cell {tenant} is.", hint=f"Name it: --from {' or '.join(cells)}.")
    return cell
