"""`watchbill version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from watchbill import __version__
from watchbill.cli.output import command_group, print_json

app = command_group()


@app.command()
def version(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show which Watchbill this is, and what it runs on."""
    found = {"watchbill": __version__, "python": platform.python_version(), "psycopg": installed_version("psycopg")}
    if as_json:
        print_json(found)
    else:
        typer.echo(f"Watchbill {found['watchbill']} (Python {found['python']}, psycopg {found['psycopg']})")
