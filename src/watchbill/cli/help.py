"""How commands explain themselves: in one plain form, on terminals and in pipes.

Typer's own forms print the Python type of every parameter, and on a terminal they draw boxes in which half of the width
is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from watchbill.cli.cells import Joining

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT_COMMANDS = ("list", "status", "show", "leader")


class Command(TyperCommand):
    """A command without subcommands. `reads`: it changes nothing, so it may use the standby of the setting read_url.
    `over_cells`: how it works with `--cell all`; None if it does not."""

    reads = False
    over_cells: Joining | Literal["by itself"] | None = None

    def invoke(self, ctx: Any) -> Any:
        if ctx.obj is None:  # of a test
            return super().invoke(ctx)
        if self.reads:
            ctx.obj = replace(ctx.obj, reads=True)
        if ctx.obj.cell != "all" or self.over_cells == "by itself":
            return super().invoke(ctx)
        from watchbill.cli.cells import run_in_each
        from watchbill.cli.output import Usage

        if self.over_cells is None:
            raise Usage(f"`{ctx.command_path}` works in one cell.", hint="Name it: --cell NAME.")
        return run_in_each(ctx, partial(super().invoke, ctx), self.over_cells)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.options_metavar or "", *(_show_usage(each) for each in _list_params(self, ctx, "argument"))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_params(self, ctx, formatter)


class CommandGroup(TyperGroup):
    """A group of commands. If no command is given, as in `watchbill jobs --json`, it runs the one that lists or
    shows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        default = next((name for name in _DEFAULT_COMMANDS if name in self.commands), None)
        has_command = bool(args) and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
        if default and not has_command and not ctx.resilient_parsing:  # resilient_parsing is set for shell completion
            args = [default, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_params(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(command)) for name, command in self.commands.items()])


class _Group(typer.Typer):
    """A Typer whose commands explain themselves as this module says."""

    def command(
        self,
        name: str | None = None,
        *,
        reads: bool = False,
        over_cells: Joining | Literal["by itself"] | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        kind = type("Command", (Command,), {"reads": reads, "over_cells": over_cells})
        return super().command(name, **{"cls": kind, **options})


def command_group(meaning: str | None = None) -> _Group:
    """Returns a Typer for a command or a group of commands, with the configuration that all groups have."""
    return _Group(
        cls=CommandGroup, help=meaning, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
    )


def first_sentence(command: Any) -> str:
    """Returns the first sentence of a command's help, whole."""
    sentence, _, _ = " ".join((command.help or "").split()).partition(". ")
    return sentence if sentence.endswith(".") else f"{sentence}."


def _write_params(command: Any, ctx: Any, formatter: Any) -> None:
    for kind, title in (("argument", "Arguments"), ("option", "Options")):
        if rows := [(_show_param(each), _show_meaning(each)) for each in _list_params(command, ctx, kind)]:
            with formatter.section(title):
                formatter.write_dl(rows)


def _list_params(command: Any, ctx: Any, kind: str) -> list[Any]:
    return [each for each in command.get_params(ctx) if each.param_type_name == kind and not each.hidden]


def _show_usage(argument: Any) -> str:
    name = _show_value(argument) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _show_param(param: Any) -> str:
    """Returns a text such as `TYPE`, `--limit LIMIT`, `--enabled / --disabled` or `-h, --help`."""
    if param.param_type_name == "argument":
        return _show_value(param)
    names = " / ".join(filter(None, (", ".join(param.opts), ", ".join(param.secondary_opts))))
    return names if param.is_flag else f"{names} {_show_value(param)}"


def _show_value(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _show_meaning(param: Any) -> str:
    is_shown = param.default not in (None, True, False, "", "{}", [], ()) and not callable(param.default)
    return f"{param.help or ''}  [default: {param.default}]" if is_shown else str(param.help or "")
