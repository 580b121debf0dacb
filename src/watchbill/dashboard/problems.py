"""What went wrong, as RFC 9457 says it. Only messages of Watchbill's own are passed on, never the server's context."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from watchbill.client.bulk_operations import NoSuchOperation
from watchbill.client.cluster_operations import NoSuchGroup
from watchbill.client.job_operations import NoSuchJob
from watchbill.client.schedule_operations import NoSuchSchedule, UnknownTask
from watchbill.client.tenant_operations import NoSuchTenant
from watchbill.dashboard.database import NoMember, NotSeparated
from watchbill.errors import NoDatabase, SchemaError, SettingsError, WatchbillError
from watchbill.filters.condition import FilterError
from watchbill.store.refusals import QuotaExceeded, RoleRefused

MEDIA_TYPE = "application/problem+json"

# The statuses of our own SQLSTATEs: docs/reference/sql.md says what each of them means.
_STATUS_OF_CODE = {
    "WB001": 410,
    "WB002": 409,
    "WB003": 422,
    "WB004": 409,
    "WB005": 500,
    "WB006": 409,
    "WB007": 409,
    "WB008": 409,
    "WB009": 409,
    "WB010": 422,
    "WB011": 409,
    "WB012": 409,
    "WB013": 403,
    "WB014": 409,
    "WB015": 429,
    "WB016": 409,
    "WB017": 403,
}
_TITLES = {
    400: "The request cannot be read",
    401: "Who are you?",
    403: "You may not do this",
    404: "There is no such thing",
    405: "This address has no such method",
    408: "The request took too long to arrive",
    409: "The state does not allow this",
    410: "The node is lost",
    413: "The request is too large",
    415: "The request has another type",
    421: "This server does not answer to that host",
    422: "An argument is invalid",
    429: "Too many requests",
    500: "Something broke",
    503: "The database does not answer",
}
_NOT_FOUND = (NoSuchGroup, NoSuchJob, NoSuchSchedule, NoSuchOperation, NoSuchTenant)
_CANCELED_BY_TIMEOUT = "57014"


class Problem(Exception):
    """An answer that is not the wanted one. `errors` are places in the request: {"pointer", "detail"}."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str | None = None,
        hint: str | None = None,
        code: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.code = status, detail, hint, code
        self.title = title or _TITLES.get(status, "The request failed")
        self.errors = [dict(each) for each in errors]
        self.headers = dict(headers or {})

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "type": "about:blank" if self.code is None else f"urn:watchbill:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.hint:
            found["hint"] = self.hint
        if self.code:
            found["code"] = self.code
        if self.errors:
            found["errors"] = self.errors
        return found


def explain(error: Exception) -> Problem:
    """Returns the problem for an error that one of our calls has raised."""
    if isinstance(error, Problem):
        return error
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if state == _CANCELED_BY_TIMEOUT:
        return Problem(503, "The database took too long for this request, so it was canceled.", title="Too slow")
    if isinstance(error, WatchbillError):
        return _explain_own_error(error, state, cause)
    if isinstance(error, psycopg.Error):
        if state in _STATUS_OF_CODE:  # one of our codes without an exception of its own
            text = error.diag.message_primary or ""
            return Problem(_STATUS_OF_CODE[state], f"{text[:1].upper()}{text[1:]}.", hint=error.diag.message_hint,
                           code=state)  # fmt: skip
        if state == "25006":  # READ ONLY
            return Problem(403, "This server only shows.")
        return Problem(500, "The database refused the request. The log of this server has the reason.", code=state)
    return Problem(500, "The server could not carry out the request. Its log has the reason.")


def _explain_own_error(error: WatchbillError, state: str | None, cause: BaseException) -> Problem:
    code = state if state in _STATUS_OF_CODE else None
    if isinstance(error, _NOT_FOUND):
        status = 404
    elif code is not None:
        status = _STATUS_OF_CODE[code]
    elif isinstance(error, RoleRefused | NotSeparated):
        status = 403
    elif isinstance(error, NoDatabase | SchemaError | NoMember | SettingsError):
        status = 503
    else:
        status = 422 if error.exit_code == 2 or isinstance(error, FilterError | UnknownTask) else 409
    headers = {}
    if isinstance(error, QuotaExceeded):
        headers["Retry-After"] = str(_seconds_until(error.frees_at))
    return Problem(
        status, error.message, hint=error.hint, code=code, errors=_read_errors(cause), headers=headers
    )  # fmt: skip


def _seconds_until(instant: datetime | None) -> int:
    if instant is None:
        return 60
    return max(1, math.ceil((instant - datetime.now(UTC)).total_seconds()))


def _read_errors(cause: BaseException) -> list[dict[str, Any]]:
    """The place of an error in a batch, which our functions write into the detail as JSON."""
    detail = cause.diag.message_detail if isinstance(cause, psycopg.Error) else None
    if not detail or not detail.startswith("{"):
        return []
    try:
        found = json.loads(detail)
    except ValueError:
        return []
    if not isinstance(found, dict) or "pointer" not in found:
        return []
    return [{"pointer": str(found["pointer"]), "detail": str(found.get("detail", ""))}]
