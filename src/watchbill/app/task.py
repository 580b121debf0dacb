"""Task: a function that can also be enqueued."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    get_type_hints,
)
from uuid import UUID

from watchbill.app.parents import known_ids, parents_of
from watchbill.app.payload import Signature
from watchbill.errors import WatchbillError
from watchbill.model.family import RunIf
from watchbill.model.ids import new_id
from watchbill.model.job import JobRecord, NewJob
from watchbill.model.retry import Retry, seconds
from watchbill.worker.handlers import BadPayload, BadResult, Handler, Kind

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.handle import Job
    from watchbill.app.parents import Parent, Parents
    from watchbill.app.registry import Registry

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Seconds = int | float | timedelta
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
NOBODY = UUID(int=0)
LONGEST = 1e10  # seconds; beyond it no interval can be made
LONGEST_TIMEOUT = timedelta(days=360)  # what PostgreSQL takes for a year


class InvalidOption(WatchbillError, ValueError):
    """An option that cannot have that value."""

    exit_code = 2


@dataclass(frozen=True)
class Options:
    """How a job is enqueued, as far as its caller decides."""

    queue: str = "default"
    priority: int = 0
    delay: Seconds | None = None
    run_at: datetime | None = None
    tenant: str = "default"
    retry: Retry = Retry()  # noqa: RUF009  (frozen, and checked once)
    timeout: Seconds | None = None
    idempotency_key: str | None = None
    idempotency_window: Seconds | None = None
    strict: bool = False
    connection: Any = None
    id: UUID | None = None
    depends_on: tuple[Parent, ...] = ()
    run_if: RunIf | None = None

    def changed(self, **more: Any) -> Options:
        unknown = set(more) - {field.name for field in dataclasses.fields(self)}
        if unknown:
            names = ", ".join(field.name for field in dataclasses.fields(self))
            raise TypeError(f"there is no option {', '.join(sorted(unknown))}; the options are {names}")
        for name, value in more.items():
            _check_option(name, value)
        if self.timeout is not None and more.get("timeout", self.timeout) is None:
            more["timeout"] = LONGEST_TIMEOUT  # a job without any would have its task's
        if "depends_on" in more:
            more["depends_on"] = parents_of(more["depends_on"])
        return dataclasses.replace(self, **more)

    def new_job(self, type: str, payload: bytes, version: int = 1) -> NewJob:
        head, tail = self._template
        return NewJob._make((self.id or new_id(), type, payload, *head, version, *tail))

    @cached_property
    def _template(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What all jobs with these options have in common: the fields before the version, and those after it."""
        job = NewJob(
            id=NOBODY,
            type="",
            payload=b"",
            queue=self.queue,
            priority=self.priority,
            run_at=self.run_at,
            delay=_maybe(self.delay),
            tenant=self.tenant,
            max_attempts=self.retry.max_attempts,
            retry=self.retry.policy(),
            timeout=_maybe(self.timeout),
            idempotency_key=self.idempotency_key,
            idempotency_window=_maybe(self.idempotency_window),
            depends_on=known_ids(self.depends_on),
            run_if=self.run_if,
        )
        version = NewJob._fields.index("version")
        return job[3:version], job[version + 1 :]


_DURATIONS = ("delay", "timeout", "idempotency_window")
_KINDS: dict[str, tuple[type | UnionType, str]] = {
    "queue": (str, "the name of a queue"),
    "priority": (int, "a whole number"),
    "run_at": (datetime | None, "a datetime"),
    "tenant": (str, "a tenant's name"),
    "retry": (Retry, "a policy, such as Retry(max_attempts=3)"),
    "idempotency_key": (str | None, "a text"),
    "strict": (bool, "True or False"),
    "id": (UUID | None, "a UUID"),
    **dict.fromkeys(_DURATIONS, (Seconds | None, "seconds or a timedelta")),
}


def _check_option(name: str, value: Any) -> None:
    kind, what = _KINDS.get(name, (object, ""))
    fits = isinstance(value, kind)
    if not fits:
        raise InvalidOption(f"{name}={value!r} cannot be.", hint=f"Give {what}.")
    if name == "run_at" and value is not None and value.tzinfo is None:
        raise ValueError(f"run_at={value!r} has no time zone; give one, such as datetime.now(timezone.utc)")
    if name in _DURATIONS and value is not None and not abs(seconds(value)) < LONGEST:
        raise InvalidOption(f"{name}={value!r} is no duration.", hint=f"Give {what}.")
    if name == "priority" and not -(2**31) <= value < 2**31:
        raise InvalidOption(f"priority={value!r} is out of range.", hint="It has 32 bits; higher runs first.")


class Choices(TypedDict, total=False):
    """The same, for type checkers: what `using` and `app.enqueue` take by name."""

    queue: str
    priority: int
    delay: Seconds | None
    run_at: datetime | None
    tenant: str
    retry: Retry
    timeout: Seconds | None
    idempotency_key: str | None
    idempotency_window: Seconds | None
    strict: bool
    connection: Any
    id: UUID | None
    depends_on: Parents
    run_if: RunIf | None


class Call(NamedTuple, Generic[R]):
    """A task with its arguments, not sent yet: for enqueue_many, chains and schedules."""

    task: Task[..., R]
    payload: bytes

    def new_job(self) -> NewJob:
        return self.task.new_job(self.payload)


