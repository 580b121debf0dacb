"""`watchbill retention`: remove finished jobs and other rows that are older than the settings keep."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, print_json, print_table
from watchbill.cli.screen import say, say_lines
from watchbill.model.durations import show_duration

if TYPE_CHECKING:
    from watchbill.maintenance.retention import Keep
    from watchbill.settings import Settings

app = command_group("Remove finished jobs, attempts, audit rows, nodes and keys that are too old.")


@app.callback()
def retention() -> None:
    """Does nothing, but makes Typer treat this as a group: it would take a group of one command for the command."""


@app.command()
def run(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove now what nodes remove once an hour. Exits with 1 if another transaction blocks the removal."""
    from watchbill.maintenance.retention import Keep

    settings = ctx.obj.find_settings()
    url, keep = ctx.obj.find_address(settings).url, Keep.of_settings(settings)
    if dry_run:
        _print_preview(_read_preview(url, settings, keep), as_json=as_json)
        if not as_json:
            say(_describe_settings(settings))
        return
    removed: list[str] = []
    is_complete = asyncio.run(_remove_old_rows(url, settings, keep, removed))
    if as_json:
        print_json({"complete": is_complete, "removed": removed})
    else:
        say_lines("\n".join(removed) or "Nothing is older than the settings keep.")
        say(_describe_settings(settings))
    raise typer.Exit(0 if is_complete else 1)


def _describe_settings(settings: Settings) -> str:
    names = ("keep_succeeded", "keep_otherwise", "keep_audit", "slot_retention")
    shown = ", ".join(f"{name} = {show_duration(timedelta(seconds=getattr(settings, name)))}" for name in names)
    return f"The settings: {shown}."


async def _remove_old_rows(url: str, settings: Settings, keep: Keep, removed: list[str]) -> bool:
    from watchbill.maintenance.archive import Archiver
    from watchbill.maintenance.retention import RETRY_LOCKED_SECONDS, Retention
    from watchbill.redaction import Redaction
    from watchbill.store.node_connection import NodeConnection
    from watchbill.store.queries import queries

    connection = NodeConnection(url, queries(settings.schema), purpose="retention", timeout=600.0)
    try:
        report = lambda message, *params: removed.append(message % params)  # noqa: E731
        redaction = Redaction(settings.redact, settings.redact_text)
        place = settings.archive_to
        archiver = None if place is None else Archiver(connection, place, redaction, report)
        pause = await Retention(connection, keep, report, archiver).run()
    finally:
        await connection.close()
    return pause != RETRY_LOCKED_SECONDS


def _read_preview(url: str, settings: Settings, keep: Keep) -> list[tuple[Any, ...]]:
    from watchbill.postgres.connect import Connection
    from watchbill.store.queries import queries

    with Connection.connect(url, application_name="watchbill retention") as connection:
        query = queries(settings.schema)["preview_retention"].encode()
        rows = connection.execute(query, (keep.succeeded, keep.otherwise, keep.audit, keep.nodes)).fetchall()
    if settings.archive_to is None:
        return rows
    return [(what, "archive" if action == "drop" else action, *more) for what, action, *more in rows]


def _print_preview(rows: list[tuple[Any, ...]], *, as_json: bool) -> None:
    names = ("what", "action", "rows", "bytes")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table(names, [tuple("" if value is None else value for value in row) for row in rows])
    else:
        say("Nothing is older than the settings keep.")
