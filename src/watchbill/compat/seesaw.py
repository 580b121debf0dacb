"""The PgJobStore of seesaw-job-postgres, in Python, on Watchbill's engine.

    store = PgJobStore("postgresql://localhost/mydb")
    for job in await store.claim_ready("worker-1", 10):
        await store.mark_succeeded(job.id)

A worker id is a node of Watchbill, whose lease is the store's lease time-out: claims and heartbeats renew the lease for
all jobs of the worker. A worker that has lost a job cannot end it any more: `mark_succeeded` and `mark_failed` raise
StaleFence.

The engine decides which jobs a worker gets (`claim`) and what the end of an attempt means (`settle`). What remains here
is the way to these functions. The README has one call per job, and a commit for each would cost most of the time. So
ends of jobs are stored in groups: ends that are reported while a statement runs wait for the next statement. Each call
returns when its own end is committed. An end that is reported while no statement runs is stored at once, by its caller.
The worker of Watchbill groups its ends too (`worker/settling.py`), but as a node with a loop, handlers and limits of
its own, which a job store does not have.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID, uuid4

import orjson
import psycopg
from psycopg.rows import tuple_row

from watchbill._version import __version__
from watchbill.client.client import AsyncClient
from watchbill.client.operations import Operation, Rows, Statement, Step, adrive, enqueue
from watchbill.model.ids import new_id
from watchbill.model.job import NewJob
from watchbill.model.retry import Retry
from watchbill.postgres.connect import AsyncConnection
from watchbill.store.queries import Queries, queries
from watchbill.store.refusals import NodeLost, StaleFence, translate

__all__ = ["ClaimedJob", "FailureKind", "JobSpec", "PgJobStore", "QueueStats"]

R = TypeVar("R")
APP = "seesaw"  # the app of all nodes of this facade; reclaim_expired() reclaims the jobs of these nodes only
DEFAULT_LEASE_MS = 60_000
MAX_ENDS_PER_STATEMENT = 1000
RETRY = Retry(max_attempts=3, base=2.0, factor=2.0, cap=3600.0, jitter=0.0)
_NAME_TAKEN = "WB002"
_VALUE = "value"  # a payload that is not an object is stored in an object, under this key
_WRAPPED = b'{"seesaw":"value"}'  # the metadata of a job whose payload was stored in such an object


class FailureKind(Enum):
    """Whether a failed job should be tried again: another attempt may help, or cannot help."""

    RETRYABLE = "retryable"
    NON_RETRYABLE = "non_retryable"


@dataclass(frozen=True)
class JobSpec:
    """The type and options of a job to enqueue. `max_retries` counts all attempts, the first included."""

    job_type: str
    version: int = 1
    max_retries: int = 3
    priority: int = 0
    idempotency_key: str | None = None


class ClaimedJob(NamedTuple):
    """A job that this worker holds now. `attempt` counts from 1."""

    id: UUID
    job_type: str
    payload: Any
    version: int
    attempt: int


class QueueStats(NamedTuple):
    """How many jobs of the queue are in each status. `failed` jobs were canceled; `dead_letter` jobs failed for
    good."""

    pending: int
    running: int
    succeeded: int
    failed: int
    dead_letter: int


class Pool(Protocol):
    """A pool of psycopg: psycopg_pool.AsyncConnectionPool."""

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...


@dataclass
class _Worker:
    """A worker id that is registered as a node."""

    epoch: int
    held: dict[int, int] = field(default_factory=dict)  # fence -> how many of its jobs have not ended


class _Claim(NamedTuple):
    worker: _Worker
    fence: int
    at: float  # when the job was claimed, on the monotonic clock


class _End(NamedTuple):
    """The end of one attempt, and the future on which its caller waits until the end is stored."""

    id: UUID
    claim: _Claim
    error: dict[str, Any] | None  # None if the attempt succeeded
    stored: asyncio.Future[None]


class PgJobStore:
    """Stores jobs in one queue. `pool` is the address of the database, or a psycopg_pool.AsyncConnectionPool.

    If other workers of Watchbill use the database, give the store a queue of its own, because it claims every job of
    its queue.
    """

    def __init__(
        self,
        pool: str | Pool,
        *,
        queue: str = "default",
        schema: str = "watchbill",
        lease_timeout_ms: int = DEFAULT_LEASE_MS,
    ) -> None:
        self.queue, self.lease_timeout_ms = queue, lease_timeout_ms
        self._queries = queries(schema)
        self._client = AsyncClient(pool, schema=schema) if isinstance(pool, str) else None
        self._pool = None if isinstance(pool, str) else pool
        self._workers: dict[str, _Worker] = {}
        self._claims: dict[UUID, _Claim] = {}
        self._ends: list[_End] = []
        self._settling: asyncio.Task[None] | None = None  # the asyncio task that stores groups of ends
        self._is_storing_one = False
        self._expects_group = False  # the last statement stored several ends, so the next end waits for a group too
        self._kept: _KeptConnection | None = None if self._client is None else _KeptConnection(self._client)

    @classmethod
    def with_lease_timeout(cls, pool: str | Pool, lease_timeout_ms: int, **options: Any) -> Self:
        """Makes a store whose workers may be silent for that many milliseconds before their jobs are reclaimed."""
        return cls(pool, lease_timeout_ms=lease_timeout_ms, **options)

    # -- methods that enqueue jobs

    async def enqueue(self, payload: Any, spec: JobSpec) -> UUID:
        """Stores a job that is ready now. A job with the same idempotency key is stored once."""
        return await self._enqueue(payload, spec, None)

    async def schedule(self, payload: Any, spec: JobSpec, run_at: datetime) -> UUID:
        """Stores a job that is ready at that time."""
        return await self._enqueue(payload, spec, run_at)

    async def _enqueue(self, payload: Any, spec: JobSpec, run_at: datetime | None) -> UUID:
        is_object = isinstance(payload, Mapping)
        job = NewJob(
            id=new_id(),
            type=spec.job_type,
            payload=orjson.dumps(payload if is_object else {_VALUE: payload}),
            queue=self.queue,
            priority=spec.priority,
            run_at=run_at,
            max_attempts=spec.max_retries,
            retry=RETRY.policy(),
            version=spec.version,
            idempotency_key=spec.idempotency_key,
            meta=None if is_object else _WRAPPED,
        )
        return (await self._run(enqueue(job, new_ids=True))).id

    # -- methods for workers: claim jobs, and report how they ended

    async def claim_ready(self, worker_id: str, limit: int) -> list[ClaimedJob]:
        """Claims up to `limit` jobs that are due, the highest priority first, and renews the worker's lease. A job that
        was reclaimed is claimed alone, by a worker that holds nothing else."""
        worker = await self._find_worker(worker_id)
        try:
            rows = await self._run(_claim(worker.epoch, self.queue, limit))
        except NodeLost:
            del self._workers[worker_id]  # the worker was lost, and others have its jobs; it registers as a new node
            worker = await self._find_worker(worker_id)
            rows = await self._run(_claim(worker.epoch, self.queue, limit))
        return [self._make_claimed_job(worker, row) for row in rows]

    def _make_claimed_job(self, worker: _Worker, row: tuple[Any, ...]) -> ClaimedJob:
        job_id, fence, job_type, payload, version, attempt, meta = row
        worker.held[fence] = worker.held.get(fence, 0) + 1
        self._claims[job_id] = _Claim(worker, fence, time.monotonic())
        if meta is not None and meta.get("seesaw") == _VALUE:
            payload = payload[_VALUE]
        return ClaimedJob(job_id, job_type, payload, version, attempt + 1)

    async def mark_succeeded(self, id: UUID) -> None:
        """Ends a job as succeeded. Raises StaleFence if this store no longer holds the job."""
        await self._end_attempt(id, None)

    async def mark_failed(self, id: UUID, error: str, kind: FailureKind = FailureKind.RETRYABLE) -> None:
        """Ends an attempt as failed. The job is tried again, or becomes a dead letter if no attempt is left, or if the
        failure is permanent."""
        stored = "permanent" if kind is FailureKind.NON_RETRYABLE else "retryable"
        await self._end_attempt(id, {"kind": stored, "type": "error", "message": str(error)})

    async def heartbeat(self, id: UUID) -> None:
        """Renews the lease of the worker that holds this job, which keeps all jobs of that worker."""
        await self._run(_send_heartbeat(self._find_claim(id).worker.epoch))

    def _find_claim(self, id: UUID) -> _Claim:
        claim = self._claims.get(id)
        if claim is None:
            raise StaleFence(
                f"This store does not hold job {id}.", hint="claim_ready() returns the jobs that it holds."
            )
        return claim

    async def _end_attempt(self, id: UUID, error: dict[str, Any] | None) -> None:
        claim = self._find_claim(id)
        if error is None and not (self._settling or self._ends or self._is_storing_one or self._expects_group):
            await self._store_single_success(id, claim)
            return
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.append(_End(id, claim, error, stored))
        self._start_settling()
        await stored

    def _start_settling(self) -> None:
        if self._settling is None and not self._is_storing_one:
            self._settling = asyncio.ensure_future(self._settle_all())

    async def _store_single_success(self, id: UUID, claim: _Claim) -> None:
        """Stores the end of one job that succeeded, without the asyncio task and the future that a group needs."""
        closed = [claim.fence] if claim.worker.held.get(claim.fence) == 1 else None
        params = (claim.worker.epoch, id, claim.fence, time.monotonic() - claim.at, closed)
        self._is_storing_one = True
        try:
            rows = await self._execute("seesaw_settle_one", params)
        finally:
            self._is_storing_one = False
            if self._ends:
                self._start_settling()
        self._forget_claim(id, claim)
        if rows:
            if any(state is None for _, state in rows):
                raise _make_reclaimed_error(id)
            await self._run(_unblock([job for job, _ in rows]))

    async def _settle_all(self) -> None:
        """Stores ends until none is left. Ends that are reported during one statement go into the next one."""
        try:
            while self._ends:
                worker = self._ends[0].claim.worker
                mine = [end for end in self._ends if end.claim.worker is worker]
                others = [end for end in self._ends if end.claim.worker is not worker]
                batch, self._ends = mine[:MAX_ENDS_PER_STATEMENT], mine[MAX_ENDS_PER_STATEMENT:] + others
                self._expects_group = len(batch) > 1
                await self._settle(worker, batch)
        finally:
            self._settling = None

    async def _settle(self, worker: _Worker, batch: Sequence[_End]) -> None:
        left = dict(worker.held)
        for end in batch:
            left[end.claim.fence] = left.get(end.claim.fence, 1) - 1
        closed = [fence for fence, count in left.items() if count <= 0]
        try:
            refused = await self._run(_settle(worker.epoch, batch, closed))
        except BaseException as error:  # each caller whose end is in the group gets the error
            for end in batch:
                if not end.stored.done():
                    end.stored.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        for end in batch:
            self._forget_claim(end.id, end.claim)
            if end.stored.done():  # the caller was canceled while it waited
                continue
            if end.id in refused:
                end.stored.set_exception(_make_reclaimed_error(end.id))
            else:
                end.stored.set_result(None)

    def _forget_claim(self, id: UUID, claim: _Claim) -> None:
        if self._claims.get(id) == claim:
            del self._claims[id]
        held, fence = claim.worker.held, claim.fence
        if fence in held:
            held[fence] -= 1
            if held[fence] <= 0:
                del held[fence]

    # -- methods for maintenance: reclaim, delete and count jobs

    async def reclaim_expired(self) -> int:
        """Reclaims the jobs of workers, of any store, that were silent for longer than their lease. A job that is lost
        for the third time becomes a dead letter. Returns how many jobs were reclaimed.

        A job of this queue that a worker of Watchbill has set aside, because it does not know the type, becomes a dead
        letter too, unless another worker of Watchbill knows the type."""
        return await self._run(_reclaim_jobs(self.queue))

    async def cleanup_succeeded(self, cutoff: datetime) -> int:
        """Deletes the jobs of this queue that succeeded before that time. Returns how many were deleted."""
        total = 0
        while deleted := await self._run(_purge_succeeded(self.queue, cutoff)):
            total += deleted
        return total

    async def stats(self) -> QueueStats:
        """Counts the jobs of this queue, also those that ended long ago."""
        return await self._run(_count_jobs(self.queue))

    # -- the end of the store, and its registered workers

    async def close(self) -> None:
        """Stores the ends that were reported, returns the other jobs to the queue, and closes the store's own pool."""
        if self._settling is not None:
            await self._settling
        workers, self._workers = list(self._workers.values()), {}
        self._claims.clear()
        for worker in workers:
            await self._run(_deregister_node(worker.epoch))
        if self._kept is not None:
            await self._kept.close()
        if self._client is not None:
            await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _find_worker(self, worker_id: str) -> _Worker:
        if worker_id not in self._workers:
            lease = self.lease_timeout_ms / 1000
            # The end of the name lets other nodes have the id of this worker as their name.
            name = f"{worker_id[:160]}@{APP}"
            try:
                epoch = await self._run(_register_node(name, worker_id, lease, self.queue))
            except psycopg.Error as error:
                if error.sqlstate != _NAME_TAKEN:
                    raise
                # Another process has this worker id too, or had it until a moment ago, so this one adds a random part.
                name += f"#{uuid4().hex[:12]}"
                epoch = await self._run(_register_node(name, worker_id, lease, self.queue))
            self._workers[worker_id] = _Worker(epoch)
        return self._workers[worker_id]

    async def _execute(self, query: str, params: tuple[Any, ...]) -> Rows:
        if self._kept is not None:
            return await self._kept.execute(self._queries[query], params, self._queries.schema)

        def operation() -> Operation[Rows]:
            return (yield Statement(query, params))

        return await self._run(operation())

    async def _run(self, operation: Operation[R]) -> R:
        if self._client is not None:
            return await self._client.run(operation)
        assert self._pool is not None
        async with self._pool.connection() as connection:  # commits at the end of the block
            try:
                return await adrive(operation, _execute, connection, self._queries)
            except psycopg.Error as error:
                raise translate(error, self._queries.schema) from error


