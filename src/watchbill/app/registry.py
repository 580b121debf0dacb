"""Where tasks are declared: in an App, or in a Tasks, which a library or another file has for `app.include`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, get_args, overload

from watchbill.app.flow_control import AnyLimit, FlowRules, refuse_in_fair_queue
from watchbill.app.job_options import JobOptions, refuse_impossible
from watchbill.app.json_round_trip import shorten
from watchbill.app.schedule_declarations import Declaration, Declarations
from watchbill.app.task import NotIncluded, Producer, Task, describe_place, takes_connection, takes_steps
from watchbill.errors import WatchbillError
from watchbill.model.batch import Batch
from watchbill.model.durations import Duration
from watchbill.model.key_format import check_format
from watchbill.model.limits import By, WhenDead
from watchbill.model.option_names import refuse_unknown
from watchbill.model.queue import Queue
from watchbill.model.retry import Retry
from watchbill.model.unique import Debounce, Unique
from watchbill.worker.handlers import KeepLogs

if TYPE_CHECKING:
    from watchbill.app.schedule_definition import Rule, Timing
    from watchbill.postgres.connect import AsyncConnection, Connection
    from watchbill.worker.step_options import Step
    from watchbill.worker.steps import AsyncSteps, Steps

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
S = TypeVar("S")
Item = TypeVar("Item")  # of a batch
X = TypeVar("X")


class SyncTask(Task[P, R]):
    """A task made from a `def`."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncTask(Task[P, R]):
    """A task made from an `async def`."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class TransactionalTask(Task[P, R]):
    """A task made from a `def` whose first parameter is a connection."""

    if TYPE_CHECKING:

        def __call__(self, connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncTransactionalTask(Task[P, R]):
    """A task made from an `async def` whose first parameter is a connection."""

    if TYPE_CHECKING:

        def __call__(
            self, connection: AsyncConnection, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, R]: ...


class StepsTask(Task[P, R]):
    """A task made from a `def` whose first parameter is a Steps."""

    if TYPE_CHECKING:

        def __call__(self, steps: Steps, /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncStepsTask(Task[P, R]):
    """A task made from an `async def` whose first parameter is an AsyncSteps."""

    if TYPE_CHECKING:

        def __call__(self, steps: AsyncSteps, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class TaskDecorator:
    """What `@app.task(...)` with arguments returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async def is a def too
        self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[S]], /
    ) -> AsyncTransactionalTask[P, S]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Connection, P], S], /) -> TransactionalTask[P, S]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[AsyncSteps, P], Awaitable[S]], /
    ) -> AsyncStepsTask[P, S]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Steps, P], S], /) -> StepsTask[P, S]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[S]], /) -> AsyncTask[P, S]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, S], /) -> SyncTask[P, S]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        raise NotImplementedError


class BatchTask(Task[[Item], R], Generic[Item, R, P, X]):
    """A task made with `batch=`: `enqueue` takes one item, and a plain call takes what the function takes, a list."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> X: ...


class BatchDecorator:
    """What `@app.task(batch=...)` returns. A function that returns a list gives each job one item of it."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncConnection, list[Item], P], Awaitable[list[S]]], /
    ) -> BatchTask[Item, S, Concatenate[AsyncConnection, list[Item], P], Coroutine[Any, Any, list[S]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncConnection, list[Item], P], Awaitable[S]], /
    ) -> BatchTask[Item, S, Concatenate[AsyncConnection, list[Item], P], Coroutine[Any, Any, S]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Connection, list[Item], P], list[S]], /
    ) -> BatchTask[Item, S, Concatenate[Connection, list[Item], P], list[S]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Connection, list[Item], P], S], /
    ) -> BatchTask[Item, S, Concatenate[Connection, list[Item], P], S]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item], P], Awaitable[list[S]]], /
    ) -> BatchTask[Item, S, Concatenate[list[Item], P], Coroutine[Any, Any, list[S]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item], P], Awaitable[S]], /
    ) -> BatchTask[Item, S, Concatenate[list[Item], P], Coroutine[Any, Any, S]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item], P], list[S]], /
    ) -> BatchTask[Item, S, Concatenate[list[Item], P], list[S]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item], P], S], /
    ) -> BatchTask[Item, S, Concatenate[list[Item], P], S]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        raise NotImplementedError


def task_class(function: Callable[..., Any], batch: Batch | None) -> type[Task[..., Any]]:
    try:
        inspect.signature(function)
    except ValueError:
        raise TypeError(
            f"{function!r} cannot be a task: write a def that calls it, because its parameters cannot be read"
        ) from None
    if batch is not None:
        return BatchTask
    if takes_steps(function):
        return AsyncStepsTask if inspect.iscoroutinefunction(function) else StepsTask
    if inspect.iscoroutinefunction(function):
        return AsyncTransactionalTask if takes_connection(function) else AsyncTask
    return TransactionalTask if takes_connection(function) else SyncTask


