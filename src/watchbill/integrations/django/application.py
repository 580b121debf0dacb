"""The project's App. Its calls are part of the transaction that Django has open, if any: they use Django's connection.

Django opens a connection per thread, and closes it at the end of the request that used it. In a worker, a task takes
the place of a request. A `def` task runs in a thread of the worker, whose connection stays open as long as CONN_MAX_AGE
allows. An `async def` task uses the ORM in a thread of its own, as an ASGI request does, and its connections close with
it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries, transaction
from django.utils.module_loading import import_string

from watchbill.app.application import App, runtime_factories
from watchbill.app.flows import Flow, flatten
from watchbill.app.job import Job, ResultDecoder
from watchbill.app.job_options import JobOptions
from watchbill.app.middleware import Middleware
from watchbill.app.producer import JobProducer, StoreRules
from watchbill.app.runtime import Runtime
from watchbill.app.task import Call, Task
from watchbill.client.client import AsyncClient, Client
from watchbill.client.operations import Operation
from watchbill.errors import WatchbillError
from watchbill.integrations.django import configuration
from watchbill.integrations.django.discovery import discover
from watchbill.model.job import Enqueued, NewJob
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.store.refusals import NotInstalled
from watchbill.worker.handlers import Kind

if TYPE_CHECKING:
    from watchbill.worker.dependencies import Dependencies
    from watchbill.worker.handlers import Handler


class DjangoMiddleware(Middleware):
    """Closes Django's old connections before and after a task. It runs around the user's own middleware, because that
    may use the ORM too."""

    def wrap(self, function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
        inner = super().wrap(function, kind)
        if kind == "async":

            @wraps(inner)
            async def call_and_close_connections(*args: Any, **kwargs: Any) -> Any:
                async with ThreadSensitiveContext():
                    try:
                        return await inner(*args, **kwargs)
                    finally:
                        await sync_to_async(connections.close_all)()

        else:

            @wraps(inner)
            def call_and_close_connections(*args: Any, **kwargs: Any) -> Any:
                reset_queries()
                close_old_connections()
                try:
                    return inner(*args, **kwargs)
                finally:
                    close_old_connections()

        return call_and_close_connections


def is_under_test() -> bool:
    """Whether Django's test environment is set up, by its own runner or by pytest-django."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(getattr(utils, "_TestState", None), "saved_data")


class UnpooledClient(Client):
    """A client that keeps no connection open between calls, because Django drops its test database at the end, and
    cannot do so while a connection is open."""

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        with Connection.connect(self.url, autocommit=True) as connection:
            yield connection


class UnpooledAsyncClient(AsyncClient):
    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection


R = TypeVar("R")


class DatabaseNotAllowed(WatchbillError):
    """The test of a Django project may not use the database that holds the jobs, because it does not name it."""


class DjangoApp(App):
    """An App that takes its settings from Django's settings."""

    def __init__(self, *, propagate: Sequence[ContextVar[Any]] = ()) -> None:
        super().__init__(propagate=propagate)
        self.producer.tenant_from = _find_tenant
        self.producer.make_cells = None  # calls join transactions of Django's connection, to one database
        self.node_name = ""
        self.on("node_started")(self._set_node_name)

    def _set_node_name(self, name: str, epoch: int) -> None:
        self.node_name = name

    def _make_producer(self, propagate: Sequence[ContextVar[Any]]) -> JobProducer:
        return DjangoProducer(self._make_runtime, DjangoMiddleware(propagate), self.events)

    def _make_runtime(self) -> Runtime:
        return super()._make_runtime() if runtime_factories else DjangoRuntime(self._load_settings)

    @property
    def given(self) -> dict[str, Any]:
        return configuration.read_given_settings()

    @property
    def name(self) -> str:
        from django.conf import settings

        module = settings.SETTINGS_MODULE or "django"
        return str(configuration.read_option("NAME") or module.partition(".")[0])

    @property
    def connection(self) -> Any:
        """This thread's Django connection to the database that holds the jobs; None if it is not one of DATABASES."""
        return _get_connection()

    def handlers(self, dependencies: Dependencies | None = None) -> dict[str, Handler]:
        discover()
        return super().handlers(dependencies)

    def _make_handler(self, task: Task[..., Any], dependencies: Dependencies | None) -> Handler:
        """Makes the handler of a task. Its reference leads through this module, so that a child process sets up Django
        before it imports the task."""
        return replace(super()._make_handler(task, dependencies), reference=f"{__name__}:app")

    def queue_names(self) -> set[str]:
        """Returns the queues of all tasks and of the backends for django.tasks, because a task may be sent to any queue
        of a backend with `using(queue_name=...)`."""
        return super().queue_names() | _list_backend_queues(self)

    def reload_settings(self) -> None:
        """Closes the App's connections and reads Django's settings again, after they have changed."""
        self.close()
        self.producer.replace_runtime(None)


