"""Batches: one call of a handler runs many jobs of its task.

Claimed jobs wait in a `WaitingBatch` until it is full or its time is up (`slots.py`). A `BatchRun` then takes one
handler slot. Each job keeps its own run (`members`), outcome and result, so that it is settled like any other job.
"""

from __future__ import annotations

import copy
from asyncio import TimerHandle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from watchbill.model.batch import BatchFailed
from watchbill.store.refusals import StaleFence
from watchbill.worker.handlers import STORED, BadResult, Handler, Handlers
from watchbill.worker.outcomes import choose_outcome
from watchbill.worker.run import Claimed, Outcome, Run

if TYPE_CHECKING:
    from watchbill.client.operations import Operation


class WaitingBatch:
    """Claimed jobs of one type that wait on this node for one call of their handler. Jobs are added until it starts."""

    __slots__ = ("asked_after", "handler", "is_due", "is_urgent", "rows", "since", "size", "timer")

    def __init__(self, handler: Handler, now: float) -> None:
        assert handler.batch is not None
        self.handler, self.since, self.size = handler, now, handler.batch.size
        self.rows: list[Claimed] = []
        self.timer: TimerHandle | None = None
        self.is_due = False  # the batch may start: it is full, or has waited long enough
        self.is_urgent = False  # the batch starts as soon as a handler slot is free, full or not
        # How many claims were answered (`BatchDemand.answers`) when a handler slot became free for this batch. The
        # batch waits for the answer of one more claim.
        self.asked_after: int | None = None

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= self.size


