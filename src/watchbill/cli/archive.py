"""`watchbill archive`: days of history that retention has written to files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, Usage, print_json, print_table
from watchbill.cli.screen import say
from watchbill.errors import WatchbillError

if TYPE_CHECKING:
    from watchbill.client.archive_operations import ArchiveRecord

app = command_group("List, check and read back days of history that retention has written to files.")

ROWS_PER_STATEMENT = 1000


@app.command("list")
def list_archives(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List archived days, the newest first."""
    records = _read_records(ctx, None)
    if as_json:
        print_json([_describe(record) for record in records])
    elif records:
        rows = [(each.name, each.row_count, each.size, each.at, each.place) for each in records]
        print_table(("day", "rows", "bytes", "archived", "place"), rows)
    else:
        say("No day was archived. Set archive_to for all workers to archive days before they are dropped.")


Day = Annotated[str | None, typer.Argument(help="An archived day, such as finished_succeeded_20260101; all of them.")]


@app.command()
def check(ctx: typer.Context, name: Day = None, as_json: AsJson = False) -> None:
    """Read archives, and compare them with what is recorded. Exits with 1 if one is missing or was changed."""
    records = _read_records(ctx, name)
    if name is not None and not records:
        raise Usage(f"No archived day is named {name}.", hint="`watchbill archive list` lists them.")
    found = [(record, _find_damage(record)) for record in records]
    if as_json:
        print_json([_describe(record) | {"damage": damage} for record, damage in found])
    else:
        print_table(("day", "rows", "is"), [(each.name, each.row_count, damage or "well") for each, damage in found])
    raise typer.Exit(1 if any(damage for _, damage in found) else 0)


@app.command()
def restore(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="An archived day, such as finished_succeeded_20260101.")],
    table: Annotated[str | None, typer.Option(help="The table to make; archived_NAME if not given.")] = None,
) -> None:
    """Read an archived day into a table of its own, for SQL. The history stays as it is."""
    records = _read_records(ctx, name)
    if not records:
        raise Usage(f"No archived day is named {name}.", hint="`watchbill archive list` lists them.")
    if damage := _find_damage(records[0]):
        raise WatchbillError(f"{records[0].place} is {damage}.", hint="Look for a copy of it.")
    table = table or f"archived_{name}"
    row_count = _fill_table(ctx, records[0], table)
    say(f"{row_count:,} rows of {name} are in the table {table}. Drop it when you have done.")


def _read_records(ctx: typer.Context, name: str | None) -> list[ArchiveRecord]:
    from watchbill.client.archive_operations import archives

    found: list[ArchiveRecord] = ctx.obj.run(archives(name))
    return found


def _describe(record: ArchiveRecord) -> dict[str, Any]:
    return {
        "day": record.name, "place": record.place, "rows": record.row_count, "bytes": record.size,
        "sha256": record.sha256.hex(), "at": record.at,
    }  # fmt: skip


def _find_damage(record: ArchiveRecord) -> str | None:
    from watchbill.maintenance.archive import compute_digest, open_place

    try:
        digest = compute_digest(open_place(record.place).open(record.place))
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"not readable: {error}"
    return None if digest == record.sha256 else "changed: its SHA-256 is another one"


def _fill_table(ctx: typer.Context, record: ArchiveRecord, table: str) -> int:
    from itertools import islice

    import orjson
    import psycopg
    from psycopg import sql

    from watchbill.maintenance.archive import open_place, read_rows
    from watchbill.postgres.connect import Connection

    settings = ctx.obj.find_settings()
    parent = sql.Identifier(settings.schema, record.name.rpartition("_")[0])
    target = sql.Identifier(*table.split(".", 1)) if "." in table else sql.Identifier(settings.schema, table)
    insert = sql.SQL("INSERT INTO {} SELECT * FROM jsonb_populate_recordset(NULL::{}, %s::jsonb)")
    row_count, url = 0, ctx.obj.find_address(settings).url
    with Connection.connect(url, application_name="watchbill archive") as connection:
        try:
            connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS)").format(target, parent))
        except psycopg.errors.DuplicateTable:
            raise Usage(f"There is a table {table} already.", hint="Drop it, or give another name: --table.") from None
        rows = read_rows(open_place(record.place).open(record.place))
        while part := list(islice(rows, ROWS_PER_STATEMENT)):
            connection.execute(insert.format(target, parent), (orjson.dumps(part).decode(),))
            row_count += len(part)
    return row_count