class DjangoProducer(JobProducer):
    """Enqueues through Django's connection, unless the caller gives another. Other operations use Django's connection
    only while it has a transaction open."""

    joins_transactions = True

    @property
    def current_connection(self) -> Any:
        connection = _get_connection()
        return connection if connection is not None and _has_open_transaction(connection) else None

    def run(self, operation: Operation[R], connection: Any = None) -> R:
        with _explain_missing_schema():
            return super().run(operation, self.current_connection if connection is None else connection)

    async def arun(self, operation: Operation[R], connection: Any = None) -> R:
        joins = connection is None and configuration.find_alias() is not None
        if joins and await sync_to_async(self.is_in_transaction)():
            return await sync_to_async(self.run)(operation)
        return await super().arun(operation, connection)

    async def asend(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]:
        if options.connection is None and configuration.find_alias() is not None:
            return await sync_to_async(self.send)(job, options, task)
        return await super().asend(job, options, task)

    async def asend_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        calls = flatten(calls)
        given = connection is not None or any(call.task.options.connection is not None for call in calls)
        if not given and configuration.find_alias() is not None:
            send: Callable[[list[Call[R]]], list[Job[R]]] = self.send_many  # its type is lost otherwise
            return await sync_to_async(send)(calls)
        return await super().asend_many(calls, connection=connection)

    def _store(self, jobs: Sequence[NewJob], connection: Any, rules: StoreRules, call: str) -> Sequence[Enqueued]:
        if connection is not None:
            return super()._store(jobs, connection, rules, call)
        with _explain_missing_schema():
            return super()._store(jobs, _get_connection(), rules, call)

    def report_enqueued(self, jobs: Iterable[Job[Any]]) -> None:
        """Emits the events of the jobs after Django's commit, or at once if no transaction is open."""
        connection = _get_connection()
        if connection is None:
            super().report_enqueued(jobs)
            return
        if self.events.observers.get("job_enqueued"):
            _call_after_commit(partial(super().report_enqueued, jobs), connection)
        if (after_enqueue := self.runtime.after_enqueue) is not None:
            _call_after_commit(after_enqueue, connection)

    def report_canceled(self, id: UUID, connection: Any = None) -> None:
        current = self.current_connection
        if connection is None and current is not None:
            _call_after_commit(partial(super().report_canceled, id), current)
        else:
            super().report_canceled(id, connection)

    def find_test_database(self, test: Any) -> tuple[str, str] | None:
        """Returns address and schema of Django's test database, if it holds the jobs and the test may use it."""
        alias = configuration.find_alias()
        if alias is None or not is_under_test():
            return None
        allowed = getattr(test, "databases", ())
        if alias not in allowed:
            raise DatabaseNotAllowed(
                f"{type(test).__name__} may not use the database {alias!r}, which holds the jobs.",
                hint=f"Derive it from Django's TestCase or TransactionTestCase, with databases = "
                f"{{{', '.join(map(repr, sorted({*allowed, alias})))}}}.",
            )
        return configuration.make_address(alias), self.runtime.settings.schema


class DjangoRuntime(Runtime):
    """The runtime of Django's App. In tests of Django, its clients keep no connection open between calls."""

    @cached_property
    def client(self) -> Client:
        return UnpooledClient(self.database_url, **self._client_options) if is_under_test() else super().client

    @cached_property
    def aclient(self) -> AsyncClient:
        return UnpooledAsyncClient(self.database_url, **self._client_options) if is_under_test() else super().aclient

    def is_own(self, connection: Any) -> bool:
        """Whether this is Django's connection, from which the App's address was taken."""
        return connection is _get_connection()


def _find_tenant() -> str | None:
    """Returns the tenant that the function in WATCHBILL["TENANT_FROM"] gives. Reads the setting at each call, because
    tests change settings."""
    given = configuration.read_option("TENANT_FROM")
    if given is None:
        return None
    function: Callable[[], str | None] = import_string(given) if isinstance(given, str) else given
    return function()


def _get_connection() -> Any:
    alias = configuration.find_alias()
    return None if alias is None else connections[alias]


def _has_open_transaction(connection: Any) -> bool:
    """Whether the connection is in atomic(), or its autocommit is off."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.get_autocommit())


def _call_after_commit(function: Callable[[], None], connection: Any) -> None:
    """Calls the function after Django's commit, or at once if no transaction is open. Never calls it if the program
    manages transactions itself, because Django does not report such commits."""
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(function, using=connection.alias)


@contextmanager
def _explain_missing_schema() -> Iterator[None]:
    try:
        yield
    except NotInstalled as error:
        raise NotInstalled(error.message, hint="Run `python manage.py migrate`, which makes it.") from error


def _list_backend_queues(app: DjangoApp) -> set[str]:
    try:
        from django.tasks import task_backends
    except ImportError:  # django.tasks does not exist before Django 6
        return set()
    ours = [backend for backend in task_backends.all() if getattr(backend, "watchbill_app", None) is app]
    return {queue for backend in ours for queue in backend.queues}


app = DjangoApp()
