"""One attempt at a job: decode the payload, call the handler, encode the result, turn an exception into an Outcome.

Every way to run a handler uses this file: `attempt` blocks, in a thread or in a child process; `attempt_on_loop` is the
same as a coroutine. The caller gives each of them a context of its own, in which `current_job()` finds the run. Neither
raises: `run.result` and `run.outcome` say how the attempt ended. `slots.py` itself runs the coroutine up to its first
suspension, and `Suspended` is the rest of the coroutine after that."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Generator
from typing import Any

from watchbill.model.steps import Unwind
from watchbill.telemetry.context import current
from watchbill.worker import forks
from watchbill.worker.batch_run import BatchRun
from watchbill.worker.handlers import STORED
from watchbill.worker.outcomes import choose_outcome
from watchbill.worker.run import Run
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.transactions import Transactions


def attempt(run: Run, transactions: Transactions | None = None, steps: StepRunner | None = None) -> None:
    current.set(run)
    try:
        if isinstance(run, BatchRun) and run.has_stored_payload:
            run.fetch_payloads()
        arguments = _decode_arguments(run)
        if arguments is not None:
            if transactions is not None and run.handler.transactional:
                value = transactions.call(run, arguments)
            elif steps is not None and run.handler.has_steps:
                value = steps.call(run, arguments)
            else:
                value = run.handler.function(**arguments)
            _keep_result(run, value)
    except BaseException as error:  # noqa: BLE001  (even SystemExit only ends the attempt, never the worker)
        fail(run, error)
    if forks.is_fork:
        forks.end_fork()


async def attempt_on_loop(run: Run, transactions: Transactions, steps: StepRunner) -> None:
    current.set(run)
    claimed, handler = run.claimed, run.handler
    try:
        if handler.is_plain and not claimed.raw_payload.startswith(STORED):  # most jobs; the other way takes longer
            value = await handler.function(**handler.decode(claimed.raw_payload[1:], claimed.version))
            if value is not None:
                run.result = handler.encode_result(value)
        else:
            await _attempt_other_kind(run, transactions, steps)
    except BaseException as error:  # noqa: BLE001
        fail(run, error)
    if forks.is_fork:
        forks.end_fork()


async def _attempt_other_kind(run: Run, transactions: Transactions, steps: StepRunner) -> None:
    """Does what `attempt` does for a batch, and for a handler that needs a connection, steps or a stored payload."""
    if isinstance(run, BatchRun) and run.has_stored_payload:
        await asyncio.to_thread(run.fetch_payloads)
    arguments = _decode_arguments(run)
    if arguments is None:
        return
    if run.handler.transactional:
        value = await transactions.acall(run, arguments)
    elif run.handler.has_steps:
        value = await steps.acall(run, arguments)
    else:
        value = await run.handler.function(**arguments)
    _keep_result(run, value)


def _decode_arguments(run: Run) -> dict[str, Any] | None:
    """Returns the handler's arguments, or None if each job of a batch has failed already. If the payload is a reference
    to the payload store, the run gets a handler that reads the payload from there."""
    if isinstance(run, BatchRun):
        return run.decode()
    raw, handler = run.claimed.raw_payload, run.handler
    if raw.startswith(STORED) and handler.make_reading_handler is not None:
        run.handler = handler = handler.make_reading_handler(handler)
    return handler.decode(raw[1:], run.claimed.version)


def _keep_result(run: Run, value: Any) -> None:
    if isinstance(run, BatchRun):
        run.keep_result(value)
    elif value is not None:
        run.result = run.handler.encode_result(value)


def fail(run: Run, error: BaseException) -> None:
    """Ends the run with the outcome that the exception stands for."""
    if isinstance(run, BatchRun):
        run.fail(error)
        return
    run.outcome = choose_outcome(run, error)
    run.raised = None if isinstance(error, Unwind) else error


class Suspended:
    """The rest of a coroutine that has yielded a future. `await` runs this rest, in the context variables of its
    run."""

    __slots__ = ("_context", "_coroutine", "_future")

    def __init__(self, coroutine: Any, future: Any, context: contextvars.Context) -> None:
        if forks.is_fork:
            forks.end_fork()
        self._coroutine, self._future, self._context = coroutine, future, context

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, future, run = self._coroutine, self._future, self._context.run
        try:
            while True:
                try:
                    value = yield future
                except BaseException as error:  # noqa: BLE001  (such as a cancellation, which the handler must get)
                    future = run(coroutine.throw, error)
                else:
                    future = run(coroutine.send, value)
                if forks.is_fork:
                    forks.end_fork()
        except StopIteration as stop:
            return stop.value