T = TypeVar("T", bound=Task[..., Any])
TASK_OPTIONS = {
    "type": "The name of the task in the database. Default: its module and function.",
    "queue": "The queue of its jobs. Default: `default`.",
    "priority": "-32768 to 32767; a higher number runs first. Default: 0.",
    "retry": "A number of attempts, or a `Retry`, which also says after which exceptions. Default: `Retry()`.",
    "timeout": "How long each attempt may take. Default: no limit.",
    "expires": "Its jobs end as canceled if they have not started after this duration. Default: never.",
    "unique": "A `Unique` or `Debounce`: what happens if a job with the same key waits or runs.",
    "version": "The version of the payload, from 1. Raise it when the signature changes: `@task.upgrade`. Default: 1.",
    "aliases": "Older types of this task, whose jobs it runs too.",
    "executor": "Of a `def`: `thread` (default), or `process` for CPU-bound work and for time-outs that stop it.",
    "limits": "A list of `Limit` and `Rate`: how many of its jobs run at once, and how many start in a time.",
    "ordered_by": "A format such as `{order_id}`: jobs of one value run one at a time, in the order of their enqueue.",
    "when_dead": "Of an ordered task whose job is dead: `continue` with the next one (default), or `pause` the key.",
    "route_by": "A format such as `{customer}`: jobs of one value run on the node that owns it. Needs `group`.",
    "group": "The token group whose members own the keys of `route_by`. A worker joins it.",
    "runs_on": "Labels: only nodes that have all of them run its jobs. The label `node` is a node's name.",
    "max_per_node": "How many of its jobs run at once on one node; of a task with `batch`, how many batches.",
    "logs": "Whose last log lines are stored: `failed`, `all` or `none`. Default: the setting `job_logs`.",
    "batch": "A `Batch`: the function takes a list, and one call runs many jobs.",
}