class BatchRun(Run):
    """The run of a batch. To `current_job()` it looks like the run of its first job; `batch` has all of them."""

    __slots__ = ("called", "members")

    def __init__(self, members: Sequence[Run]) -> None:
        first = members[0]
        super().__init__(first.claimed, first.handler, first.started)
        self.members = list(members)
        self.called: list[Run] = []  # the members whose items were passed to the handler, in the order of the items

    @property
    def batch(self) -> list[Run]:
        return self.members

    @property
    def max_attempts(self) -> int:
        return min(member.max_attempts for member in self.members)

    @property
    def timeout(self) -> float | None:
        """The shortest timeout of the jobs in the batch."""
        return min((member.timeout for member in self.members if member.timeout is not None), default=None)

    def progress(self, value: Any) -> None:
        for member in self.members:
            member.last_progress = value

    # -- the arguments of the handler, from the payloads of all jobs

    @property
    def has_stored_payload(self) -> bool:
        return any(member.claimed.raw_payload.startswith(STORED) for member in self.members)

    def fetch_payloads(self) -> None:
        """Reads payloads from the payload store, and blocks meanwhile. If a payload cannot be read, only its job
        fails."""
        for member in self.members:
            if member.claimed.raw_payload.startswith(STORED) and self.handler.fetch_payload is not None:
                try:
                    raw = self.handler.fetch_payload(member, member.claimed.raw_payload[1:])
                except Exception as error:  # noqa: BLE001  (a payload store may raise anything)
                    _fail_member(member, error)
                else:
                    member.claimed = member.claimed._replace(raw_payload=b"\x01" + raw)

    def decode(self) -> dict[str, Any] | None:
        """Returns the handler's arguments: one parameter with the list of items. If a payload does not fit, only its
        job fails. Returns None if no job is left to run."""
        items, name = [], ""
        for member in self.members:
            if member.outcome is not None:
                continue
            try:
                ((name, item),) = self.handler.decode(member.claimed.raw_payload[1:], member.claimed.version).items()
            except Exception as error:  # noqa: BLE001  (an upgrade function may raise anything)
                _fail_member(member, error)
            else:
                items.append(item)
                self.called.append(member)
        return {name: items} if items else None

    # -- the outcome and result of each job

    def keep_result(self, value: Any, *, is_strict: bool = False) -> None:
        """Gives each job its result: its own from a list, or else the one value. If a result cannot be stored, only its
        job fails. With `is_strict`, BadResult is raised instead, because the transaction must not commit."""
        if isinstance(value, list):
            self._check_length(value)
        for place, member in enumerate(self.called):
            if member.outcome is not None:
                continue
            one = value[place] if isinstance(value, list) else value
            try:
                member.result = None if one is None else self.handler.encode_result(one)
            except BadResult as error:
                if is_strict:
                    raise
                _fail_member(member, error)

    def _check_length(self, results: list[Any]) -> None:
        if len(results) != len(self.called):
            raise BadResult(
                f"{self.type}: the handler got {len(self.called)} items and returned a list of {len(results)} results; "
                "return one result per item, in order, or one value that is not a list for all of them"
            )

    def fail(self, error: BaseException) -> None:
        """Gives every job of the batch that has no outcome yet the outcome that the exception stands for."""
        if isinstance(error, BatchFailed) and self.stopping is None:
            try:
                self.fail_some(error)
                self.keep_result(error.results)
            except BadResult as problem:
                self.fail(problem)
            return
        shared: Outcome | None = None
        for member in self.members:
            if member.outcome is not None:
                continue
            member.raised = error
            if member.stopping is not None:
                member.outcome = choose_outcome(member, error)
            elif isinstance(error, StaleFence) and member.max_attempts > 1:
                # Another job of the batch was taken from this node, so the transaction of the whole batch was rolled
                # back. This job runs again.
                member.outcome = Outcome("released")
            else:
                shared = choose_outcome(member, error) if shared is None else copy.copy(shared)
                member.outcome = shared

    def fail_some(self, failed: BatchFailed) -> None:
        """Fails the jobs that the handler names in its BatchFailed. Raises BadResult for an index outside the batch."""
        for index in failed.errors:
            if not 0 <= index < len(self.called):
                raise BadResult(
                    f"{self.type}: BatchFailed names the index {index}, but the handler got {len(self.called)} items"
                )
        for index, error in failed.errors.items():
            _fail_member(self.called[index], error)

    # -- operations that complete or guard all jobs of the batch

    def _make_guard_operation(self) -> Operation[None]:
        from watchbill.client import job_operations

        return job_operations.guard_many([(each.id, each.fence) for each in self.members])

    def _make_completion_operation(self, result: Any, lock_timeout: str | None = None) -> Operation[None]:
        """Makes the operation that completes all jobs of the batch that have not failed."""
        from watchbill.client import job_operations

        self.keep_result(result, is_strict=True)
        ended = [each for each in self.called if each.outcome is None]
        jobs = [(each.id, each.fence, each.result, self.age) for each in ended]
        return job_operations.complete_many(jobs, lock_timeout)


def _fail_member(member: Run, error: BaseException) -> None:
    member.raised, member.outcome = error, choose_outcome(member, error)


class BatchDemand:
    """Estimates how many jobs to claim per handler slot, from the batch sizes of the jobs that the last claims brought.
    Without tasks that run in batches, one."""

    def __init__(self) -> None:
        self.is_needed = False  # some task runs in batches
        self._sizes: dict[str, int] = {}  # the batch size of each type that runs in batches
        self._costs = (1.0, 1.0)  # handler slots per job, in the last two claims that brought jobs
        self.answers = 0  # how many claims were answered so far
        self.has_backlog = False  # the last claim brought as many jobs as it asked for

    def add_handlers(self, handlers: Handlers) -> None:
        self._sizes |= {name: handler.batch.size for name, handler in handlers.items() if handler.batch is not None}
        self.is_needed = bool(self._sizes)

    def note_answer(self, rows: Sequence[Claimed], wanted: int) -> None:
        self.answers += 1
        self.has_backlog = len(rows) >= wanted
        if rows:
            cost = sum(1 / self._sizes.get(row.type, 1) for row in rows) / len(rows)
            self._costs = (self._costs[1], cost)

    def count_jobs(self, places: int, waiting: int) -> int:
        """Returns how many more jobs fill `places` handler slots, if the next jobs are like the last ones. `waiting`
        jobs wait in batches already."""
        cost = max(self._costs)
        return places if cost == 1.0 else int(places / cost + 1e-6) - waiting
