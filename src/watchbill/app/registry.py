"""Where tasks are declared: in the App, or in Tasks, which a library or another file offers to be included."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from watchbill.app.declared import Declarations, Declared
from watchbill.app.plain_call import AsyncTask, AsyncTransactionalTask, SyncTask, TransactionalTask, class_for
from watchbill.app.task import Options, Seconds, Task
from watchbill.errors import WatchbillError
from watchbill.model.retry import Retry

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.rules import Rule, Timing
    from watchbill.postgres.connect import AsyncConnection, Connection

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])


class NotIncluded(WatchbillError):
    """A task of a Tasks that no App has included cannot be enqueued."""


class Registry:
    """Tasks by their types, and the schedules that the code declares."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self.declared = Declarations()

    @property
    def app(self) -> App:
        raise NotImplementedError

    @overload
    def task(  # type: ignore[overload-overlap]  # an async def is a def too
        self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[R]], /
    ) -> AsyncTransactionalTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Connection, P], R], /) -> TransactionalTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        type: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        retry: Retry = ...,
        timeout: Seconds | None = ...,
        version: int = ...,
        aliases: Sequence[str] = ...,
        executor: Literal["thread", "process"] | None = ...,
    ) -> TaskDecorator: ...
    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Makes a task of a function; used as `@app.task` or `@app.task(queue="mail", ...)`."""
        if function:
            return self._declare(*function)
        return lambda function: self._declare(function, **options)

    def _declare(
        self,
        function: Callable[..., Any],
        *,
        type: str | None = None,
        version: int = 1,
        aliases: Sequence[str] = (),
        executor: Literal["thread", "process"] | None = None,
        **options: Any,
    ) -> Task[..., Any]:
        chosen = Options().changed(**options)
        if isinstance(aliases, str) or version < 1:
            what = f"aliases={aliases!r}" if isinstance(aliases, str) else f"version={version!r}"
            raise ValueError(f"@app.task({what}): aliases is a list of names, version a whole number from 1 on")
        task = class_for(function)(
            self, function, type=type, options=chosen, version=version, aliases=tuple(aliases), executor=executor
        )
        self._add(task)
        return task

    def _add(self, task: Task[..., Any]) -> None:
        for name in (task.type, *task.aliases):
            known = self.tasks.setdefault(name, task)
            if known is not task:
                raise ValueError(
                    f"two tasks have the type {name!r}: {_place(known)} and {_place(task)}; "
                    "give one of them another type="
                )

    def schedule(
        self,
        pattern: str | None = None,
        *,
        name: str | None = None,
        tenant: str = "default",
        **timing: Unpack[Timing],
    ) -> Callable[[T], T]:
        """Declares a schedule for a task, above `@app.task`: by a pattern, `every=`, `at=`, or none (on demand).

        The name is the task's type, unless given. It is written when a node starts, and only when the code changed.
        """

        def declare(task: T) -> T:
            if not isinstance(task, Task):
                raise TypeError(
                    f"@app.schedule stands above @app.task, which makes a task of {task!r}; exchange the two lines"
                )
            self.declare_schedule(name or task.type, pattern, tenant=tenant, task=task, **timing)
            return task

        return declare

    def declare_schedule(
        self, name: str, pattern: str | None = None, *, tenant: str = "default", **rule: Unpack[Rule]
    ) -> None:
        """The same for what has no function to stand above: a SQL command, or a call with its arguments."""
        self.declared.add(Declared(name, pattern, rule, self.tasks.get, tenant))


class Tasks(Registry):
    """Tasks without an App of their own: `app.include(tasks)` gives them one."""

    def __init__(self) -> None:
        super().__init__()
        self._included_in: App | None = None
        self._name = _place_of_caller()

    @property
    def app(self) -> App:
        if self._included_in is None:
            raise NotIncluded(
                f"The tasks of {self._name} belong to no App yet, so they cannot be enqueued.",
                hint="Call app.include(...) with them where the App is made, and import that module.",
            )
        return self._included_in

    def belong_to(self, app: App) -> None:
        if self._included_in not in (None, app):
            raise ValueError(f"the tasks of {self._name} are included in another App already; make a second Tasks()")
        self._included_in = app


class TaskDecorator:
    """Only for type checkers: what `@app.task(...)` with arguments returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async def is a def too
        self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[R]], /
    ) -> AsyncTransactionalTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Connection, P], R], /) -> TransactionalTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        raise NotImplementedError


def _place(task: Task[..., Any]) -> str:
    try:
        file, line = inspect.getsourcefile(task.function), inspect.getsourcelines(task.function)[1]
    except (OSError, TypeError):
        return task.function.__qualname__
    return f"{task.function.__qualname__} ({file}:{line})"


def _place_of_caller() -> str:
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("watchbill."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "somewhere"
