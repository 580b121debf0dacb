"""What all commands share: the global options, and printing for people (Rich on a terminal), for pipes and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.client.plans import Plan
    from watchbill.postgres.address import Address
    from watchbill.settings import Settings

R = TypeVar("R")
ON_TERMINAL = sys.stdout.isatty()
MARKUP: Literal["rich"] | None = "rich" if ON_TERMINAL else None


@dataclass(frozen=True)
class GlobalOptions:
    """The options before the command; every command finds them in its context's `obj`."""

    database_url: str | None
    schema: str | None
    given: Mapping[str, Any] = field(default_factory=dict)  # by a framework's settings

    def settings(self, **arguments: Any) -> Settings:
        return self._settings(self.given, arguments)

    def settings_of(self, application: App, **arguments: Any) -> Settings:
        """What the application's code has given wins over all but the command line."""
        return self._settings({**self.given, **application.given}, arguments)

    def _settings(self, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> Settings:
        from watchbill.settings import Settings

        said = {"database_url": self.database_url, "schema": self.schema, **arguments}
        told = {name: value for name, value in said.items() if value is not None}
        origins = {name: origin for name, origin in given.get("origins", {}).items() if name not in told}
        return Settings.load(**{**given, **told, "origins": origins})

    def located(self) -> Settings:
        """As the App has them that is found here: every command is about the database that its worker works on."""
        settings = self.settings()
        if self.database_url and self.schema:
            return settings
        from watchbill.cli.discovery import find_quietly

        found = find_quietly(settings.app)
        return settings if found is None else self.settings_of(found[0])

    def address(self, settings: Settings) -> Address:
        from watchbill.postgres.address import find_address

        return find_address(settings)

    def run(self, plan: Plan[R]) -> R:
        """Carries out one of the client's plans."""
        from watchbill.client.clients import Client

        settings = self.located()
        with Client(self.address(settings).url, schema=settings.schema, pool_size=1) as client:
            return client.run(plan)


class Noun(TyperGroup):
    """A bare noun lists, with whatever options `list` has: `watchbill jobs --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help") and "list" in self.commands:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def command_group(meaning: str | None = None) -> typer.Typer:
    """A Typer for one module of commands, set up like all the others."""
    return typer.Typer(
        cls=Noun, help=meaning, rich_markup_mode=MARKUP, add_completion=False, pretty_exceptions_enable=False
    )


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def print_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2, default=str, ensure_ascii=False))


def print_facts(facts: Mapping[str, object]) -> None:
    """Name and value, one pair per line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{typer.style(name.ljust(width), bold=True)}  {value}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    if ON_TERMINAL:
        _print_rich(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, *cells):
        typer.echo("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())


def _print_rich(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in cells:
        table.add_row(*map(Text, row))  # Text, because [brackets] in data are no markup
    Console().print(table)


def plain_commands(formatter: Any, panels: Mapping[str, list[tuple[str, str]]]) -> None:
    """The help's list of commands when it is piped: Rich draws its own."""
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows)
