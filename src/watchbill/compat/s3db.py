"""The SchedulerPlugin of s3db.js, in Python, on Watchbill's engine.

    scheduler = SchedulerPlugin(jobs={"daily_cleanup": {"schedule": "0 3 * * *", "action": clean_up}}, database=db)
    async with scheduler:
        ...

A job is a task of type `s3db.<name>` and a schedule of that name. All instances of a program are nodes of one App: each
slot runs once, on one of them, and the jobs of an instance that dies run on another one. A program does not start if
one of its jobs has the name of another App's job, and its queue is its own. Durations are milliseconds, as in the
document. Every name can also be written in camelCase.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from watchbill.app.application import App
from watchbill.app.flows import Flow, chain
from watchbill.app.task import Task
from watchbill.client.operations import Operation, Statement
from watchbill.client.schedule_operations import NoSuchSchedule
from watchbill.compat.naming import Record, read_options
from watchbill.errors import WatchbillError
from watchbill.model.decisions import Skip
from watchbill.model.job import JobFilter, JobRecord
from watchbill.model.retry import Retry
from watchbill.model.schedule import ScheduleFilter, ScheduleRecord, SlotOutcome, SlotRecord
from watchbill.model.tenant import DEFAULT_TENANT
from watchbill.worker.run import Run, current_job

if TYPE_CHECKING:
    from watchbill.app.in_process_node import InProcessNode

__all__ = ["SchedulerPlugin"]

logger = logging.getLogger("watchbill.compat.s3db")

PREFIX = "s3db."
LATEST_START_SECONDS = 60.0  # a slot that was due longer ago, while no instance ran, does not run any more
MAX_SCHEDULES = 10_000
STATS_EXECUTIONS = 100  # how many of the latest executions statistics count, as the document of s3db.js says
EVENTS = ("job_started", "job_completed", "job_failed", "job_retry", "scheduler_started", "scheduler_stopped")
# A status, as the document of s3db.js calls it -> the outcome of a slot.
_OUTCOMES: dict[str, SlotOutcome] = {
    "success": "succeeded", "completed": "succeeded", "failed": "failed", "timeout": "timed_out", "skipped": "skipped",
}  # fmt: skip
_STATUSES = {
    "succeeded": "success", "failed": "failed", "lost": "failed", "timed_out": "timeout", "skipped": "skipped",
    "canceled": "canceled",
}  # fmt: skip

Action = Callable[..., Any]
Observer = Callable[[Record], Any]


class JobExists(WatchbillError):
    """A job of this name was added before, or belongs to another App."""


@dataclass(frozen=True)
class _Config:
    """The options of one job."""

    action: Action
    schedule: str | None = None
    description: str | None = None
    enabled: bool = True
    timezone: str | None = None
    retries: int = 0
    timeout: float | None = 60_000
    run_on_start: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any]) -> _Config:
        options = read_options(f"job {name!r}", given, (each.name for each in fields(cls)))
        if not callable(options.get("action")):
            raise TypeError(f"job {name!r} needs an action: a function of the database and the context")
        return cls(**options)

    def change(self, name: str, updates: Mapping[str, Any]) -> _Config:
        return replace(self, **read_options(f"job {name!r}", updates, (each.name for each in fields(self))))

    @property
    def retry(self) -> Retry:
        return Retry(max_attempts=self.retries + 1, base=1.0, factor=2.0, cap=5.0, jitter=0.0)

    @cached_property
    def argument_count(self) -> int:
        """How many arguments the action takes: none, the database, or the database and the context."""
        parameters = inspect.signature(self.action).parameters.values()
        if any(each.kind is each.VAR_POSITIONAL for each in parameters):
            return 2
        return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)

    async def call(self, database: Any, context: Record) -> Any:
        """Calls the action with as many arguments as it takes. A `def` function runs in a thread."""
        arguments = (database, context)[: self.argument_count]
        if inspect.iscoroutinefunction(self.action):
            return await self.action(*arguments)
        answer = await asyncio.to_thread(self.action, *arguments)
        return await answer if inspect.isawaitable(answer) else answer

    @property
    def timeout_seconds(self) -> float | None:
        return self.timeout / 1000 if self.timeout else None


class SchedulerPlugin:
    """Runs jobs by their schedules on all instances, each slot once.

    `app` is the App whose database and settings are used. Without one, the plugin uses the settings of the environment,
    and an App with the name of the module that makes the plugin. `database` is passed to the actions unchanged.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        timezone: str = "UTC",
        jobs: Mapping[str, Mapping[str, Any]] | None = None,
        max_concurrent_jobs: int = 5,
        persist_jobs: bool = True,
        history_resource: str = "job_history",
        cleanup_interval: int = 86_400_000,
        history_retention: int = 2_592_000_000,
        app: App | None = None,
        database: Any = None,
        **camel_case: Any,
    ) -> None:
        self.enabled, self.timezone, self.max_concurrent_jobs = enabled, timezone, max_concurrent_jobs
        self.persist_jobs, self.history_resource = persist_jobs, history_resource
        self.cleanup_interval, self.history_retention = cleanup_interval, history_retention
        for name, value in read_options("SchedulerPlugin", camel_case, _OPTIONS).items():
            setattr(self, name, value)
        self.database = database
        self._owns_app = app is None
        self.app = app or App()
        # A queue for this App alone, so that no other App runs its jobs. A colon would separate a weight.
        self.queue = PREFIX + self.app.name.replace(":", "%3A")
        self._jobs: dict[str, _Config] = {}
        self._tasks: dict[str, Task[..., Any]] = {}
        self._chains: dict[str, list[str]] = {}
        self._unwritten: set[str] = set()  # names of declared schedules that may not be in the database yet
        self._node: InProcessNode | None = None
        self._observers: dict[str, list[Observer]] = {event: [] for event in EVENTS}
        self._running_observers: set[asyncio.Task[Any]] = set()
        self._observe_app()
        for name, config in (jobs or {}).items():
            self._add_job(name, _Config.read(name, config))

    # -- start and stop of the scheduler

    async def start(self) -> None:
        """Starts to run jobs. With `enabled=False` no schedule fires on this instance; run_job() still works. Raises
        JobExists if a job has the name of another App's job."""
        if self._node is not None:
            return
        try:
            await self._start_node()
        except BaseException:
            await self.stop()
            raise

    async def _start_node(self) -> None:
        await asyncio.to_thread(self.app.ensure_usable)
        await self._refuse_foreign_jobs()
        node = self.app.node(concurrency=self.max_concurrent_jobs, queues=(self.queue,), scheduler=self.enabled)
        await node.__aenter__()
        self._node = node
        self._unwritten.clear()  # the node has written all declarations to the database before it was ready
        await self._refuse_foreign_jobs()  # once more, because another App may have started at the same moment

    async def stop(self) -> None:
        """Starts no further job, and returns when the running jobs have ended."""
        node, self._node = self._node, None
        if node is not None:
            await node.__aexit__()
        if self._running_observers:
            await asyncio.gather(*self._running_observers, return_exceptions=True)
        if self._owns_app:
            await self.app.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- methods that add, change, run and list jobs

    async def add_job(self, name: str, config: Mapping[str, Any]) -> None:
        """Adds a job. If the scheduler has started, the job is in the database when this call returns."""
        self._add_job(name, _Config.read(name, config))
        try:
            await self._write_declarations()
        except JobExists:
            self._forget_job(name)
            raise

    async def remove_job(self, name: str) -> None:
        """Removes a job. An execution that runs now ends as usual."""
        await self._open_job(name)
        for schedule in self._forget_job(name):
            try:
                await self.app.schedules.aremove(schedule)
            except NoSuchSchedule:
                logger.debug("Schedule %s was not in the database, so there was nothing to remove", schedule)

    async def update_job(self, name: str, updates: Mapping[str, Any]) -> None:
        """Changes some options of a job, for all instances. A new action applies to this instance only."""
        config = self._find_job(name).change(name, updates)
        before = await self._open_job(name)
        changed = [each.name for each in fields(config) if getattr(config, each.name) != getattr(before, each.name)]
        self._jobs[name] = config
        self._declare_task(name, config)
        own = self._make_rule(name, config)
        chosen = {word: own[word] for option in changed for word in _RULE_WORDS.get(option, ())}
        if chosen:
            await self.app.schedules.aupdate(name, **chosen)
        for each, members in self._chains.items():
            if name in members:
                await self.app.schedules.aupdate(each, **self._make_chain_rule(members))

    async def run_job(self, name: str) -> Any:
        """Runs a job now, and returns its result. Raises AlreadyRunning if the job runs already, and JobFailed if it
        fails."""
        await self._open_job(name)
        job = await self.app.schedules.arun_now(name, overlap="skip")
        return await job.aresult()

    async def list_jobs(self) -> list[Record]:
        """Returns the jobs of this instance, with their state in the database."""
        await self._write_declarations()
        stored = {found.name: found for found in await self._read_schedules() if found.owner == self.app.name}
        return [self._show_job(name, config, stored) for name, config in self._jobs.items()]

    async def get_job_history(
        self, name: str, options: Mapping[str, Any] | None = None, *, limit: int = 100, status: str | None = None
    ) -> list[Record]:
        """Returns the executions of a job that have ended, the latest first: all, or those with one status."""
        given = read_options("getJobHistory", options or {}, ("limit", "status"))
        limit, status = given.get("limit", limit), given.get("status", status)
        if status is not None and status not in _OUTCOMES:
            raise ValueError(f"status {status!r} is invalid: give one of {', '.join(_OUTCOMES)}")
        await self._open_job(name)
        outcome = None if status is None else _OUTCOMES[status]
        if any(name in members for members in self._chains.values()):
            return await self._read_jobs(name, outcome, limit)
        return await self._read_slots(name, outcome, limit)

    async def get_job_stats(self, name: str) -> Record:
        """Returns how the latest 100 executions of a job went."""
        history = await self.get_job_history(name, limit=STATS_EXECUTIONS)
        succeeded = [each for each in history if each["status"] in ("success", "skipped")]
        durations = [each["duration"] for each in succeeded if each["duration"] is not None]
        return Record(
            total_executions=len(history),
            successful=len(succeeded),
            failed=sum(each["status"] in ("failed", "timeout") for each in history),
            avg_duration=sum(durations) / len(durations) if durations else 0,
            last_execution=history[0]["startTime"] if history else None,
            success_rate=f"{100 * len(succeeded) / len(history):.2f}%" if history else "N/A",
        )

    async def health_check(self) -> Record:
        """Returns a summary of all jobs: a job is healthy from 95 percent successes on, and a warning from 80 percent
        on."""
        jobs = await self.list_jobs()
        status: dict[str, Record] = {}
        for job in jobs:
            stats = await self.get_job_stats(job["name"])
            status[job["name"]] = Record(
                enabled=job["enabled"],
                last_execution=stats["last_execution"],
                success_rate=stats["success_rate"],
                health=_judge_health(stats["success_rate"]),
            )
        return Record(
            timestamp=datetime.now(UTC),
            total_jobs=len(jobs),
            enabled_jobs=sum(job["enabled"] for job in jobs),
            job_status=status,
        )

    # -- methods that define and run chains of jobs

    def define_chain(self, name: str, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Defines a chain of jobs: the first job runs by its schedule, each other job when the one before it has
        succeeded. Each job is `{"name": ..., "config": {...}}`, and can also be run by itself."""
        if not jobs:
            raise ValueError(f"chain {name!r} needs at least one job")
        if name in self._chains or name in self._jobs:
            raise JobExists(f"There is a job or chain {name!r} already.", hint="Give it another name.")
        members = [str(job["name"]) for job in jobs]
        for job in jobs:
            self._add_job(job["name"], _Config.read(job["name"], job["config"]), in_chain=True)
        self._chains[name] = members
        self._declare_schedule(name, self._make_chain_rule(members))

    async def run_chain(self, name: str) -> Any:
        """Runs a chain now, waits for its last job, and returns the result of that job."""
        if name not in self._chains:
            raise NoSuchSchedule(f"There is no chain {name!r}.", hint="define_chain() makes one.")
        await self._write_declarations()
        await self._refuse_foreign_job(name)
        job = await self.app.schedules.arun_now(name, overlap="skip")
        return await job.aresult()

    # -- events, under their names in s3db.js

    def on(self, event: str, observer: Observer) -> None:
        """Registers a function, or a coroutine function, that is called with each such event on this instance."""
        if event not in self._observers:
            raise ValueError(f"there is no event {event!r}; the events are {', '.join(EVENTS)}")
        self._observers[event].append(observer)

    def _observe_app(self) -> None:
        self.app.on("job_started")(self._report_started)
        self.app.on("job_completed")(self._report_completed)
        self.app.on("job_failed")(self._report_failed)
        self.app.on("job_retry")(self._report_retry)
        self.app.on("scheduler_started")(lambda **_: self._call_observers("scheduler_started"))
        self.app.on("scheduler_stopped")(lambda **_: self._call_observers("scheduler_stopped"))

    def _report_started(self, job: Run) -> None:
        self._report_event("job_started", job)

    def _report_completed(self, job: Run, outcome: str, result: Any) -> None:
        self._report_event("job_completed", job, duration=_to_milliseconds(job.seconds), result=result)

    def _report_failed(self, job: Run, outcome: str, error: dict[str, Any] | None, final: bool) -> None:
        if final:
            self._report_event(
                "job_failed", job, duration=_to_milliseconds(job.seconds), error=(error or {}).get("message")
            )

    def _report_retry(self, job: Run, outcome: str, error: dict[str, Any] | None) -> None:
        self._report_event("job_retry", job, attempt=job.attempt, error=(error or {}).get("message"))

    def _report_event(self, event: str, job: Run, **more: Any) -> None:
        name = job.type.removeprefix(PREFIX)
        if self._observers[event] and job.type.startswith(PREFIX) and name in self._jobs:
            started = datetime.now(UTC) - timedelta(seconds=job.seconds)
            self._call_observers(event, jobName=name, startTime=started, **more)

    def _call_observers(self, event: str, **what: Any) -> None:
        for observer in self._observers[event]:
            try:
                answer = observer(Record(what))
            except Exception:
                logger.exception("An observer of the event %s failed; its error is ignored", event)
                continue
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(answer)
                self._running_observers.add(task)
                task.add_done_callback(self._log_observer_error)

    def _log_observer_error(self, task: asyncio.Future[Any]) -> None:
        self._running_observers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("An observer of a scheduler event failed; its error is ignored", exc_info=task.exception())

    # -- how a job becomes a task and a schedule

    def _add_job(self, name: str, config: _Config, *, in_chain: bool = False) -> None:
        if name in self._jobs or name in self._chains:
            raise JobExists(f"There is a job {name!r} already.", hint="update_job() changes it.")
        self._jobs[name] = config
        try:
            self._declare_task(name, config)
            rule = self._make_rule(name, config)
            if in_chain:  # the job has no schedule of its own, because that of its chain decides when it runs
                rule |= {"pattern": None, "run_on_start": False}
            self._declare_schedule(name, rule)
        except BaseException:
            del self._jobs[name]
            raise

    def _declare_task(self, name: str, config: _Config) -> None:
        """Declares the task of a job, unless that was done before. The task finds the action of its job when it runs,
        so a new action needs no new task."""
        if PREFIX + name not in self.app.tasks:

            async def run() -> Any:
                return await self._run_action(name)

            run.__qualname__ = run.__name__ = name
            self.app.task(type=PREFIX + name, queue=self.queue)(run)
        task = self.app.tasks[PREFIX + name]
        self._tasks[name] = task.using(retry=config.retry, timeout=config.timeout_seconds)

    def _declare_schedule(self, name: str, rule: dict[str, Any]) -> None:
        self.app.declare_schedule(name, rule.pop("pattern"), **rule)
        self._unwritten.add(name)

    def _make_rule(self, name: str, config: _Config) -> dict[str, Any]:
        return {
            "pattern": config.schedule,
            "tz": config.timezone or self.timezone,
            "task": self.app.tasks[PREFIX + name],
            "retry": config.retry,
            "timeout": config.timeout_seconds,
            "enabled": config.enabled,
            "description": config.description,
            "context": dict(config.context),
            "run_on_start": config.run_on_start,
            "queue": self.queue,
            "grace": LATEST_START_SECONDS,
        }

    def _make_chain_rule(self, members: list[str]) -> dict[str, Any]:
        """Returns the options of a chain's schedule, which are those of its first job. Each job of the chain keeps its
        own retries, time-out and context."""
        first = self._jobs[members[0]]
        rule = self._make_rule(members[0], first)
        del rule["retry"], rule["timeout"], rule["context"]
        flow: Flow[Any] = chain(*(self._tasks[name].bind() for name in members))
        return rule | {"task": flow}

    async def _run_action(self, name: str) -> Any:
        run, config = current_job(), self._find_job(name)
        stored = run.meta.get("context") if run.schedule == name else None
        context = Record(
            {**config.context, **(stored or {})},
            jobName=name,
            startTime=datetime.now(UTC),
            attempt=run.attempt,
            jobId=str(run.id),
        )
        result = await config.call(self.database, context)
        if isinstance(result, Mapping) and result.get("skipped"):
            raise Skip(str(result.get("reason", "")), result=dict(result))
        return result

    async def _write_declarations(self) -> None:
        """Writes jobs that were added since the start to the database. The node would do so too, but this call must not
        return before it is done."""
        if self._node is None or not self._unwritten:
            return
        names, self._unwritten = self._unwritten, set()
        declared = self.app.declared.as_json(lambda declared: declared.name in names)
        try:
            rows = await self.app.aclient.run(_declare_schedules(self._node.epoch, declared))
        except BaseException:
            self._unwritten |= names
            raise
        for name, outcome in rows:
            if outcome == "foreign":
                await self._refuse_foreign_job(name)

    async def _read_schedules(self) -> list[ScheduleRecord]:
        """Returns the schedules of the tenant `default`, where the code declares those of jobs."""
        return await self.app.schedules.alist(ScheduleFilter(tenant=DEFAULT_TENANT, limit=MAX_SCHEDULES))

    async def _refuse_foreign_jobs(self) -> None:
        """Raises if a job or chain of this instance has the name of a schedule that is not the App's own."""
        for found in await self._read_schedules():
            if found.name in self._jobs or found.name in self._chains:
                self._refuse_foreign(found)

    async def _refuse_foreign_job(self, name: str) -> None:
        with contextlib.suppress(NoSuchSchedule):
            self._refuse_foreign(await self.app.schedules.aget(name))

    def _refuse_foreign(self, found: ScheduleRecord) -> None:
        if found.owner != self.app.name:
            whose = "was added by hand" if found.owner is None else f"belongs to the App {found.owner!r}"
            raise JobExists(
                f"The schedule {found.name!r} {whose}, and this is the App {self.app.name!r}.",
                hint="Give the job another name. If it is the same program, give it app=App(name=...) with that name.",
            )

    async def _open_job(self, name: str) -> _Config:
        """Returns the options of a job of this instance, which is in the database now if the scheduler has started.
        Raises if the schedule of that name is not the App's own."""
        config = self._find_job(name)
        await self._write_declarations()
        chains = [each for each, members in self._chains.items() if name in members]
        for each in (name, *chains):
            await self._refuse_foreign_job(each)
        return config

    def _forget_job(self, name: str) -> list[str]:
        """Takes a job from this instance, with the chains that it starts. Returns the names of their schedules."""
        chains = [each for each, members in self._chains.items() if members[0] == name]
        for schedule in (name, *chains):
            self.app.withdraw_schedule(schedule)
            self._unwritten.discard(schedule)
        for each in chains:
            del self._chains[each]
        del self._jobs[name]
        return [name, *chains]

    def _find_job(self, name: str) -> _Config:
        if name not in self._jobs:
            raise NoSuchSchedule(f"There is no job {name!r}.", hint=f"The jobs are {', '.join(self._jobs) or 'none'}.")
        return self._jobs[name]

    # -- how jobs and executions are read and shown

    def _show_job(self, name: str, config: _Config, stored: Mapping[str, ScheduleRecord]) -> Record:
        found = stored.get(name)
        timing = next((stored.get(each) for each, members in self._chains.items() if members[0] == name), found)
        return Record(
            name=name,
            schedule=config.schedule if timing is None else timing.pattern,
            description=config.description if found is None else found.description,
            enabled=config.enabled if timing is None else timing.enabled,
            timezone=(config.timezone or self.timezone) if timing is None else timing.tz,
            retries=config.retries if found is None else found.max_attempts - 1,
            timeout=config.timeout if found is None else _duration_to_milliseconds(found.timeout),
            runOnStart=config.run_on_start if timing is None else timing.run_on_start,
            nextRun=None if timing is None else timing.next_run,
            lastRun=None if timing is None else timing.last_run,
        )

    @property
    def _find_oldest_shown(self) -> datetime:
        return datetime.now(UTC) - timedelta(milliseconds=self.history_retention)

    async def _read_slots(self, name: str, outcome: SlotOutcome | None, limit: int) -> list[Record]:
        """Returns the executions of a job, by its schedule or by run_job(). Slots without an execution are left out."""
        records: list[Record] = []
        before: datetime | None = None
        while len(records) < limit:
            page = await self.app.schedules.ahistory(name, before=before, outcome=outcome, limit=limit)
            kept = [slot for slot in page if slot.job_id is not None and slot.outcome in _STATUSES]
            records += [_show_slot(name, slot) for slot in kept if slot.fired_at >= self._find_oldest_shown]
            if len(page) < limit:
                break
            before = page[-1].slot
        return records[:limit]

    async def _read_jobs(self, name: str, outcome: SlotOutcome | None, limit: int) -> list[Record]:
        """Returns the executions of a job in a chain. They are read from its jobs, because the slots belong to the
        chain."""
        records: list[Record] = []
        after: UUID | None = None
        while len(records) < limit:
            wanted = JobFilter(
                state=("succeeded", "dead", "canceled"),
                type=PREFIX + name,
                queue=self.queue,
                after=after,
                limit=limit,
            )
            page = await self.app.jobs.alist(wanted)
            shown = [_show_execution(name, job) for job in page if job.created_at >= self._find_oldest_shown]
            records += [each for each in shown if outcome is None or each["status"] == _STATUSES[outcome]]
            if len(page) < limit:
                break
            after = page[-1].id
        return records[:limit]

    addJob, removeJob, updateJob, runJob, listJobs = add_job, remove_job, update_job, run_job, list_jobs  # noqa: N815
    getJobHistory, getJobStats, healthCheck = get_job_history, get_job_stats, health_check  # noqa: N815
    defineChain, runChain = define_chain, run_chain  # noqa: N815


_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(SchedulerPlugin).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("app", "database", "jobs")
)
# The option of a job -> the name of the same option in a schedule.
_RULE_WORDS = {
    "schedule": ("pattern",), "timezone": ("tz",), "retries": ("retry",), "timeout": ("timeout",),
    "enabled": ("enabled",), "description": ("description",), "context": ("context",),
    "run_on_start": ("run_on_start",),
}  # fmt: skip


