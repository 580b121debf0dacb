"""What the database refused, in our own errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watchbill.errors import WatchbillError, NoDatabase, SchemaError

if TYPE_CHECKING:
    import psycopg


class Invalid(WatchbillError):
    """The request cannot be carried out as it stands."""

    exit_code = 2


class PayloadDiffers(WatchbillError):
    """The idempotency key was used before, with another payload."""


class ScheduleExists(Invalid):
    """A schedule has this name already."""


class StaleFence(WatchbillError):
    """The job is not held under this fence any more: its lease was lost, or it was taken away."""


class WrongDatabase(WatchbillError):
    """The connection that was given does not lead to where this App's jobs live."""

    exit_code = 3


class NotInstalled(WrongDatabase):
    """The connection that was given leads to a database without Watchbill."""


_OURS: dict[str, type[WatchbillError]] = {
    "WB003": Invalid,
    "WB004": PayloadDiffers,
    "WB005": Invalid,
    "WB007": StaleFence,
    "WB008": Invalid,
    "WB009": ScheduleExists,
    "WB010": Invalid,
}


def refusal(state: str | None, text: str, hint: str | None) -> WatchbillError | None:
    """What the state machine itself says no to, by its SQLSTATE, whichever driver brought the news."""
    kind = _OURS.get(state or "")
    return None if kind is None else kind(_sentence(text), hint=hint)


def translate(error: psycopg.Error, schema: str) -> Exception:
    """Ours where the state machine said no, or the schema or connection is the matter; else as it came."""
    import psycopg

    text = error.diag.message_primary or str(error)
    if ours := refusal(error.sqlstate, text, error.diag.message_hint):
        return ours
    if isinstance(
        error, (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable)
    ):
        return SchemaError(f"Schema {schema!r} is missing or too old: {text}.", hint="Run `watchbill db migrate`.")
    if isinstance(error, psycopg.DataError):  # an id that is none, a number that is too large
        return Invalid(f"An argument cannot be used: {text}.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return NoDatabase(f"The database did not answer: {_sentence(str(error).strip().splitlines()[0])}")
    return error


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def nowhere(schema: str) -> NotInstalled:
    return NotInstalled(
        f"The connection that was given leads to a database without Watchbill: it has no schema {schema!r} of ours.",
        hint="Give a connection to the database in which the App's jobs live. If this is the one, "
        "run `watchbill db migrate` for it, or name its schema with App(schema=...).",
    )


def elsewhere(schema: str) -> WrongDatabase:
    return WrongDatabase(
        f"The connection that was given leads to another installation of Watchbill: schema {schema!r} there is not "
        "the one in the App's own database. Nothing was enqueued.",
        hint="Give a connection to the App's own database (`watchbill db status` says which it is), "
        "or make the App for the other one: App(database_url=...).",
    )
