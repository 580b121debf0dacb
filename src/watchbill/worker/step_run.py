"""What `steps.run` does: finds the stored result of the step, or calls its function, as often as its `retry` says, and
stores how that has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import orjson

from watchbill.model.decisions import Decision, Permanent, RetryAfter
from watchbill.model.steps import StepError, StepFailed, StepUnknown
from watchbill.worker.handlers import NotStarted
from watchbill.worker.outcomes import describe_error
from watchbill.worker.step_calls import Ask, Call, Invoke, InvokeInTransaction, Program, Request
from watchbill.worker.step_options import compute_pause
from watchbill.worker.step_values import decode_declared, decode_result, describe_declared, encode_result

if TYPE_CHECKING:
    from watchbill.worker.checkpoints import StoredStep
    from watchbill.worker.step_session import Session

LONGEST_PAUSE_SECONDS = 1.0  # between two tries, in the handler's slot; for a longer one the job leaves the worker


def run_step(session: Session, call: Call) -> Program:
    call, stored = session.find_under_alias(call)
    session.begin(call, stored)
    if stored is not None and stored.ended:
        return session.note_undo(call, replay(call, stored))
    tries = 0
    if stored is not None:
        if stored.state == "begun":
            raise StepUnknown(call.name)
        if (stored.remaining or 0) > 0:
            yield from session.leave(call, "waits for its next try")
        tries = stored.tries
    yield from session.store_pending(call)
    if call.options.once:
        yield from session.store(call, "begun")
    while True:
        tries += 1
        began = time.monotonic()
        try:
            with session.count_running():
                if call.takes_connection:
                    return (yield from _run_in_transaction(session, call, began, tries))
                return (yield from _run_plain(session, call, began, tries))
        except (StepError, NotStarted):
            raise
        except Exception as error:  # noqa: BLE001  (whatever the user's function raises is its failure)
            pause = yield from _end_try(session, call, error, began, tries)
        if pause > LONGEST_PAUSE_SECONDS:
            yield from session.leave(call, "waits for its next try")
        yield Ask(asyncio.sleep(pause))
        session.check_may_begin()


def _run_plain(session: Session, call: Call, began: float, tries: int) -> Program:
    assert call.function is not None
    value = yield Invoke(call)
    raw = encode_result(call.function, call.name, value, session.run.handler.max_result)
    yield from session.store(call, "done", began=began, tries=tries, result=raw)
    return session.note_undo(call, decode_result(call.function, call.name, raw))


def _run_in_transaction(session: Session, call: Call, began: float, tries: int) -> Program:
    """The step's writes and its result are committed together. If the reply to the commit is lost, the database says
    whether it is stored."""
    assert call.function is not None
    step = session.make_step(call, "done", began=began, tries=tries)
    answer = yield InvokeInTransaction(call, step)
    if answer.is_refused:
        raise session.unwind("released", "another node has the job")
    if not answer.is_certain:
        for stored in (yield Ask(session.checkpointer.load(session.run.claimed))):
            if stored.name == call.name and stored.ended:
                return session.note_undo(call, replay(call, stored))
        raise answer.error
    return session.note_undo(call, decode_result(call.function, call.name, answer.result))


def _end_try(
    session: Session, call: Call, error: Exception, began: float, tries: int
) -> Generator[Request, Any, float]:
    """Returns the seconds until the next try. Raises if there is none."""
    options = call.options
    if isinstance(error, options.raises):
        raw = orjson.dumps(describe_declared(error))
        yield from session.store(call, "raised", began=began, tries=tries, error=raw)
        raise decode_declared(call, raw) from error
    is_stopping = session.run.stopping is not None
    if isinstance(error, Decision) and (options.retry is None or not isinstance(error, RetryAfter | Permanent)):
        raise error
    if is_stopping or (options.retry is None and not options.once):
        raise session.note_failure(call, error, began) from error
    described = describe_error(error, "retryable")
    retry = options.retry
    is_last = (
        retry is None
        or tries >= retry.max_attempts
        or isinstance(error, Permanent)
        or (not isinstance(error, RetryAfter) and retry.explain_refusal(error) is not None)
    )
    if retry is None or is_last:
        yield from session.store(call, "failed", began=began, tries=tries, error=orjson.dumps(described))
        raise StepFailed(call.name, described, is_stored=True) from error
    pause = error.delay if isinstance(error, RetryAfter) else compute_pause(retry, tries)
    if pause > LONGEST_PAUSE_SECONDS:
        yield from session.store(call, "retrying", began=began, tries=tries, delay=pause, error=orjson.dumps(described))
    return pause


def replay(call: Call, stored: StoredStep) -> Any:
    assert call.function is not None
    if stored.state == "failed":
        raise StepFailed(call.name, orjson.loads(stored.error or b"{}"), is_stored=True)
    if stored.state == "raised":
        raise decode_declared(call, stored.error or b"{}")
    return decode_result(call.function, call.name, _upgrade(call, stored))


def _upgrade(call: Call, stored: StoredStep) -> bytes | None:
    """Returns a stored result as one of the version that the code has now."""
    if stored.version == call.options.version:
        return stored.result
    value = None if stored.result is None else orjson.loads(stored.result)
    for version in range(stored.version, call.options.version):
        value = call.upgrades[version](value)
    return None if value is None else orjson.dumps(value)
