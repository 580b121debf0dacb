"""Stores the steps of running jobs, many in one statement, and loads those of earlier runs.

As with the settler, there is no timer: what handlers hand over during one statement is stored by the next. `save`
returns when the step is committed. If a reply is lost, the steps are sent again: the database knows by the fence that
it has stored them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from watchbill.model.steps import StepKind, StepNotStored
from watchbill.postgres.arrays import float8s, int8s, intervals, jsonbs, nullable_int8s, texts, times, uuids
from watchbill.store.node_connection import Disconnected, NodeConnection, Refused, is_outage
from watchbill.worker.run import Claimed

logger = logging.getLogger("watchbill.worker")

LARGEST_BATCH = 1000  # steps in one statement
LARGEST_BATCH_BYTES = 16_000_000


class StoredStep(NamedTuple):
    """A step that an earlier run has stored, as load_steps() returns it."""

    name: str
    kind: str
    state: str
    seq: int
    version: int
    tries: int
    digest: int | None
    remaining: float | None  # seconds until the wake time
    result: bytes | None
    error: bytes | None
    has_undo: bool = False

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "retrying", "begun")


class NewStep(NamedTuple):
    """A step to store. `began` is on the monotonic clock."""

    claimed: Claimed
    name: str
    kind: StepKind
    state: str
    seq: int
    digest: int | None = None
    version: int = 1
    tries: int = 1
    began: float | None = None
    delay: float | None = None  # seconds
    wake_at: int | None = None  # microseconds since 2000
    result: bytes | None = None
    error: bytes | None = None
    has_undo: bool = False

    @property
    def size(self) -> int:
        return len(self.result or b"") + len(self.error or b"")


class SignalWait(NamedTuple):
    """A step that waits for the first signal of some names."""

    claimed: Claimed
    name: str
    seq: int
    signals: tuple[str, ...]
    ask: bytes | None
    timeout: float | None  # seconds


Waiting = tuple[NewStep, "asyncio.Future[bool]"]


class Checkpointer:
    """The only writer of steps in this process. It shares the settler's connection, which runs one statement at a time:
    so a node needs no connection more, and a step waits for at most one batch of endings."""

    def __init__(self, connection: NodeConnection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._saves: dict[tuple[bytes, int, str], Waiting] = {}
        self._loads: dict[bytes, asyncio.Future[list[StoredStep]]] = {}
        self._sender: asyncio.Task[None] | None = None

    async def save(self, step: NewStep) -> bool:
        """Returns whether the step is stored; False: the job was taken from this node. Raises StepNotStored if the
        database refuses the step itself."""
        # Two branches of a handler may store the same failure. A statement cannot store a row twice.
        waiting = self._saves.setdefault(
            (step.claimed.id, step.claimed.fence, step.name), (step, self._loop.create_future())
        )
        self._wake_sender()
        return await asyncio.shield(waiting[1])

    async def read_clock(self) -> int:
        """Returns the time of the database, in microseconds since 2000."""
        ((now,),) = await self._execute("clock_of_steps", ())
        return int(now)

    async def receive(self, wait: SignalWait) -> tuple[str | None, bytes | None]:
        """Reads a signal, or stores that the step waits for one. Returns the state of the step and the signal; without
        a state, another node has the job."""
        try:
            ((state, raw),) = await self._execute(
                "receive_signal",
                (
                    UUID(bytes=wait.claimed.id), wait.claimed.fence, wait.name, wait.seq, list(wait.signals),
                    None if wait.ask is None else wait.ask.decode(),
                    None if wait.timeout is None else timedelta(seconds=wait.timeout),
                ),
            )  # fmt: skip
        except Refused as error:
            raise StepNotStored(f"Step {wait.name}: the database has refused it: {error.message}") from error
        return state, None if raw is None else raw[1:]

    async def collect(self, claimed: Claimed, step: str, seq: int) -> tuple[str | None, bytes | None]:
        """Returns the state of a step that waits for jobs, and how they have ended; without a state, another node has
        the job."""
        try:
            ((state, raw),) = await self._execute("collect_jobs", (UUID(bytes=claimed.id), claimed.fence, step, seq))
        except Refused as error:
            raise StepNotStored(f"Step {step}: the database has refused it: {error.message}") from error
        return state, None if raw is None else raw[1:]

    async def restart(self, claimed: Claimed, payload: bytes) -> bool:
        """Gives the job another payload, and deletes its steps. Returns False if another node has the job."""
        try:
            ((done,),) = await self._execute("restart_job", (UUID(bytes=claimed.id), claimed.fence, payload.decode()))
        except Refused as error:
            raise StepNotStored(f"steps.restart(): the database has refused it: {error.message}") from error
        return bool(done)

    async def load(self, claimed: Claimed) -> list[StoredStep]:
        """Returns the steps that earlier runs of the job have stored."""
        answer = self._loads.get(claimed.id)
        if answer is None:
            answer = self._loads[claimed.id] = self._loop.create_future()
        self._wake_sender()
        return await asyncio.shield(answer)

    def _wake_sender(self) -> None:
        if self._sender is None:
            self._sender = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._saves or self._loads:
                if self._loads:
                    await self._send_loads()
                if self._saves:
                    await self._send_saves(self._take_batch())
        finally:
            self._sender = None

    def _take_batch(self) -> list[Waiting]:
        size = 0
        batch: list[Waiting] = []
        for key, waiting in list(self._saves.items())[:LARGEST_BATCH]:
            size += waiting[0].size
            if batch and size > LARGEST_BATCH_BYTES:
                break
            batch.append(self._saves.pop(key))
        return batch

    async def _send_loads(self) -> None:
        wanted, self._loads = self._loads, {}
        rows = await self._execute("load_steps", (uuids(list(wanted)),))
        found: dict[bytes, list[StoredStep]] = defaultdict(list)
        for job_id, *row in rows:
            found[job_id].append(_read_step(row))
        for job_id, answer in wanted.items():
            if not answer.done():
                answer.set_result(found[job_id])

    async def _send_saves(self, batch: Sequence[Waiting]) -> None:
        if len(batch) == 1 and await self._save_result(batch[0][0]):
            if not batch[0][1].done():
                batch[0][1].set_result(True)
            return
        try:
            rows = await self._execute("save_steps", [step for step, _ in batch])
        except Refused as error:
            if len(batch) > 1:  # sends each alone, to find the one that the server refuses
                for each in batch:
                    await self._send_saves([each])
                return
            step, answer = batch[0]
            if not answer.done():
                answer.set_exception(StepNotStored(f"Step {step.name}: the database has refused it: {error.message}"))
            return
        refused = {place for (place,) in rows}
        for place, (_, answer) in enumerate(batch, 1):
            if not answer.done():
                answer.set_result(place not in refused)

    async def _save_result(self, step: NewStep) -> bool:
        """Stores a step alone, in a statement that costs less. Returns False if `save_steps` has to decide."""
        if (step.kind, step.state, step.tries) != ("run", "done", 1) or step.began is None:
            return False
        try:
            ((stored,),) = await self._execute(
                "save_result",
                (
                    UUID(bytes=step.claimed.id), step.claimed.fence, step.name, step.seq, step.version, step.digest,
                    time.monotonic() - step.began, step.has_undo, None if step.result is None else step.result.decode(),
                ),
            )  # fmt: skip
        except Refused:
            return False
        return bool(stored)

    async def _execute(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        """Runs a query, and retries until the database answers. Raises Refused if the steps themselves are the
        cause."""
        while True:
            try:
                sent = _make_params(params) if query == "save_steps" else params
                return await self._connection.execute(query, sent)
            except (Disconnected, Refused) as error:
                if isinstance(error, Refused) and error.by_data:
                    raise
                if not is_outage(error):
                    logger.warning("The server refused to store or load steps of jobs; will retry: %s", error)
                await self._connection.wait_to_retry()

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])


def _read_step(row: list[Any]) -> StoredStep:
    *others, result, error, has_undo = row
    values = [None if raw is None else raw[1:] for raw in (result, error)]
    return StoredStep._make([*others, *values, has_undo])


def _make_params(steps: Sequence[NewStep]) -> tuple[Any, ...]:
    now = time.monotonic()
    return (
        uuids([step.claimed.id for step in steps]),
        int8s([step.claimed.fence for step in steps]),
        texts([step.name for step in steps]),
        texts([step.kind for step in steps]),
        texts([step.state for step in steps]),
        int8s([step.seq for step in steps]),
        int8s([step.version for step in steps]),
        int8s([step.tries for step in steps]),
        nullable_int8s([step.digest for step in steps]),
        float8s([None if step.began is None else now - step.began for step in steps]),
        intervals([step.delay for step in steps]),
        times([step.wake_at for step in steps]),
        jsonbs([step.result for step in steps]),
        jsonbs([step.error for step in steps]),
        [step.has_undo for step in steps] if any(step.has_undo for step in steps) else None,
    )
