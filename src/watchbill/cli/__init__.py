"""The command `watchbill`. Each group of commands is in a module that is imported only when one of them is used.

To add a group, add a line to `_COMMANDS` and call `command_group(...)` of `help.py` in the module of the group.

Exit codes: 0 success; 1 a negative answer (doctor or status found a problem); 2 wrong usage or settings; 3 no database
or schema; 4 no application; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from contextvars import copy_context
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn

import typer

from watchbill.cli.help import CommandGroup
from watchbill.cli.output import GlobalOptions
from watchbill.cli.screen import Painted, paint, say_lines, wrap_error
from watchbill.errors import NoDatabase, SchemaError, WatchbillError

# Heading in the help -> command -> the module of the command and the name of the Typer object in it, and the first
# sentence of its help: so `watchbill --help` imports no module.
_COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "up": ("up:app", "Run everything in this terminal: PostgreSQL, schema and worker."),
        "worker": (
            "worker:app",
            "Run jobs until stopped: the first Ctrl-C or SIGTERM drains, the second stops at once.",
        ),
        "dashboard": ("dashboard:app", "Serve the dashboard and the HTTP API."),
    },
    "Jobs and schedules": {
        "jobs": ("jobs:app", "Enqueue, list, show and change jobs."),
        "dead": ("operations:dead", "List, group, retry and purge dead jobs."),
        "schedules": ("schedules:app", "Write, list and run schedules, and ask why one does not fire."),
        "operations": ("bulk:app", "List, show, pause, resume and cancel bulk operations, which change many jobs."),
        "backfill": ("backfill:app", "Enqueue a job for each slot of the past, or for each line of a file."),
        "cron": ("cron:app", "Try patterns: next, prev, between, explain, check, preview."),
    },
    "Who may run what, and where": {
        "queues": ("operations:queues", "List, pause and resume queues and types."),
        "types": ("job_types:app", "Ask why jobs of a type do not run."),
        "limits": ("limits:app", "List, show, set and clear limits and rates."),
        "nodes": ("operations:nodes", "List, show and drain nodes."),
        "tenants": ("tenants:app", "List, show, limit and erase tenants."),
        "cells": ("tenant_moves:app", "List cells, and move tenants between them."),
        "endpoints": ("endpoints:app", "List, show and change the servers to which connectors send requests."),
        "locks": ("locks:app", "List and release named locks."),
        "cluster": ("locks:cluster", "Show who leads the groups of this cluster."),
        "groups": ("groups:groups", "List and remove token groups."),
        "tokens": ("groups:tokens", "Show who owns tokens, list what moved, and divide tokens again."),
        "pins": ("groups:pins", "Add, list and clear pins."),
    },
    "Watch": {
        "top": ("top:app", "Show what runs, waits and fails, each second: queues, nodes and groups of failures."),
        "stats": ("operations:stats", "Count jobs now, and what has ended by minute, hour, day, queue or type."),
        "alerts": ("alerts:app", "List alerts, change rules, and set where alerts are sent."),
        "silences": ("alerts:silences", "List, add and end silences, which keep alerts back."),
        "audit": ("audit:app", "List what operators did."),
        "metrics": ("metrics:metrics", "Print metrics of the installation, for Prometheus."),
        "health": ("metrics:health", "Ask whether a worker lives, or is ready for work."),
    },
    "Set up and keep": {
        "db": ("db:app", "Create, upgrade and inspect the schema."),
        "doctor": ("doctor:doctor", "Find problems and show how to fix them."),
        "verify": ("verify:verify", "Check that the tables do not contradict each other, while nodes work."),
        "keys": ("keys:app", "Make and revoke API keys and logins for the dashboard."),
        "archive": ("archive:app", "List, check and read back days of history that retention has written to files."),
        "retention": ("retention:app", "Remove finished jobs, attempts, audit rows, nodes and keys that are too old."),
        "version": ("doctor:version", "Show the versions of Watchbill, Python and psycopg."),
    },
}
_MODULES = {name: module for commands in _COMMANDS.values() for name, (module, _) in commands.items()}
_GLOBAL_WITH_VALUE = ("--database-url", "--schema", "--cell")


class _Commands(CommandGroup):
    """Knows the names of all commands, and imports only the one that is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULES:
            return None
        place = _MODULES[cmd_name]
        module, _, attribute = place.partition(":")
        command: Any = typer.main.get_command(getattr(importlib.import_module(f"watchbill.cli.{module}"), attribute))
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # click's UsageError, or that of the copy of click inside newer versions of Typer
            near = get_close_matches(args[0], _MODULES, n=1)
            if near and "No such command" in getattr(error, "message", ""):
                error.message += f" Did you mean {near[0]}?"  # type: ignore[attr-defined]
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in _COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in names.items()])


