"""`foliot version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from foliot import __version__
from foliot.cli.output import command_group, print_json

app = command_group()


@app.command()
def version(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show which Foliot this is, and what it runs on."""
    found = {"foliot": __version__, "python": platform.python_version(), "psycopg": installed_version("psycopg")}
    if as_json:
        print_json(found)
    else:
        typer.echo(f"Foliot {found['foliot']} (Python {found['python']}, psycopg {found['psycopg']})")
