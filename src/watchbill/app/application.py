"""App: tasks, settings and the database in one object. It opens nothing until first use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from watchbill.app.flows import Flow
from watchbill.app.in_process_node import InProcessNode
from watchbill.app.job import Job
from watchbill.app.job_options import JobOptions, JobOptionsDict, refuse_other_exceptions
from watchbill.app.middleware import AroundEnqueue, AroundRun, Middleware, refuse_unless_generator
from watchbill.app.payload import encode_unchecked
from watchbill.app.producer import JobProducer
from watchbill.app.registry import Registry, Tasks, calling_frame, calling_place
from watchbill.app.runtime import Runtime
from watchbill.app.schedule_declarations import Declaration
from watchbill.app.task import Call, Task, new_job
from watchbill.app.unknown_types import UnknownTypes
from watchbill.model.cell import acting_cell, acting_in
from watchbill.model.job import NewJob
from watchbill.model.tenant import acting_for
from watchbill.telemetry.events import Events, Observer
from watchbill.worker.dependencies import Dependencies
from watchbill.worker.handlers import Handler

if TYPE_CHECKING:
    # Many programs only enqueue: these modules are imported when they are used.
    from watchbill.app.alerts import Alerts
    from watchbill.app.cells import Cells
    from watchbill.app.lock import Lock
    from watchbill.app.operations import Cluster, Jobs, Limits, Queues
    from watchbill.app.schedules import Schedules
    from watchbill.app.tenants import Tenants
    from watchbill.client.client import AsyncClient, Client
    from watchbill.cluster.elector import LeaderTask
    from watchbill.cluster.lease import Lease
    from watchbill.cluster.options import Membership
    from watchbill.model.durations import Duration
    from watchbill.model.endpoint import Endpoint, SecretResolver
    from watchbill.model.queue import Queue
    from watchbill.node import Node
    from watchbill.payloads import PayloadStore
    from watchbill.postgres.schema_status import Status
    from watchbill.scheduler.declarer import Declared
    from watchbill.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["App[State]"], AsyncGenerator[State, None]]
RuntimeFactory = Callable[[Mapping[str, Any], "PayloadStore | None"], Runtime]
_apps: WeakKeyDictionary[App, None] = WeakKeyDictionary()
runtime_factories: list[RuntimeFactory] = []  # the last one makes the runtime of every App: `override_runtimes`


def living_apps() -> list[App]:
    """Every App of this process, in the order they were made."""
    return list(_apps)


@contextmanager
def override_runtimes(make_runtime: RuntimeFactory) -> Iterator[None]:
    """For tests: every App uses the runtime that `make_runtime` returns, until the block ends."""
    before = {app: app.producer.replace_runtime(None) for app in living_apps()}
    runtime_factories.append(make_runtime)
    try:
        yield
    finally:
        runtime_factories.remove(make_runtime)
        for app in living_apps():
            app.producer.replace_runtime(before.get(app))


class _NodeParts(NamedTuple):
    """What a task that is declared later needs to know of a node."""

    dependencies: Dependencies
    serves_all_queues: bool  # the queues of all tasks, because the node's settings name no queue
    cell: str | None  # that it serves


class App(Registry, Generic[State]):
    """Declares tasks and enqueues jobs. `App[State]` has a typed `state`.

    `database_url`, `schema` and the rest of `settings` win over the environment and the settings file. `tz` is the time
    zone of schedules that name none; the default is UTC. `tenant_from` returns the tenant of the present request, or
    None: jobs without a tenant of their own get it, and row security shows its rows only. With several cells
    (`[cells]` in watchbill.toml), `cell_from` returns the name of the cell that has the jobs of a tenant.
    """

    producer: JobProducer

    def __init__(
        self,
        database_url: str | None = None,
        *,
        name: str | None = None,
        tz: str | None = None,
        propagate: Sequence[ContextVar[Any]] = (),
        payload_store: str | PayloadStore | None = None,
        tenant_from: Callable[[], str | None] | None = None,
        cell_from: Callable[[str], str | None] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(calling_place(), _check_zone(tz))
        place = payload_store if isinstance(payload_store, str) else None
        self._given = {"database_url": database_url, "payload_store": place, **settings}
        self._payload_store = None if isinstance(payload_store, str) else payload_store
        self._nodes: WeakKeyDictionary[Node, _NodeParts] = WeakKeyDictionary()
        self._unknown_types = UnknownTypes(self.tasks)
        self.events = Events()
        self.producer = self._make_producer(propagate)
        self._leader_tasks: list[tuple[str, LeaderTask]] = []
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self.secret_resolvers: dict[str, SecretResolver] = {}
        self._lifespan: Lifespan[State] | None = None
        self.state: State = None  # type: ignore[assignment]  # until a node enters the lifespan
        self._name = name or _calling_module()
        self.producer.flow_rules, self.producer.app_name = self.flow_rules, self._name
        self.producer.tenant_from = tenant_from
        self._cell_from = cell_from
        self.producer.make_cells = partial(self._make_cells, cell_from)
        _apps[self] = None

    def tenant(self, name: str) -> AbstractContextManager[None]:
        """Acts for a tenant: `with app.tenant("acme"): ...`. Jobs without a tenant of their own get this one, and row
        security shows only its rows."""
        return acting_for(name)

    def cell(self, name: str) -> AbstractContextManager[None]:
        """Names the cell for the calls of a block: `with app.cell("b"): ...`."""
        return acting_in(name)

    def find_cell(self, tenant: str) -> str | None:
        """The cell that has the jobs of a tenant, as `cell_from` says; None without it."""
        return None if self._cell_from is None else self._cell_from(tenant)

    def _make_cells(self, find_cell: Callable[[str], str | None] | None, settings: Settings) -> Cells:
        from watchbill.app.cells import Cells

        def make_producer(name: str) -> JobProducer:
            runtime = partial(Runtime, partial(settings.in_cell, name), self._payload_store)
            return self.producer.make_cell_producer(name, runtime)

        return Cells(self.producer, settings, make_producer, find_cell)

    def _make_producer(self, propagate: Sequence[ContextVar[Any]]) -> JobProducer:
        return JobProducer(self._make_runtime, Middleware(propagate), self.events)

    def _make_runtime(self) -> Runtime:
        if runtime_factories:
            return runtime_factories[-1](self.given, self._payload_store)
        return Runtime(self._load_settings, self._payload_store)

    def _load_settings(self) -> Settings:
        from watchbill.settings import Settings

        return Settings.load(**self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The settings given in code or by the parent process; only the command line wins over them."""
        from watchbill.settings import inherited

        return {**self._given, **inherited()}

    @property
    def settings(self) -> Settings:
        """From the arguments, the environment and the settings file; read at first use. With cells, those of the cell
        to which a call goes now, if it is known."""
        cells = self.producer.cells
        found = self.producer if cells is None else cells.find() or self.producer
        return found.own_runtime.settings

    def use(self, settings: Settings) -> None:
        """Replaces the settings, as the command line does."""
        self.producer.use(settings)

    @property
    def name(self) -> str:
        """The name of the App. Its schedules belong to this name, and nodes with the same name start as one cluster."""
        return self._name

    def include(self, tasks: Tasks) -> None:
        """Adds the tasks and schedules of a library or of another file."""
        tasks.belong_to(self)

    @cached_property
    def jobs(self) -> Jobs:
        """Look at jobs, cancel, retry, wake or release them."""
        from watchbill.app.operations import Jobs

        return Jobs(self.producer)

    @cached_property
    def queues(self) -> Queues:
        """Count the jobs of queues; pause and resume queues and types."""
        from watchbill.app.operations import Queues

        return Queues(self.producer, self.queue_names, self.tasks)

    @cached_property
    def limits(self) -> Limits:
        """Look at limits and rates, and change them."""
        from watchbill.app.operations import Limits

        return Limits(self.producer)

    @cached_property
    def cluster(self) -> Cluster:
        """Nodes, leaders, locks and token groups."""
        from watchbill.app.operations import Cluster

        return Cluster(self.producer, self._make_member)

    @cached_property
    def tenants(self) -> Tenants:
        """Look at tenants, their quotas and use, and erase one."""
        from watchbill.app.tenants import Tenants

        return Tenants(self.producer)

    @cached_property
    def alerts(self) -> Alerts:
        """Look at alerts, and change their rules, routes and silences."""
        from watchbill.app.alerts import Alerts

        return Alerts(self.producer)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules in the database: add, update, remove, look at them."""
        from watchbill.app.schedules import Schedules

        return Schedules(self.producer, self.tasks, self.tz)

    # -- These methods register middleware and observers of events.

    def around_run(self, function: AroundRun) -> AroundRun:
        """Registers a generator function that runs around every handler; it takes the job and yields once."""
        refuse_unless_generator(function, "@app.around_run")
        self.producer.middleware.runs.append(function)
        return function

    def around_enqueue(self, function: AroundEnqueue) -> AroundEnqueue:
        """Registers a generator function that runs around every enqueue; it takes the new job, yields the job to send
        and is sent the answer."""
        refuse_unless_generator(function, "@app.around_enqueue")
        self.producer.middleware.enqueues.append(function)
        return function

    def lifespan(self, function: Lifespan[State]) -> Lifespan[State]:
        """Registers an async generator function that runs around the life of each worker process; what it yields is
        `app.state`."""
        refuse_unless_generator(function, "@app.lifespan", is_async=True)
        self._lifespan = function
        return function

    @contextmanager
    def override(self, function: Callable[..., Any], value: Any) -> Iterator[None]:
        """For tests: in this block handlers get `value` as their dependency, and `function` is not called."""
        needs = (need for task in self.tasks.values() for need in task.needs.values())
        if not any(need.includes(function) for need in needs):
            name = getattr(function, "__qualname__", repr(function))
            raise ValueError(f"no task of this App depends on {name}, so there is nothing to override")
        overrides = self.producer.overrides
        before = {function: overrides[function]} if function in overrides else {}
        overrides[function] = value
        try:
            yield
        finally:
            del overrides[function]
            overrides.update(before)

    def endpoint(self, endpoint: Endpoint) -> None:
        """Declares a server to which connectors send requests. A node that starts writes it to the database, if the
        code has changed: `add_connectors`."""
        from watchbill.model.endpoint import Endpoint

        if not isinstance(endpoint, Endpoint):
            raise TypeError(f"app.endpoint({endpoint!r}) is invalid: give an Endpoint")
        known = self._endpoints.setdefault((endpoint.tenant, endpoint.name), endpoint)
        if known != endpoint:
            raise ValueError(f"endpoint {endpoint.name!r} of tenant {endpoint.tenant!r} is declared twice, differently")
        self._declare_to_nodes()

    def secret_resolver(self, function: SecretResolver) -> SecretResolver:
        """Registers a function that returns secrets for endpoints: `resolver:NAME/KEY` calls the function NAME with
        KEY and the tenant of the endpoint. It may be async."""
        self.secret_resolvers[function.__name__] = function
        return function

    def on(self, event: str) -> Callable[[Observer], Observer]:
        """Registers an observer: `@app.on("job_died")`. It is called after commit, in the process that caused it."""

        def observe(observer: Observer) -> Observer:
            self.events.on(event, observer)
            return observer

        return observe

    # -- These methods enqueue jobs.

    def enqueue(self, type: str, payload: dict[str, Any] | None = None, **options: Unpack[JobOptionsDict]) -> Job[Any]:
        """Enqueues a job by its type. If this App declares the task, the job gets the task's options and keys, as from
        `task.enqueue`. Otherwise it gets only what is given here: the producer need not have the task's code."""
        job, chosen, task = self._job_by_type(type, payload, options)
        sent = self.producer.send(job, chosen, task)
        if task is None and self._must_check_type(type, chosen):
            self._unknown_types.check(job, self.producer)
        return sent

    async def aenqueue(
        self, type: str, payload: dict[str, Any] | None = None, **options: Unpack[JobOptionsDict]
    ) -> Job[Any]:
        job, chosen, task = self._job_by_type(type, payload, options)
        sent = await self.producer.asend(job, chosen, task)
        if task is None and self._must_check_type(type, chosen):
            await self._unknown_types.acheck(job, self.producer)
        return sent

    def _job_by_type(
        self, type: str, payload: dict[str, Any] | None, options: JobOptionsDict
    ) -> tuple[NewJob, JobOptions, Task[..., Any] | None]:
        task = self.tasks.get(type)
        if task is not None:
            changed = task.using(**options)
            return changed.new_job(changed.check(payload or {})), changed.options, task
        plain = JobOptions().change(**options)
        refuse_other_exceptions(plain.retry, JobOptions.retry)
        return new_job(type, encode_unchecked(type, payload or {}), 1, plain), plain, None

    def _must_check_type(self, type: str, options: JobOptions) -> bool:
        in_transaction = self.producer.is_in_transaction(options.connection)
        return self._unknown_types.must_check(type, in_transaction=in_transaction)

    def enqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        """Enqueues all in one transaction; the jobs are in the order of the calls. They may wait for each other:
        `depends_on`."""
        return self.producer.send_many(calls, connection=connection)

    async def aenqueue_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        return await self.producer.asend_many(calls, connection=connection)

    @overload
    def leader_task(self, function: F) -> F: ...

    @overload
    def leader_task(self, *, group: str | None = None) -> Callable[[F], F]: ...

    def leader_task(self, function: F | None = None, *, group: str | None = None) -> F | Callable[[F], F]:
        """Registers a function that runs on the leader of a group only: `@app.leader_task(group="production")`.

        The group is the App's name by default. Each node of the App is a candidate. The function may take a Leadership.
        It is canceled before the term can end; a `def` function runs in a thread and must watch
        `leadership.is_leading`. If it returns, it has done its work for this term.
        """
        from watchbill.app.leader_task import check_group, make_leader_task

        check_group(group)

        def register(function: F) -> F:
            task = group or self.name, make_leader_task(self.producer, function)
            self._leader_tasks.append(task)
            for node in list(self._nodes):
                node.add_leader_task(*task)
            return function

        return register if function is None else register(function)

    def lock(self, name: str, *, ttl: Duration = 30.0, wait: Duration | None = None) -> Lock:
        """A named lock: `with app.lock("close", ttl="30s", wait="10s") as lock:`, or `async with`.

        It is renewed while it is held. If this process dies, other callers get it after `ttl`. `wait` is how long to
        wait for it: 0 to try once, None for ever.
        """
        from watchbill.app.lock import Lock

        return Lock(self.producer.here, name, ttl, wait)

    # -- The App opens its connections at first use.

    @property
    def database_url(self) -> str:
        """The address of the database; found at first use."""
        return self.producer.runtime.database_url

    @property
    def client(self) -> Client:
        """The layer below; opened at first use."""
        return self.producer.runtime.client

    @property
    def aclient(self) -> AsyncClient:
        """The same for asyncio."""
        return self.producer.runtime.aclient

    def close(self) -> None:
        """Closes its connections; the next call opens them again."""
        for producer in self._list_producers():
            producer.own_runtime.close()

    async def aclose(self) -> None:
        for producer in self._list_producers():
            await producer.own_runtime.aclose()

    def _list_producers(self) -> list[JobProducer]:
        return [self.producer] if self.producer.cells is None else list(self.producer.cells.opened)

    # -- These methods run a node in this process, and the tasks of the App.

    def node(self, *, cell: str | None = None, **settings: Any) -> InProcessNode:
        """Runs a node in this process during a block: `async with app.node():` or `with app.node():`. `cell` is the one
        that it serves."""
        return InProcessNode(partial(self.make_node, **settings), self.ensure_usable, cell or acting_cell.get())

    def _make_member(self, cell: str | None, lease: Lease, membership: Membership, name: str | None) -> InProcessNode:
        """A node that runs no jobs and takes part in one token group."""

        def make_node() -> Node:
            from dataclasses import replace

            from watchbill.node import Node
            from watchbill.worker.config import make_config

            settings = replace(self.settings, node_name=name or self.settings.node_name)
            config = replace(
                make_config(settings, self.database_url, app=self.name, queues=(), scheduler=False),
                heartbeat_interval=membership.intervals.heartbeat,
                survey_interval=membership.intervals.survey,
            )
            return Node(config, {}, self.events, memberships=[membership], lease=lease)

        return InProcessNode(make_node, self.ensure_usable, cell)

    def _make_memberships(self, lease: Lease, queues: Sequence[str]) -> list[Membership]:
        """The groups of the tasks whose queues the node serves."""
        from watchbill.cluster.options import Membership
        from watchbill.cluster.ownership import Ownership

        routed: dict[str, set[str]] = {}
        for task in self.tasks.values():
            if task.group is not None and task.queue in queues:
                routed.setdefault(task.group, set()).add(task.queue)
        options = self.cluster.group_options
        return [
            Membership(Ownership(group, lease), options.get(group), tuple(sorted(routed[group])))
            for group in sorted(routed)
        ]

    def make_node(
        self, *, once: bool = False, scheduler: bool = True, take_over: bool = False, **settings: Any
    ) -> Node:
        """A node for all tasks, with the App's settings, except those given here. `take_over`: if a living node has
        this name, it is declared lost."""
        from dataclasses import replace

        from watchbill.cluster.lease import Lease
        from watchbill.maintenance.retention import Keep
        from watchbill.node import Node
        from watchbill.worker.config import make_config

        chosen = replace(self.settings, **settings) if settings else self.settings
        dependencies = Dependencies(self.producer.overrides)
        lease = Lease()
        handlers = self.handlers(dependencies)  # first: Django finds tasks there, and with them queues and schedules
        config = make_config(
            chosen,
            self.database_url,
            app=self.name,
            queues=chosen.queues or tuple(sorted(self.queue_names())),
            once=once,
            scheduler=scheduler,
            declared=self._list_declared(self._find_own_cell()),
            takes_over=take_over,
        )
        node = Node(
            config,
            handlers,
            self.events,
            unknown_type_grace=chosen.unknown_type_grace,
            keep=Keep.of_settings(chosen),
            alive=partial(self.alive, dependencies),
            payload_store=self.producer.runtime.large_payloads.store,
            leader_tasks=self._leader_tasks,
            memberships=self._make_memberships(lease, config.queues),
            lease=lease,
        )
        self._nodes[node] = _NodeParts(dependencies, not chosen.queues, self._find_own_cell())
        return node

    def _find_own_cell(self) -> str | None:
        return None if self.producer.cells is None else self.producer.here.cell

    def ensure_usable(self) -> Status:
        """Raises if there is no database, or if its schema is missing, too old or too new for this code."""
        from watchbill.postgres.migrate import Source, status

        settings = self.settings
        found = status(settings.listen_url or self.database_url, settings.schema, Source.of_package("watchbill.store"))
        found.ensure_usable()
        return found

    def handlers(self, dependencies: Dependencies | None = None) -> dict[str, Handler]:
        """What a worker runs, by type; an alias of a task leads to the same handler."""
        made = {id(task): self._make_handler(task, dependencies) for task in self.tasks.values()}
        return {name: made[id(task)] for name, task in self.tasks.items()}

    def _make_handler(self, task: Task[..., Any], dependencies: Dependencies | None) -> Handler:
        return self.producer.make_handler(task, dependencies)

    def _add(self, task: Task[..., Any]) -> None:
        """Adds a task to the App, and to the nodes that run in this process already."""
        super()._add(task)
        for node, parts in list(self._nodes.items()):
            handler = self._make_handler(task, parts.dependencies)
            names = (task.type, *task.aliases)
            if task.flow:
                node.declare(self._list_declared(parts.cell))
            node.add_handlers(dict.fromkeys(names, handler), {task.queue} if parts.serves_all_queues else ())
            if task.group is not None and (parts.serves_all_queues or task.queue in node.config.queues):
                node.join_group(task.group, [task.queue], self.cluster.group_options.get(task.group))

    def _add_schedule(self, declaration: Declaration) -> None:
        super()._add_schedule(declaration)
        self._declare_to_nodes()

    def _add_queue(self, queue: Queue, place: str) -> None:
        super()._add_queue(queue, place)
        self._declare_to_nodes()

    def _declare_to_nodes(self) -> None:
        for node, parts in list(self._nodes.items()):
            node.declare(self._list_declared(parts.cell))

    def _list_declared(self, cell: str | None) -> Declared:
        """What a node declares that serves this cell."""
        import orjson

        from watchbill.scheduler.declarer import Declared

        rules = self.flow_rules
        return Declared(
            self.declared.as_json(partial(self._belongs_to_cell, cell)),
            orjson.dumps(rules.limits),
            orjson.dumps(rules.queue_definitions),
            orjson.dumps([each.definition for each in self._endpoints.values()]),
        )

    def _belongs_to_cell(self, cell: str | None, declared: Declaration) -> bool:
        cells = self.producer.cells
        if cells is None or declared.cell == "each":
            return True
        return cells.find_of_schedule(declared.cell, declared.tenant) == cell

    def withdraw_schedule(self, name: str, *, tenant: str = "default") -> None:
        """Takes back the declaration of a schedule: the nodes of this process no longer declare it. Does not delete the
        schedule; `schedules.remove` does."""
        self.declared.remove(name, tenant)
        self._declare_to_nodes()

    def queue_names(self) -> set[str]:
        """The queues that a node serves if its settings name none."""
        return {task.queue for task in self.tasks.values()} | set(self.flow_rules.queues) | {"default"}

    @asynccontextmanager
    async def alive(self, dependencies: Dependencies | None = None) -> AsyncIterator[None]:
        """Entered by a node before its first claim, left after its last settlement. The dependencies that the node
        has made are closed before the lifespan ends, because they may use `app.state`."""
        async with AsyncExitStack() as stack:
            if self._lifespan is not None:
                self.state = await stack.enter_async_context(asynccontextmanager(self._lifespan)(self))
            if dependencies is not None:
                stack.push_async_callback(dependencies.aclose)
            yield


def _check_zone(tz: str | None) -> str | None:
    if tz is not None:
        from watchbill.cron import Cron  # slow to import: it has the whole cron language

        Cron("* * * * *", tz)
    return tz


def _calling_module() -> str:
    """The module that makes the App; for a script its file's name."""
    frame = calling_frame()
    module = str(frame.f_globals.get("__name__", "app")) if frame else "app"
    if module == "__main__" and frame is not None:
        return Path(frame.f_code.co_filename).stem
    return module