_app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@_app.callback(invoke_without_command=True)
def _watchbill(
    ctx: typer.Context,
    database_url: Annotated[str | None, typer.Option(help="The address of the database.", metavar="URL")] = None,
    schema: Annotated[str | None, typer.Option(help="The schema that holds everything.", metavar="NAME")] = None,
    cell: Annotated[
        str | None, typer.Option(help="The cell, if the project has several; some commands take `all`.", metavar="NAME")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """A durable job queue, cron scheduler and cluster coordinator on PostgreSQL."""
    ctx.obj = GlobalOptions(database_url, schema, ctx.obj or {}, cell)
    if version:
        from watchbill.cli.doctor import show_version

        show_version()
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        say_lines(Painted(ctx.get_help()))


def main(*, prog_name: str = "watchbill", given: Mapping[str, Any] | None = None) -> None:
    """Runs the command line. `given` are settings that come from a framework, such as Django's settings."""
    arguments = _move_global_options_first(sys.argv[1:])
    try:
        # Runs in a copy of the context, because the option --tenant sets a context variable.
        copy_context().run(_app, arguments, prog_name=prog_name, obj=given)
    except Exception as error:
        if "--debug" in arguments:
            raise
        _exit_with(error)


def _move_global_options_first(arguments: list[str]) -> list[str]:
    """Moves global options to the front: people type `watchbill db status --schema x`, but the parser needs `watchbill
    --schema x db status`."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*first, *rest, word, *words]
        if word.partition("=")[0] == "--schema" and rest[:2] == ["db", "install"]:
            rest.append(word)  # stays, because --schema of `db install` is another option: the schema of the facade
        elif word in _GLOBAL_WITH_VALUE:
            first += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--debug" or word.startswith(tuple(f"{name}=" for name in _GLOBAL_WITH_VALUE)):
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]


def _exit_with(error: Exception) -> NoReturn:
    """Prints an error with its hint, and exits. Raises an unexpected error again, so that its traceback is shown: it is
    a bug in Watchbill."""
    known = error if isinstance(error, WatchbillError) else _explain_driver_error(error)
    if _is_refused_worker(error) and isinstance(error.__cause__, Exception):
        known = _explain_driver_error(error.__cause__) or known
    if known is None:
        raise error
    first, *rest = wrap_error(f"Error: {known.message}")
    say_lines(Painted(first.replace("Error:", paint("Error:", "red", bold=True), 1)), err=True)
    for line in (*rest, *(wrap_error(known.hint) if known.hint else ())):
        say_lines(line, err=True)
    sys.exit(known.exit_code)


def _is_refused_worker(error: Exception) -> bool:
    """Whether a worker raised this error because the server refused a statement; its message is that of the server."""
    if "watchbill.store.node_connection" not in sys.modules:  # if it was never imported, no worker has run
        return False
    from watchbill.store.node_connection import Refused

    return isinstance(error, Refused)


def _explain_driver_error(error: Exception) -> WatchbillError | None:
    if "psycopg" not in sys.modules:  # if it was never imported, the error cannot come from the driver
        return None
    import psycopg
    from psycopg import errors

    if not isinstance(error, psycopg.Error):
        return None
    message = error.diag.message_primary or str(error).splitlines()[0]
    if isinstance(error, errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName):
        return SchemaError(f"The schema is incomplete: {message}.", hint="Run `watchbill db status`.")
    if isinstance(error, errors.InsufficientPrivilege):
        from watchbill.store.refusals import role_refusal

        refused = SchemaError(f"PostgreSQL refused: {message}.", hint="Use a role with this privilege, or grant it.")
        return role_refusal(message) or refused
    if isinstance(error, psycopg.OperationalError):
        return NoDatabase(f"The database connection was lost: {message}.", hint="Try again, or run `watchbill doctor`.")
    return WatchbillError(f"PostgreSQL refused: {message}.", hint="--debug shows the traceback.")