class Registry:
    """Tasks by their types, and the schedules that the code declares. `place` names it in error messages; `tz` is the
    zone of schedules that name none."""

    def __init__(self, place: str, tz: str | None = None) -> None:
        self.place, self.tz = place, tz
        self.producer: Producer | None = None  # None: no App includes it, or several do
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared = Declarations()
        self.flow_rules = FlowRules()

    @overload
    def step(self, function: Callable[P, S], /) -> Step[P, S]: ...
    @overload
    def step(
        self,
        *,
        name: str | None = ...,
        retry: int | Retry | None = ...,
        timeout: Duration | None = ...,
        raises: Sequence[type[Exception]] = ...,
        version: int = ...,
        aliases: Sequence[str] = ...,
        once: bool = ...,
        undo: Callable[..., Any] | None = ...,
    ) -> Callable[[Callable[P, S]], Step[P, S]]: ...
    def step(
        self,
        *function: Callable[..., Any],
        name: str | None = None,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        raises: Sequence[type[Exception]] = (),
        version: int = 1,
        aliases: Sequence[str] = (),
        once: bool = False,
        undo: Callable[..., Any] | None = None,
    ) -> Any:
        """Gives a function options for the steps that run it. A plain call runs the function."""
        from watchbill.worker.step_options import Step, make_options

        options = make_options(
            name=name, retry=retry, timeout=timeout, raises=raises, version=version, aliases=aliases, once=once,
            undo=undo,
        )  # fmt: skip
        if function:
            return Step(function[0], options)
        return lambda function: Step(function, options)

    @overload
    def task(  # type: ignore[overload-overlap]  # an async def is a def too
        self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[S]], /
    ) -> AsyncTransactionalTask[P, S]: ...
    @overload
    def task(self, function: Callable[Concatenate[Connection, P], S], /) -> TransactionalTask[P, S]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[AsyncSteps, P], Awaitable[S]], /
    ) -> AsyncStepsTask[P, S]: ...
    @overload
    def task(self, function: Callable[Concatenate[Steps, P], S], /) -> StepsTask[P, S]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[S]], /) -> AsyncTask[P, S]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, S], /) -> SyncTask[P, S]: ...
    @overload
    def task(
        self,
        *,
        type: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        retry: int | Retry = ...,
        timeout: Duration | None = ...,
        expires: Duration | None = ...,
        unique: Unique | Debounce | None = ...,
        version: int = ...,
        aliases: Sequence[str] = ...,
        executor: Literal["thread", "process"] | None = ...,
        limits: Sequence[AnyLimit] = ...,
        ordered_by: By | None = ...,
        when_dead: WhenDead = ...,
        route_by: By | None = ...,
        group: str | None = ...,
        runs_on: dict[str, Any] | None = ...,
        max_per_node: int | None = ...,
        logs: KeepLogs | None = ...,
        batch: None = ...,
    ) -> TaskDecorator: ...
    @overload
    def task(
        self,
        *,
        type: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        retry: int | Retry = ...,
        timeout: Duration | None = ...,
        expires: Duration | None = ...,
        unique: Unique | Debounce | None = ...,
        version: int = ...,
        aliases: Sequence[str] = ...,
        executor: Literal["thread", "process"] | None = ...,
        limits: Sequence[AnyLimit] = ...,
        ordered_by: By | None = ...,
        when_dead: WhenDead = ...,
        route_by: By | None = ...,
        group: str | None = ...,
        runs_on: dict[str, Any] | None = ...,
        max_per_node: int | None = ...,
        logs: KeepLogs | None = ...,
        batch: Batch,
    ) -> BatchDecorator: ...
    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Makes a task of a function; used as `@app.task` or `@app.task(queue="mail", ...)`."""
        if function and not callable(function[0]):
            raise TypeError(f"@app.task takes its options by name: @app.task(type={function[0]!r})")
        refuse_unknown("@app.task", options, tuple(TASK_OPTIONS))
        if function:
            return self._declare(*function, **options)
        return lambda function: self._declare(function, **options)

    def _declare(
        self,
        function: Callable[..., Any],
        *,
        type: str | None = None,
        version: int = 1,
        aliases: Sequence[str] = (),
        executor: Literal["thread", "process"] | None = None,
        batch: Batch | None = None,
        max_per_node: int | None = None,
        logs: KeepLogs | None = None,
        limits: Sequence[AnyLimit] = (),
        ordered_by: By | None = None,
        when_dead: WhenDead = "continue",
        **options: Any,
    ) -> Task[..., Any]:
        _check_batch(batch, max_per_node)
        _check_logs(logs)
        _check_routing(options.get("group"), options.get("route_by"), options.get("runs_on"))
        chosen = JobOptions().change(**options)
        refuse_impossible(chosen)
        if isinstance(aliases, str) or version < 1:
            what = f"aliases={aliases!r}" if isinstance(aliases, str) else f"version={version!r}"
            raise ValueError(
                f"@app.task({what}) is invalid: aliases must be a list of names, version a whole number from 1"
            )
        task = task_class(function, batch)(
            self,
            function,
            type=type,
            options=chosen,
            version=version,
            aliases=tuple(aliases),
            executor=executor,
            batch=batch,
            max_per_node=max_per_node,
            logs=logs,
            limits=limits,
            ordered_by=ordered_by,
            when_dead=when_dead,
        )
        self._add(task)
        return task

    def _add(self, task: Task[..., Any]) -> None:
        for name in (task.type, *task.aliases):
            if name.startswith("watchbill."):
                raise ValueError(
                    f"type {name!r} is invalid: 'watchbill.' is the prefix of Watchbill's own types; give another type="
                )
            known = self.tasks.setdefault(name, task)
            if known is not task:
                places = " and ".join(describe_place(each.function) for each in (known, task))
                raise ValueError(f"two tasks have the type {name!r}: {places}; give one of them another type=")
        self._check_fairness(task)
        self._check_group(task)
        self.flow_rules.add_task(task.flow)

    def _check_group(self, task: Task[..., Any]) -> None:
        for other in self.tasks.values():
            if task.group and other.group and other.queue == task.queue and other.group != task.group:
                raise ValueError(
                    f"tasks {other.type!r} and {task.type!r} route queue {task.queue!r} by two groups, "
                    f"{other.group!r} and {task.group!r}; give one of them another queue="
                )

    def _check_fairness(self, task: Task[..., Any]) -> None:
        routing = {name: getattr(task.options, name, None) for name in ("route_by", "runs_on")}
        queues = [queue for queue, _ in self.flow_rules.queues.values()]
        refuse_in_fair_queue(queues, task.type, task.queue, routing)

    def queue(self, queue: Queue) -> None:
        """Declares a limit of a queue, or that it is fair. A node that starts writes it to the database, if the code
        has changed."""
        if not isinstance(queue, Queue):
            raise TypeError(f"app.queue({queue!r}) is invalid: give a Queue, such as Queue('mail', limit=20)")
        if queue.fair_by is not None:
            check_format(f"Queue({queue.name!r}, fair_by={queue.fair_by!r})", queue.fair_by, (), any_name=True)
        self._add_queue(queue, calling_place())

    def explain_missing_producer(self) -> WatchbillError:
        """Returns the error for a call of a task of which it is not known where its jobs go."""
        return NotIncluded(
            f"The tasks of {self.place} belong to no App yet, so they cannot be enqueued.",
            hint="Call app.include(...) with them where the App is made, and import that module.",
        )

    def _add_queue(self, queue: Queue, place: str) -> None:
        self.flow_rules.add_queue(queue, place)
        for task in self.tasks.values():
            self._check_fairness(task)

    def schedule(
        self,
        pattern: str | None = None,
        *,
        name: str | None = None,
        tenant: str = "default",
        cell: str | None = None,
        **timing: Unpack[Timing],
    ) -> Callable[[T], T]:
        """Declares a schedule for the task below it: by a pattern, `every=`, `at=`, or none of them (on demand).

        Stands above `@app.task`. The name is the task's type, unless given. A node that starts writes the schedule to
        the database, if the code has changed. If the App has cells, the schedule is in `cell`, or in every one with
        `cell="each"`; otherwise in that of its tenant, or in the first one.
        """

        def declare(task: T) -> T:
            if not isinstance(task, Task):
                raise TypeError(
                    f"@app.schedule must stand above @app.task, which makes {task!r} a task; swap the two lines"
                )
            self.declare_schedule(name or task.type, pattern, tenant=tenant, cell=cell, task=task, **timing)
            return task

        return declare

    def declare_schedule(
        self,
        name: str,
        pattern: str | None = None,
        *,
        tenant: str = "default",
        cell: str | None = None,
        **rule: Unpack[Rule],
    ) -> None:
        """Declares a schedule for a SQL command, or for a task with particular arguments."""
        self._add_schedule(Declaration(name, pattern, rule, self.tasks.get, tenant, self.tz, cell))

    def _add_schedule(self, declaration: Declaration) -> None:
        self.declared.add(declaration)


class Tasks(Registry):
    """Tasks without an App of their own: `app.include(tasks)` gives them one."""

    def __init__(self) -> None:
        super().__init__(calling_place())
        self._apps: list[Registry] = []

    def belong_to(self, app: Registry) -> None:
        """The App also gets what is declared here later. If it is not the only one, `task.using(app=...)` says which
        App enqueues a job."""
        if app in self._apps:
            return
        for task in dict.fromkeys(self.tasks.values()):
            app._add(task)  # noqa: SLF001  (a Registry too)
        for declaration in self.declared:
            self._add_schedule_to(app, declaration)
        for queue, place in self.flow_rules.queues.values():
            app._add_queue(queue, place)  # noqa: SLF001
        self._apps.append(app)
        self.producer = app.producer if len(self._apps) == 1 else None

    def explain_missing_producer(self) -> WatchbillError:
        if not self._apps:
            return super().explain_missing_producer()
        places = ", ".join(app.place for app in self._apps)
        return NotIncluded(
            f"The tasks of {self.place} belong to several Apps ({places}), so a call must say which one it means.",
            hint="Write task.using(app=...).enqueue(...).",
        )

    def _add(self, task: Task[..., Any]) -> None:
        super()._add(task)
        for app in self._apps:
            app._add(task)  # noqa: SLF001

    def _add_queue(self, queue: Queue, place: str) -> None:
        super()._add_queue(queue, place)
        for app in self._apps:
            app._add_queue(queue, place)  # noqa: SLF001

    def _add_schedule(self, declaration: Declaration) -> None:
        super()._add_schedule(declaration)
        for app in self._apps:
            self._add_schedule_to(app, declaration)

    @staticmethod
    def _add_schedule_to(app: Registry, declaration: Declaration) -> None:
        app._add_schedule(declaration.in_zone(app.tz))  # noqa: SLF001


def _check_routing(group: object, route_by: object, runs_on: object) -> None:
    if route_by is not None and runs_on is not None:
        raise ValueError(
            "@app.task(route_by=..., runs_on=...) is invalid: pin the key to labels with group.pin() instead"
        )
    if (group is None) != (route_by is None):
        raise ValueError(
            "@app.task(route_by=..., group=...) is invalid without one of the two: members of the group own the keys"
        )
    if group is not None and (not isinstance(group, str) or not 1 <= len(group) <= 200):
        raise ValueError(f"@app.task(group={shorten(group)}) is invalid: give the name of a token group")


def _check_logs(logs: object) -> None:
    if logs not in (None, *get_args(KeepLogs)):
        raise ValueError(f"@app.task(logs={logs!r}) is invalid: give 'failed', 'all' or 'none'")


def _check_batch(batch: object, max_per_node: object) -> None:
    if batch is not None and not isinstance(batch, Batch):
        raise TypeError(f"@app.task(batch={batch!r}) is invalid: give a Batch, such as Batch(size=100)")
    if max_per_node is not None and (type(max_per_node) is not int or max_per_node < 1):
        raise ValueError(f"@app.task(max_per_node={max_per_node!r}) is invalid: give a whole number from 1")


def calling_frame() -> FrameType | None:
    """The nearest frame outside this package: the code that makes an App or a Tasks. `App[State]()` passes through the
    module typing."""
    frame = inspect.currentframe()
    while frame is not None and re.match(r"watchbill\.|typing$", str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return frame


def calling_place() -> str:
    frame = calling_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown file"
