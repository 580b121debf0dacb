"""How a run ended: turns what a handler raised into an Outcome, and reports the outcome once it is stored.

A failed attempt that another one follows is logged as a warning. A dead job is logged as an error, with its traceback:
a tool that counts errors, such as Sentry, counts dead jobs.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import orjson

from watchbill.model.decisions import Permanent, RetryAfter, Skip, Snooze
from watchbill.model.retry import Retry, delay_seconds
from watchbill.model.steps import StepError, StepFailed, Unwind
from watchbill.payloads import PayloadGone
from watchbill.telemetry.context import log_fields
from watchbill.telemetry.events import Events, emit_canceled, emit_unblocked
from watchbill.worker.handlers import BadPayload, BadResult, BadTimeout, NotStarted
from watchbill.worker.run import Claimed, Outcome, Run

logger = logging.getLogger("watchbill.worker")
jobs_logger = logging.getLogger("watchbill.jobs")

MESSAGE_LIMIT = 2_000  # characters of an error message that are stored; the rest is cut off
TRACEBACK_LIMIT = 16_000  # characters of a traceback that are stored: its end
NOT_STARTED_DELAY_SECONDS = 2.0
STOPPED_MESSAGE = "the node stopped while the job ran, and the job has one attempt only"
_PACKAGE = str(Path(__file__).parents[1])
# Not retried, because another attempt would end the same.
_PERMANENT = (Permanent, BadPayload, BadResult, BadTimeout, PayloadGone)


def choose_outcome(run: Run, error: BaseException) -> Outcome:
    """Returns the outcome that the exception stands for. The failure of a step that is not stored counts as the error
    that its function has raised: the next attempt runs the step again."""
    if isinstance(error, StepFailed) and not error.is_permanent and error.__cause__ is not None:
        error = error.__cause__
    try:
        if run.stopping is not None:
            return choose_stopped_outcome(run, describe_error(error, "retryable"))
        if isinstance(error, Skip):
            return _choose_skipped_outcome(run, error)
        return _choose_outcome_of_error(run.handler.retry, error)
    except Exception as problem:  # noqa: BLE001  (a user's subclass of Snooze may lack its delay)
        return Outcome("failed", error=describe_error(problem, "retryable"))


def choose_stopped_outcome(run: Run, error: dict[str, Any]) -> Outcome:
    """Returns the outcome of a handler that was asked to stop. The reason for the stop counts, not what it raised."""
    if run.stopping == "timed_out":
        name = {"type": "TimeoutError", "module": "builtins"}  # replaces the error that stopped the handler
        timed_out = error | name | {"kind": "timed_out", "message": f"timed out after {run.timeout:g} s"}
        return Outcome("timed_out", error=_mark_refused(timed_out, run.handler.retry.explain_refusal(TimeoutError())))
    if run.stopping == "released" and run.max_attempts == 1 and not run.is_undoing:
        return Outcome("failed", error=error | {"kind": "permanent", "message": STOPPED_MESSAGE})
    assert run.stopping is not None
    return Outcome(run.stopping)  # without a message: the database has stored who canceled the job, and why


def _choose_skipped_outcome(run: Run, skip: Skip) -> Outcome:
    try:
        result = None if skip.result is None else run.handler.encode_result(skip.result)
    except BadResult as problem:
        return Outcome("failed", error=describe_error(problem, "permanent"))
    error = {"kind": "skipped", "message": _escape_and_shorten(skip.reason, MESSAGE_LIMIT)}
    return Outcome("skipped", error=error, result=result)


def _choose_outcome_of_error(retry: Retry, error: BaseException) -> Outcome:
    match error:
        case Unwind():
            waits = None if error.waits is None else orjson.dumps(error.waits)
            return Outcome(error.outcome, error=error.error, result=waits)
        case Snooze():
            return Outcome("snoozed", delay=delay_seconds(error.delay))
        case NotStarted():  # a snooze, because it must not cost an attempt
            delay = NOT_STARTED_DELAY_SECONDS if error.delay is None else error.delay
            return Outcome("snoozed", delay=delay, error=describe_error(error, "retryable"))
        case RetryAfter():
            return Outcome("failed", delay=delay_seconds(error.delay), error=describe_error(error, "retryable"))
        case _:
            if isinstance(error, _PERMANENT) or (isinstance(error, StepError) and error.is_permanent):
                return Outcome("failed", error=describe_error(error, "permanent"))
            described = describe_error(error, "retryable")
            return Outcome("failed", error=_mark_refused(described, retry.explain_refusal(error)))


def _mark_refused(error: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """Makes an error permanent, and says why in its message, if the task's Retry does not retry it."""
    if reason is None:
        return error
    return error | {"kind": "permanent", "message": f"{error['message']} (not retried: {reason})"}


