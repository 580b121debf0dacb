"""Handlers: what a worker needs to know of a task in order to run its jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from uuid import UUID

from watchbill.model.batch import Batch
from watchbill.model.retry import Retry
from watchbill.telemetry.printable import printable

if TYPE_CHECKING:
    from watchbill.client.operations import Operation

logger = logging.getLogger("watchbill.worker")

R = TypeVar("R")

Kind = Literal["async", "thread", "process"]
KeepLogs = Literal["failed", "all", "none"]
# Handler slots are counted by these kinds. Transactional handlers are also counted apart, because each of them needs a
# connection of the worker.
SlotKind = Literal["async", "thread", "process", "async transactional", "thread transactional"]
TRANSACTIONAL_KINDS: dict[Kind, SlotKind] = {"async": "async transactional", "thread": "thread transactional"}
# A payload that begins with these bytes is a reference to the payload store. The first byte is the version of jsonb.
STORED = b'\x01{"$stored"'


class BadPayload(ValueError):
    """The payload does not match the task's parameters; another attempt would fail as well."""


class BadTimeout(ValueError):
    """The job has a time-out that no attempt can have."""


class BadResult(ValueError):
    """The handler's return value cannot be stored; another attempt would fail as well."""


class NotStarted(Exception):
    """The handler was not called, because no thread or no connection was available for it; or what it has done was
    rolled back, because another transaction keeps its job locked. Its next try comes `delay` seconds later, or
    after the usual delay if that is None."""

    def __init__(self, reason: str, *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class OperationRunner(Protocol):
    """The part of an App that sends operations to the database, such as the reading of a job."""

    def run(self, operation: Operation[R]) -> R: ...
    async def arun(self, operation: Operation[R]) -> R: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A task's function and options, as the worker uses them."""

    type: str
    function: Callable[..., Any]
    kind: Kind
    version: int
    decode: Callable[[bytes, int], dict[str, Any]]  # JSON, version -> keyword arguments; raises BadPayload
    encode_result: Callable[[Any], bytes | None]
    schema: str = "watchbill"
    timeout: float | None = None  # seconds, for jobs without a time-out of their own
    retry: Retry = Retry()  # noqa: RUF009  (frozen) only its `on` and `not_on` count; a job has its own delays
    transactional: bool = False  # the first argument is a connection, whose commit completes the job
    closes_connection: bool = False  # the connection of a transactional task is closed after one job
    has_steps: bool = False  # the first argument is a Steps or an AsyncSteps
    max_result: int = 0  # bytes of the result of a step
    encode_payload: Callable[[dict[str, Any]], bytes] | None = None  # for steps.restart()
    reference: str = ""  # module:name, where a child process finds the task
    app: OperationRunner | None = None  # for calls of current_job() that read the database
    # Makes a handler that first reads the payload from the payload store, for a job whose payload is there.
    make_reading_handler: Callable[[Handler], Handler] | None = None
    fetch_payload: Callable[[Any, bytes], bytes] | None = None  # reads a batch job's stored payload: Run, reference
    batch: Batch | None = None  # if set, one call runs many jobs, and `decode` returns one item under its name
    max_per_node: int | None = None  # how many calls may run at once on this node
    logs: KeepLogs | None = None  # whose log lines are stored; None: as the node is configured
    slot_kind: SlotKind = field(init=False)
    is_plain: bool = field(init=False)  # a call takes the arguments of one job, and nothing that the worker makes

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot_kind", TRANSACTIONAL_KINDS[self.kind] if self.transactional else self.kind)
        object.__setattr__(self, "is_plain", self.batch is None and not (self.transactional or self.has_steps))


Handlers = Mapping[str, Handler]
MAX_LOGGED_TYPES = 1000


class UnsupportedTypes:
    """Logs once for each type of job that this worker cannot run, and names a similar type that was perhaps meant."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._logged: set[tuple[str, int]] = set()

    def log_once(self, type: str, version: int, job_id: UUID) -> None:
        """Logs that this worker returns jobs of this type to their queue, at the first call for the type. The type may
        be any text, because any text can be enqueued."""
        if (type, version) in self._logged or len(self._logged) >= MAX_LOGGED_TYPES:
            return
        self._logged.add((type, version))
        known = self._handlers.get(type)
        if known is not None:
            reason = f"This worker knows version {known.version} of it; deploy the newer code here."
        elif near := get_close_matches(type, self._handlers, n=1):
            reason = f"Did you mean {near[0]}?"
        else:
            reason = "This worker has no such task."
        logger.warning(
            "Cannot run jobs of type %s, version %d, such as %s; they wait for a node that can. %s",
            printable(type), version, job_id, reason,
        )  # fmt: skip