class _KeptConnection:
    """One connection of the client's pool that is kept between statements, because to borrow one from the pool costs
    more than a small statement."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._borrowed: AbstractAsyncContextManager[AsyncConnection] | None = None
        self._connection: AsyncConnection | None = None

    async def execute(self, query: str, params: tuple[Any, ...], schema: str) -> Rows:
        try:
            if self._connection is None:
                self._borrowed = self._client.connection()
                self._connection = await self._borrowed.__aenter__()
            cursor = self._connection.kept_cursor
            await cursor.execute(query.encode(), params)
            return await cursor.fetchall()
        except BaseException as error:  # returns the connection to the pool, which replaces it if it is broken
            await self.close()
            if isinstance(error, psycopg.Error):
                raise translate(error, schema) from error
            raise

    async def close(self) -> None:
        borrowed, self._borrowed, self._connection = self._borrowed, None, None
        if borrowed is not None:
            await borrowed.__aexit__(None, None, None)


async def _execute(connection: psycopg.AsyncConnection[Any], step: Step, queries: Queries) -> Rows:
    """Runs a statement on a connection of the caller's pool, whose rows may be dictionaries."""
    assert isinstance(step, Statement)
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(queries[step.query].encode(), step.params)
    return await cursor.fetchall() if cursor.description else []


