"""What a handler raised, as an ending."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from watchbill.model.retry import waiting_time
from watchbill.model.signals import Permanent, RetryAfter, Skip, Snooze
from watchbill.payloads import PayloadGone
from watchbill.worker.endings import Ending
from watchbill.worker.handlers import BadPayload, BadResult, NotStarted, RemoteError
from watchbill.worker.run import Claimed

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
NOT_STARTED_DELAY = 2.0
STOPPED = "its node stopped while it ran, and it has one attempt only"
_PACKAGE = str(Path(__file__).parents[1])
PERMANENT = (Permanent, BadPayload, BadResult, PayloadGone)  # no other attempt would end otherwise


def ending_of(
    claimed: Claimed,
    started: float | None,
    error: BaseException,
    stopping: str | None = None,
    timeout: float | None = None,
) -> Ending:
    """`stopping` says that we had told the handler to stop, and why: then whatever it raised is the end of that."""
    try:
        return _ending_of(claimed, started, error, stopping, timeout)
    except Exception as problem:  # noqa: BLE001  (a signal of the user's own making may lack what ours have)
        return Ending(claimed, "failed", started, error=describe(problem, "retryable"))


def _ending_of(
    claimed: Claimed, started: float | None, error: BaseException, stopping: str | None, timeout: float | None
) -> Ending:
    if stopping == "released" and claimed.max_attempts == 1:
        return Ending(claimed, "failed", started, error=describe(error, "permanent") | {"message": STOPPED})
    if stopping in ("released", "canceled"):  # of a canceled job the database knows who asked, and why
        return Ending(claimed, stopping, started)
    if stopping is not None:
        what = describe(error, stopping) | {"message": f"timed out after {timeout:g} s"}
        return Ending(claimed, stopping, started, error=what)
    match error:
        case Skip():
            return Ending(
                claimed, "skipped", started, error={"kind": "skipped", "message": _clean(error.reason, MESSAGE_LIMIT)}
            )
        case Snooze():
            return Ending(claimed, "snoozed", started, delay=waiting_time(error.delay))
        case NotStarted():  # so nothing is spent
            return Ending(claimed, "snoozed", started, delay=NOT_STARTED_DELAY, error=describe(error, "retryable"))
        case RetryAfter() | RemoteError():
            delay = None if error.delay is None else waiting_time(error.delay)
            return Ending(claimed, "failed", started, delay=delay, error=describe(error, "retryable"))
        case _:
            kind = "permanent" if isinstance(error, PERMANENT) else "retryable"
            return Ending(claimed, "failed", started, error=describe(error, kind))


def describe(error: BaseException, kind: str) -> dict[str, Any]:
    """The error as stored: bounded, and free of what JSON or PostgreSQL cannot hold."""
    if isinstance(error, RemoteError):
        return error.description | ({} if kind == "retryable" else {"kind": kind})
    return {
        "kind": kind,
        "type": type(error).__qualname__,
        "module": type(error).__module__,
        "message": _clean(_text(error), MESSAGE_LIMIT),
        "traceback": _clean(_trace(error), TRACEBACK_LIMIT, keep_end=True),
    }


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException as problem:  # noqa: BLE001  (a user's __str__ may do anything)
        return f"{type(error).__name__}, whose __str__ raised {type(problem).__name__}"


def theirs(error: BaseException) -> TracebackType | None:
    """The traceback without our own frames at its head, which tell nothing of the handler."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        at = at.tb_next
    if at is None and isinstance(error, Permanent):  # raised by a handler of ours, whose message says all
        return None
    return at or error.__traceback__


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, theirs(error)))
    except BaseException as problem:  # noqa: BLE001
        return f"no traceback: formatting it raised {type(problem).__name__}"


def _clean(text: str, limit: int, *, keep_end: bool = False) -> str:
    text = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    return f"... {text[-limit:]}" if keep_end else f"{text[:limit]} ..."
