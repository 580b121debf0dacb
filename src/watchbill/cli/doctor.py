"""`watchbill doctor` and `watchbill version`."""

from __future__ import annotations

import platform
import shutil
import textwrap
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

import typer

from watchbill import __version__
from watchbill.cli.help import command_group
from watchbill.cli.output import AsJson, print_json
from watchbill.cli.screen import is_terminal, paint, say
from watchbill.errors import name_commands, name_quoted_commands

if TYPE_CHECKING:
    from watchbill.postgres.checks import Finding

doctor = command_group()
version = command_group()

_INDENT = " " * 24  # so that further lines of a finding stand below its first line
_MIN_WIDTH = 40
_COLOURS = {
    "ok": typer.colors.GREEN,
    "note": typer.colors.YELLOW,
    "wrong": typer.colors.RED,
    "skipped": typer.colors.BRIGHT_BLACK,
}


@doctor.command("doctor", over_cells="apart")
def examine(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Find problems and show how to fix them. Checks everything Watchbill depends on; exits with 1 if it finds one."""
    from watchbill.postgres.checks import examine
    from watchbill.postgres.migrate import Source

    findings = []
    for finding in examine(Source.of_package("watchbill.store"), ctx.obj.find_settings):
        findings.append(finding)
        if not as_json:
            _print_finding(finding)
    if as_json:
        print_json([vars(finding) for finding in findings])
    raise typer.Exit(1 if any(finding.state == "wrong" for finding in findings) else 0)


def _print_finding(finding: Finding) -> None:
    state = paint(finding.state.ljust(7), _COLOURS[finding.state])
    first, *more = _wrap_text(name_quoted_commands(finding.says))
    say(state, f"  {finding.check.ljust(13)}  {first}")
    for line in (*more, *(part for hint in name_commands(finding.hint).splitlines() for part in _wrap_text(hint))):
        say(f"{_INDENT}{line}")


def _wrap_text(text: str) -> list[str]:
    """Splits a text into lines that fit the terminal. In a pipe, the text stays whole."""
    if not is_terminal():
        return [text]
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns - len(_INDENT))
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


@version.command("version")
def show_version(as_json: AsJson = False) -> None:
    """Show the versions of Watchbill, Python and psycopg."""
    found = {"watchbill": __version__, "python": platform.python_version(), "psycopg": installed_version("psycopg")}
    if as_json:
        print_json(found)
    else:
        say(f"Watchbill {found['watchbill']} (Python {found['python']}, psycopg {found['psycopg']})")
