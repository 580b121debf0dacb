"""App: tasks, settings and the database in one object. It opens nothing until first use."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import orjson

from foliot.app.handle import Job
from foliot.app.jobs import Cluster, Jobs, Queues
from foliot.app.payload import InvalidPayload
from foliot.app.task import Call, Options, Seconds, Task, refuse_on_loop
from foliot.model.job import Enqueued, NewJob
from foliot.model.retry import Retry
from foliot.settings import Settings
from foliot.telemetry.events import Events, Observer

if TYPE_CHECKING:
    from foliot.client.clients import AsyncClient, Client
    from foliot.client.plans import Plan
    from foliot.postgres.connect import AsyncConnection, Connection

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """Declares tasks and enqueues jobs.

    `database_url`, `schema` and the rest of `settings` win over the environment and the settings file.
    """

    def __init__(self, database_url: str | None = None, *, name: str | None = None, **settings: Any) -> None:
        self._given = {"database_url": database_url, **settings}
        self._name = name
        self._module = _calling_module()
        self.tasks: dict[str, Task[..., Any]] = {}
        self.events = Events()
        self.jobs, self.queues, self.cluster = Jobs(self), Queues(self), Cluster(self)

    @cached_property
    def settings(self) -> Settings:
        return Settings.load(**self._given)

    def use(self, settings: Settings) -> None:
        """Settings that somebody else has put together, such as the command line."""
        self.__dict__["settings"] = settings

    @property
    def name(self) -> str:
        """Owner of declared schedules and of a cluster start."""
        return self._name or self._module

    # -- tasks

    @overload
    def task(self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Connection, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
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
        task: Task[..., Any] = Task(
            self, function, type=type, options=chosen, version=version, aliases=tuple(aliases), executor=executor
        )
        for name in (task.type, *task.aliases):
            if (known := self.tasks.get(name)) is not None:
                raise ValueError(
                    f"two tasks have the type {name!r}: {_place(known)} and {_place(task)}; "
                    "give one of them another type="
                )
            self.tasks[name] = task
        return task

    def on(self, event: str) -> Callable[[Observer], Observer]:
        """`@app.on("job_died")`: called in the process that made the transition, after commit."""

        def observe(observer: Observer) -> Observer:
            self.events.on(event, observer)
            return observer

        return observe

    # -- enqueue

    def enqueue(self, type: str, payload: dict[str, Any] | None = None, **options: Any) -> Job[Any]:
        """A job by its type, for a producer that need not have the code."""
        task, job, chosen = self._named(type, payload, options)
        return self.send(task, job, chosen)

    async def aenqueue(self, type: str, payload: dict[str, Any] | None = None, **options: Any) -> Job[Any]:
        task, job, chosen = self._named(type, payload, options)
        return await self.asend(task, job, chosen)

    def _named(
        self, type: str, payload: dict[str, Any] | None, options: dict[str, Any]
    ) -> tuple[Task[..., Any] | None, NewJob, Options]:
        task = self.tasks.get(type)
        if task is not None:
            chosen = task.using(**options)
            return task, chosen.new_job(task.check(payload or {})), chosen.options
        plain = Options().changed(**options)
        return None, plain.new_job(type, orjson.dumps(payload or {})), plain

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """All in one transaction; jobs in the order of the calls."""
        refuse_on_loop("enqueue_many", "aenqueue_many")
        from foliot.client import plans

        calls = list(calls)
        news = [self._within_limits(call.new_job()) for call in calls]
        if connection is not None:
            return self._jobs(calls, self.client.run(plans.enqueue_many(news), connection))
        plan = partial(plans.enqueue_many, news)
        return self._jobs(calls, self.client.run_surely(lambda again: plan(resend=again), together=True))

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        from foliot.client import plans

        calls = list(calls)
        news = [self._within_limits(call.new_job()) for call in calls]
        if connection is not None:
            return self._jobs(calls, await self.aclient.run(plans.enqueue_many(news), connection))
        plan = partial(plans.enqueue_many, news)
        return self._jobs(calls, await self.aclient.run_surely(lambda again: plan(resend=again), together=True))

    def _jobs(self, calls: list[Call[Any]], answers: list[Enqueued]) -> list[Job[Any]]:
        return [Job(self, call.task, answer) for call, answer in zip(calls, answers, strict=True)]

    def send(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        refuse_on_loop("enqueue", "aenqueue")
        from foliot.client import plans

        self._within_limits(job)
        if options.connection is not None:
            return Job(self, task, self.client.run(plans.enqueue(job, strict=options.strict), options.connection))
        plan = partial(plans.enqueue, job, strict=options.strict)
        return Job(self, task, self.client.run_surely(lambda again: plan(resend=again)))

    async def asend(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        from foliot.client import plans

        self._within_limits(job)
        if options.connection is not None:
            return Job(
                self, task, await self.aclient.run(plans.enqueue(job, strict=options.strict), options.connection)
            )
        plan = partial(plans.enqueue, job, strict=options.strict)
        return Job(self, task, await self.aclient.run_surely(lambda again: plan(resend=again)))

    def _within_limits(self, job: NewJob) -> NewJob:
        if len(job.payload) > self.settings.max_payload:
            raise InvalidPayload(
                f"{job.type}: the payload has {len(job.payload):,} bytes, the limit is {self.settings.max_payload:,}.",
                hint="Store it elsewhere and send a reference, or raise max_payload in the settings.",
            )
        return job

    # -- the database

    def run(self, plan: Plan[R]) -> R:
        """Carries out a client's plan; blocking."""
        refuse_on_loop("this call", "the same name with an `a` before it")
        return self.client.run(plan)

    async def arun(self, plan: Plan[R]) -> R:
        return await self.aclient.run(plan)

    @cached_property
    def database_url(self) -> str:
        from foliot.postgres.address import find_address

        return find_address(self.settings).url

    @cached_property
    def client(self) -> Client:
        from foliot.client.clients import Client

        return Client(self.database_url, **self._client_options())

    @cached_property
    def aclient(self) -> AsyncClient:
        from foliot.client.clients import AsyncClient

        return AsyncClient(self.database_url, **self._client_options())

    def _client_options(self) -> dict[str, Any]:
        s = self.settings
        return {"schema": s.schema, "pool_size": s.pool_size, "prepare": s.prepared_statements}

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        if "aclient" in self.__dict__:
            await self.aclient.close()


class TaskDecorator:
    """Only for type checkers: what `@app.task(...)` with arguments returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[AsyncConnection, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Connection, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        raise NotImplementedError


def _place(task: Task[..., Any]) -> str:
    try:
        file, line = inspect.getsourcefile(task.function), inspect.getsourcelines(task.function)[1]
        return f"{task.function.__qualname__} ({file}:{line})"
    except (OSError, TypeError):
        return task.function.__qualname__


def _calling_module() -> str:
    """The module that made the App; for a script its file's name."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("foliot."):
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "app")) if frame else "app"
    if module == "__main__" and frame is not None:
        return Path(frame.f_code.co_filename).stem
    return module
