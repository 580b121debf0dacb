"""app.jobs, app.queues, app.limits, app.cluster: looking at jobs and acting on them, each call with its `a`-twin.

`connection=` makes a call part of the caller's own transaction, as it does for enqueue.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Unpack
from uuid import UUID

from watchbill.app.groups import Group, MakeMemberOfCell
from watchbill.app.json_round_trip import shorten
from watchbill.app.producer import JobProducer
from watchbill.app.unknown_types import warn_of_unused_pause
from watchbill.client import cluster_operations, job_operations, limit_operations, lock_operations
from watchbill.client.operations import Operation
from watchbill.cluster.options import GroupOptions
from watchbill.model.cluster import GroupRecord
from watchbill.model.dependency_graph import DependencyGraph
from watchbill.model.durations import Duration, seconds
from watchbill.model.job import (
    AttemptRecord,
    CauseCount,
    JobConditions,
    JobFilter,
    JobReason,
    JobRecord,
    NodeRecord,
    Pause,
    QueueCount,
    RunLog,
)
from watchbill.model.limit_records import LimitDetails, LimitRecord
from watchbill.model.limits import Rate, WhenDead, WhenFull
from watchbill.model.lock import Leader, LockRecord
from watchbill.model.steps import StepRecord, WaitingStep
from watchbill.store.refusals import Invalid


class Jobs:
    """Reads jobs and their steps, and signals, cancels, retries, wakes or releases one."""

    def __init__(self, producer: JobProducer) -> None:
        self._producer = producer

    def get(self, id: UUID, *, connection: Any = None) -> JobRecord:
        """Reads the job as it is now. If the App has cells and none is named, asks all of them. Raises NoSuchJob."""
        if (cells := self._producer.cells) is not None and connection is None and cells.find() is None:
            return cells.find_job(id)
        return self._producer.run(job_operations.get(id), connection)

    async def aget(self, id: UUID, *, connection: Any = None) -> JobRecord:
        if (cells := self._producer.cells) is not None and connection is None and cells.find() is None:
            return await cells.afind_job(id)
        return await self._producer.arun(job_operations.get(id), connection)

    def list(
        self, wanted: JobFilter | None = None, *, connection: Any = None, **conditions: Unpack[JobConditions]
    ) -> builtins.list[JobRecord]:
        """Newest first: `list(state="dead", queue="mail")`, or a JobFilter. The next page is `after=` the last id."""
        return self._producer.run(job_operations.find(replace(wanted or JobFilter(), **conditions)), connection)

    async def alist(
        self, wanted: JobFilter | None = None, *, connection: Any = None, **conditions: Unpack[JobConditions]
    ) -> builtins.list[JobRecord]:
        return await self._producer.arun(job_operations.find(replace(wanted or JobFilter(), **conditions)), connection)

    def why(self, id: UUID, *, connection: Any = None) -> builtins.list[JobReason]:
        """Why the job does not run: every cause that holds, the deciding one first."""
        return self._producer.run(job_operations.why(id), connection)

    async def awhy(self, id: UUID, *, connection: Any = None) -> builtins.list[JobReason]:
        return await self._producer.arun(job_operations.why(id), connection)

    def causes(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
        connection: Any = None,
    ) -> builtins.list[CauseCount]:
        """Why the jobs of a queue, a type or a tenant do not run, with counts, the most frequent cause first."""
        return self._producer.run(job_operations.count_causes(queue=queue, type=type, tenant=tenant), connection)

    async def acauses(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | None = None,
        connection: Any = None,
    ) -> builtins.list[CauseCount]:
        return await self._producer.arun(job_operations.count_causes(queue=queue, type=type, tenant=tenant), connection)

    def attempts(self, id: UUID, *, connection: Any = None) -> builtins.list[AttemptRecord]:
        """The attempts so far, except a first one that succeeded."""
        return self._producer.run(job_operations.attempts(id), connection)

    async def aattempts(self, id: UUID, *, connection: Any = None) -> builtins.list[AttemptRecord]:
        return await self._producer.arun(job_operations.attempts(id), connection)

    def steps(self, id: UUID, *, connection: Any = None) -> builtins.list[StepRecord]:
        """The stored steps of the job, in the order in which they were stored."""
        return self._producer.run(job_operations.steps(id), connection)

    async def asteps(self, id: UUID, *, connection: Any = None) -> builtins.list[StepRecord]:
        return await self._producer.arun(job_operations.steps(id), connection)

    def logs(self, id: UUID, *, connection: Any = None) -> builtins.list[RunLog]:
        """The last log lines of the runs of the job, as far as they are stored."""
        return self._producer.run(job_operations.logs(id), connection)

    async def alogs(self, id: UUID, *, connection: Any = None) -> builtins.list[RunLog]:
        return await self._producer.arun(job_operations.logs(id), connection)

    def watch(self, id: UUID, *, seconds: float = 10, connection: Any = None) -> bool:
        """So long, the node that runs the job shows its progress and log lines each second. Returns False if the job
        has ended."""
        return self._producer.run(job_operations.watch(id, seconds), connection)

    async def awatch(self, id: UUID, *, seconds: float = 10, connection: Any = None) -> bool:
        return await self._producer.arun(job_operations.watch(id, seconds), connection)

    def wake(self, id: UUID, *, connection: Any = None) -> bool:
        """Ends the sleep of a suspended job now. Returns False if the job does not sleep."""
        return self._producer.run(job_operations.wake(id), connection)

    async def awake(self, id: UUID, *, connection: Any = None) -> bool:
        return await self._producer.arun(job_operations.wake(id), connection)

    def signal(
        self, id: UUID, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> str:
        """Sends a signal to the job, for a step that waits for this name. Of signals with the same `key` the job gets
        the first only. Returns `stored`, `woken` (the job waited for it), `duplicate` or `finished`."""
        return self._producer.run(job_operations.signal(id, name, payload, key=key), connection)

    async def asignal(
        self, id: UUID, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> str:
        return await self._producer.arun(job_operations.signal(id, name, payload, key=key), connection)

    def waiting_steps(
        self,
        *,
        signal: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        connection: Any = None,
    ) -> builtins.list[WaitingStep]:
        """The steps in which suspended jobs wait, the oldest first: those that wait for this signal, or all."""
        return self._producer.run(job_operations.waiting_steps(signal=signal, tenant=tenant, limit=limit), connection)

    async def awaiting_steps(
        self,
        *,
        signal: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        connection: Any = None,
    ) -> builtins.list[WaitingStep]:
        return await self._producer.arun(
            job_operations.waiting_steps(signal=signal, tenant=tenant, limit=limit), connection
        )

    def cancel(self, id: UUID, *, reason: str | None = None, force: bool = False, connection: Any = None) -> str:
        """Cancels a job and returns its state afterwards; `running`: it was asked to stop."""
        return self._producer.run(self._cancel(id, reason, force, connection), connection)

    async def acancel(self, id: UUID, *, reason: str | None = None, force: bool = False, connection: Any = None) -> str:
        return await self._producer.arun(self._cancel(id, reason, force, connection), connection)

    def retry(
        self, id: UUID, *, run_at: datetime | None = None, from_step: str | None = None, connection: Any = None
    ) -> str:
        """Reschedules a job with fresh attempts and returns the state it was in. With `from_step` it runs this step
        again, and those that were stored after it."""
        return self._producer.run(job_operations.retry(id, run_at=run_at, from_step=from_step), connection)

    async def aretry(
        self, id: UUID, *, run_at: datetime | None = None, from_step: str | None = None, connection: Any = None
    ) -> str:
        return await self._producer.arun(job_operations.retry(id, run_at=run_at, from_step=from_step), connection)

    def family(self, id: UUID, *, connection: Any = None) -> DependencyGraph:
        """The job with everything it depends on and everything that depends on it, directly or not."""
        return self._producer.run(job_operations.dependency_graph(id), connection)

    async def afamily(self, id: UUID, *, connection: Any = None) -> DependencyGraph:
        return await self._producer.arun(job_operations.dependency_graph(id), connection)

    def release(self, id: UUID, *, connection: Any = None) -> bool:
        """Takes a running job away from its node and queues it again; one that was asked to stop is canceled."""
        return self._producer.run(self._release(id, connection), connection)

    async def arelease(self, id: UUID, *, connection: Any = None) -> bool:
        return await self._producer.arun(self._release(id, connection), connection)

    # -- These operations fire events.

    def _cancel(self, id: UUID, reason: str | None, force: bool, connection: Any) -> Operation[str]:
        report = partial(self._producer.report_canceled, connection=connection)
        return job_operations.cancel(id, reason=reason, force=force, on_canceled=report)

    def _release(self, id: UUID, connection: Any) -> Operation[bool]:
        return job_operations.release(id, on_canceled=partial(self._producer.report_canceled, connection=connection))


class Queues:
    """Counts the jobs of each queue, and pauses and resumes queues and types."""

    def __init__(
        self, producer: JobProducer, queue_names: Callable[[], Collection[str]], tasks: Collection[str]
    ) -> None:
        self._producer, self._queue_names, self._tasks = producer, queue_names, tasks

    def stats(self, *, connection: Any = None) -> list[QueueCount]:
        """How many jobs there are by queue and state, and how long the oldest has waited."""
        return self._producer.run(job_operations.stats(), connection)

    async def astats(self, *, connection: Any = None) -> list[QueueCount]:
        return await self._producer.arun(job_operations.stats(), connection)

    def pause(
        self, queue: str | None = None, *, type: str | None = None, reason: str | None = None, connection: Any = None
    ) -> bool:
        """Starts no job of a queue, a type, or a type in a queue, until `resume`. False if it was paused already."""
        return self._producer.run(self._pause(queue, type, reason), connection)

    async def apause(
        self, queue: str | None = None, *, type: str | None = None, reason: str | None = None, connection: Any = None
    ) -> bool:
        return await self._producer.arun(self._pause(queue, type, reason), connection)

    def _pause(self, queue: str | None, type: str | None, reason: str | None) -> Operation[bool]:
        """Asks the database who uses a name only if this App does not, and before the pause itself uses it."""
        queues, types = set(self._queue_names()), set(self._tasks)
        if queue is not None and queue not in queues:
            queues |= yield from job_operations.known_queues()
        if type is not None and type not in types:
            types |= yield from job_operations.known_types()
        is_new = yield from job_operations.pause(queue=queue, type=type, reason=reason)
        if queue is not None:
            warn_of_unused_pause("queue", queue, queues)
        if type is not None:
            warn_of_unused_pause("type", type, types)
        return is_new

    def resume(self, queue: str | None = None, *, type: str | None = None, connection: Any = None) -> bool:
        """Ends a pause; False if there was none."""
        return self._producer.run(job_operations.resume(queue=queue, type=type), connection)

    async def aresume(self, queue: str | None = None, *, type: str | None = None, connection: Any = None) -> bool:
        return await self._producer.arun(job_operations.resume(queue=queue, type=type), connection)

    def pauses(self, *, connection: Any = None) -> list[Pause]:
        """What is paused, by whom, and why."""
        return self._producer.run(job_operations.pauses(), connection)

    async def apauses(self, *, connection: Any = None) -> list[Pause]:
        return await self._producer.arun(job_operations.pauses(), connection)


class Limits:
    """Shows limits and rates, the jobs that hold them and wait for them, and changes them for all nodes."""

    def __init__(self, producer: JobProducer) -> None:
        self._producer = producer

    def list(self, *, connection: Any = None) -> builtins.list[LimitRecord]:
        """All limits, with how many jobs hold them and wait for them. A queue with a limit is `queue:NAME`."""
        return self._producer.run(limit_operations.limits(), connection)

    async def alist(self, *, connection: Any = None) -> builtins.list[LimitRecord]:
        return await self._producer.arun(limit_operations.limits(), connection)

    def show(self, name: str, *, limit: int = 50, connection: Any = None) -> LimitDetails | None:
        """A limit with its keys and the jobs that hold them, at most `limit` of each; None if there is none."""
        return self._producer.run(limit_operations.show(name, limit=limit), connection)

    async def ashow(self, name: str, *, limit: int = 50, connection: Any = None) -> LimitDetails | None:
        return await self._producer.arun(limit_operations.show(name, limit=limit), connection)

    def set(
        self,
        name: str,
        *,
        max: int | None = None,
        rates: Sequence[Rate] | None = None,
        when_full: WhenFull | None = None,
        when_dead: WhenDead | None = None,
        connection: Any = None,
    ) -> LimitRecord | None:
        """Changes what is given of a limit, or makes one. `rates` takes the place of all its rates; an empty list
        removes them. The change stays until the code declares something else. Returns the limit as it is now."""
        change = limit_operations.set_limit(name, max=max, rates=rates, when_full=when_full, when_dead=when_dead)
        return self._producer.run(change, connection)

    async def aset(
        self,
        name: str,
        *,
        max: int | None = None,
        rates: Sequence[Rate] | None = None,
        when_full: WhenFull | None = None,
        when_dead: WhenDead | None = None,
        connection: Any = None,
    ) -> LimitRecord | None:
        change = limit_operations.set_limit(name, max=max, rates=rates, when_full=when_full, when_dead=when_dead)
        return await self._producer.arun(change, connection)

    def clear(self, name: str, *, connection: Any = None) -> bool:
        """Undoes changes of a limit, or frees an ordered key (`order:TYPE:VALUE`) that a dead job keeps. A limit that
        an operator has made is removed, and so is one without changes that no running node declares any more. False if
        there was nothing to undo."""
        return self._producer.run(limit_operations.clear_limit(name), connection)

    async def aclear(self, name: str, *, connection: Any = None) -> bool:
        return await self._producer.arun(limit_operations.clear_limit(name), connection)


class Cluster:
    """The nodes of the cluster, their leaders, named locks and token groups. Never part of a transaction: it takes
    effect at once."""

    def __init__(self, producer: JobProducer, make_member: MakeMemberOfCell) -> None:
        self._producer, self._make_member = producer, make_member
        self.group_options: dict[str, GroupOptions] = {}  # of the groups that this program has named

    def group(
        self,
        name: str,
        *,
        tokens: int = 10_000,
        hash: str = "md5",
        min_nodes: int = 1,
        handover_timeout: Duration = 30.0,
        coordination: bool = True,
    ) -> Group:
        """A token group: its members divide `tokens`, so that each key belongs to one of them. No tokens are given out
        before `min_nodes` members are there. Without `coordination` this process owns everything."""
        options = GroupOptions(tokens, hash, min_nodes, seconds(handover_timeout))
        _check_group(name, options)
        if coordination:
            self.group_options[name] = options
        producer = self._producer.here if coordination else self._producer
        return Group(name, options, producer, partial(self._make_member, producer.cell), coordination)

    def groups(self) -> list[GroupRecord]:
        """All token groups, with their members and what they wait for."""
        return self._producer.run_apart(cluster_operations.groups())

    async def agroups(self) -> list[GroupRecord]:
        return await self._producer.arun_apart(cluster_operations.groups())

    def nodes(self, *, gone: bool = False) -> list[NodeRecord]:
        """The nodes that are alive; with `gone` also those that have left or were lost."""
        return self._producer.run_apart(job_operations.nodes(gone=gone))

    async def anodes(self, *, gone: bool = False) -> list[NodeRecord]:
        return await self._producer.arun_apart(job_operations.nodes(gone=gone))

    def drain(self, name: str) -> bool:
        """Asks a node to finish what it runs and stop; False if no such node is active."""
        return self._producer.run_apart(job_operations.drain(name))

    async def adrain(self, name: str) -> bool:
        return await self._producer.arun_apart(job_operations.drain(name))

    def leader(self, group: str) -> Leader | None:
        """The node that leads a group, with its term; None if the group has no leader now."""
        return next(iter(self._producer.run_apart(lock_operations.leaders(group))), None)

    async def aleader(self, group: str) -> Leader | None:
        return next(iter(await self._producer.arun_apart(lock_operations.leaders(group))), None)

    def locks(self, *, free: bool = False) -> list[LockRecord]:
        """The named locks that are held or have expired; with `free` also those that were held in the last day."""
        return self._producer.run_apart(lock_operations.locks(free=free))

    async def alocks(self, *, free: bool = False) -> list[LockRecord]:
        return await self._producer.arun_apart(lock_operations.locks(free=free))

    def release_lock(self, name: str) -> bool:
        """Takes a lock away from its holder, as an operator does. False if it was not held."""
        return self._producer.run_apart(lock_operations.release(name))

    async def arelease_lock(self, name: str) -> bool:
        return await self._producer.arun_apart(lock_operations.release(name))


def _check_group(name: object, options: GroupOptions) -> None:
    """Refuses what the database would refuse, where the group is declared."""
    refused = {
        "name": (name, isinstance(name, str) and 1 <= len(name) <= 200, "a text of 1 to 200 characters"),
        "tokens": (options.tokens, _is_whole(options.tokens, 10_000_000), "1 to 10,000,000; 10,000 suit most groups"),
        "hash": (options.hash, options.hash in ("md5", "sha256", "double_sha256"), "md5, sha256 or double_sha256"),
        "min_nodes": (options.min_nodes, _is_whole(options.min_nodes, 2**31 - 1), "a whole number from 1"),
        "handover_timeout": (options.handover_timeout, 1 <= options.handover_timeout <= 86_400, "1 second to 1 day"),
    }
    for word, (given, fits, right) in refused.items():
        if not fits:
            raise Invalid(f"app.cluster.group({word}={shorten(given)}) is invalid.", hint=f"Give {right}.")


def _is_whole(given: object, most: int) -> bool:
    return type(given) is int and 1 <= given <= most
