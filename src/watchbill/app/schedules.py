"""app.schedules: writing schedules, looking at them and acting on them, each call with its `a`-twin.

`connection=` makes a call part of the caller's own transaction, as it does for enqueue.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from watchbill.app.job import FlowJob, Job, OperationRunner
from watchbill.app.schedule_definition import Changes, Definition, Rule, check_arguments, define, redefine
from watchbill.app.task import Task
from watchbill.client import schedule_operations
from watchbill.client.operations import Operation
from watchbill.model.schedule import (
    FLOW,
    Overlap,
    Reason,
    ScheduleFilter,
    ScheduleMetrics,
    ScheduleRecord,
    ScheduleStats,
    SlotOutcome,
    SlotRecord,
)
from watchbill.model.tenant import DEFAULT_TENANT


class Schedules:
    """Schedules in the database. Those that the code declares are written when a node starts.

    Without `tenant=` a call is about the schedules of the tenant for which it acts: that of `app.tenant(...)`, of the
    request or of the running job, or else `default`.
    """

    def __init__(self, runner: OperationRunner, tasks: Mapping[str, Task[..., Any]], tz: str | None = None) -> None:
        self._runner, self._tasks, self._tz = runner, tasks, tz

    def add(
        self,
        name: str,
        pattern: str | None = None,
        *,
        tenant: str | None = None,
        connection: Any = None,
        **rule: Unpack[Rule],
    ) -> ScheduleRecord:
        """Adds a schedule: a pattern, `every=`, `at=` or none of them (on demand), and `task=` or `command=`."""
        return self._runner.run(self._add(name, pattern, self._owner(tenant), rule), connection)

    async def aadd(
        self,
        name: str,
        pattern: str | None = None,
        *,
        tenant: str | None = None,
        connection: Any = None,
        **rule: Unpack[Rule],
    ) -> ScheduleRecord:
        return await self._runner.arun(self._add(name, pattern, self._owner(tenant), rule), connection)

    def update(
        self, name: str, *, tenant: str | None = None, connection: Any = None, **changes: Unpack[Changes]
    ) -> ScheduleRecord:
        """Changes the given options and leaves the rest; None resets an option to its default. Takes effect at once."""
        return self._runner.run(self._update(name, self._owner(tenant), changes), connection)

    async def aupdate(
        self, name: str, *, tenant: str | None = None, connection: Any = None, **changes: Unpack[Changes]
    ) -> ScheduleRecord:
        return await self._runner.arun(self._update(name, self._owner(tenant), changes), connection)

    def remove(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        """Removes a schedule; its jobs and history stay. One that the code declares returns with the next node."""
        self._runner.run(schedule_operations.remove(name, self._owner(tenant)), connection)

    async def aremove(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        await self._runner.arun(schedule_operations.remove(name, self._owner(tenant)), connection)

    def enable(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        """Enables a schedule: it fires again, from the next slot on."""
        self._runner.run(schedule_operations.enable(name, self._owner(tenant)), connection)

    async def aenable(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        await self._runner.arun(schedule_operations.enable(name, self._owner(tenant)), connection)

    def disable(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        """Disables a schedule: it does not fire until it is enabled; slots in between are skipped."""
        self._runner.run(schedule_operations.disable(name, self._owner(tenant)), connection)

    async def adisable(self, name: str, *, tenant: str | None = None, connection: Any = None) -> None:
        await self._runner.arun(schedule_operations.disable(name, self._owner(tenant)), connection)

    def run_now(
        self,
        name: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        overlap: Overlap = "allow",
        tenant: str | None = None,
        connection: Any = None,
    ) -> Job[Any]:
        """Makes a job now, without a slot, even if the schedule is disabled; with its own arguments, unless given.
        `overlap` says what to do while an earlier job has not ended: with "skip" it raises AlreadyRunning."""
        return self._runner.run(self._run_now(name, arguments, overlap, self._owner(tenant), connection), connection)

    async def arun_now(
        self,
        name: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        overlap: Overlap = "allow",
        tenant: str | None = None,
        connection: Any = None,
    ) -> Job[Any]:
        return await self._runner.arun(
            self._run_now(name, arguments, overlap, self._owner(tenant), connection), connection
        )

    def get(self, name: str, *, tenant: str | None = None, connection: Any = None) -> ScheduleRecord:
        """Reads a schedule as it is now."""
        return self._runner.run(schedule_operations.get(name, self._owner(tenant)), connection)

    async def aget(self, name: str, *, tenant: str | None = None, connection: Any = None) -> ScheduleRecord:
        return await self._runner.arun(schedule_operations.get(name, self._owner(tenant)), connection)

    def list(self, wanted: ScheduleFilter | None = None, *, connection: Any = None) -> builtins.list[ScheduleRecord]:
        """Schedules by name; for the next page give the last name: ScheduleFilter(after=...)."""
        return self._runner.run(schedule_operations.find(wanted or ScheduleFilter()), connection)

    async def alist(
        self, wanted: ScheduleFilter | None = None, *, connection: Any = None
    ) -> builtins.list[ScheduleRecord]:
        return await self._runner.arun(schedule_operations.find(wanted or ScheduleFilter()), connection)

    def history(
        self,
        name: str,
        *,
        before: datetime | None = None,
        outcome: SlotOutcome | None = None,
        limit: int = 50,
        tenant: str | None = None,
        connection: Any = None,
    ) -> builtins.list[SlotRecord]:
        """Its slots, the latest first, all or those with one outcome; the next page is `before=` the last one."""
        return self._runner.run(
            schedule_operations.history(name, before, limit, self._owner(tenant), outcome), connection
        )

    async def ahistory(
        self,
        name: str,
        *,
        before: datetime | None = None,
        outcome: SlotOutcome | None = None,
        limit: int = 50,
        tenant: str | None = None,
        connection: Any = None,
    ) -> builtins.list[SlotRecord]:
        return await self._runner.arun(
            schedule_operations.history(name, before, limit, self._owner(tenant), outcome), connection
        )

    def preview(
        self, name: str, count: int = 10, *, tenant: str | None = None, connection: Any = None
    ) -> builtins.list[datetime]:
        """Its next slots, in its own zone; also if it is disabled."""
        return self._runner.run(schedule_operations.preview(name, count, self._owner(tenant)), connection)

    async def apreview(
        self, name: str, count: int = 10, *, tenant: str | None = None, connection: Any = None
    ) -> builtins.list[datetime]:
        return await self._runner.arun(schedule_operations.preview(name, count, self._owner(tenant)), connection)

    def why(self, name: str, *, tenant: str | None = None, connection: Any = None) -> builtins.list[Reason]:
        """Why it does not fire, the decisive reason first; or when it will."""
        return self._runner.run(schedule_operations.why(name, self._owner(tenant)), connection)

    async def awhy(self, name: str, *, tenant: str | None = None, connection: Any = None) -> builtins.list[Reason]:
        return await self._runner.arun(schedule_operations.why(name, self._owner(tenant)), connection)

    def metrics(
        self, name: str, since: datetime | None = None, *, tenant: str | None = None, connection: Any = None
    ) -> ScheduleMetrics:
        """How its runs went since that instant, or as far as history goes: success rate, durations and health."""
        return self._runner.run(schedule_operations.metrics(name, since, self._owner(tenant)), connection)

    async def ametrics(
        self, name: str, since: datetime | None = None, *, tenant: str | None = None, connection: Any = None
    ) -> ScheduleMetrics:
        return await self._runner.arun(schedule_operations.metrics(name, since, self._owner(tenant)), connection)

    def stats(self, *, connection: Any = None) -> ScheduleStats:
        """How many schedules there are, how many are due, late, orphaned or overdue, and when the next is due."""
        return self._runner.run(schedule_operations.stats(), connection)

    async def astats(self, *, connection: Any = None) -> ScheduleStats:
        return await self._runner.arun(schedule_operations.stats(), connection)

    # -- These methods make the operations.

    def _owner(self, tenant: str | None) -> str:
        return tenant or self._runner.find_tenant() or DEFAULT_TENANT

    def _add(self, name: str, pattern: str | None, tenant: str, rule: Rule) -> Operation[ScheduleRecord]:
        definition = define(name, pattern, rule, self._tasks.get, tenant, self._tz)
        yield from self._ensure_known(definition)
        return (yield from schedule_operations.add(definition))

    def _update(self, name: str, tenant: str, changes: Changes) -> Operation[ScheduleRecord]:
        definition = redefine(name, changes, self._tasks.get, self._tz)
        if changes.get("arguments") is not None and "task" not in changes:
            definition["payload"] = yield from self._payload(name, changes["arguments"], tenant)
        yield from self._ensure_known(definition)
        return (yield from schedule_operations.update(name, definition, tenant))

    def _run_now(
        self, name: str, arguments: Mapping[str, Any] | None, overlap: Overlap, tenant: str, connection: Any
    ) -> Operation[Job[Any]]:
        found = yield from schedule_operations.get(name, tenant)
        payload = None if arguments is None else (yield from self._payload(name, arguments, tenant))
        job = yield from schedule_operations.run_now(name, payload, tenant, overlap)
        kind, task = Job[Any], self._tasks.get(found.type or "")
        if found.type == FLOW:
            kind, task = FlowJob[Any], self._find_last_task(found.payload)
        return kind(self._runner, task, job, self._runner.is_in_transaction(connection))

    def _find_last_task(self, flow: Mapping[str, Any]) -> Task[..., Any] | None:
        """The task whose result is that of the whole flow; None if there are several, or it is unknown here."""
        ends = flow["ends"]
        return self._tasks.get(flow["jobs"][ends[0]]["type"]) if len(ends) == 1 else None

    def _payload(self, name: str, arguments: Mapping[str, Any], tenant: str) -> Operation[Definition]:
        return check_arguments((yield from schedule_operations.get(name, tenant)), self._tasks.get, arguments)

    def _ensure_known(self, definition: Definition) -> Operation[None]:
        wanted = definition.get("type")
        if wanted is not None and wanted != FLOW and wanted not in self._tasks:
            yield from schedule_operations.ensure_known(wanted)
