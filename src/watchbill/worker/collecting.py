"""Keeps claimed jobs that may not take the next free handler slot: jobs of tasks with `batch` or `max_per_node`.

Jobs of a task with `batch=` are collected. A batch may start when it is full, or when its first job has waited for as
long as the task allows. If the last claim showed that more jobs are in the queue, a batch that is not full waits for
one more claim once its handler slot is free; so batches are full as long as there is a backlog.

Of a task with `max_per_node`, only so many calls get a handler slot. What was claimed beyond that is held for a moment,
and the claimer leaves the type in the queue (`slot_shortage.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watchbill.worker.batch_run import WaitingBatch
from watchbill.worker.claiming import Claiming
from watchbill.worker.handlers import Handler, Handlers
from watchbill.worker.notifications import Wakeups
from watchbill.worker.run import Claimed

Entry = tuple[Claimed | WaitingBatch, Handler, float]  # what waits for one handler slot, and since when


@dataclass(slots=True)
class TypeLoad:
    """How many calls and jobs of one task with `max_per_node` are on this node."""

    running: int = 0  # calls of the handler that run now
    queued: int = 0  # entries that wait for a handler slot
    unstarted: int = 0  # claimed jobs whose handlers were not called yet


class Collector:
    """Collects jobs into batches, and holds jobs beyond `max_per_node`. `queue` makes an entry wait for a handler slot,
    and `start` starts entries that wait, as far as handler slots are free."""

    def __init__(
        self, claiming: Claiming, wakeups: Wakeups, queue: Callable[[Entry], None], start: Callable[[], None]
    ) -> None:
        self._claiming, self._wakeups, self._queue_entry, self._start = claiming, wakeups, queue, start
        self._loop = asyncio.get_running_loop()
        self.is_used = False  # at least one job was added
        self.batches: dict[str, WaitingBatch] = {}  # by type: the batch to which jobs are still added
        self.held: dict[str, deque[Entry]] = {}  # by type: entries that wait because max_per_node is reached
        self._loads: dict[str, TypeLoad] = {}  # by type, for tasks with max_per_node

    @property
    def is_empty(self) -> bool:
        return not self.batches and not any(self.held.values())

    @property
    def growing(self) -> int:
        """How many batches wait for a handler slot and may take more jobs before they start."""
        return sum(batch.is_due for batch in self.batches.values())

    @property
    def collected(self) -> int:
        return sum(len(batch.rows) for batch in self.batches.values())

    def count_room(self, handlers: Handlers) -> dict[str, int]:
        """Returns how many more jobs of each task with `max_per_node` this node could start."""
        room = {}
        for name, load in self._loads.items():
            handler = handlers[name]
            size = 1 if handler.batch is None else handler.batch.size
            room[name] = ((handler.max_per_node or 1) - load.running) * size - load.unstarted
        return room

    # -- jobs that a claim has brought are added

    def add(self, row: Claimed, handler: Handler, now: float) -> None:
        self.is_used = True
        if handler.max_per_node is not None:
            self._loads.setdefault(handler.type, TypeLoad()).unstarted += 1
        if handler.batch is None:
            self._queue_or_hold((row, handler, now))
            return
        batch = self.batches.get(handler.type)
        if batch is None:
            batch = self.batches[handler.type] = WaitingBatch(handler, now)
            batch.timer = self._loop.call_later(handler.batch.wait_seconds, self._start_after_wait, batch)
        batch.rows.append(row)
        if batch.is_full:
            del self.batches[handler.type]
            self._queue_batch(batch)

    def queue_urgent_batches(self) -> None:
        """Queues batches that may not wait for more jobs; called after the jobs of a claim were added. Jobs with one
        attempt may not wait: if this process died, they would be dead without having run. A quarantined job runs
        alone."""
        for batch in list(self.batches.values()):
            if batch.rows[0] is self._claiming.quarantined or any(row.max_attempts == 1 for row in batch.rows):
                batch.is_urgent = True
                self._queue_batch(batch)

    def queue_all_batches(self) -> None:
        for batch in list(self.batches.values()):
            self._queue_batch(batch)

    def _start_after_wait(self, batch: WaitingBatch) -> None:
        if self.batches.get(batch.handler.type) is batch:
            self._queue_batch(batch)
            self._start()

    def _queue_batch(self, batch: WaitingBatch) -> None:
        if not batch.is_due:
            batch.is_due = True
            if batch.timer is not None:
                batch.timer.cancel()
            self._queue_or_hold((batch, batch.handler, time.monotonic()))

    def _queue_or_hold(self, entry: Entry) -> None:
        """Makes an entry wait for a handler slot, or holds it while as many calls run as `max_per_node` allows."""
        handler = entry[1]
        if handler.max_per_node is not None:
            load = self._loads[handler.type]
            if load.running + load.queued >= handler.max_per_node:
                self.held.setdefault(handler.type, deque()).append(entry)
                self._claiming.shortage.types.add(handler.type)
                return
            load.queued += 1
        self._queue_entry(entry)

    # -- entries are started when a handler slot is free

    def awaits_claim(self, entry: Entry) -> bool:
        """Whether this entry, which is the next to start, is a batch that one more claim may fill."""
        batch, demand = entry[0], self._claiming.batch_demand
        if not isinstance(batch, WaitingBatch) or batch.is_full or batch.is_urgent or not demand.has_backlog:
            return False
        if batch.asked_after is None:
            batch.asked_after = demand.answers
            self._wakeups.progress.set()
            self._wakeups.jobs.set()
        return batch.asked_after == demand.answers

    def begin_call(self, entry: Entry) -> list[Claimed]:
        """Returns the jobs of an entry whose handler is called now."""
        rows, handler = list_rows(entry), entry[1]
        if isinstance(entry[0], WaitingBatch):
            self._close_batch(entry[0])
        if handler.max_per_node is not None:
            load = self._loads[handler.type]
            load.running += 1
            load.queued -= 1
            load.unstarted -= len(rows)
        return rows

    def end_call(self, name: str) -> None:
        """Notes that a call of a task with `max_per_node` has ended, and queues the next held entry of that task."""
        self._loads[name].running -= 1
        if held := self.held.get(name):
            self._queue_or_hold(held.popleft())
        elif name in self._claiming.shortage.types:
            self._wakeups.jobs.set()

    # -- entries are removed, because their jobs are released

    def remove(self, entry: Entry) -> list[Claimed]:
        """Returns the jobs of an entry that waited for a handler slot and is released."""
        if entry[1].max_per_node is not None:
            self._loads[entry[1].type].queued -= 1
        return self._remove_entry(entry)

    def take_late(self, older_than: float) -> Iterator[Claimed]:
        """Removes and yields the jobs that wait because of `max_per_node`: those that have waited for `older_than`
        seconds, and those with max_attempts=1. If `older_than` is 0, also the jobs of batches that may still grow."""
        now = time.monotonic()
        for queue in self.held.values():
            for entry in [entry for entry in queue if is_late(entry, now, older_than)]:
                queue.remove(entry)
                yield from self._remove_entry(entry)
        if not older_than:
            for batch in list(self.batches.values()):
                if not batch.is_due:  # a batch that is due waits for a handler slot, and `slots.py` releases it
                    yield from self._remove_entry((batch, batch.handler, now))

    def _remove_entry(self, entry: Entry) -> list[Claimed]:
        what, handler, _ = entry
        if isinstance(what, WaitingBatch):
            self._close_batch(what)
        rows = list_rows(entry)
        if handler.max_per_node is not None:
            self._loads[handler.type].unstarted -= len(rows)
        return rows

    def _close_batch(self, batch: WaitingBatch) -> None:
        """Makes sure that no more jobs are added to this batch."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self.batches.get(batch.handler.type) is batch:
            del self.batches[batch.handler.type]

    def clear(self) -> None:
        for queue in self.held.values():
            queue.clear()
        for batch in list(self.batches.values()):
            self._close_batch(batch)
        for load in self._loads.values():
            load.queued = load.unstarted = 0


def list_rows(entry: Entry) -> list[Claimed]:
    return entry[0].rows if isinstance(entry[0], WaitingBatch) else [entry[0]]


def is_late(entry: Entry, now: float, older_than: float) -> bool:
    """Whether the entry has waited for too long; a job with one attempt may not wait at all."""
    return now - entry[2] >= older_than or any(row.max_attempts == 1 for row in list_rows(entry))
