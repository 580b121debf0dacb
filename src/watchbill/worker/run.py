"""One run of a job: what was claimed, and how far it has come. `current_job()` is the running handler's view of it."""

from __future__ import annotations

import contextvars
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from watchbill.telemetry.context import current
from watchbill.worker.earlier import Source, names, nearest, results

if TYPE_CHECKING:
    from asyncio import Task, TimerHandle

    from watchbill.client.plans import Plan
    from watchbill.model.family import EarlierJob
    from watchbill.worker.handlers import Handler

R = TypeVar("R")
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)


class Claimed(NamedTuple):
    """A row of claim(). Ids are 16 bytes, times microseconds since 2000: nothing is built that nobody reads."""

    id: bytes
    fence: int
    type: str
    raw_payload: bytes  # jsonb as sent: a version byte, then JSON
    queue: str
    tenant: str
    priority: int
    raw_run_at: int
    run: int
    attempt: int
    max_attempts: int
    version: int
    timeout: float | None
    raw_meta: bytes | None
    walked: int  # entries of the index that its claim has read, when it looked from the top


def claim_order(row: Claimed) -> tuple[int, int, bytes]:
    return (-row.priority, row.raw_run_at, row.id)


class Run:
    """A started handler. Its public names are what `current_job()` offers."""

    __slots__ = (
        "arguments",
        "claimed",
        "context",
        "handler",
        "last_progress",
        "raised",
        "seconds",
        "started",
        "stopping",
        "task",
        "timer",
    )

    def __init__(self, claimed: Claimed, handler: Handler, started: float) -> None:
        self.claimed = claimed
        self.handler = handler
        self.started = started
        self.stopping: str | None = None  # why the handler was told to stop
        self.task: Task[Any] | None = None
        self.context: contextvars.Context | None = None
        self.arguments: dict[str, Any] = {}
        self.timer: TimerHandle | None = None
        self.seconds = 0.0  # how long it took, once it has ended
        self.last_progress: Any = None
        self.raised: BaseException | None = None  # what ended it

    @property
    def id(self) -> UUID:
        """Of the job: the same for all its attempts."""
        return UUID(bytes=self.claimed.id)

    @property
    def type(self) -> str:
        """The task's."""
        return self.claimed.type

    @property
    def queue(self) -> str:
        """The one it was taken from."""
        return self.claimed.queue

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.claimed.tenant

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.claimed.attempt + 1

    @property
    def max_attempts(self) -> int:
        """How many there may be."""
        return self.claimed.max_attempts

    @property
    def timeout(self) -> float | None:
        """Seconds that this attempt may take: the job's, or its task's when it was enqueued without."""
        return self.handler.timeout if self.claimed.timeout is None else self.claimed.timeout

    @property
    def fence(self) -> int:
        """The number of this claim: who has a greater one came later."""
        return self.claimed.fence

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return _EPOCH_2000 + timedelta(microseconds=self.claimed.raw_run_at)

    @property
    def meta(self) -> dict[str, Any]:
        """What travels with the job beside its payload."""
        raw = self.claimed.raw_meta
        return {} if raw is None else orjson.loads(raw[1:])

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made this job."""
        return self.meta.get("schedule")

    @property
    def slot(self) -> datetime | None:
        """The instant at which its schedule was due; None when somebody ran it by hand, and without a schedule."""
        found = self.meta.get("slot")
        return None if found is None else datetime.fromisoformat(found)

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    @property
    def deadline(self) -> float | None:
        """On `time.monotonic()`, when the time-out strikes; None without one."""
        return None if self.timeout is None else self.started + self.timeout

    @property
    def canceled(self) -> bool:
        """Whether this handler was told to stop: asked to cancel, timed out, or its node lost the job."""
        return self.stopping is not None

    def progress(self, value: Any) -> None:
        """Any JSON value; shown with the job within a heartbeat."""
        self.last_progress = value

    def parents(self) -> list[EarlierJob]:
        """The jobs that this one waited for, in the order given: their states, results and errors."""
        return self._ask(self._earlier(deepest=1))

    async def aparents(self) -> list[EarlierJob]:
        return await self._aask(self._earlier(deepest=1))

    def result_of(self, task: Source[R]) -> R:
        """The result of the nearest earlier job of this task: a parent, or one that a parent waited for."""
        return nearest(task, self._ask(self._earlier(types=names(task))))

    async def aresult_of(self, task: Source[R]) -> R:
        return nearest(task, await self._aask(self._earlier(types=names(task))))

    def results_of(self, task: Source[R]) -> list[R]:
        """Of all earlier jobs of this task that succeeded: parents first, in the order given."""
        return results(task, self._ask(self._earlier(types=names(task))))

    async def aresults_of(self, task: Source[R]) -> list[R]:
        return results(task, await self._aask(self._earlier(types=names(task))))

    def _earlier(self, **which: Any) -> Plan[list[EarlierJob]]:
        from watchbill.client.plans_families import earlier

        return earlier(self.id, **which)

    def _ask(self, plan: Plan[R]) -> R:
        assert self.handler.app is not None, "only tasks of an App ask"
        return self.handler.app.run(plan)

    async def _aask(self, plan: Plan[R]) -> R:
        assert self.handler.app is not None, "only tasks of an App ask"
        return await self.handler.app.arun(plan)

    def guard(self, *, connection: Any) -> None:
        """In your own transaction: until its end nobody takes this job away. Raises StaleFence when somebody has.

        The connection is one of those that `enqueue` takes, here and in `complete`: docs/howto/transactions.md.
        """
        self._through(connection, self._guard(), "guard")

    async def aguard(self, *, connection: Any) -> None:
        await self._athrough(connection, self._guard(), "guard")

    def complete(self, result: Any = None, *, connection: Any) -> None:
        """Completes this job in your own transaction, whose commit is its end. Raises StaleFence if it is too late."""
        self._through(connection, self._completion(result), "complete")

    async def acomplete(self, result: Any = None, *, connection: Any) -> None:
        await self._athrough(connection, self._completion(result), "complete")

    def _through(self, connection: Any, plan: Plan[None], call: str) -> None:
        from watchbill.client import foreign
        from watchbill.store.queries import queries

        foreign.run(plan, connection, queries(self.handler.schema), call=call)

    async def _athrough(self, connection: Any, plan: Plan[None], call: str) -> None:
        from watchbill.client import foreign
        from watchbill.store.queries import queries

        await foreign.arun(plan, connection, queries(self.handler.schema), call=call)

    def _guard(self) -> Plan[None]:
        from watchbill.client import plans

        return plans.guard(self.id, self.fence)

    def _completion(self, result: Any) -> Plan[None]:
        from watchbill.client import plans

        raw = None if result is None else self.handler.encode_result(result)
        return plans.complete(self.id, self.fence, raw, self.age)


def current_job() -> Run:
    """The job whose handler is calling."""
    job = current.get()
    if not isinstance(job, Run):
        raise LookupError("current_job() was called outside of a task's handler")
    return job
