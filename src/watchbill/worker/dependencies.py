"""Dependencies: what a handler needs and a payload cannot carry, such as an HTTP client, an engine or settings.

    async def get_client() -> AsyncIterator[Client]:
        async with Client() as client:
            yield client

    @app.task
    async def send(to: str, *, client: Client = Depends(get_client)) -> None: ...

`find_needs` reads the declaration and refuses what could not work. `Dependencies` belongs to one worker process: it
makes a dependency at its first use, once per process or once per attempt, and closes them in the reverse order. A task
without dependencies does not use this module: only handlers that have dependencies are wrapped.

A dependency per process that has something async in it lives in an asyncio Task of its own, which makes it and closes
it: cancel scopes and task groups must be left by the Task that entered them. All others are made under a lock, because
handlers in threads ask for them too. `current_job()` does not work in a dependency per process, because it belongs to
no job.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeVar, overload

from watchbill.worker.handlers import Kind

logger = logging.getLogger("watchbill.worker")

T = TypeVar("T")
Per = Literal["process", "attempt"]
Function = Callable[..., Any]


# -- how a task declares its dependencies


@dataclass(frozen=True)
class Dependency:
    """What `Depends(...)` returns: it marks a parameter that the worker fills."""

    function: Function
    per: Per

    def __repr__(self) -> str:
        return f"Depends({_name_function(self.function)})"


@overload
def Depends(function: Callable[..., AsyncGenerator[T, None]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., AsyncIterator[T]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., Generator[T, None, None]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., Iterator[T]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., Coroutine[Any, Any, T]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., Awaitable[T]], /, *, per: Per = ...) -> T: ...
@overload
def Depends(function: Callable[..., T], /, *, per: Per = ...) -> T: ...
def Depends(function: Function, /, *, per: Per = "process") -> Any:  # noqa: N802  (it stands for a value)
    """The default of a keyword parameter that the worker fills with what `function` returns or yields.

    The worker calls `function` when a handler first needs its value: once per worker process, or with `per="attempt"`
    once per attempt. If `function` is a generator, the worker runs the code after its `yield` to close the value.
    """
    if not callable(function):
        raise TypeError(f"Depends({function!r}) is invalid: give a function that makes it, without calling it")
    if per not in ("process", "attempt"):
        raise ValueError(f"Depends(per={per!r}) is invalid: it must be 'process' or 'attempt'")
    return Dependency(function, per)


@dataclass(frozen=True)
class Need:
    """A dependency, together with the dependencies that it needs itself. `on_loop`: one of all these is async."""

    function: Function
    per: Per
    needs: Mapping[str, Need]
    on_loop: bool

    @property
    def name(self) -> str:
        return _name_function(self.function)

    def includes(self, function: Function) -> bool:
        return self.function is function or any(need.includes(function) for need in self.needs.values())


def find_needs(function: Function, task: str, kind: Kind) -> dict[str, Need]:
    """Returns the dependencies of a task, by parameter. Raises TypeError for a dependency that could never be made."""
    found: dict[str, Need] = {}
    for parameter in inspect.signature(function).parameters.values():
        if not isinstance(parameter.default, Dependency):
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(
                f"task {task}: {parameter.name} is a dependency, which is given by name only; write `*,` before it"
            )
        need = found[parameter.name] = _make_need(parameter.default, f"task {task}")
        if need.on_loop and kind != "async":
            raise TypeError(
                f"task {task}: a `def` cannot wait for {need.name}, which is async or needs something async; make the "
                "task an `async def`, or the dependency a plain `def`"
            )
    return found


def _make_need(dependency: Dependency, where: str) -> Need:
    function, name, needs = dependency.function, _name_function(dependency.function), {}
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.default, Dependency):
            need = needs[parameter.name] = _make_need(parameter.default, name)
            if dependency.per == "process" and need.per == "attempt":
                raise TypeError(
                    f"{where}: {name} is made once per process and cannot need {need.name}, which is made for each "
                    f'attempt; use Depends({name}, per="attempt")'
                )
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise TypeError(
                f"{where}: parameter {parameter.name!r} of {name} has no default, so it cannot be a dependency; give "
                "the parameter a default, such as Depends(...)"
            )
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    return Need(function, dependency.per, needs, is_async or any(need.on_loop for need in needs.values()))


def _name_function(function: Function) -> str:
    return getattr(function, "__name__", None) or repr(function)


# -- how a worker process makes and closes dependencies


@dataclass
class Keeper:
    """The asyncio Task that makes a dependency of the process, waits until the process ends, and closes it."""

    name: str
    ready: asyncio.Future[Any]
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        self.is_over.set()
        assert self.task is not None
        if not self.ready.done():
            self.task.cancel()
        await asyncio.wait([self.task])


@dataclass(frozen=True)
class Closer:
    """Closes a dependency of the process that has no async part."""

    name: str
    stack: ExitStack

    def close(self) -> None:
        try:
            self.stack.close()
        except Exception:  # noqa: BLE001  (logged; the other dependencies must be closed too)
            _log_failed_close(self.name)


class Dependencies:
    """The dependencies of one worker process. `overrides` are values that a test gives instead, by function."""

    def __init__(self, overrides: Mapping[Function, Any] | None = None) -> None:
        self._overrides = {} if overrides is None else overrides
        self._context = contextvars.copy_context()
        self._values: dict[Function, Any] = {}
        self._lock = threading.RLock()
        self._keepers: dict[Function, Keeper] = {}
        self._made: list[Closer | Keeper] = []  # dependencies of the process, in the order in which they were made
        _all.add(self)

    def inject(self, function: Function, kind: Kind, needs: Mapping[str, Need]) -> Function:
        """Returns a function that calls the handler with its dependencies. An exception of the handler is also raised
        in each generator at its `yield`. The attempt fails even if a generator swallows the exception."""
        if kind == "async":

            @wraps(function)
            async def call_on_loop(*args: Any, **kwargs: Any) -> Any:
                made: dict[Function, Any] = {}
                async with AsyncExitStack() as stack:
                    for name, need in needs.items():
                        kwargs[name] = await self._aget_dependency(need, stack, made)
                    try:
                        return await function(*args, **kwargs)
                    except BaseException as error:
                        raised = error
                        raise
                raise raised

            return call_on_loop

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            made: dict[Function, Any] = {}
            with ExitStack() as stack:
                for name, need in needs.items():
                    kwargs[name] = self._get_dependency(need, stack, made)
                try:
                    return function(*args, **kwargs)
                except BaseException as error:
                    raised = error
                    raise
            raise raised

        return call

    def _get_dependency(self, need: Need, stack: ExitStack, made: dict[Function, Any]) -> Any:
        """Returns the value of a dependency, which is made if necessary. `made` has the values that this attempt has
        made so far, and `stack` closes them."""
        if need.function in self._overrides:
            return self._overrides[need.function]
        if need.per == "process":
            return self._get_process_dependency(need)
        if need.function not in made:
            made[need.function] = self._make_dependency(need, stack, made)
        return made[need.function]

    def _make_dependency(self, need: Need, stack: ExitStack, made: dict[Function, Any]) -> Any:
        arguments = {name: self._get_dependency(each, stack, made) for name, each in need.needs.items()}
        if inspect.isgeneratorfunction(need.function):
            return stack.enter_context(contextmanager(need.function)(**arguments))
        return need.function(**arguments)

    def _get_process_dependency(self, need: Need) -> Any:
        """Returns the value of a dependency of the process that has no async part."""
        if need.function not in self._values:
            with self._lock:
                if need.function not in self._values:
                    stack = ExitStack()
                    self._values[need.function] = self._context.copy().run(self._make_dependency, need, stack, {})
                    self._made.append(Closer(need.name, stack))
        return self._values[need.function]

    async def _aget_dependency(self, need: Need, stack: AsyncExitStack, made: dict[Function, Any]) -> Any:
        if need.function in self._overrides:
            return self._overrides[need.function]
        if need.per == "process":
            return await self._aget_process_dependency(need) if need.on_loop else self._get_process_dependency(need)
        if need.function not in made:
            made[need.function] = await self._amake_dependency(need, stack, made)
        return made[need.function]

    async def _amake_dependency(self, need: Need, stack: AsyncExitStack, made: dict[Function, Any]) -> Any:
        arguments = {name: await self._aget_dependency(each, stack, made) for name, each in need.needs.items()}
        if inspect.isasyncgenfunction(need.function):
            return await stack.enter_async_context(asynccontextmanager(need.function)(**arguments))
        if inspect.isgeneratorfunction(need.function):
            return stack.enter_context(contextmanager(need.function)(**arguments))
        value = need.function(**arguments)
        return await value if inspect.iscoroutinefunction(need.function) else value

    async def _aget_process_dependency(self, need: Need) -> Any:
        """Returns the value of a dependency of the process that has an async part. The wait for it is shielded: if this
        attempt is stopped meanwhile, other attempts still get the value."""
        keeper = self._keepers.get(need.function)
        if keeper is None:
            loop = asyncio.get_running_loop()
            keeper = self._keepers[need.function] = Keeper(need.name, loop.create_future())
            keeper.task = loop.create_task(self._make_and_close(need, keeper), context=self._context.copy())
        return await asyncio.shield(keeper.ready)

    async def _make_and_close(self, need: Need, keeper: Keeper) -> None:
        try:
            async with AsyncExitStack() as stack:
                value = await self._amake_dependency(need, stack, {})
                self._made.append(keeper)
                keeper.ready.set_result(value)
                await keeper.is_over.wait()
        except BaseException as error:
            if keeper.ready.done():
                _log_failed_close(need.name)
            else:  # the next attempt that needs the dependency makes it again
                del self._keepers[need.function]
                keeper.ready.set_exception(error)
                keeper.ready.exception()  # reads the exception, because asyncio logs one that nothing reads
            if not isinstance(error, Exception):
                raise

    async def aclose(self) -> None:
        """Closes the dependencies of the process, the last one made first."""
        for keeper in list(self._keepers.values()):
            if not keeper.ready.done():
                await keeper.close()
        while self._made:
            last = self._made.pop()
            await last.close() if isinstance(last, Keeper) else last.close()
        self._forget_dependencies()

    def close(self) -> None:
        """Closes the dependencies of a child process, where none is async, the last one made first."""
        while self._made:
            if isinstance(last := self._made.pop(), Closer):
                last.close()
        self._forget_dependencies()

    def _forget_dependencies(self) -> None:
        self._values.clear()
        self._keepers.clear()


_all: weakref.WeakSet[Dependencies] = weakref.WeakSet()


def close_all() -> None:
    """Closes all dependencies of a child process that ends."""
    for dependencies in list(_all):
        dependencies.close()


def _log_failed_close(name: str) -> None:
    logger.exception("The dependency %s failed while it was being closed; closing the others", name)
