"""One run of a job: what was claimed, its progress, and how it ended. `current_job()` returns the run to the
handler."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import orjson

from watchbill.errors import WatchbillError
from watchbill.telemetry.context import current
from watchbill.telemetry.job_lines import LogTail

if TYPE_CHECKING:
    from asyncio import Task, TimerHandle

    from watchbill.client.operations import Operation
    from watchbill.model.dependency_graph import EarlierJob
    from watchbill.worker.handlers import Handler, OperationRunner

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
LOCK_TIMEOUT = "2s"  # for what a handler's transaction needs of the job; a lock kept longer is a transaction left open
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)


class NoResult(WatchbillError):
    """The job waited for no job of the given task that has a result."""


class Source(Protocol[R_co]):
    """The part of a task that is needed to read the results of its jobs."""

    @property
    def type(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def decode_result(self) -> Callable[[Any], R_co]: ...


class Claimed(NamedTuple):
    """A row of the SQL function claim(). Ids stay 16 bytes and times microseconds since 2000, as the server sends them:
    most are never read, so converting all of them would waste time."""

    id: bytes
    fence: int
    type: str
    raw_payload: bytes  # jsonb as the server sends it: a version byte, then JSON
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
    entries_read: int  # how many index entries the claim has read; 0 if it did not start at the top
    turn: int = 0  # in a fair or routed queue, jobs with a lower number start first
    is_limited: bool = False  # whether the job holds limit keys until its ending is stored


@dataclass(slots=True)
class Outcome:
    """How a run ended, if it did not simply succeed."""

    name: str  # skipped, failed, timed_out, snoozed, canceled, released, suspended, undone or unsupported
    delay: float | None = None  # seconds until the next run
    error: dict[str, Any] | None = None
    # What a handler gave with `Skip`, or the steps in which it is suspended; a success has its result in the run.
    result: bytes | None = None


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """One call of a handler for a job. A handler gets this object from `current_job()`."""

    claimed: Claimed
    handler: Handler
    started: float  # when the handler was called, on the monotonic clock
    stopping: str | None = None  # why the handler was asked to stop: timed_out, canceled or released
    task: Task[Any] | None = None
    context: contextvars.Context | None = None
    timer: TimerHandle | None = None
    seconds: float = 0.0  # how long the run took, once it has ended
    last_progress: Any = None
    result: bytes | None = None
    outcome: Outcome | None = None  # still None when the run has ended: the run succeeded
    log: LogTail | None = None  # the last lines that the handler has logged; None if it has logged nothing
    watch: float = 0.0  # until when somebody looks at the job, on the monotonic clock
    shown_lines: int = 0  # how many lines of `log` were shown to those who look
    is_undoing: bool = False  # the run undoes what the steps of earlier ones have done
    raised: BaseException | None = None  # the exception that ended the handler, unless it ran in a child process

    @property
    def id(self) -> UUID:
        """The id of the job, the same in all its attempts."""
        return UUID(bytes=self.claimed.id)

    @property
    def type(self) -> str:
        """The type of the job: the name of its task."""
        return self.claimed.type

    @property
    def queue(self) -> str:
        """The queue from which the job was claimed."""
        return self.claimed.queue

    @property
    def tenant(self) -> str:
        """The tenant that the job belongs to."""
        return self.claimed.tenant

    @property
    def attempt(self) -> int:
        """The number of this attempt at the job, from 1."""
        return self.claimed.attempt + 1

    @property
    def max_attempts(self) -> int:
        """How many attempts the job may have."""
        return self.claimed.max_attempts

    @property
    def timeout(self) -> float | None:
        """Seconds that this attempt may take: the job's own time-out, or else that of its task."""
        return self.handler.timeout if self.claimed.timeout is None else self.claimed.timeout

    @property
    def fence(self) -> int:
        """The number of this claim. A later claim has a greater number."""
        return self.claimed.fence

    @property
    def run_at(self) -> datetime:
        """When the job was due to run."""
        return _EPOCH_2000 + timedelta(microseconds=self.claimed.raw_run_at)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the job: a JSON object that is stored beside its payload."""
        raw = self.claimed.raw_meta
        return {} if raw is None else orjson.loads(raw[1:])

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made this job."""
        return self.meta.get("schedule")

    @property
    def slot(self) -> datetime | None:
        """The instant at which the job's schedule was due. None for a job without a schedule or run by hand."""
        found = self.meta.get("slot")
        return None if found is None else datetime.fromisoformat(found)

    @property
    def batch(self) -> Sequence[Run]:
        """The jobs that this call of the handler runs, in the order of its items; without `Batch`, this job alone."""
        return (self,)

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    @property
    def deadline(self) -> float | None:
        """When the attempt times out, on `time.monotonic()`; None without a time-out."""
        return None if self.timeout is None else self.started + self.timeout

    @property
    def canceled(self) -> bool:
        """Whether this handler was asked to stop: canceled, timed out, or its node lost the job."""
        return self.stopping is not None

    def progress(self, value: Any) -> None:
        """Reports how far the handler is, as any JSON value. The next heartbeat stores it, so that it is shown with the
        job."""
        self.last_progress = value

    def add_lines(self, lines: Sequence[str]) -> None:
        """Keeps lines that the handler has logged. Any thread may call this."""
        if self.log is None:
            self.log = LogTail()
        self.log.add(lines)

    def artifact(self, reference: str) -> None:
        """Records where something is that this job has made, such as the address of a file. It is shown with the
        job."""
        self._app.run(self._make_artifact_operation(reference))

    async def aartifact(self, reference: str) -> None:
        await self._app.arun(self._make_artifact_operation(reference))

    def parents(self) -> list[EarlierJob]:
        """The jobs that this job waited for, in the order of `depends_on`: their states, results and errors."""
        return self._app.run(self._find_ancestors(deepest=1))

    async def aparents(self) -> list[EarlierJob]:
        return await self._app.arun(self._find_ancestors(deepest=1))

    def result_of(self, task: Source[R]) -> R:
        """The result of a job of `task` that this job waited for, directly or through other jobs; the nearest one."""
        return _decode_nearest_result(task, self._app.run(self._find_ancestors(task)))

    async def aresult_of(self, task: Source[R]) -> R:
        return _decode_nearest_result(task, await self._app.arun(self._find_ancestors(task)))

    def results_of(self, task: Source[R]) -> list[R]:
        """The results of all jobs of `task` that succeeded and that this job waited for, directly or through other
        jobs. Direct ones come first."""
        return _decode_results(task, self._app.run(self._find_ancestors(task)))

    async def aresults_of(self, task: Source[R]) -> list[R]:
        return _decode_results(task, await self._app.arun(self._find_ancestors(task)))

    def _find_ancestors(self, task: Source[Any] | None = None, **options: Any) -> Operation[list[EarlierJob]]:
        from watchbill.client.job_operations import ancestors

        return ancestors(self.id, types=None if task is None else [task.type, *task.aliases], **options)

    @property
    def _app(self) -> OperationRunner:
        assert self.handler.app is not None, "only a task of an App can read the jobs that it waited for"
        return self.handler.app

    def guard(self, *, connection: Any) -> None:
        """Makes sure that no other node gets this job before your transaction ends. Raises StaleFence if the job was
        taken from this node before.

        `connection` may be of any kind that `enqueue` takes: docs/howto/transactions.md.
        """
        self._refuse_without_transaction(connection, asynchronous=False)
        self._run_on_connection(connection, self._make_guard_operation(), "guard")

    async def aguard(self, *, connection: Any) -> None:
        self._refuse_without_transaction(connection, asynchronous=True)
        await self._arun_on_connection(connection, self._make_guard_operation(), "guard")

    def complete(self, result: Any = None, *, connection: Any) -> None:
        """Completes this job with the commit of your own transaction. Raises StaleFence if the job was taken from this
        node before."""
        self._run_on_connection(connection, self._make_completion_operation(result), "complete")

    async def acomplete(self, result: Any = None, *, connection: Any) -> None:
        await self._arun_on_connection(connection, self._make_completion_operation(result), "complete")

    def end_transaction(self, result: Any, connection: Any) -> None:
        """Completes this job as the last statement of its handler's transaction. Raises LockNotAvailable if another
        transaction keeps the job locked."""
        self._run_on_connection(connection, self._make_completion_operation(result, LOCK_TIMEOUT), "complete")

    async def aend_transaction(self, result: Any, connection: Any) -> None:
        await self._arun_on_connection(connection, self._make_completion_operation(result, LOCK_TIMEOUT), "complete")

    def _refuse_without_transaction(self, connection: Any, *, asynchronous: bool) -> None:
        from watchbill.client import caller_connection

        caller_connection.refuse_without_transaction(connection, "guard", asynchronous=asynchronous)

    def _run_on_connection(self, connection: Any, operation: Operation[None], call: str) -> None:
        from watchbill.client import caller_connection
        from watchbill.store.queries import queries

        caller_connection.run(operation, connection, queries(self.handler.schema), call=call)

    async def _arun_on_connection(self, connection: Any, operation: Operation[None], call: str) -> None:
        from watchbill.client import caller_connection
        from watchbill.store.queries import queries

        await caller_connection.arun(operation, connection, queries(self.handler.schema), call=call)

    def _make_artifact_operation(self, reference: str) -> Operation[None]:
        from watchbill.client import job_operations

        return job_operations.set_artifact(self.id, self.fence, reference)

    def _make_guard_operation(self) -> Operation[None]:
        from watchbill.client import job_operations

        return job_operations.guard(self.id, self.fence)

    def _make_completion_operation(self, result: Any, lock_timeout: str | None = None) -> Operation[None]:
        from watchbill.client import job_operations

        raw = None if result is None else self.handler.encode_result(result)
        return job_operations.complete(self.id, self.fence, raw, self.age, lock_timeout)


