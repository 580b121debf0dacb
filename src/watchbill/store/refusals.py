"""Turns errors that the SQL functions raise into exceptions: one class for each SQLSTATE."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING

from watchbill.errors import NoDatabase, SchemaError, WatchbillError

if TYPE_CHECKING:
    import psycopg


class Invalid(WatchbillError):
    """The request is invalid: an argument is wrong, or does not fit the state of the job or schedule."""

    exit_code = 2


class PayloadDiffers(WatchbillError):
    """The idempotency key was used before, with another payload."""


class DuplicateJob(WatchbillError):
    """An earlier job has the unique key, and `on_duplicate` is `reject`."""


class ScheduleExists(Invalid):
    """A schedule has this name already."""


class AlreadyRunning(WatchbillError):
    """A job of the schedule has not ended, and `overlap` is `skip`."""


class NodeLost(WatchbillError):
    """The epoch of this node has ended: it was declared lost, or it has left."""


class StaleFence(WatchbillError):
    """This run no longer has the job: the lease of its node ran out, or the job was taken from the node."""


class LockLost(WatchbillError):
    """The caller no longer holds the lock: it expired and may be another caller's, or it was released."""


class TenantRefused(Invalid):
    """This session may not see or write rows of that tenant."""


class RoleRefused(Invalid):
    """The role of this login may not do this."""

    exit_code = 3


class QuotaExceeded(WatchbillError):
    """A quota of the tenant is full, so nothing was enqueued.

    `quota` is `unfinished`, `payload_bytes` or `per_minute`; `used` of `max` are in use, and the call needed `wanted`
    more. `frees_at` is when a quota per minute has room for the call; None if that is not known, or never happens.
    """

    tenant = quota = ""
    max = used = wanted = 0
    frees_at: datetime | None = None

    def read_detail(self, detail: str) -> None:
        found = json.loads(detail)
        self.tenant, self.quota = found["tenant"], found["quota"]
        self.max, self.used, self.wanted = found["max"], found["used"], found["wanted"]
        self.frees_at = None if found["frees_at"] is None else datetime.fromisoformat(found["frees_at"])


class TenantMoved(WatchbillError):
    """The jobs of this tenant are in another cell, or on their way to it. Nothing was enqueued.

    `cell` is that other cell; None while the move is under way.
    """

    tenant = ""
    cell: str | None = None

    def read_detail(self, detail: str) -> None:
        found = json.loads(detail)
        self.tenant, self.cell = found["tenant"], found["cell"]


class FunctionReplaced(SchemaError):
    """A function that the statement calls is missing, or was replaced while it ran. The statement has changed
    nothing."""


class StandbyRefused(NoDatabase):
    """The server is a standby, which takes no changes. During a failover this passes."""


class WrongDatabase(WatchbillError):
    """The given connection does not lead to the database of this App's jobs."""

    exit_code = 3


class NotInstalled(WrongDatabase):
    """The given connection leads to a database without Watchbill."""


_BY_SQLSTATE: dict[str, type[WatchbillError]] = {
    "WB001": NodeLost,
    "WB003": Invalid,
    "WB004": PayloadDiffers,
    "WB005": Invalid,
    "WB007": StaleFence,
    "WB008": Invalid,
    "WB009": ScheduleExists,
    "WB010": Invalid,
    "WB011": AlreadyRunning,
    "WB012": LockLost,
    "WB013": TenantRefused,
    "WB014": DuplicateJob,
    "WB015": QuotaExceeded,
    "WB016": TenantMoved,
    "WB017": Invalid,
}


_HOW_TO_NAME_A_TENANT = (
    'Name the tenant: with app.tenant("acme") in Python, --tenant acme on the command line, or in the transaction '
    "SELECT set_config('watchbill.tenant', 'acme', true)."
)


def refusal(state: str | None, text: str, hint: str | None, detail: str | None = None) -> WatchbillError | None:
    """Returns the exception for an error that a SQL function raised, through any driver. None for other errors."""
    kind = _BY_SQLSTATE.get(state or "")
    if kind is None:
        return None
    shown_hint = None if hint is None else _make_sentence(hint)
    error = kind(_make_sentence(text), hint=_HOW_TO_NAME_A_TENANT if kind is TenantRefused else shown_hint)
    if isinstance(error, QuotaExceeded | TenantMoved) and detail:
        error.read_detail(detail)
    return error