def describe_error(error: BaseException, kind: str) -> dict[str, Any]:
    """Returns the error as it is stored with the attempt."""
    return {
        "kind": kind,
        "type": type(error).__qualname__,
        "module": type(error).__module__,
        "message": _escape_and_shorten(_read_message(error), MESSAGE_LIMIT),
        "traceback": _escape_and_shorten(_format_traceback(error), TRACEBACK_LIMIT, keep_end=True),
    }


def _read_message(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException as problem:  # noqa: BLE001  (a user's __str__ may do anything)
        return f"{type(error).__name__}, whose __str__ raised {type(problem).__name__}"


def strip_own_frames(error: BaseException) -> TracebackType | None:
    """Returns the traceback without its first frames, which are Watchbill's own: it begins at the handler."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        at = at.tb_next
    if at is None and isinstance(error, Permanent):  # a built-in handler raised this, and its message says enough
        return None
    return at or error.__traceback__


def _format_traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, strip_own_frames(error)))
    except BaseException as problem:  # noqa: BLE001
        return f"no traceback: formatting it raised {type(problem).__name__}"


def _escape_and_shorten(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Escapes characters that JSON or PostgreSQL refuse, and shortens the text."""
    text = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    return f"... {text[-limit:]}" if keep_end else f"{text[:limit]} ..."


class OutcomeReporter:
    """Reports the end of a run to observers and the log. The settler calls it after commit."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def report_success(self, run: Run) -> None:
        self._report_completed(run, "succeeded", run.result)

    def report_ending(self, claimed: Claimed, run: Run | None, outcome: Outcome, state: str) -> None:
        """Reports how a job ended that did not simply succeed. `state` is the state of the job now; `run` is None if
        its handler was not started."""
        if state == "canceled":
            emit_canceled(self._events, UUID(bytes=claimed.id), run)
        elif run is not None:
            self._report_run(run, outcome, state)

    def _report_run(self, run: Run, outcome: Outcome, state: str) -> None:
        emit, what = self._events.emit, {"job": run, "outcome": outcome.name}
        if state == "succeeded":
            self._report_completed(run, outcome.name, outcome.result)
        elif outcome.name in ("failed", "timed_out", "undone"):
            is_dead = state == "dead"
            _log_failure(run, outcome.error or {}, is_dead=is_dead)
            emit("job_failed", **what, error=outcome.error, final=is_dead)
            emit("job_died" if is_dead else "job_retry", **what, error=outcome.error)
        elif outcome.name in ("snoozed", "released", "suspended"):
            emit(f"job_{outcome.name}", **what)

    def _report_completed(self, run: Run, outcome: str, result: bytes | None) -> None:
        if self._events.has_observer("job_completed"):
            value = None if result is None else orjson.loads(result)
            self._events.emit("job_completed", job=run, outcome=outcome, result=value)

    def report_refused(self, job_id: bytes) -> None:
        """Logs that the database refused the end of a job, because the job was taken from this node before."""
        name = str(UUID(bytes=job_id))
        logger.warning(
            "Job %s ended here after it was taken from this node; its result is not stored", name,
            extra={"job_id": name},
        )  # fmt: skip

    def report_unblocked(self, decided: list[tuple[Any, ...]]) -> None:
        """Emits an event for each job that no longer waits for other jobs. `decided` are the rows of the query
        `unblock`: the ids of these jobs, and the state of each now."""
        emit_unblocked(self._events, decided)


def _log_failure(run: Run, error: dict[str, Any], *, is_dead: bool) -> None:
    reason = f"{error.get('type', 'error')}: {error.get('message', 'unknown')}"
    extra = log_fields(run) | {"type": run.type, "queue": run.queue}
    if not is_dead:
        count = (run.type, run.attempt, run.max_attempts)
        jobs_logger.warning("%s has failed, attempt %d of %d: %s", *count, reason.splitlines()[0], extra=extra)
    elif run.raised is not None and not isinstance(run.raised, (BadPayload, BadTimeout)):  # no useful traceback
        exc_info = (type(run.raised), run.raised, strip_own_frames(run.raised))
        jobs_logger.error("%s is dead: %s", run.type, reason, exc_info=exc_info, extra=extra)
    else:  # the job ran in a child process, which sends the traceback as text
        trace = error.get("traceback", "") if run.raised is None else ""
        jobs_logger.error("%s is dead: %s%s", run.type, reason, f"\n{trace}" if trace else "", extra=extra)
