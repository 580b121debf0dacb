"""Task: a function that can also be enqueued."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_type_hints,
)

import orjson

from watchbill.app.bound_results import Binding, BoundResult, check_bindings, find_bindings
from watchbill.app.flow_control import AnyLimit, make_flow, refuse_with_order
from watchbill.app.job import Job, OperationRunner, ResultDecoder
from watchbill.app.job_options import JobOptions, JobOptionsDict, refuse_other_exceptions
from watchbill.app.key_formats import compute_keys
from watchbill.app.payload import BatchSignature, InvalidPayload, Signature
from watchbill.client.operations import Operation
from watchbill.errors import WatchbillError
from watchbill.model.batch import Batch
from watchbill.model.ids import new_id
from watchbill.model.job import JobRecord, NewJob
from watchbill.model.key_format import check_key
from watchbill.model.limits import By, WhenDead
from watchbill.model.unique import Debounce
from watchbill.worker.dependencies import Dependencies, find_needs
from watchbill.worker.handlers import BadPayload, BadResult, Handler, KeepLogs, Kind

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


# How other libraries enqueue, and how we do.
_CALLS_ELSEWHERE = {
    **dict.fromkeys(("delay", "send", "defer"), "TASK.enqueue(...)"),
    **dict.fromkeys(("defer_async", "kiq"), "await TASK.aenqueue(...)"),
    **dict.fromkeys(("apply_async", "send_with_options", "schedule"), "TASK.using(...).enqueue(...)"),
    **dict.fromkeys(("configure", "set"), "TASK.using(...)"),
    **dict.fromkeys(("s", "si", "signature"), "TASK.bind(...)"),
}


class ThreadTimeoutWarning(UserWarning):
    """A task runs in a thread and has a time-out, which cannot stop a thread."""


class NotIncluded(WatchbillError):
    """A task of a Tasks that no App has included cannot be enqueued."""


class Producer(OperationRunner, Protocol):
    """Stores jobs in the database of one App: all that tasks, flows and jobs know of it (`producer.py`)."""

    def send(self, job: NewJob, options: JobOptions, task: ResultDecoder[T] | None) -> Job[T]: ...
    async def asend(self, job: NewJob, options: JobOptions, task: ResultDecoder[T] | None) -> Job[T]: ...
    def send_many(self, calls: Iterable[Call[T]], *, connection: Any = None) -> list[Job[T]]: ...
    async def asend_many(self, calls: Iterable[Call[T]], *, connection: Any = None) -> list[Job[T]]: ...
    def make_handler(self, task: Task[..., Any], dependencies: Dependencies | None = None) -> Handler: ...
    def read_payload(self, job: JobRecord) -> dict[str, Any]: ...


class TaskOwner(Protocol):
    """What declared a task: an App, or a Tasks that some App includes later."""

    @property
    def place(self) -> str: ...
    @property
    def producer(self) -> Producer | None: ...
    def explain_missing_producer(self) -> WatchbillError: ...


class Call(NamedTuple, Generic[R]):
    """A task with its arguments, not sent yet: for enqueue_many, chains and schedules."""

    task: Task[..., R]
    payload: bytes
    bindings: tuple[Binding, ...] = ()  # which parameters take results of other calls
    original: Call[Any] | None = None  # the call that this one, in a chain, is a copy of

    def new_job(self) -> NewJob:
        return self.task.new_job(self.payload, {name for name, _ in self.bindings})

    @property
    def result(self) -> R:
        """The result that its job will have, as an argument of another call: `ship.bind(receipt=pay.result)`."""
        return cast("R", BoundResult((self,), is_list=False))


class Task(Generic[P, R]):
    """A function that can also be enqueued: a plain call runs the function here, `enqueue` lets a worker run it.

    `P` and `R` are the parameters in a payload and the result of a job. A plain call may differ from these:
    `watchbill/app/registry.py`.
    """

    def __init__(
        self,
        owner: TaskOwner,
        function: Callable[..., Any],
        *,
        type: str | None,
        options: JobOptions,
        version: int,
        aliases: tuple[str, ...],
        executor: Literal["thread", "process"] | None,
        batch: Batch | None = None,
        max_per_node: int | None = None,
        logs: KeepLogs | None = None,
        limits: Sequence[AnyLimit] = (),
        ordered_by: By | None = None,
        when_dead: WhenDead = "continue",
    ) -> None:
        self.type = type or task_type(function)
        self.function, self.version, self.aliases = function, version, aliases
        self.kind: Kind = _choose_kind(function, executor, self.type)
        self._owner, self.options = owner, options
        if self.kind == "thread" and executor is None and options.timeout is not None:
            _warn_of_timeout(function, self.type)
        self.transactional = takes_connection(function)
        if self.transactional and self.kind == "process":
            raise TypeError(
                f"task {self.type}: a connection cannot be given to another process; leave out executor='process'"
            )
        steps_class = _find_steps_class(function)
        self.has_steps = steps_class is not None
        _check_steps(self.type, self.kind, batch, steps_class)
        self.needs = find_needs(function, self.type, self.kind)
        self.batch, self.max_per_node, self.logs = batch, max_per_node, logs
        signature = Signature if batch is None else BatchSignature
        self._signature = signature(
            function, self.type, skip=int(self.transactional or self.has_steps), dependencies=self.needs
        )
        self._signature.check_types()
        self.flow = make_flow(
            self.type,
            describe_place(function),
            limits,
            ordered_by,
            when_dead,
            self._signature.names,
            any_name=self._signature.takes_any_name,
            has_batch=batch is not None,
            priority=options.priority,
            has_debounce=isinstance(options.unique, Debounce),
        )
        self._check_keys()
        if self.flow:
            self.options = replace(options, limit_keys=self.flow.limit_keys, ordered_by=self.flow.ordered_by)
        self._upgrades: dict[int, Upgrade] = {}
        update_wrapper(self, function)

    def _check_keys(self) -> None:
        """Raises ValueError if a key is made of a parameter that the task does not have; its flow checks the others."""
        unique, route_by = self.options.unique, self.options.route_by
        names, any_name = self._signature.names, self._signature.takes_any_name
        if unique is not None and unique.by is not None:
            shown = f"task {self.type}: {unique.__class__.__name__}(by={unique.by!r})"
            check_key(shown, unique.by, names, any_name=any_name)
        if route_by is not None:
            check_key(f"task {self.type}: route_by={route_by!r}", route_by, names, any_name=any_name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for name, need in self.needs.items():
            if name not in kwargs:
                raise TypeError(
                    f"{self.function.__name__}() was called and not enqueued, so nothing makes its dependency {name} "
                    f"({need.name}); give it: {name}=..."
                )
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.type}>"

    if not TYPE_CHECKING:  # type checkers would allow every attribute

        def __getattr__(self, name: str) -> Never:
            """Names our call for one of another library. Python asks here only for attributes that do not exist."""
            if name in _CALLS_ELSEWHERE:
                right = _CALLS_ELSEWHERE[name].replace("TASK", self.function.__name__)
                raise AttributeError(f"a task has no {name}(): write {right}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def using(self, *, app: TaskOwner | None = None, **options: Unpack[JobOptionsDict]) -> Self:
        """The same task with other options: priority, delay, run_at, queue, tenant, retry, connection, ... `app` is the
        App that enqueues, for a task that several Apps include."""
        other = copy.copy(self)
        if app is not None:
            other._owner = _check_owner(self, app)  # noqa: SLF001  (a Task too)
        other.options = chosen = self.options.change(**options)
        refuse_other_exceptions(chosen.retry, self.options.retry)
        if chosen.ordered_by is not None:
            refuse_with_order(
                self.type,
                has_batch=self.batch is not None,
                priority=chosen.priority,
                has_debounce=isinstance(chosen.unique, Debounce),
            )
        return other

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Stores a job with these arguments, for a worker to run."""
        job = self.new_job(self._signature.encode(args, kwargs, self._key_parameters))
        return self.producer.send(job, self.options, self)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        job = self.new_job(self._signature.encode(args, kwargs, self._key_parameters))
        return await self.producer.asend(job, self.options, self)

    def signal_by_key(
        self, idempotency_key: str, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> str:
        """Sends a signal to the job of this task that was enqueued with this idempotency key. To start a job or to
        signal the one that runs, enqueue with the key first, in the same transaction. Raises NoSuchJob."""
        return self.producer.run(self._signal_by_key(idempotency_key, name, payload, key), connection)

    async def asignal_by_key(
        self, idempotency_key: str, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> str:
        return await self.producer.arun(self._signal_by_key(idempotency_key, name, payload, key), connection)

    def _signal_by_key(self, idempotency_key: str, name: str, payload: Any, key: str | None) -> Operation[str]:
        from watchbill.client.job_operations import signal_by_key

        tenant = self.options.tenant or self.producer.find_tenant()
        return signal_by_key(self.type, idempotency_key, name, payload, key=key, tenant=tenant)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not sent yet, for enqueue_many, schedules and the like. An argument may be the result of
        another call."""
        try:
            return Call(self, self._signature.encode(args, kwargs, self._key_parameters))
        except InvalidPayload as error:  # results are looked for only now, because nearly no call has any
            refusal = error
        call = self._bind_results(args, kwargs)
        if call is None:
            raise refusal
        return call

    def _bind_results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[R] | None:
        """A call that waits for those whose results are among its arguments; None if none are."""
        arguments = self._signature.name_arguments(args, kwargs)
        bindings = find_bindings(arguments)
        if not bindings:
            return None
        check_bindings(self, bindings)
        names = {name for name, _ in bindings}
        rest = {name: value for name, value in arguments.items() if name not in names}
        payload = self._signature.without(names).encode((), rest, self._key_parameters)
        parents = tuple(call for _, source in bindings for call in source.calls)
        return Call(self.using(depends_on=(*self.options.depends_on, *parents)), payload, bindings)

    def find_hint(self, name: str) -> Any:
        """The annotation of a parameter, or of what it returns."""
        return self._signature.find_hint(name)

    @property
    def result_free_parameters(self) -> frozenset[str] | None:
        """The parameters that cannot take results, because keys are made of them; None means all of them."""
        return self.options.key_parameters

    def upgrade(self, *, from_version: int) -> Callable[[Upgrade], Upgrade]:
        """Registers a function that turns a payload of this version into one of the next."""
        if not 1 <= from_version < self.version:
            raise ValueError(
                f"task {self.type} has version {self.version}: from_version must be 1 to {self.version - 1}"
            )

        def register(function: Upgrade) -> Upgrade:
            self._upgrades[from_version] = function
            return function

        return register

    @property
    def producer(self) -> Producer:
        """The App that enqueues its jobs."""
        found = self._owner.producer
        if found is None:
            raise self._owner.explain_missing_producer()
        return found

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self.options.queue

    @property
    def group(self) -> str | None:
        """The token group whose members own the keys of `route_by`."""
        return self.options.group

    def new_job(self, payload: bytes, left_out: Collection[str] = ()) -> NewJob:
        """A job with this payload, in which these parameters are still missing."""
        job = new_job(self.type, payload, self.version, self.options)
        if not self.options.has_formats:
            return job
        return compute_keys(job, (self._signature.without(left_out) if left_out else self._signature).decode)

    @property
    def makes_alike_jobs(self) -> bool:
        """Whether its jobs differ in nothing but their ids and payloads: see AlikeJobs."""
        return not (self.options.id or self.options.depends_on or self.options.has_formats)

    def handler(self, dependencies: Dependencies | None = None) -> Handler:
        """Makes the handler with which a worker runs this task. Without `dependencies` those of the App are used."""
        return self.producer.make_handler(self, dependencies)

    def encode_payload(self, limit: int, payload: dict[str, Any]) -> bytes:
        """The payload with which a job begins anew."""
        raw = self.check(payload)
        if len(raw) > limit:
            raise InvalidPayload(
                f"{self.type}: the payload has {len(raw):,} bytes, the limit is {limit:,} (max_payload); "
                "send a reference"
            )
        return raw

    def check(self, payload: dict[str, Any]) -> bytes:
        return self._signature.check(payload, self._key_parameters)

    def describe_payload(self) -> dict[str, Any]:
        """The JSON schema of its payload. What JSON schema cannot say is anything there."""
        try:
            return self._signature.describe()
        except ValueError:
            return {"type": "object", "properties": {name: {} for name in self._signature.names}}

    @property
    def _key_parameters(self) -> Collection[str]:
        """Parameters of which keys are made, so that the payload must have them even if the caller leaves them out."""
        wanted = self.options.key_parameters
        return self._signature.names if wanted is None else wanted

    def decode(self, payload: bytes, version: int) -> dict[str, Any]:
        """The keyword arguments for the function; a payload of an older version is upgraded first."""
        if version == self.version or not self._upgrades:
            return self._signature.decode(payload)
        old = orjson.loads(payload)
        for step in range(version, self.version):
            if step not in self._upgrades:
                raise BadPayload(
                    f"{self.type}: no upgrade from payload version {step}; "
                    f"add @{self.function.__name__}.upgrade(from_version={step})"
                )
            old = self._upgrades[step](old)
        return self._signature.decode(orjson.dumps(old))

    def decode_result(self, value: Any) -> R:
        return self._signature.decode_result(value)  # type: ignore[no-any-return]

    def encode_result(self, limit: int, value: Any) -> bytes:
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


def _check_owner(task: Task[..., Any], app: TaskOwner) -> TaskOwner:
    declared = getattr(app, "tasks", {}).get(task.type)
    if declared is None or declared.function is not task.function:
        raise NotIncluded(f"{app!r} does not have the task {task.type}.", hint="Include its Tasks: app.include(...).")
    return app


def new_job(type: str, payload: bytes, version: int, options: JobOptions) -> NewJob:
    """Makes a NewJob. The options have most of its fields ready in two tuples, which is faster than keywords."""
    head, tail = options.template
    return NewJob._make((options.id or new_id(), type, payload, *head, version, *tail))


def task_type(function: Callable[..., Any]) -> str:
    """The module-qualified name; for a script its file's name, so that script and worker agree."""
    if getattr(function, "__name__", None) == "<lambda>":
        raise TypeError(
            "a lambda has no name, so it cannot be a task: write a def, or give it one, as in "
            "@app.task(type='mail.send')"
        )
    module = function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else "__main__"
    return f"{module}.{function.__qualname__}"


def _choose_kind(function: Callable[..., Any], executor: str | None, name: str) -> Kind:
    if executor not in (None, "thread", "process"):
        raise ValueError(f"task {name}: executor={executor!r} must be 'thread' or 'process'")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"task {name}: a generator cannot be a task, since nothing reads what it yields")
    if inspect.iscoroutinefunction(function):
        if executor is not None:
            raise TypeError(
                f"task {name}: an async function runs on the event loop, not with executor={executor!r}; "
                "make it a plain def"
            )
        return "async"
    return "process" if executor == "process" else "thread"


def describe_place(function: Callable[..., Any]) -> str:
    """The function's name, and the file and line where it is declared, for error messages."""
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return function.__qualname__
    return f"{function.__qualname__} ({file}:{line})"


def _warn_of_timeout(function: Callable[..., Any], name: str) -> None:
    """Says that a thread cannot be stopped, at the line where the task is declared."""
    code = getattr(inspect.unwrap(function), "__code__", None)  # a callable object has none
    warnings.warn_explicit(
        f"task {name}: a `def` runs in a thread, which a time-out cannot stop: the handler goes on and keeps its slot. "
        'Use executor="process" or an `async def`. executor="thread" says that you know, and ends this warning.',
        ThreadTimeoutWarning,
        "an unknown file" if code is None else code.co_filename,
        0 if code is None else code.co_firstlineno,
        module=function.__module__,
    )


def takes_connection(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as a connection; its annotation may be text."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return False
    if "Connection" not in first.annotation if isinstance(first.annotation, str) else "psycopg" not in sys.modules:
        return False  # the annotation cannot be a class of a driver that was not imported
    from watchbill.worker.transactions import is_connection

    return is_connection(get_type_hints(function).get(first.name))


def takes_steps(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as Steps or AsyncSteps; its annotation may be text."""
    return _find_steps_class(function) is not None


def _find_steps_class(function: Callable[..., Any]) -> type[Any] | None:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return None
    is_text = isinstance(first.annotation, str)
    if "Steps" not in first.annotation if is_text else "watchbill.worker.steps" not in sys.modules:
        return None  # the annotation cannot be a class of a module that was not imported
    from watchbill.worker.steps import is_steps

    found: type[Any] | None = get_type_hints(function).get(first.name)
    return found if is_steps(found) else None


def _check_steps(name: str, kind: Kind, batch: Batch | None, steps_class: type[Any] | None) -> None:
    """Raises TypeError for a task with steps that could never run."""
    if steps_class is None:
        return
    if batch is not None:
        raise TypeError(f"task {name}: a task with steps runs one job at a time; leave out batch=, or the steps")
    if kind == "process":
        raise TypeError(f"task {name}: steps cannot be given to another process; leave out executor='process'")
    wanted, what = ("AsyncSteps", "an async def") if kind == "async" else ("Steps", "a def")
    if steps_class.__name__ != wanted:
        raise TypeError(f"task {name}: the first parameter must be annotated {wanted}, because the task is {what}")
