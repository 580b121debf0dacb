"""The command `watchbill`. Each command or group of commands is a module, imported when it is used.

A new one is one line in `_COMMANDS` and a module with `app = command_group(...)` (see `output.py`).

Exit codes: 0 yes or done; 1 no (doctor or status found something); 2 wrong usage or settings; 3 no database or schema;
4 no application; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from watchbill.cli.failures import exit_with
from watchbill.cli.output import MARKUP, GlobalOptions, plain_commands

# Panel of the help -> command -> module.
_COMMANDS = {
    "Run": {
        "up": "watchbill.cli.up",
        "worker": "watchbill.cli.worker",
    },
    "Look and act": {
        "jobs": "watchbill.cli.jobs",
        "schedules": "watchbill.cli.schedules",
        "dead": "watchbill.cli.dead",
        "queues": "watchbill.cli.queues",
        "nodes": "watchbill.cli.nodes",
        "stats": "watchbill.cli.stats",
    },
    "Try": {
        "cron": "watchbill.cli.cron",
    },
    "Set up": {
        "db": "watchbill.cli.db",
        "doctor": "watchbill.cli.doctor",
        "version": "watchbill.cli.version",
    },
}
_MODULES = {name: (panel, module) for panel, commands in _COMMANDS.items() for name, module in commands.items()}
_GLOBAL_WITH_VALUE = ("--database-url", "--schema")


class _Commands(TyperGroup):
    """Knows the names of all commands, and imports only the one that is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULES:
            return None
        panel, module = _MODULES[cmd_name]
        command: Any = typer.main.get_command(importlib.import_module(module).app)
        command.name, command.rich_help_panel = cmd_name, panel
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        plain_commands(formatter, {panel: self._helps(ctx, names) for panel, names in _COMMANDS.items()})

    def _helps(self, ctx: Any, names: dict[str, str]) -> list[tuple[str, str]]:
        return [(name, self.get_command(ctx, name).get_short_help_str(80)) for name in names]


_app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_app.callback(invoke_without_command=True)
def _watchbill(
    ctx: typer.Context,
    database_url: Annotated[str | None, typer.Option(help="Where the database is.", metavar="URL")] = None,
    schema: Annotated[str | None, typer.Option(help="The schema that holds everything.", metavar="NAME")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Runs work on time, once, on the right node."""
    ctx.obj = GlobalOptions(database_url, schema, ctx.obj or {})
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(*, prog_name: str = "watchbill", given: Mapping[str, Any] | None = None) -> None:
    """`given` are settings that a framework's own command has found in the framework's settings."""
    arguments = _globals_first(sys.argv[1:])
    try:
        _app(arguments, prog_name=prog_name, obj=given)
    except Exception as error:
        if "--debug" in arguments:
            raise
        exit_with(error)


def _globals_first(arguments: list[str]) -> list[str]:
    """`watchbill db status --schema x` is what people type; the parser wants `watchbill --schema x db status`."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*first, *rest, word, *words]
        if word in _GLOBAL_WITH_VALUE:
            first += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--debug" or word.startswith(tuple(f"{name}=" for name in _GLOBAL_WITH_VALUE)):
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]
