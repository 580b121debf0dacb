"""How a command ends when it cannot do its work: one clear message, a way out, an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from watchbill.errors import WatchbillError, NoDatabase, SchemaError


def exit_with(error: Exception) -> NoReturn:
    """Prints what is expected to go wrong; anything else is a bug of ours and keeps its traceback."""
    known = error if isinstance(error, WatchbillError) else _of_driver(error)
    if known is None:
        raise error
    typer.secho("Error: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
    typer.echo(known.message, err=True)
    if known.hint:
        typer.echo(known.hint, err=True)
    sys.exit(known.exit_code)


def _of_driver(error: Exception) -> WatchbillError | None:
    """The driver is not imported for this: if it is not loaded, the error is not its own."""
    if "psycopg" not in sys.modules:
        return None
    import psycopg
    from psycopg import errors

    if not isinstance(error, psycopg.Error):
        return None
    said = error.diag.message_primary or str(error).splitlines()[0]
    if isinstance(error, errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName):
        return SchemaError(f"The schema is not what it should be: {said}.", hint="`watchbill db status` says more.")
    if isinstance(error, errors.InsufficientPrivilege):
        return SchemaError(f"PostgreSQL refused: {said}.", hint="Use a role with the rights, or have them granted.")
    if isinstance(error, psycopg.OperationalError):
        return NoDatabase(f"The database went away: {said}.", hint="Try again; `watchbill doctor` looks closer.")
    return WatchbillError(f"PostgreSQL refused: {said}.", hint="--debug shows where.")
