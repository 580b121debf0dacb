"""Tables of docs/reference that follow from the code; `python -m tests.architecture.reference_tables` rewrites them."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from tests.architecture.http_reference import http_reference
from tests.architecture.python_reference import python_reference
from tests.architecture.refusals_reference import refusals_reference
from watchbill.cli import _app
from watchbill.model.durations import DURATION_WORDS, show_duration
from watchbill.settings import describe_settings
from watchbill.verify.invariants import read_invariants

REFERENCE = Path(__file__).parents[2] / "docs/reference"
_TABLE = re.compile(r"(?<=<!-- made from the code -->\n).*?(?=<!-- end -->)", re.DOTALL)


def settings_table() -> str:
    lines = ["| setting | variable | default | allowed | meaning |", "|---|---|---|---|---|"]
    for name, default, allowed, meaning in describe_settings():
        lines.append(f"| `{name}` | `WATCHBILL_{name.upper()}` | {_shown(default, allowed)} | {allowed} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(default: object, allowed: str) -> str:
    if default is None or default == ():
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float) and allowed.startswith(DURATION_WORDS):
        return f"`{show_duration(timedelta(seconds=default))}`"
    return f"`{default:.15g}`" if isinstance(default, float) else f"`{default}`"


def commands_table() -> str:
    lines = ["| command | does |", "|---|---|"]
    for words, command in commands():
        is_group = bool(getattr(command, "commands", None))
        if not is_group:
            lines.append(f"| `watchbill {' '.join(words)}` | {(command.help or '').splitlines()[0]} |")
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    group = _app_command()
    context = typer.Context(group)
    for name in group.list_commands(context):
        yield from _with_subcommands((name,), group.get_command(context, name))


def _with_subcommands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for verb, subcommand in getattr(command, "commands", {}).items():
        yield from _with_subcommands((*words, verb), subcommand)


def options_reference() -> str:
    """A section per command: how it is used, its arguments and its options."""
    sections = [_command_section(("watchbill",), _app_command(), "Options of every command")]
    for words, command in commands():
        if not getattr(command, "commands", None):
            sections.append(_command_section(("watchbill", *words), command, f"`watchbill {' '.join(words)}`"))
    return "\n" + "\n".join(sections)


def _command_section(words: tuple[str, ...], command: Any, title: str) -> str:
    parameters = inspect.signature(inspect.unwrap(command.callback), eval_str=True).parameters
    shown = [param for param in command.params if not getattr(param, "hidden", False) and param.name in parameters]
    metavars = {param.name: _metavar(param, parameters[param.name].annotation) for param in shown}
    arguments = [metavars[param.name] for param in shown if param.param_type_name == "argument"]
    usage = [*words, "[OPTIONS]", *(["COMMAND ..."] if hasattr(command, "commands") else []), *arguments]
    meaning = " ".join((command.help or "").split())
    lines = [f"## {title}", "", *textwrap.wrap(meaning, 120, break_long_words=False, break_on_hyphens=False), ""]
    lines += ["```text", " ".join(usage), "```", ""]
    if shown:
        lines += ["| option | meaning | default |", "|---|---|---|"]
        for param in shown:
            signature = _signature(param, metavars[param.name])
            lines.append(f"| `{_cell(signature)}` | {_cell(param.help)} | {_show_default(param)} |")
        lines.append("")
    return "\n".join(lines)


def _signature(param: Any, metavar: str) -> str:
    if param.param_type_name == "argument":
        return metavar
    names = ", ".join([*param.opts, *param.secondary_opts])
    return names if param.is_flag else f"{names} {metavar}"


def _metavar(param: Any, annotation: Any) -> str:
    """From the annotation, which is the same for every version of Typer."""
    is_argument = param.param_type_name == "argument"
    word = str(param.metavar or (param.name.upper() if is_argument else _value_name(annotation)))
    is_optional = is_argument and not param.required and not word.startswith("[")
    return f"[{word}]" if is_optional else word


def _value_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    names = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
    return names.get(annotation) or next((name for each in get_args(annotation) if (name := _value_name(each))), "")


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def _show_default(param: Any) -> str:
    if param.required:
        return "required"
    if param.default is True:
        return f"`{param.opts[0]}`"
    is_unset = param.default is None or param.default is False or param.default == [] or callable(param.default)
    return "" if is_unset else f"`{param.default}`"


def invariants_table() -> str:
    lines = ["| invariant | what is true | looks |", "|---|---|---|"]
    looks = {"S": "one", "E": "two"}
    return "\n".join(
        [*lines, *(f"| `{each.name}` | {each.says} | {looks[each.kind]} |" for each in read_invariants()), ""]
    )


def _app_command() -> Any:
    return typer.main.get_command(_app)


TABLES: dict[str, Callable[[], str]] = {
    "settings.md": settings_table,
    "commands.md": commands_table,
    "command_options.md": options_reference,
    "python.md": python_reference,
    "http.md": http_reference,
    "refused_addresses.md": refusals_reference,
    "verify.md": invariants_table,
}


def with_table(text: str, table: str) -> str:
    return _TABLE.sub(lambda _: table, text)


if __name__ == "__main__":
    for document, render in TABLES.items():
        path = REFERENCE / document
        path.write_text(with_table(path.read_text(), render()))
