"""Django's connections around a task, and clients of ours that leave no connection behind in a test.

Django opens a connection per thread and closes it with the request that used it. Here a task takes the place of the
request. A `def` task runs in a thread of the worker, whose connection may live on as CONN_MAX_AGE allows. An
`async def` task does its ORM work in a thread of its own, as an ASGI request does; its connections end with it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries

from watchbill.app.around import Around
from watchbill.client.clients import AsyncClient, Client
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.worker.handlers import Kind


class DjangoAround(Around):
    """Outside of all that the user has put around his tasks: that may use the ORM too."""

    def wrap(self, function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
        inner = super().wrap(function, kind)
        if kind == "async":

            @wraps(inner)
            async def connected(*args: Any, **kwargs: Any) -> Any:
                async with ThreadSensitiveContext():
                    try:
                        return await inner(*args, **kwargs)
                    finally:
                        await sync_to_async(connections.close_all)()

        else:

            @wraps(inner)
            def connected(*args: Any, **kwargs: Any) -> Any:
                reset_queries()
                close_old_connections()
                try:
                    return inner(*args, **kwargs)
                finally:
                    close_old_connections()

        return connected


def under_test() -> bool:
    """Whether Django's test environment is set up, by its own runner or by pytest-django."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(getattr(utils, "_TestState", None), "saved_data")


class BriefClient(Client):
    """Keeps no connection: Django drops the test database at the end, and cannot while somebody is connected."""

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        with Connection.connect(self.url, autocommit=True) as connection:
            yield connection


class BriefAsyncClient(AsyncClient):
    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection
