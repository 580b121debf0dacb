"""What the database refused, in our own errors."""

from __future__ import annotations

import psycopg

from foliot.errors import FoliotError, NoDatabase, SchemaError


class Invalid(FoliotError):
    """The request cannot be carried out as it stands."""

    exit_code = 2


class PayloadDiffers(FoliotError):
    """The idempotency key was used before, with another payload."""


class StaleFence(FoliotError):
    """The job is not held under this fence any more: its lease was lost, or it was taken away."""


_OURS: dict[str, type[FoliotError]] = {
    "FO003": Invalid,
    "FO004": PayloadDiffers,
    "FO005": Invalid,
    "FO007": StaleFence,
    "FO008": Invalid,
}


def translate(error: psycopg.Error, schema: str) -> Exception:
    """Ours where the state machine said no, or the schema or connection is the matter; else as it came."""
    text, state = error.diag.message_primary or str(error), error.sqlstate or ""
    if state in _OURS:
        return _OURS[state](_sentence(text), hint=error.diag.message_hint)
    if isinstance(
        error, (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable)
    ):
        return SchemaError(f"Schema {schema!r} is missing or too old: {text}.", hint="Run `foliot db migrate`.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return NoDatabase(f"The database did not answer: {_sentence(str(error).strip().splitlines()[0])}")
    return error


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def stale_or(error: psycopg.DatabaseError) -> Exception:
    """StaleFence when that is what it is; else the error itself."""
    if error.sqlstate != "FO007":
        return error
    return StaleFence(_sentence(error.diag.message_primary or str(error)), hint=error.diag.message_hint)
