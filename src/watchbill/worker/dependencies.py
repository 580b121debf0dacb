"""Dependencies: what a handler needs and a payload cannot carry, such as an HTTP client, an engine or settings.

    async def get_client() -> AsyncIterator[Client]:
        async with Client() as client:
            yield client

    @app.task
    async def send(to: str, *, client: Client = Depends(get_client)) -> None: ...

`find_needs` reads the declaration and refuses what could not work. `Dependencies` belongs to one worker process: it
makes a dependency at its first use, once per process or once per attempt, and closes in the reverse order of making. A
task without dependencies never gets here: only handlers that need something are wrapped.

A dependency per process that has something async in it lives in an asyncio Task of its own, which makes it and closes
it: cancel scopes and task groups must be left by the Task that entered them. All others are made under a lock, because
handlers in threads ask for them too. None of them sees the job that happened to be the first to ask.
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


# -- declaration


@dataclass(frozen=True)
class Dependency:
    """The default of a parameter that the worker fills."""

    function: Function
    per: Per

    def __repr__(self) -> str:
        return f"Depends({_name(self.function)})"


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

    It is made at its first use: once per worker process, or with `per="attempt"` once per attempt. A generator is
    continued after its `yield` to close it.
    """
    if not callable(function):
        raise TypeError(f"Depends({function!r}) is invalid: give a function that makes it, without calling it")
    if per not in ("process", "attempt"):
        raise ValueError(f"Depends(per={per!r}) is invalid: it must be 'process' or 'attempt'")
    return Dependency(function, per)


@dataclass(frozen=True)
class Need:
    """A dependency with those that it needs itself. `on_loop`: it or one of them is async."""

    function: Function
    per: Per
    needs: Mapping[str, Need]
    on_loop: bool

    @property
    def name(self) -> str:
        return _name(self.function)

    def includes(self, function: Function) -> bool:
        return self.function is function or any(need.includes(function) for need in self.needs.values())


def find_needs(function: Function, task: str, kind: Kind) -> dict[str, Need]:
    """The dependencies of a task by parameter; raises TypeError for one that could not be made."""
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
    function, name, needs = dependency.function, _name(dependency.function), {}
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


def _name(function: Function) -> str:
    return getattr(function, "__name__", None) or repr(function)


# -- making and closing


@dataclass
class Keeper:
    """The asyncio Task that makes a dependency of the process, waits, and closes it."""

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
    """The end of a dependency of the process that nothing async is part of."""

    name: str
    stack: ExitStack

    def close(self) -> None:
        try:
            self.stack.close()
        except Exception:  # noqa: BLE001  (it is logged)
            _log_unclosed(self.name)


class Dependencies:
    """Those of one worker process. `overrides` has values that tests give instead, by function."""

    def __init__(self, overrides: Mapping[Function, Any] | None = None) -> None:
        self._overrides = {} if overrides is None else overrides
        self._context = contextvars.copy_context()
        self._values: dict[Function, Any] = {}
        self._lock = threading.RLock()
        self._keepers: dict[Function, Keeper] = {}
        self._made: list[Closer | Keeper] = []  # in the order in which they were made
        _all.add(self)

    def inject(self, function: Function, kind: Kind, needs: Mapping[str, Need]) -> Function:
        """Wraps a handler, so that it gets its dependencies. If it raises, so does each generator at its `yield`, and
        the attempt has failed even if one of them swallows the exception."""
        if kind == "async":

            @wraps(function)
            async def call_on_loop(*args: Any, **kwargs: Any) -> Any:
                made: dict[Function, Any] = {}
                async with AsyncExitStack() as stack:
                    for name, need in needs.items():
                        kwargs[name] = await self._aget(need, stack, made)
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
                    kwargs[name] = self._get(need, stack, made)
                try:
                    return function(*args, **kwargs)
                except BaseException as error:
                    raised = error
                    raise
            raise raised

        return call

    def _get(self, need: Need, stack: ExitStack, made: dict[Function, Any]) -> Any:
        """`made` has the dependencies of this attempt so far, and `stack` closes them."""
        if need.function in self._overrides:
            return self._overrides[need.function]
        if need.per == "process":
            return self._get_shared(need)
        if need.function not in made:
            made[need.function] = self._enter(need, stack, made)
        return made[need.function]

    def _enter(self, need: Need, stack: ExitStack, made: dict[Function, Any]) -> Any:
        arguments = {name: self._get(each, stack, made) for name, each in need.needs.items()}
        if inspect.isgeneratorfunction(need.function):
            return stack.enter_context(contextmanager(need.function)(**arguments))
        return need.function(**arguments)

    def _get_shared(self, need: Need) -> Any:
        """Gets a dependency of the process that has no async part."""
        if need.function not in self._values:
            with self._lock:
                if need.function not in self._values:
                    stack = ExitStack()
                    self._values[need.function] = self._context.copy().run(self._enter, need, stack, {})
                    self._made.append(Closer(need.name, stack))
        return self._values[need.function]

    async def _aget(self, need: Need, stack: AsyncExitStack, made: dict[Function, Any]) -> Any:
        if need.function in self._overrides:
            return self._overrides[need.function]
        if need.per == "process":
            return await self._aget_shared(need) if need.on_loop else self._get_shared(need)
        if need.function not in made:
            made[need.function] = await self._aenter(need, stack, made)
        return made[need.function]

    async def _aenter(self, need: Need, stack: AsyncExitStack, made: dict[Function, Any]) -> Any:
        arguments = {name: await self._aget(each, stack, made) for name, each in need.needs.items()}
        if inspect.isasyncgenfunction(need.function):
            return await stack.enter_async_context(asynccontextmanager(need.function)(**arguments))
        if inspect.isgeneratorfunction(need.function):
            return stack.enter_context(contextmanager(need.function)(**arguments))
        value = need.function(**arguments)
        return await value if inspect.iscoroutinefunction(need.function) else value

    async def _aget_shared(self, need: Need) -> Any:
        """Gets a dependency of the process that has an async part. Shielded: if an attempt is stopped while it waits
        for the dependency, the others still get it."""
        keeper = self._keepers.get(need.function)
        if keeper is None:
            loop = asyncio.get_running_loop()
            keeper = self._keepers[need.function] = Keeper(need.name, loop.create_future())
            keeper.task = loop.create_task(self._keep(need, keeper), context=self._context.copy())
        return await asyncio.shield(keeper.ready)

    async def _keep(self, need: Need, keeper: Keeper) -> None:
        try:
            async with AsyncExitStack() as stack:
                value = await self._aenter(need, stack, {})
                self._made.append(keeper)
                keeper.ready.set_result(value)
                await keeper.is_over.wait()
        except BaseException as error:
            if keeper.ready.done():
                _log_unclosed(need.name)
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
        self._forget()

    def close(self) -> None:
        """The same in a child process, where nothing is async."""
        while self._made:
            if isinstance(last := self._made.pop(), Closer):
                last.close()
        self._forget()

    def _forget(self) -> None:
        self._values.clear()
        self._keepers.clear()


_all: weakref.WeakSet[Dependencies] = weakref.WeakSet()


def close_all() -> None:
    """Closes all dependencies of a child process that ends."""
    for dependencies in list(_all):
        dependencies.close()


def _log_unclosed(name: str) -> None:
    logger.exception("The dependency %s failed while it was closed; going on with the others", name)