def _declare_schedules(epoch: int, declared: bytes) -> Operation[list[tuple[str, str]]]:
    rows = yield Statement("declare_schedules", (epoch, declared.decode()), (str, str))
    return [(name, outcome) for name, outcome in rows]


def _show_slot(name: str, slot: SlotRecord) -> Record:
    return Record(
        jobName=name,
        status=_STATUSES[str(slot.outcome)],
        startTime=slot.started_at or slot.fired_at,
        started_at=slot.started_at or slot.fired_at,
        endTime=slot.finished_at,
        duration=_duration_to_milliseconds(slot.duration),
        result=slot.result,
        error=slot.error if slot.outcome != "skipped" else None,
        reason=slot.reason,
        retryCount=max(0, (slot.attempt or 1) - 1),
        instanceId=slot.node,
    )


def _show_execution(name: str, job: JobRecord) -> Record:
    outcome = "succeeded" if job.outcome is None and job.state == "succeeded" else job.outcome or "failed"
    error = job.error or {}
    duration = job.finished_at - job.started_at if job.finished_at and job.started_at else None
    return Record(
        jobName=name,
        status=_STATUSES.get(outcome, "failed"),
        startTime=job.started_at or job.created_at,
        started_at=job.started_at or job.created_at,
        endTime=job.finished_at,
        duration=_duration_to_milliseconds(duration),
        result=job.result,
        error=None if outcome in ("succeeded", "skipped") else error.get("message"),
        reason=error.get("message") if outcome == "skipped" else None,
        retryCount=max(0, job.attempt - 1),
        instanceId=job.holder,
    )


def _to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _duration_to_milliseconds(value: timedelta | None) -> float | None:
    return None if value is None else _to_milliseconds(value.total_seconds())


def _judge_health(success_rate: str) -> str:
    if success_rate == "N/A":
        return "unknown"
    rate = float(success_rate.rstrip("%"))
    return "healthy" if rate >= 95 else "warning" if rate >= 80 else "unhealthy"
