"""What a plain call of a task takes and gives: what its function does. The classes differ for type checkers only.

An `async def` gives a coroutine, where its job has the value; a transactional task takes the connection first, which
no payload holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from watchbill.app.task import Task, takes_connection

if TYPE_CHECKING:
    from watchbill.postgres.connect import AsyncConnection, Connection

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class SyncTask(Task[P, R]):
    """Of a `def`."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncTask(Task[P, R]):
    """Of an `async def`."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class TransactionalTask(Task[P, R]):
    """Of a `def` that takes a connection first."""

    if TYPE_CHECKING:

        def __call__(self, connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncTransactionalTask(Task[P, R]):
    """Of an `async def` that takes a connection first."""

    if TYPE_CHECKING:

        def __call__(
            self, connection: AsyncConnection, /, *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, R]: ...


def class_for(function: Callable[..., Any]) -> type[Task[..., Any]]:
    if inspect.iscoroutinefunction(function):
        return AsyncTransactionalTask if takes_connection(function) else AsyncTask
    return TransactionalTask if takes_connection(function) else SyncTask
