"""Crashes in a drain: a run ends at a given write of its steps, as if its worker had died before or after the commit.

From then on the run stores nothing more, and its job is queued again at once. So the next run finds in the database
what it would find after the death of a worker there.
"""

from __future__ import annotations

from collections.abc import Callable

from watchbill.store.node_connection import NodeConnection
from watchbill.worker.checkpoints import Checkpointer, NewStep, SignalWait
from watchbill.worker.run import Claimed, Run
from watchbill.worker.step_calls import Call
from watchbill.worker.step_runner import StepRunner
from watchbill.worker.step_transactions import Answer, StepTransactions
from watchbill.worker.transactions import Transactions


class Crash:
    """Ends one run of a job at its write number `at`, counted over all its runs; None: never, it only counts."""

    def __init__(self, at: int | None = None, *, is_after: bool = False) -> None:
        self.at, self.is_after = at, is_after
        self.job_id = b""
        self.writes = 0
        self.step = ""  # at which it has crashed
        self._ended: int | None = None  # the fence of the run that has crashed

    def is_due(self, claimed: Claimed, step: str) -> bool:
        """Counts a write. Returns whether the run ends at it, or has ended before it."""
        if claimed.id != self.job_id:
            return False
        if claimed.fence == self._ended:
            return True
        self.writes += 1
        if self.writes != self.at:
            return False
        self._ended, self.step = claimed.fence, step
        return True

    def is_stored(self, claimed: Claimed, step: str) -> bool:
        """Whether the write at which the run ends is stored nevertheless: the worker dies before the answer."""
        return self.is_after and self.writes == self.at and step == self.step and claimed.id == self.job_id


class CrashingStepRunner(StepRunner):
    def __init__(
        self, connection: NodeConnection, transactions: Transactions, is_draining: Callable[[], bool], crash: Crash
    ) -> None:
        super().__init__(_CrashingCheckpointer(connection, crash), transactions, is_draining)
        self._transactions = _CrashingTransactions(transactions, crash)


class _CrashingCheckpointer(Checkpointer):
    def __init__(self, connection: NodeConnection, crash: Crash) -> None:
        super().__init__(connection)
        self._crash = crash

    async def save(self, step: NewStep) -> bool:
        if not self._crash.is_due(step.claimed, step.name):
            return await super().save(step)
        if self._crash.is_stored(step.claimed, step.name):
            await super().save(step)
        return False

    async def receive(self, wait: SignalWait) -> tuple[str | None, bytes | None]:
        if not self._crash.is_due(wait.claimed, wait.name):
            return await super().receive(wait)
        if self._crash.is_stored(wait.claimed, wait.name):
            await super().receive(wait)
        return None, None

    async def collect(self, claimed: Claimed, step: str, seq: int) -> tuple[str | None, bytes | None]:
        if not self._crash.is_due(claimed, step):
            return await super().collect(claimed, step, seq)
        if self._crash.is_stored(claimed, step):
            await super().collect(claimed, step, seq)
        return None, None

    async def restart(self, claimed: Claimed, payload: bytes) -> bool:
        if not self._crash.is_due(claimed, "restart"):
            return await super().restart(claimed, payload)
        if self._crash.is_stored(claimed, "restart"):
            await super().restart(claimed, payload)
        return False


class _CrashingTransactions(StepTransactions):
    def __init__(self, transactions: Transactions, crash: Crash) -> None:
        super().__init__(transactions)
        self._crash = crash

    def call(self, run: Run, call: Call, step: NewStep) -> Answer:
        if not self._crash.is_due(run.claimed, call.name):
            return super().call(run, call, step)
        if self._crash.is_stored(run.claimed, call.name):
            super().call(run, call, step)
        return Answer(is_refused=True)

    async def acall(self, run: Run, call: Call, step: NewStep) -> Answer:
        if not self._crash.is_due(run.claimed, call.name):
            return await super().acall(run, call, step)
        if self._crash.is_stored(run.claimed, call.name):
            await super().acall(run, call, step)
        return Answer(is_refused=True)
