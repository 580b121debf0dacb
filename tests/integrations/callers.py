"""Programs with a connection of their own, one class per driver, all with the same few words.

A test says `with caller.transaction(): caller.enqueue(...)` whatever the driver; those of asyncio run on a loop of
their own, so that their blocking siblings, which must not be called on one, run the same tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, ClassVar

from watchbill import App, Call, Job, Task

Row = tuple[Any, ...]


class Caller:
    """Blocking. `connection` is what is given to Watchbill."""

    asynchronous: ClassVar[bool] = False
    conflict: ClassVar[type[Exception]]  # what this driver raises on a serialization failure
    connection: Any

    def __init__(self, url: str) -> None:
        self.url = url
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.connection.close()

    def execute(self, statement: str) -> None:
        raise NotImplementedError

    def backend(self) -> int:
        """Which server process it talks to."""
        raise NotImplementedError

    def transaction(self) -> AbstractContextManager[Any]:
        """Commits at its end, rolls back on an exception."""
        raise NotImplementedError

    def savepoint(self) -> AbstractContextManager[Any]:
        """The driver's own nested transaction."""
        raise NotImplementedError

    def autocommit(self) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def pool(self) -> Pool:
        """Of one connection."""
        raise NotImplementedError

    # -- what Watchbill does

    def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Job[Any]:
        return task.using(connection=self.connection, **options).enqueue(*args)

    def enqueue_many(self, app: App, calls: list[Call[Any]]) -> list[Job[Any]]:
        return app.enqueue_many(calls, connection=self.connection)

    def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """A function that takes a connection, or its twin."""
        return function(*args, connection=self.connection, **more)


class AsyncCaller(Caller):
    """The same for asyncio."""

    asynchronous = True

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        super().__init__(url)

    def close(self) -> None:
        self.wait(self.connection.close())
        self.runner.close()

    def wait(self, what: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await what

        return self.runner.run(waiting())

    @contextmanager
    def within(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        """`async with`, for a test that is not asynchronous itself."""
        value = self.wait(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))

    def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Job[Any]:
        job: Job[Any] = self.wait(task.using(connection=self.connection, **options).aenqueue(*args))
        return job

    def enqueue_many(self, app: App, calls: list[Call[Any]]) -> list[Job[Any]]:
        jobs: list[Job[Any]] = self.wait(app.aenqueue_many(calls, connection=self.connection))
        return jobs

    def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        twin = getattr(function.__self__, f"a{function.__name__}")  # type: ignore[attr-defined]
        return self.wait(twin(*args, connection=self.connection, **more))


class Pool:
    """`with pool.taken(): ...` sets the caller's connection to one of the pool, and gives it back."""

    def __init__(self, caller: Caller, take: Callable[[], Any], give: Callable[[Any], Any], close: Callable[[], Any]):
        self._caller, self._take, self._give, self.close = caller, take, give, close

    @contextmanager
    def taken(self) -> Iterator[None]:
        before, self._caller.connection = self._caller.connection, self._take()
        try:
            yield
        finally:
            self._give(self._caller.connection)
            self._caller.connection = before
