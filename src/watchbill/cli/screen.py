"""Prints text for people. Control characters in the text become visible escapes; only `paint` adds colours."""

from __future__ import annotations

import shutil
import sys
import textwrap
from contextvars import ContextVar

import typer

from watchbill.telemetry.printable import printable, printable_lines

STATE_COLOURS = {
    "succeeded": "green", "skipped": "cyan", "running": "cyan", "failed": "yellow", "timed_out": "yellow",
    "snoozed": "magenta", "released": "magenta", "canceled": "magenta", "blocked": "blue", "suspended": "blue",
    "dead": "red", "lost": "red", "active": "green", "draining": "yellow",
}  # fmt: skip


line_prefix: ContextVar[str] = ContextVar("watchbill_line_prefix", default="")  # names the cell with `--cell all`


class Painted(str):
    """A text that is safe to print: its control characters are escaped, and it may have colours."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def paint(text: str, colour: str | None = None, *, bold: bool | None = None, dim: bool | None = None) -> Painted:
    """Escapes the text, unless that was done already, and adds a colour. `say` leaves colours out if stdout is a
    pipe."""
    safe = text if isinstance(text, Painted) else printable(text)
    return Painted(typer.style(safe, fg=colour, bold=bold, dim=dim))


def say(*parts: str, err: bool = False) -> None:
    """Prints one line."""
    line = "".join(part if isinstance(part, Painted) else printable(part) for part in parts)
    typer.echo(line_prefix.get() + line, err=err)


def show_progress(text: str = "") -> None:
    """Writes a text in place of the last progress; an empty one removes it. A pipe gets nothing."""
    if is_terminal():
        typer.echo(f"\r\x1b[K{printable(text)}", nl=False)


def say_wrapped(text: str, indent: str = "  ", *, err: bool = False) -> None:
    """Prints a text on one line, or on several lines if the terminal is too narrow, broken between words."""
    typer.echo("\n".join(wrap_text(printable(text), indent=indent, more=f"{indent}  ")), err=err)


def wrap_text(text: str, *, taken: int = 0, indent: str = "", more: str = "") -> list[str]:
    """Breaks a text between words, for a terminal of which so many columns are taken: its first line is indented by
    `indent`, the others by `more`. A pipe gets one line."""
    if not is_terminal():
        return [f"{indent}{text}"]
    width = max(shutil.get_terminal_size().columns - taken, 20)
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=more,
        break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return lines or [indent]


def wrap_error(text: str) -> list[str]:
    """Breaks the lines of an error between words, if stderr is a terminal."""
    lines = printable_lines(text).split("\n")
    if not sys.stderr.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [part for line in lines for part in (wrap.wrap(line) if len(line) > width else [line])]


def say_lines(text: str, *, err: bool = False) -> None:
    """Prints text that may have several lines, such as an error or a traceback."""
    typer.echo(text if isinstance(text, Painted) else printable_lines(text), err=err)


def print_script(text: str) -> None:
    """Prints a script unchanged, so that another program can read it."""
    typer.echo(text, nl=False)
