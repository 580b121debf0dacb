"""Calls handlers that have steps, and undoes the steps of jobs that have died or were canceled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from watchbill.worker.checkpoints import Checkpointer, StoredStep
from watchbill.worker.run import Run
from watchbill.worker.step_session import Session
from watchbill.worker.step_transactions import StepTransactions
from watchbill.worker.steps import AsyncSteps, Steps
from watchbill.worker.transactions import Transactions


class StepRunner:
    """Calls handlers that have steps."""

    def __init__(self, checkpointer: Checkpointer, transactions: Transactions, is_draining: Callable[[], bool]) -> None:
        self._checkpointer, self._is_draining = checkpointer, is_draining
        self._transactions = StepTransactions(transactions)
        self._loop = asyncio.get_running_loop()

    def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        stored: list[StoredStep] = []
        if run.claimed.run > 1:
            stored = asyncio.run_coroutine_threadsafe(self._checkpointer.load(run.claimed), self._loop).result()
        session = self._make_session(run, stored)
        steps = Steps(session, self._loop)
        raised: BaseException | None = None
        value = None
        try:
            value = run.handler.function(steps, **arguments)
        except BaseException as error:  # noqa: BLE001  (raised below)
            raised = error
        if session.begin_undoing(raised):
            steps.undo()
        _raise_cause(session, raised)
        session.check_return()
        return value

    async def acall(self, run: Run, arguments: dict[str, Any]) -> Any:
        stored = await self._checkpointer.load(run.claimed) if run.claimed.run > 1 else []
        session = self._make_session(run, stored)
        steps = AsyncSteps(session)
        raised: BaseException | None = None
        value = None
        try:
            value = await run.handler.function(steps, **arguments)
        except BaseException as error:  # noqa: BLE001  (raised below)
            raised = error
        if session.begin_undoing(raised):
            await steps.undo()
        _raise_cause(session, raised)
        session.check_return()
        return value

    def _make_session(self, run: Run, stored: list[StoredStep]) -> Session:
        return Session(run, stored, self._checkpointer, self._transactions, self._is_draining)

    async def close(self) -> None:
        await self._checkpointer.close()


def _raise_cause(session: Session, error: BaseException | None) -> None:
    if error is None:
        return
    cause = session.find_cause(error)
    if cause is not error:
        raise cause from error
    raise error
