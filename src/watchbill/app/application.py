"""App: tasks, settings and the database in one object. It opens nothing until first use."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from watchbill.app import staging
from watchbill.app.around import Around, AroundEnqueue, AroundRun, refuse_unless_generator
from watchbill.app.flows import Flow, flat, new_jobs
from watchbill.app.handle import Job
from watchbill.app.hosting import HostedNode
from watchbill.app.jobs import Cluster, Jobs, Queues
from watchbill.app.parents import refuse_unsent
from watchbill.app.payload import encode_unknown
from watchbill.app.registry import Registry, Tasks
from watchbill.app.stored import Stored
from watchbill.app.task import Call, Choices, Options, Task, refuse_on_loop
from watchbill.model.job import Enqueued, NewJob
from watchbill.telemetry.events import Events, Observer

if TYPE_CHECKING:
    from watchbill.app.schedules import Schedules
    from watchbill.app.whereabouts import Whereabouts
    from watchbill.client.clients import AsyncClient, Client
    from watchbill.client.plans import Plan
    from watchbill.payloads import PayloadStore
    from watchbill.settings import Settings
    from watchbill.store.queries import Queries
    from watchbill.worker.handlers import Handler

R = TypeVar("R")
Lifespan = Callable[["App"], AsyncGenerator[Any, None]]
logger = logging.getLogger("watchbill")


class App(Registry):
    """Declares tasks and enqueues jobs.

    `database_url`, `schema` and the rest of `settings` win over the environment and the settings file.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        name: str | None = None,
        propagate: Sequence[ContextVar[Any]] = (),
        payload_store: str | PayloadStore | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        place = payload_store if isinstance(payload_store, str) else None
        self._given = {"database_url": database_url, "payload_store": place, **settings}
        self._payload_store = None if isinstance(payload_store, str) else payload_store
        self.around = Around(propagate)
        self._lifespan: Lifespan | None = None
        self.state: Any = None
        self._name = name
        self._module = _calling_module()
        self.events = Events()
        self.jobs, self.queues, self.cluster = Jobs(self), Queues(self), Cluster(self)
        staging.made(self)

    @property
    def given(self) -> dict[str, Any]:
        """The settings of its code, or of whoever started this process: they win over all but the command line."""
        from watchbill.settings import inherited

        return {**self._given, **inherited()}

    @cached_property
    def settings(self) -> Settings:
        """From the arguments, the environment and the settings file; read when first asked for."""
        return staging.settings(self.given)

    def use(self, settings: Settings) -> None:
        """Settings that somebody else has put together, such as the command line."""
        self.__dict__.pop("stored", None)
        self.__dict__["settings"] = settings

    @cached_property
    def stored(self) -> Stored:
        """Payloads too large for the database."""
        return Stored(self.settings, self._payload_store)

    @property
    def name(self) -> str:
        """Owner of declared schedules and of a cluster start."""
        return self._name or self._module

    @property
    def app(self) -> App:
        return self

    def include(self, tasks: Tasks) -> None:
        """Takes in the tasks and schedules of a library or of another file."""
        tasks.belong_to(self)
        for task in dict.fromkeys(tasks.tasks.values()):
            self._add(task)
        self.declared.take(tasks.declared)

    def handlers(self) -> dict[str, Handler]:
        """What a worker runs, by type; an old name of a task leads to the same one."""
        made = {id(task): task.handler() for task in self.tasks.values()}
        return {name: made[id(task)] for name, task in self.tasks.items()}

    def queue_names(self) -> set[str]:
        """Those that a node serves which was told no others."""
        return {task.queue for task in self.tasks.values()} | {"default"}

    def node(self, **settings: Any) -> HostedNode:
        """`async with app.node():` or `with app.node():` works here, inside another process, until the block ends."""
        return HostedNode(self, **settings)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules in the database: add, update, remove, look at them."""
        from watchbill.app.schedules import Schedules

        return Schedules(self)

    # -- around

    def around_run(self, function: AroundRun) -> AroundRun:
        """Around every handler: a generator function of the job, which yields once. The first one is the outermost."""
        refuse_unless_generator(function, "@app.around_run")
        self.around.runs.append(function)
        return function

    def around_enqueue(self, function: AroundEnqueue) -> AroundEnqueue:
        """Around every enqueue: a generator function of the new job; it yields the one to send, and gets the answer."""
        refuse_unless_generator(function, "@app.around_enqueue")
        self.around.enqueues.append(function)
        return function

    def lifespan(self, function: Lifespan) -> Lifespan:
        """An async generator function around the life of each worker process; what it yields is `app.state`."""
        refuse_unless_generator(function, "@app.lifespan", of_loop=True)
        self._lifespan = function
        return function

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Entered by a node before its first claim, left after its last settlement."""
        if self._lifespan is None:
            yield
            return
        async with asynccontextmanager(self._lifespan)(self) as self.state:
            yield

    def on(self, event: str) -> Callable[[Observer], Observer]:
        """`@app.on("job_died")`: called in the process that made the transition, after commit."""

        def observe(observer: Observer) -> Observer:
            self.events.on(event, observer)
            return observer

        return observe

    # -- enqueue

    def enqueue(self, type: str, payload: dict[str, Any] | None = None, **options: Unpack[Choices]) -> Job[Any]:
        """A job by its type, for a producer that need not have the code."""
        task, job, chosen = self._named(type, payload, options)
        return self.send(task, job, chosen)

    async def aenqueue(self, type: str, payload: dict[str, Any] | None = None, **options: Unpack[Choices]) -> Job[Any]:
        task, job, chosen = self._named(type, payload, options)
        return await self.asend(task, job, chosen)

    def _named(
        self, type: str, payload: dict[str, Any] | None, options: Choices
    ) -> tuple[Task[..., Any] | None, NewJob, Options]:
        task = self.tasks.get(type)
        if task is not None:
            chosen = task.using(**options)
            return task, chosen.new_job(task.check(payload or {})), chosen.options
        plain = Options().changed(**options)
        return None, plain.new_job(type, encode_unknown(type, payload or {})), plain

    def enqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        """All in one transaction; jobs in the order of the calls. They may wait for each other: `depends_on`."""
        from watchbill.client import foreign, plans

        calls = flat(calls)
        connection, strict = _one_connection(calls, connection), any(call.task.options.strict for call in calls)
        self._refuse_to_block("enqueue_many", connection)
        with self.around.sending(new_jobs(calls)) as sending:
            jobs = self.stored.keep(sending.jobs, partial(self._installation, connection))
            if connection is not None:
                home = self._whereabouts.home(connection)
                here = plans.enqueue_many_here(jobs, home, copy=foreign.copies(connection), strict=strict)
                answers = foreign.run(here, connection, self._queries, call="enqueue_many")
            else:
                plan = partial(plans.enqueue_many, jobs, strict=strict)
                answers = self.client.run_surely(lambda again: plan(resend=again), together=True)
            sending.sent(answers)
        self.stored.drop_duplicates(jobs, answers)
        return self._enqueued([call.task for call in calls], answers, connection)

    async def aenqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        from watchbill.client import foreign, plans

        calls = flat(calls)
        connection, strict = _one_connection(calls, connection), any(call.task.options.strict for call in calls)
        with self.around.sending(new_jobs(calls)) as sending:
            jobs = await self.stored.akeep(sending.jobs, partial(self._ainstallation, connection))
            if connection is not None:
                home = await self._whereabouts.ahome(connection)
                here = plans.enqueue_many_here(jobs, home, copy=foreign.copies(connection), strict=strict)
                answers = await foreign.arun(here, connection, self._queries, call="enqueue_many")
            else:
                plan = partial(plans.enqueue_many, jobs, strict=strict)
                answers = await self.aclient.run_surely(lambda again: plan(resend=again), together=True)
            sending.sent(answers)
        await self.stored.adrop_duplicates(jobs, answers)
        return self._enqueued([call.task for call in calls], answers, connection)

    def send(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        self._refuse_to_block("enqueue", options.connection)
        refuse_unsent(options.depends_on)
        from watchbill.client import foreign, plans

        with self.around.sending([job]) as sending:
            [job] = self.stored.keep(sending.jobs, partial(self._installation, options.connection))
            if options.connection is not None:
                home = self._whereabouts.home(options.connection)
                here = plans.enqueue_here(job, home, strict=options.strict)
                answer = foreign.run(here, options.connection, self._queries, call="enqueue")
            else:
                plan = partial(plans.enqueue, job, strict=options.strict)
                answer = self.client.run_surely(lambda again: plan(resend=again))
            sending.sent([answer])
        if answer.id != job.id:
            self.stored.drop_duplicates([job], [answer])
        return self._enqueued([task], [answer], options.connection)[0]

    async def asend(self, task: Task[..., R] | None, job: NewJob, options: Options) -> Job[R]:
        refuse_unsent(options.depends_on)
        from watchbill.client import foreign, plans

        with self.around.sending([job]) as sending:
            [job] = await self.stored.akeep(sending.jobs, partial(self._ainstallation, options.connection))
            if options.connection is not None:
                home = await self._whereabouts.ahome(options.connection)
                here = plans.enqueue_here(job, home, strict=options.strict)
                answer = await foreign.arun(here, options.connection, self._queries, call="enqueue")
            else:
                plan = partial(plans.enqueue, job, strict=options.strict)
                answer = await self.aclient.run_surely(lambda again: plan(resend=again))
            sending.sent([answer])
        if answer.id != job.id:
            await self.stored.adrop_duplicates([job], [answer])
        return self._enqueued([task], [answer], options.connection)[0]

    def _enqueued(
        self, tasks: Sequence[Task[..., R] | None], answers: Sequence[Enqueued], connection: Any
    ) -> list[Job[R]]:
        jobs = [Job(self, task, answer) for task, answer in zip(tasks, answers, strict=True)]
        for answer in answers:
            if answer.payload_differs:
                logger.warning("Job %s with the same idempotency key has another payload than was sent now", answer.id)
        if connection is None:
            self._tell_enqueued(jobs)
        return jobs

    def _tell_enqueued(self, jobs: Iterable[Job[Any]]) -> None:
        """To observers, once it is known that they are committed: on a connection of the caller's it never is."""
        if self.events.heard("job_enqueued"):
            for job in jobs:
                if job.created:
                    self.events.tell("job_enqueued", job=job)

    # -- the database

    @property
    def _queries(self) -> Queries:
        from watchbill.store.queries import queries

        return queries(self.settings.schema)

    @cached_property
    def _whereabouts(self) -> Whereabouts:
        """Knows which database a caller's connection should lead to."""
        from watchbill.app.whereabouts import Whereabouts

        return Whereabouts(self, self._is_own)

    def _is_own(self, connection: Any) -> bool:
        """Whether it leads to the App's own database for certain; here any may lead anywhere."""
        return False

    @property
    def in_transaction(self) -> Any:
        """The connection in whose open transaction jobs are enqueued that were given none; here there is no such."""
        return None

    def _installation(self, connection: Any) -> str:
        """That of the connection or the App's own, asked for when it is not known yet."""
        from watchbill.client import foreign, plans

        if connection is not None:
            return foreign.run(plans.installation(), connection, self._queries, call="enqueue")
        return self.client.installation or self.client.run(plans.installation())

    async def _ainstallation(self, connection: Any) -> str:
        from watchbill.client import foreign, plans

        if connection is not None:
            return await foreign.arun(plans.installation(), connection, self._queries, call="enqueue")
        known = self.aclient.installation
        return known if known is not None else await self.aclient.run(plans.installation())

    def _refuse_to_block(self, name: str, connection: Any) -> None:
        from watchbill.client import foreign

        if connection is None or not foreign.belongs_to_loop(connection):
            refuse_on_loop(f"{name}()", f"`await a{name}()`")

    def run(self, plan: Plan[R]) -> R:
        """Carries out a client's plan; blocking."""
        refuse_on_loop("This call", "its twin with an `a` before the name, as in `await app.schedules.alist()`,")
        return self.client.run(plan)

    async def arun(self, plan: Plan[R]) -> R:
        return await self.aclient.run(plan)

    @cached_property
    def database_url(self) -> str:
        """Where the database is, once it is asked for."""
        if self.settings.embedded and not self.settings.database_url:
            from watchbill.app.embedding import hold_server

            return hold_server(self.settings)
        from watchbill.postgres.address import find_address

        return find_address(self.settings).url

    @cached_property
    def client(self) -> Client:
        """The layer below; opened at its first use."""
        from watchbill.client.clients import Client

        stage = staging.current()
        return Client(self.database_url, **self._client_options()) if stage is None else stage.client

    @cached_property
    def aclient(self) -> AsyncClient:
        from watchbill.client.clients import AsyncClient

        stage = staging.current()
        return AsyncClient(self.database_url, **self._client_options()) if stage is None else stage.aclient

    def _client_options(self) -> dict[str, Any]:
        s = self.settings
        return {"schema": s.schema, "pool_size": s.pool_size, "prepare": s.prepared_statements}

    def close(self) -> None:
        """Closes its connections; the next call opens them again."""
        if "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        if "aclient" in self.__dict__:
            await self.aclient.close()


def _one_connection(calls: Sequence[Call[Any]], given: Any) -> Any:
    """The one that was given, or that the calls' tasks were made with: all in one transaction, or none."""
    found = {id(c): c for c in (given, *(call.task.options.connection for call in calls)) if c is not None}
    if len(found) > 1:
        raise ValueError("enqueue_many() was given several connections; its jobs are enqueued together, in one of them")
    return next(iter(found.values()), None)


def _calling_module() -> str:
    """The module that made the App; for a script its file's name."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("watchbill."):
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "app")) if frame else "app"
    if module == "__main__" and frame is not None:
        return Path(frame.f_code.co_filename).stem
    return module
