"""The project's App. Jobs are rows that Django's own connection writes, in whatever transaction it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from watchbill.app import staging
from watchbill.app.application import App
from watchbill.app.flows import Flow, flat
from watchbill.app.handle import Job
from watchbill.app.task import Call, Options, Task
from watchbill.integrations.django import configuration
from watchbill.integrations.django.connections import BriefAsyncClient, BriefClient, DjangoAround, under_test
from watchbill.integrations.django.discovery import discover
from watchbill.model.job import NewJob
from watchbill.store.refusals import NotInstalled

if TYPE_CHECKING:
    from watchbill.client.clients import AsyncClient, Client
    from watchbill.worker.handlers import Handler

R = TypeVar("R")


class DjangoApp(App):
    """As any App; but its settings are Django's, and it enqueues in the transaction that Django has open, if any."""

    def __init__(self, *, propagate: Sequence[ContextVar[Any]] = ()) -> None:
        super().__init__(propagate=propagate)
        self.around = DjangoAround(propagate)
        self.node_name = ""
        self.on("node_started")(self._started)

    def _started(self, name: str, epoch: int) -> None:
        self.node_name = name

    @property
    def given(self) -> dict[str, Any]:
        return configuration.given()

    @property
    def name(self) -> str:
        from django.conf import settings

        module = settings.SETTINGS_MODULE or "django"
        return str(configuration.option("NAME") or module.partition(".")[0])

    def handlers(self) -> dict[str, Handler]:
        from dataclasses import replace

        discover()
        here = f"{__name__}:app"  # a child process finds a task through us, since Django must be set up before
        return {name: replace(handler, reference=here) for name, handler in super().handlers().items()}

    def queue_names(self) -> set[str]:
        """Those of the backends too: a task may be sent to any of them with `using(queue_name=...)`."""
        return super().queue_names() | _queues_of_backends()

    def forget(self) -> None:
        """What was found out from settings that have changed."""
        self.close()
        staging.set_aside(self)

    # -- enqueue

    @property
    def connection(self) -> Any:
        """Django's, of this thread, to the database that holds the jobs; None if that is none of Django's."""
        alias = configuration.alias()
        return None if alias is None else connections[alias]

    @property
    def in_transaction(self) -> Any:
        connection = self.connection
        return connection if connection is not None and connection.in_atomic_block else None

    def send(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        if options.connection is not None or (connection := self.connection) is None:
            return super().send(task, job, options)
        sent = _with_way_out(lambda: super(DjangoApp, self).send(task, job, options.changed(connection=connection)))
        self._upon_commit([sent], connection)
        return sent

    async def asend(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        if options.connection is None and configuration.alias() is not None:
            return await sync_to_async(self.send)(task, job, options)
        return await super().asend(task, job, options)

    def enqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        calls = flat(calls)
        if connection is not None or _connected(calls) or (ours := self.connection) is None:
            return super().enqueue_many(calls, connection=connection)
        sent = _with_way_out(lambda: super(DjangoApp, self).enqueue_many(calls, connection=ours))
        self._upon_commit(sent, ours)
        return sent

    async def aenqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        calls = flat(calls)
        if connection is None and not _connected(calls) and configuration.alias() is not None:
            return await sync_to_async(self.enqueue_many)(calls)
        return await super().aenqueue_many(calls, connection=connection)

    def _upon_commit(self, sent: list[Job[R]], connection: Any) -> None:
        """Django knows when that is; outside of a transaction it is now."""
        if self.events.heard("job_enqueued"):
            transaction.on_commit(partial(self._tell_enqueued, sent), using=connection.alias)
        if (run := staging.after_sending()) is not None:
            transaction.on_commit(run, using=connection.alias)

    # -- the database

    def _is_own(self, connection: Any) -> bool:
        """The one that its address was taken from."""
        return connection is self.connection

    @cached_property
    def client(self) -> Client:
        if under_test() and staging.current() is None:
            return BriefClient(self.database_url, **self._client_options())
        return super().client

    @cached_property
    def aclient(self) -> AsyncClient:
        if under_test() and staging.current() is None:
            return BriefAsyncClient(self.database_url, **self._client_options())
        return super().aclient


def _connected(calls: Iterable[Call[Any]]) -> bool:
    return any(call.task.options.connection is not None for call in calls)


def _with_way_out(enqueue: Callable[[], R]) -> R:
    try:
        return enqueue()
    except NotInstalled as error:
        raise NotInstalled(error.message, hint="Run `python manage.py migrate`, which makes it.") from error


def _queues_of_backends() -> set[str]:
    try:
        from django.tasks import task_backends
    except ImportError:  # before Django 6
        return set()
    from watchbill.integrations.django.backend import WatchbillBackend

    ours = [backend for backend in task_backends.all() if isinstance(backend, WatchbillBackend)]
    return {queue for backend in ours for queue in backend.queues}


app = DjangoApp()