def progress_as_json(progress: object) -> bytes:
    """Returns the progress as JSON, and never fails: for a value that JSON cannot express it returns its repr()."""
    try:
        return orjson.dumps(progress, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return orjson.dumps(_safe_repr(progress))


def _safe_repr(progress: object) -> str:
    try:
        return repr(progress).encode("ascii", "replace").decode()
    except Exception as error:  # noqa: BLE001  (nested too deep, changed by another thread, or a __repr__ that fails)
        return f"a {type(progress).__name__} that cannot be shown: {type(error).__name__}"


def current_job() -> Run:
    """Returns the run of the job whose handler calls this function."""
    job = current.get()
    if not isinstance(job, Run):
        raise LookupError("current_job() was called outside of a task's handler")
    return job


def _decode_results(source: Source[R], found: list[EarlierJob]) -> list[R]:
    return [source.decode_result(job.result) for job in found if job.state == "succeeded"]


def _decode_nearest_result(source: Source[R], found: list[EarlierJob]) -> R:
    """Returns the result of the nearest job that was found. Raises NoResult if several are equally near."""
    near = [job for job in found if job.depth == found[0].depth] if found else []
    ended = [job for job in near if job.state == "succeeded"]
    if len(near) > 1:
        raise NoResult(
            f"This job waits for {len(near)} jobs of {source.type}, so there is no single result.",
            hint="results_of() has all of them, in the order in which they were named.",
        )
    if not ended:
        why = f"it is {near[0].state}" if near else "it waits for no such job, or that job is no longer kept"
        raise NoResult(f"This job has no result of {source.type}: {why}.")
    return source.decode_result(ended[0].result)