class Task(Generic[P, R]):
    """Call it and it is the function; `enqueue` it and a worker runs it.

    `P` and `R` are what a payload holds and what a job results in. What a plain call takes and gives differs between
    tasks: `watchbill/app/plain_call.py`.
    """

    def __init__(
        self,
        registry: Registry,
        function: Callable[..., Any],
        *,
        type: str | None,
        options: Options,
        version: int,
        aliases: tuple[str, ...],
        executor: Literal["thread", "process"] | None,
    ) -> None:
        self.type = type or task_type(function)
        self.function, self.version, self.aliases = function, version, aliases
        self.kind: Kind = _kind(function, executor, self.type)
        self._registry, self.options = registry, options
        self.transactional = takes_connection(function)
        self._signature = Signature(function, self.type, skip=int(self.transactional))
        self._upgrades: dict[int, Upgrade] = {}
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.type}>"

    def using(self, **options: Unpack[Choices]) -> Self:
        """The same task with other options: priority, delay, run_at, queue, tenant, retry, connection, ..."""
        other = copy.copy(self)
        other.options = self.options.changed(**options)
        return other

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Stores a job with these arguments, for a worker to run."""
        return self._registry.app.send(self, self.new_job(self._signature.encode(args, kwargs)), self.options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await self._registry.app.asend(self, self.new_job(self._signature.encode(args, kwargs)), self.options)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not sent yet, for enqueue_many, schedules and the like."""
        return Call(self, self._signature.encode(args, kwargs))

    def upgrade(self, *, from_version: int) -> Callable[[Upgrade], Upgrade]:
        """Registers how a payload of an older version becomes one of the next."""
        if not 1 <= from_version < self.version:
            raise ValueError(
                f"task {self.type} has version {self.version}: from_version must be 1 to {self.version - 1}"
            )

        def register(function: Upgrade) -> Upgrade:
            self._upgrades[from_version] = function
            return function

        return register

    def new_job(self, payload: bytes) -> NewJob:
        return self.options.new_job(self.type, payload, self.version)

    @property
    def app(self) -> App:
        return self._registry.app

    @property
    def queue(self) -> str:
        """Where its jobs go."""
        return self.options.queue

    def check(self, payload: dict[str, Any]) -> bytes:
        return self._signature.check(payload)

    def whole_payload(self, job: JobRecord) -> dict[str, Any]:
        """The payload of a job of this type, from the payload store if it is there."""
        digest = job.payload.get("$stored")
        if digest is None:
            return job.payload
        import orjson

        found: dict[str, Any] = orjson.loads(
            self._registry.app.stored.fetch(job.id, digest, (job.meta or {}).get("stored"))
        )
        return found

    def decode_result(self, value: Any) -> R:
        return self._signature.decode_result(value)  # type: ignore[no-any-return]

    def handler(self) -> Handler:
        """As the worker sees it."""
        app = self._registry.app
        return Handler(
            type=self.type,
            function=app.around.wrap(self.function, self.kind),
            kind=self.kind,
            version=self.version,
            decode=self._decode,
            encode_result=partial(self._encode_result, app.settings.max_result),
            schema=app.settings.schema,
            timeout=_maybe(self.options.timeout),
            transactional=self.transactional,
            reference=f"{self.function.__module__}:{self.function.__qualname__}",
            reading=app.stored.reading,
            app=app,
        )

    def _encode_result(self, limit: int, value: Any) -> bytes:
        try:
            raw = self._signature.encode_result(value)
        except Exception as error:
            raise BadResult(f"{self.type}: the result cannot be stored as JSON: {error}") from error
        if len(raw) > limit:
            raise BadResult(
                f"{self.type}: the result has {len(raw):,} bytes, the limit is {limit:,} (max_result); "
                "store it elsewhere and return where it is"
            )
        return raw

    def _decode(self, payload: bytes, version: int) -> dict[str, Any]:
        if version == self.version or not self._upgrades:
            return self._signature.decode(payload)
        import orjson

        old = orjson.loads(payload)
        for step in range(version, self.version):
            if step not in self._upgrades:
                raise BadPayload(
                    f"{self.type}: no upgrade from payload version {step}; "
                    f"add @{self.function.__name__}.upgrade(from_version={step})"
                )
            old = self._upgrades[step](old)
        return self._signature.decode(orjson.dumps(old))


def task_type(function: Callable[..., Any]) -> str:
    """The module-qualified name; for a script its file's name, so that script and worker agree."""
    module = function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else "__main__"
    return f"{module}.{function.__qualname__}"


def _kind(function: Callable[..., Any], executor: str | None, name: str) -> Kind:
    if executor not in (None, "thread", "process"):
        raise ValueError(f"task {name}: executor={executor!r} must be 'thread' or 'process'")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"task {name}: a generator cannot be a task, since nobody would ask for what it yields")
    if inspect.iscoroutinefunction(function):
        if executor is not None:
            raise TypeError(
                f"task {name}: an async function runs on the event loop, not with executor={executor!r}; "
                "make it a plain def"
            )
        return "async"
    return "process" if executor == "process" else "thread"


def takes_connection(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as a connection; its annotation may be text."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return False
    if "Connection" not in first.annotation if isinstance(first.annotation, str) else "psycopg" not in sys.modules:
        return False  # a class of a driver that nobody has loaded cannot be here
    from watchbill.worker.transactions import is_connection

    return is_connection(get_type_hints(function).get(first.name))


def _maybe(value: Seconds | None) -> float | None:
    return None if value is None else seconds(value)


def refuse_on_loop(call: str, instead: str) -> None:
    """A blocking call on an event loop's thread would stop everything else there."""
    if on_loop():
        raise RuntimeError(f"{call} would block the running event loop; use {instead} here")


def on_loop() -> bool:
    """Whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