def _register_node(name: str, worker_id: str, lease: float, queue: str) -> Operation[int]:
    labels = orjson.dumps({"worker_id": worker_id}).decode()
    ((epoch,),) = yield Statement(
        "seesaw_register", (name, lease, APP, labels, platform.node(), os.getpid(), __version__, [queue])
    )
    return int(epoch)


def _claim(epoch: int, queue: str, limit: int) -> Operation[Rows]:
    return (yield Statement("seesaw_claim", {"epoch": epoch, "queue": queue, "limit": limit}))


def _send_heartbeat(epoch: int) -> Operation[None]:
    yield Statement("seesaw_beat", (epoch,))


def _settle(epoch: int, batch: Sequence[_End], closed: list[int]) -> Operation[set[UUID]]:
    """Stores the ends of a batch. Returns the jobs that this worker no longer holds."""
    now = time.monotonic()
    # Passed as text, which costs a fraction of the driver's arrays.
    ids = f"{{{','.join([end.id.hex for end in batch])}}}"
    fences = f"{{{','.join([str(end.claim.fence) for end in batch])}}}"
    ages = f"{{{','.join([f'{now - end.claim.at:.6f}' for end in batch])}}}"
    if all(end.error is None for end in batch):
        outcomes = errors = None
    else:
        outcomes = ["succeeded" if end.error is None else "failed" for end in batch]
        errors = [None if end.error is None else orjson.dumps(end.error).decode() for end in batch]
    rows = yield Statement("seesaw_settle", (epoch, ids, fences, outcomes, ages, errors, closed or None))
    if dependents := [job for job, state in rows if state == "blocked"]:
        yield from _unblock(dependents)
    return {job for job, state in rows if state is None}


def _unblock(jobs: list[UUID]) -> Operation[None]:
    yield Statement("seesaw_unblock", (jobs,))


def _make_reclaimed_error(id: UUID) -> StaleFence:
    return StaleFence(f"Job {id} was reclaimed from this worker.", hint="Another worker has it, or had it.")


def _deregister_node(epoch: int) -> Operation[None]:
    yield Statement("leave", (epoch,))


def _reclaim_jobs(queue: str) -> Operation[int]:
    ((count,),) = yield Statement("seesaw_reclaim", (APP,))
    yield Statement("seesaw_expire", (queue,))
    return int(count)


def _purge_succeeded(queue: str, cutoff: datetime) -> Operation[int]:
    ((count,),) = yield Statement("seesaw_purge", (queue, cutoff))
    return int(count)


def _count_jobs(queue: str) -> Operation[QueueStats]:
    ((*counts,),) = yield Statement("seesaw_stats", (queue,))
    return QueueStats(*map(int, counts))