_DENIED = re.compile(r"permission denied for (function|table|view|sequence|schema) (\w+)")


def role_refusal(text: str, caller: str | None = None) -> RoleRefused | None:
    """Returns the exception for PostgreSQL's own refusal, which names only an object: says which role may use it, and
    who the caller is, if that is known. None if the object is not one of Watchbill's."""
    from importlib.resources import files

    from watchbill.postgres.rights import ROLE_KINDS, Rights

    found = _DENIED.match(text)
    if found is None:
        return None
    rights = Rights.read(files("watchbill.store") / "rights.txt")
    stated = rights.functions if found[1] == "function" else rights.relations
    kinds = {kind for right in stated if right.name == found[2] for kind in right.roles}
    names = [kind for kind in ROLE_KINDS if kind in kinds or found[1] == "schema"] or ["owner"]
    needed = ", ".join(names[:-1]) + " or " * (len(names) > 1) + names[-1]
    return RoleRefused(
        f"This needs the role {needed}; {caller or 'this login does not have it'} ({text}).",
        hint=f"Use a login with that role, or let an owner run `watchbill db roles grant LOGIN {names[-1]}`.",
    )


def translate(error: psycopg.Error, schema: str, caller: str | None = None) -> Exception:
    """Returns a WatchbillError if the cause of a driver's error is known, and otherwise the error itself. `caller` says
    who has sent the statement, if that is known."""
    import psycopg

    from watchbill.postgres.hosts import is_standby_refusal

    text = error.diag.message_primary or str(error)
    if refused := refusal(error.sqlstate, text, error.diag.message_hint, error.diag.message_detail):
        return refused
    if is_function_replaced(error):
        return FunctionReplaced(
            f"Schema {schema!r} is missing or too old, or a migration has just replaced its functions: {text}.",
            hint="Run `watchbill db migrate`. If it has just run, repeat the call, which has changed nothing.",
        )
    if isinstance(error, (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable)):
        return SchemaError(f"Schema {schema!r} is missing or too old: {text}.", hint="Run `watchbill db migrate`.")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return role_refusal(text, caller) or error
    if isinstance(error, psycopg.DataError):  # such as an id that is not a UUID, or a number that is too large
        return Invalid(f"An argument is invalid: {text}.")
    if isinstance(error, psycopg.errors.ProgramLimitExceeded):  # such as a key that does not fit into an index
        return Invalid(f"An argument is too large: {text}.")
    if is_standby_refusal(error):
        return StandbyRefused(
            "This server is a standby; it takes no changes.",
            hint="Give the address of the primary, or all hosts in one URL: postgresql://user@host1,host2/database.",
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return NoDatabase(f"The database did not answer: {_capitalize(str(error).strip().splitlines()[0])}")
    return error


def is_function_replaced(error: psycopg.Error) -> bool:
    """Whether a statement called a function that a migration replaced while it ran; or one that does not exist."""
    text = error.diag.message_primary or ""
    return error.sqlstate == "42883" or (
        error.sqlstate == "XX000" and text.startswith("cache lookup failed for function")
    )


def _make_sentence(text: str) -> str:
    """SQL functions raise errors as PostgreSQL does, in lower case and without a period. Ours are sentences. A name at
    the beginning, such as set_limit, stays as it is."""
    starts_with_word = re.match(r"[a-z]+(?![\w.(:])", text)
    return (_capitalize(text) if starts_with_word else text) + ("" if text.endswith((".", "?", "!")) else ".")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def schema_missing(schema: str) -> NotInstalled:
    return NotInstalled(
        f"The given connection leads to a database without Watchbill: it has no Watchbill schema {schema!r}.",
        hint="Give a connection to the database in which the App's jobs live. If this is the one, "
        "run `watchbill db migrate` for it, or name its schema with App(schema=...).",
    )


def wrong_installation(schema: str) -> WrongDatabase:
    return WrongDatabase(
        f"The given connection leads to another installation of Watchbill: schema {schema!r} there is not "
        "the one in the App's own database. Nothing was done.",
        hint="Give a connection to the App's own database (`watchbill db status` says which it is), "
        "or make the App for the other one: App(database_url=...).",
    )
