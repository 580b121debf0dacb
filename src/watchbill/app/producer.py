"""JobProducer: how an App stores jobs.

    send, send_many     one job; several in one transaction
    _store              inside the middleware
    _store_prepared     large payloads into their store, then the jobs into the database

An enqueue over the App's own client is sent again if the reply is lost. Over a connection of the caller it is part of
the caller's transaction, and is sent once.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import orjson

from watchbill.app.flow_control import FlowRules
from watchbill.app.flows import Flow, choose_connection, flatten, make_new_jobs
from watchbill.app.job import Job, ResultDecoder
from watchbill.app.job_options import JobOptions, refuse_unsent
from watchbill.app.large_payloads import REFERENCE, LargePayloads
from watchbill.app.middleware import Middleware, Sending
from watchbill.app.runtime import Runtime
from watchbill.app.task import Call, Task
from watchbill.client import operations
from watchbill.client.operations import Operation, Statement
from watchbill.model.job import AlikeJobs, AllCreated, Enqueued, JobRecord, NewJob
from watchbill.model.tenant import DEFAULT_TENANT, acting_for, acting_tenant
from watchbill.telemetry.context import current
from watchbill.telemetry.events import Events, emit_canceled
from watchbill.worker.dependencies import Dependencies
from watchbill.worker.handlers import Handler
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.settings import Settings

R = TypeVar("R")
logger = logging.getLogger("watchbill")


class CellRouter(Protocol):
    """Chooses the producer of one cell for each call (`cells.py`)."""

    @property
    def opened(self) -> Iterable[JobProducer]: ...
    def choose(self) -> JobProducer: ...
    def find(self) -> JobProducer | None: ...
    def find_of_schedule(self, cell: str | None, tenant: str) -> str: ...
    def find_job(self, id: UUID) -> JobRecord: ...
    async def afind_job(self, id: UUID) -> JobRecord: ...
    def send(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]: ...
    async def asend(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]: ...
    def send_many(self, steps: Iterable[Call[R] | Flow[R]], connection: Any) -> list[Job[R]]: ...
    async def asend_many(self, steps: Iterable[Call[R] | Flow[R]], connection: Any) -> list[Job[R]]: ...


class StoreRules(NamedTuple):
    """How SQL treats the jobs of one call. `new_ids`: all ids were made for this call, none was given."""

    strict: bool
    new_ids: bool

    def after_changes(self, before: Sequence[NewJob], after: Sequence[NewJob]) -> StoreRules:
        """Returns the rules for the jobs that middleware returned: their ids may have changed, perhaps to used ones."""
        kept = all(old.id == new.id for old, new in zip(before, after, strict=True))
        return self if kept else self._replace(new_ids=False)


class JobProducer:
    """The Producer of an App. `runtime` is made at first use, and again after `replace_runtime(None)`."""

    joins_transactions = False  # whether calls may join a transaction that is open: see `current_connection`

    def __init__(self, make_runtime: Callable[[], Runtime], middleware: Middleware, events: Events) -> None:
        self._make_runtime = make_runtime
        self._runtime: Runtime | None = None
        self.middleware, self.events = middleware, events
        self.cell: str | None = None  # of the producer of one cell
        self.make_cells: Callable[[Settings], CellRouter] | None = None  # an App sets it
        self.flow_rules, self.app_name = FlowRules(), ""  # an App replaces both
        self.tenant_from: Callable[[], str | None] | None = None
        self.overrides: dict[Callable[..., Any], Any] = {}  # replaces dependencies, in tests
        self.dependencies = Dependencies(self.overrides)  # those of a child process; a node has its own

    @property
    def runtime(self) -> Runtime:
        """With cells, that of the cell to which a call goes."""
        return self.own_runtime if self.cells is None else self.cells.choose().own_runtime

    @property
    def own_runtime(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._make_runtime()
        return self._runtime

    @cached_property
    def cells(self) -> CellRouter | None:
        """The producers of the cells, if the settings name any."""
        if self.make_cells is None or not (settings := self.own_runtime.settings).cells:
            return None
        return self.make_cells(settings)

    @property
    def here(self) -> JobProducer:
        """The producer of the cell to which a call goes now; itself without cells."""
        return self if self.cells is None else self.cells.choose()

    def make_cell_producer(self, cell: str, make_runtime: Callable[[], Runtime]) -> JobProducer:
        """A producer that works in one cell, and shares everything else with this one."""
        other = copy.copy(self)
        vars(other).pop("cells", None)
        other.cell, other.make_cells = cell, None
        other._make_runtime, other._runtime = make_runtime, None  # noqa: SLF001  (a JobProducer too)
        return other

    def use(self, settings: Settings) -> None:
        """Replaces the settings; the database stays, if it is known already."""
        self.own_runtime.use(settings)
        vars(self).pop("cells", None)

    def replace_runtime(self, runtime: Runtime | None) -> Runtime | None:
        """Replaces the runtime and returns the one used so far, if any. With None, the next use makes another."""
        before, self._runtime = self._runtime, runtime
        vars(self).pop("cells", None)
        return before

    def run(self, operation: Operation[R], connection: Any = None) -> R:
        """Runs an operation on the App's database, or in the transaction of a caller's connection; blocking."""
        if connection is None:
            return self.run_apart(operation)
        from watchbill.client import caller_connection

        if not caller_connection.belongs_to_loop(connection):
            _refuse_blocking_call_on_loop()
        here = operations.at_home(self._act_for_tenant(operation), self.runtime.home(connection))
        return caller_connection.run(here, connection, self.runtime.queries)

    async def arun(self, operation: Operation[R], connection: Any = None) -> R:
        if connection is None:
            return await self.arun_apart(operation)
        from watchbill.client import caller_connection

        here = operations.at_home(self._act_for_tenant(operation), await self.runtime.ahome(connection))
        return await caller_connection.arun(here, connection, self.runtime.queries)

    def run_check(self, operation: Operation[None], connection: Any) -> None:
        """Runs a check in the transaction of a caller's connection. Without a transaction it is refused."""
        from watchbill.client import caller_connection

        caller_connection.refuse_without_transaction(connection, "check", asynchronous=False)
        self.run(operation, connection)

    async def arun_check(self, operation: Operation[None], connection: Any) -> None:
        from watchbill.client import caller_connection

        caller_connection.refuse_without_transaction(connection, "check", asynchronous=True)
        await self.arun(operation, connection)

    def run_apart(self, operation: Operation[R]) -> R:
        """Runs an operation on the App's own connections, outside of any transaction of the caller."""
        _refuse_blocking_call_on_loop()
        if (tenant := self._find_tenant()) is None:
            return self.runtime.client.run(operation)
        with acting_for(tenant):
            return self.runtime.client.run(operation)

    async def arun_apart(self, operation: Operation[R]) -> R:
        if (tenant := self._find_tenant()) is None:
            return await self.runtime.aclient.run(operation)
        with acting_for(tenant):
            return await self.runtime.aclient.run(operation)

    def run_until_answered(self, make: Callable[[], Operation[R]]) -> R:
        """Does what `run_apart` does, but waits up to `client_timeout` while the database does not answer. So what
        `make` returns may run more than once."""
        _refuse_blocking_call_on_loop()
        with acting_for(tenant) if (tenant := self._find_tenant()) is not None else nullcontext():
            return self.runtime.client.run_until_answered(lambda _: make())

    async def arun_until_answered(self, make: Callable[[], Operation[R]]) -> R:
        with acting_for(tenant) if (tenant := self._find_tenant()) is not None else nullcontext():
            return await self.runtime.aclient.run_until_answered(lambda _: make())

    def _find_tenant(self) -> str | None:
        """The tenant for which this call acts, if one was named: by `app.tenant(...)`, or by `tenant_from`."""
        return acting_tenant.get() or (self.tenant_from() if self.tenant_from is not None else None)

    def find_tenant(self) -> str | None:
        """The tenant of what this call writes: the one that was named, or that of the job whose handler calls."""
        tenant = self._find_tenant()
        if tenant is None and isinstance(running := current.get(), Run):
            return running.tenant
        return tenant

    def _act_for_tenant(self, operation: Operation[R]) -> Operation[R]:
        """Tells the transaction of a caller's connection for which tenant it acts, if one was named."""
        if (tenant := self._find_tenant()) is not None:
            yield Statement("act_for_tenant", (tenant,), (str,))
        return (yield from operation)

    def _give_tenant(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Jobs without a tenant of their own get that of the caller."""
        tenant = self.find_tenant()
        if tenant is None or tenant == DEFAULT_TENANT:
            return jobs
        if isinstance(jobs, AlikeJobs):
            return jobs.replace(tenant=tenant) if jobs.pattern.tenant == DEFAULT_TENANT else jobs
        return [job._replace(tenant=tenant) if job.tenant == DEFAULT_TENANT else job for job in jobs]

    def is_in_transaction(self, connection: Any = None) -> bool:
        """Whether a call with this connection may be part of a transaction that the caller has yet to commit."""
        return connection is not None or self.current_connection is not None

    # -- These methods enqueue jobs.

    def send(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]:
        if self.cells is not None:
            return self.cells.send(job, options, task)
        if options.cell is not None:
            self._check_cell(options.cell)
        if options.depends_on:
            refuse_unsent(options.depends_on)
        rules = StoreRules(options.strict, new_ids=options.id is None)
        answers = self._store([job], options.connection, rules, "enqueue")
        return self._make_jobs([task], answers, options.connection)[0]

    async def asend(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]:
        if self.cells is not None:
            return await self.cells.asend(job, options, task)
        if options.cell is not None:
            self._check_cell(options.cell)
        if options.depends_on:
            refuse_unsent(options.depends_on)
        rules = StoreRules(options.strict, new_ids=options.id is None)
        answers = await self._astore([job], options.connection, rules, "enqueue")
        return self._make_jobs([task], answers, options.connection)[0]

    def send_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        if self.cells is not None:
            return self.cells.send_many(calls, connection)
        calls = flatten(calls)
        tasks = {call.task for call in calls}
        connection, rules = choose_connection(tasks, connection), choose_rules(tasks)
        return self.send_made(calls, make_new_jobs(calls), connection, rules)

    def send_made(
        self, calls: Sequence[Call[R]], jobs: Sequence[NewJob], connection: Any, rules: StoreRules
    ) -> list[Job[R]]:
        """Stores the jobs that were made of these calls."""
        answers = self._store(jobs, connection, rules, "enqueue_many")
        return self._make_jobs([call.task for call in calls], answers, connection)

    async def asend_many(self, calls: Iterable[Call[R] | Flow[R]], *, connection: Any = None) -> list[Job[R]]:
        if self.cells is not None:
            return await self.cells.asend_many(calls, connection)
        calls = flatten(calls)
        tasks = {call.task for call in calls}
        connection, rules = choose_connection(tasks, connection), choose_rules(tasks)
        return await self.asend_made(calls, make_new_jobs(calls), connection, rules)

    async def asend_made(
        self, calls: Sequence[Call[R]], jobs: Sequence[NewJob], connection: Any, rules: StoreRules
    ) -> list[Job[R]]:
        answers = await self._astore(jobs, connection, rules, "enqueue_many")
        return self._make_jobs([call.task for call in calls], answers, connection)

    def _check_cell(self, cell: str) -> None:
        """Refuses the name of a cell where there are none: the job would go somewhere else."""
        if self.cell is None and not self.own_runtime.ignores_cells:
            raise ValueError(f"cell={cell!r} is invalid: this App has no cells; name them in [cells] of watchbill.toml")

    def _store(self, jobs: Sequence[NewJob], connection: Any, rules: StoreRules, call: str) -> Sequence[Enqueued]:
        if connection is None or not _belongs_to_loop(connection):
            refuse_on_loop(f"{call}()", f"`await a{call}()`")
        jobs = self._give_tenant(jobs)
        if not self.middleware.enqueues and not self.middleware.propagated:
            return self._store_prepared(jobs, connection, rules, call)
        with Sending(self.middleware, jobs) as sending:
            rules = rules.after_changes(jobs, sending.jobs)
            answers = self._store_prepared(sending.jobs, connection, rules, call)
            sending.report_answers(answers)
        return answers

    async def _astore(
        self, jobs: Sequence[NewJob], connection: Any, rules: StoreRules, call: str
    ) -> Sequence[Enqueued]:
        jobs = self._give_tenant(jobs)
        if not self.middleware.enqueues and not self.middleware.propagated:
            return await self._astore_prepared(jobs, connection, rules, call)
        with Sending(self.middleware, jobs) as sending:
            rules = rules.after_changes(jobs, sending.jobs)
            answers = await self._astore_prepared(sending.jobs, connection, rules, call)
            sending.report_answers(answers)
        return answers

    def _store_prepared(
        self, jobs: Sequence[NewJob], connection: Any, rules: StoreRules, call: str
    ) -> Sequence[Enqueued]:
        runtime = self.runtime
        if runtime.rules_version != self.flow_rules.version:
            runtime.client.run_until_answered(lambda _: self._ensure_rules())
            runtime.rules_version = self.flow_rules.version
        has_large = _needs_payload_store(jobs, runtime.large_payloads)
        answers: Sequence[Enqueued]
        if has_large:
            jobs = runtime.large_payloads.store_all(jobs, partial(runtime.read_installation, connection))
        if connection is not None:
            from watchbill.client import caller_connection

            home, copy = runtime.home(connection), caller_connection.can_copy(connection)
            here = operations.enqueue_here(jobs, home, copy=copy, strict=rules.strict, new_ids=rules.new_ids)
            answers = caller_connection.run(here, connection, runtime.queries, call=call)
        elif len(jobs) == 1:
            one = partial(operations.enqueue, jobs[0], strict=rules.strict, new_ids=rules.new_ids)
            answers = [runtime.client.run_with_resend(one)]
        else:
            many, in_transaction = _plan_bulk(jobs, rules)
            with _act_for_owner_of(jobs):
                answers = runtime.client.run_with_resend(many, in_transaction=in_transaction)
        if has_large:
            runtime.large_payloads.delete_duplicates(jobs, answers)
        return answers

    async def _astore_prepared(
        self, jobs: Sequence[NewJob], connection: Any, rules: StoreRules, call: str
    ) -> Sequence[Enqueued]:
        runtime = self.runtime
        if runtime.rules_version != self.flow_rules.version:
            await runtime.aclient.run_until_answered(lambda _: self._ensure_rules())
            runtime.rules_version = self.flow_rules.version
        has_large = _needs_payload_store(jobs, runtime.large_payloads)
        answers: Sequence[Enqueued]
        if has_large:
            jobs = await runtime.large_payloads.astore_all(jobs, partial(runtime.aread_installation, connection))
        if connection is not None:
            from watchbill.client import caller_connection

            home, copy = await runtime.ahome(connection), caller_connection.can_copy(connection)
            here = operations.enqueue_here(jobs, home, copy=copy, strict=rules.strict, new_ids=rules.new_ids)
            answers = await caller_connection.arun(here, connection, runtime.queries, call=call)
        elif len(jobs) == 1:
            one = partial(operations.enqueue, jobs[0], strict=rules.strict, new_ids=rules.new_ids)
            answers = [await runtime.aclient.run_with_resend(one)]
        else:
            many, in_transaction = _plan_bulk(jobs, rules)
            with _act_for_owner_of(jobs):
                answers = await runtime.aclient.run_with_resend(many, in_transaction=in_transaction)
        if has_large:
            await asyncio.to_thread(runtime.large_payloads.delete_duplicates, jobs, answers)
        return answers

    def _ensure_rules(self) -> Operation[None]:
        """Writes limits and queues that the database does not know yet, before the first job: no node may have started,
        and the job's lane follows from its queue. On a connection of the App, so that it is committed at once."""
        rules = self.flow_rules
        limits, queues = orjson.dumps(rules.limits).decode(), orjson.dumps(rules.queue_definitions).decode()
        yield Statement("ensure_limits", (self.app_name, limits, queues), (Any,))

    def _make_jobs(
        self, tasks: Sequence[ResultDecoder[R] | None], answers: Sequence[Enqueued], connection: Any
    ) -> list[Job[R]]:
        uncommitted = self.is_in_transaction(connection)
        if isinstance(answers, AllCreated):
            jobs = [Job(self, task, number, uncommitted) for task, number in zip(tasks, answers.ids, strict=True)]
        else:
            _warn_of_other_payloads(answers)
            jobs = [
                Job(self, task, answer.id, uncommitted, answer.created, answer.payload_differs)
                for task, answer in zip(tasks, answers, strict=True)
            ]
        if connection is None:
            self.report_enqueued(jobs)
        return jobs

    def report_enqueued(self, jobs: Iterable[Job[Any]]) -> None:
        """Fires job_enqueued; only for committed jobs, so not on a caller's connection, where that is not known."""
        if self.events.observers.get("job_enqueued"):
            for job in jobs:
                if job.created:
                    self.events.emit("job_enqueued", job=job)

    def report_canceled(self, id: UUID, connection: Any = None) -> None:
        """Fires job_canceled; not on a caller's connection, where it is not known whether the transaction commits."""
        if connection is None:
            emit_canceled(self.events, id)

    # -- Workers and tests call these.

    def make_handler(self, task: Task[..., Any], dependencies: Dependencies | None = None) -> Handler:
        runtime, function = self.runtime, task.function
        if task.needs:
            function = (dependencies or self.dependencies).inject(function, task.kind, task.needs)
        return Handler(
            type=task.type,
            function=self.middleware.wrap(function, task.kind),
            kind=task.kind,
            version=task.version,
            decode=task.decode,
            encode_result=partial(task.encode_result, runtime.settings.max_result),
            schema=runtime.settings.schema,
            timeout=task.options.timeout,
            retry=task.options.retry,
            transactional=task.transactional,
            has_steps=task.has_steps,
            max_result=runtime.settings.max_result,
            encode_payload=partial(task.encode_payload, runtime.settings.max_payload),
            reference=f"{task.function.__module__}:{task.function.__qualname__}",
            make_reading_handler=runtime.large_payloads.make_reading_handler,
            fetch_payload=runtime.large_payloads.fetch_reference,
            batch=replace(task.batch, wait=0) if task.batch and task.flow.is_rated else task.batch,
            max_per_node=task.max_per_node,
            logs=task.logs,
            app=self,
        )

    def read_payload(self, job: JobRecord) -> dict[str, Any]:
        """The payload of a job, from the payload store if it is there."""
        digest = job.payload.get("$stored")
        if digest is None:
            return job.payload
        key = (job.meta or {}).get("stored")
        found: dict[str, Any] = orjson.loads(self.runtime.large_payloads.fetch(job.id, digest, key))
        return found

    def find_test_database(self, test: Any) -> tuple[str, str] | None:
        """The address and schema of a database that the App's framework has made for this test, if it has."""
        return None

    @property
    def current_connection(self) -> Any:
        """The connection whose open transaction calls join by default; None except with Django."""
        return None


def refuse_on_loop(call: str, instead: str) -> None:
    """Raises RuntimeError on the thread of an event loop: a blocking call would stop everything else there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{call} would block the running event loop; use {instead} here")


def _refuse_blocking_call_on_loop() -> None:
    refuse_on_loop("This call", "its twin with an `a` before the name, as in `await app.schedules.alist()`,")


def _needs_payload_store(jobs: Sequence[NewJob], large: LargePayloads) -> bool:
    """Whether the payload store must see these jobs first: it takes large payloads out of them, and refuses payloads
    that look like a reference to a stored one."""
    payloads = jobs.payloads if isinstance(jobs, AlikeJobs) else [job.payload for job in jobs]
    threshold = large.threshold
    return any(len(payload) > threshold or payload.startswith(REFERENCE) for payload in payloads)


def _belongs_to_loop(connection: Any) -> bool:
    from watchbill.client import caller_connection

    return caller_connection.belongs_to_loop(connection)


def _warn_of_other_payloads(answers: Iterable[Enqueued]) -> None:
    for answer in answers:
        if answer.payload_differs:
            logger.warning(
                "Job %s has this idempotency key but another payload; it stays unchanged and no job is made", answer.id
            )


def _plan_bulk(
    jobs: Sequence[NewJob], rules: StoreRules
) -> tuple[Callable[[bool], Operation[Sequence[Enqueued]]], bool]:
    """Chooses the operation that stores several jobs, and says whether it needs a transaction: one statement is
    atomic without, and BEGIN and COMMIT would take two round trips more."""
    alike = AlikeJobs.gather(jobs) if rules.new_ids else None
    if alike is not None and operations.can_enqueue_alike(alike):
        return partial(operations.enqueue_alike, alike), False
    jobs = list(jobs)
    many = partial(operations.enqueue_many, jobs, strict=rules.strict, new_ids=rules.new_ids)
    return many, operations.should_copy(jobs)


def choose_rules(tasks: Iterable[Task[..., Any]]) -> StoreRules:
    options = [task.options for task in tasks]
    return StoreRules(any(each.strict for each in options), all(each.id is None for each in options))


def _act_for_owner_of(jobs: Sequence[NewJob]) -> AbstractContextManager[None]:
    """Acts for the tenant of the jobs, if all have the same one: row security requires that of most callers."""
    tenants = {jobs.pattern.tenant} if isinstance(jobs, AlikeJobs) else {job.tenant for job in jobs}
    return acting_for(*tenants) if len(tenants) == 1 and tenants != {DEFAULT_TENANT} else nullcontext()
