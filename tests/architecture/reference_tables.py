"""Tables of docs/reference that follow from the code; `python -m tests.architecture.reference_tables` rewrites them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from watchbill.cli import _app
from watchbill.settings import describe_settings
from tests.architecture.python_reference import python_reference

REFERENCE = Path(__file__).parents[2] / "docs/reference"
_TABLE = re.compile(r"(?<=<!-- made from the code -->\n).*?(?=<!-- end -->)", re.DOTALL)


def settings_table() -> str:
    lines = ["| setting | variable | default | allowed | meaning |", "|---|---|---|---|---|"]
    for name, default, allowed, meaning in describe_settings():
        lines.append(f"| `{name}` | `WATCHBILL_{name.upper()}` | {_shown(default)} | {allowed} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    if default is None or default == ():
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:.15g}`" if isinstance(default, float) else f"`{default}`"


def commands_table() -> str:
    lines = ["| command | does |", "|---|---|"]
    for words, command in commands():
        is_group = bool(getattr(command, "commands", None))
        if not is_group:
            lines.append(f"| `watchbill {' '.join(words)}` | {(command.help or '').splitlines()[0]} |")
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    group: Any = typer.main.get_command(_app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (name,), command
        for verb, subcommand in getattr(command, "commands", {}).items():
            yield (name, verb), subcommand


TABLES: dict[str, Callable[[], str]] = {
    "settings.md": settings_table,
    "commands.md": commands_table,
    "python.md": python_reference,
}


def with_table(text: str, table: str) -> str:
    return _TABLE.sub(lambda _: table, text)


if __name__ == "__main__":
    for document, render in TABLES.items():
        path = REFERENCE / document
        path.write_text(with_table(path.read_text(), render()))
