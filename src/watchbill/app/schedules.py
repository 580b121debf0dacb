"""app.schedules: writing schedules, looking at them and acting on them, each call with its `a`-twin."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from watchbill.app.handle import Job
from watchbill.app.rules import Changes, Definition, Rule, define, payload_of, redefine
from watchbill.client import plans_schedules as plans
from watchbill.client.plans import Plan
from watchbill.model.job import Enqueued
from watchbill.model.schedule import FLOW, Reason, ScheduleFilter, ScheduleRecord, ScheduleStats, SlotRecord

if TYPE_CHECKING:
    from watchbill.app.application import App


class Schedules:
    """Schedules in the database, whoever wrote them. Those that the code declares are written when a node starts."""

    def __init__(self, app: App) -> None:
        self._app = app

    def add(
        self, name: str, pattern: str | None = None, *, tenant: str = "default", **rule: Unpack[Rule]
    ) -> ScheduleRecord:
        """A new one: a pattern, `every=`, `at=` or none of them (on demand), and `task=` or `command=`."""
        return self._app.run(self._adding(name, pattern, tenant, rule))

    async def aadd(
        self, name: str, pattern: str | None = None, *, tenant: str = "default", **rule: Unpack[Rule]
    ) -> ScheduleRecord:
        return await self._app.arun(self._adding(name, pattern, tenant, rule))

    def update(self, name: str, *, tenant: str = "default", **changes: Unpack[Changes]) -> ScheduleRecord:
        """Changes what is given and leaves the rest; None puts an option's default back. Takes effect at once."""
        return self._app.run(self._updating(name, tenant, changes))

    async def aupdate(self, name: str, *, tenant: str = "default", **changes: Unpack[Changes]) -> ScheduleRecord:
        return await self._app.arun(self._updating(name, tenant, changes))

    def remove(self, name: str, *, tenant: str = "default") -> None:
        """Its jobs and its history stay. One that the code declares comes back with the next node that starts."""
        self._app.run(plans.remove(name, tenant))

    async def aremove(self, name: str, *, tenant: str = "default") -> None:
        await self._app.arun(plans.remove(name, tenant))

    def enable(self, name: str, *, tenant: str = "default") -> None:
        """It fires again, from the next slot on."""
        self._app.run(plans.enable(name, tenant))

    async def aenable(self, name: str, *, tenant: str = "default") -> None:
        await self._app.arun(plans.enable(name, tenant))

    def disable(self, name: str, *, tenant: str = "default") -> None:
        """It fires no more until it is enabled; slots meanwhile are not made up for."""
        self._app.run(plans.disable(name, tenant))

    async def adisable(self, name: str, *, tenant: str = "default") -> None:
        await self._app.arun(plans.disable(name, tenant))

    def run_now(self, name: str, *, arguments: Mapping[str, Any] | None = None, tenant: str = "default") -> Job[Any]:
        """A job of it, now and without a slot, also when it is disabled; with its own arguments, unless given."""
        return self._app.run(self._running(name, arguments, tenant))

    async def arun_now(
        self, name: str, *, arguments: Mapping[str, Any] | None = None, tenant: str = "default"
    ) -> Job[Any]:
        return await self._app.arun(self._running(name, arguments, tenant))

    def get(self, name: str, *, tenant: str = "default") -> ScheduleRecord:
        """The schedule as it stands."""
        return self._app.run(plans.get(name, tenant))

    async def aget(self, name: str, *, tenant: str = "default") -> ScheduleRecord:
        return await self._app.arun(plans.get(name, tenant))

    def list(self, wanted: ScheduleFilter = ScheduleFilter()) -> builtins.list[ScheduleRecord]:  # noqa: B008
        """By name; the next page comes after the last one: ScheduleFilter(after=...)."""
        return self._app.run(plans.find(wanted))

    async def alist(self, wanted: ScheduleFilter = ScheduleFilter()) -> builtins.list[ScheduleRecord]:  # noqa: B008
        return await self._app.arun(plans.find(wanted))

    def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50, tenant: str = "default"
    ) -> builtins.list[SlotRecord]:
        """What became of its slots, the latest first; the next page lies before the last one."""
        return self._app.run(plans.history(name, before, limit, tenant))

    async def ahistory(
        self, name: str, *, before: datetime | None = None, limit: int = 50, tenant: str = "default"
    ) -> builtins.list[SlotRecord]:
        return await self._app.arun(plans.history(name, before, limit, tenant))

    def preview(self, name: str, count: int = 10, *, tenant: str = "default") -> builtins.list[datetime]:
        """Its next slots, in its own zone, also of a disabled one."""
        return self._app.run(plans.preview(name, count, tenant))

    async def apreview(self, name: str, count: int = 10, *, tenant: str = "default") -> builtins.list[datetime]:
        return await self._app.arun(plans.preview(name, count, tenant))

    def why(self, name: str, *, tenant: str = "default") -> builtins.list[Reason]:
        """Why it does not fire, all that hold, the decisive one first; or when it will."""
        return self._app.run(plans.why(name, tenant))

    async def awhy(self, name: str, *, tenant: str = "default") -> builtins.list[Reason]:
        return await self._app.arun(plans.why(name, tenant))

    def stats(self) -> ScheduleStats:
        """How many there are, how many are due, late, orphaned or overdue, and when the next is due."""
        return self._app.run(plans.stats())

    async def astats(self) -> ScheduleStats:
        return await self._app.arun(plans.stats())

    # -- without colour

    def _adding(self, name: str, pattern: str | None, tenant: str, rule: Rule) -> Plan[ScheduleRecord]:
        definition = define(name, pattern, rule, self._app.tasks.get, tenant)
        yield from self._ensure_known(definition)
        return (yield from plans.add(definition))

    def _updating(self, name: str, tenant: str, changes: Changes) -> Plan[ScheduleRecord]:
        definition = redefine(name, changes, self._app.tasks.get)
        if changes.get("arguments") is not None and "task" not in changes:
            definition["payload"] = yield from self._payload(name, changes["arguments"], tenant)
        yield from self._ensure_known(definition)
        return (yield from plans.update(name, definition, tenant))

    def _running(self, name: str, arguments: Mapping[str, Any] | None, tenant: str) -> Plan[Job[Any]]:
        task = self._app.tasks.get((yield from plans.get(name, tenant)).type or "")
        payload = None if arguments is None else (yield from self._payload(name, arguments, tenant))
        job = yield from plans.run_now(name, payload, tenant)
        return Job(self._app, task, Enqueued(job, 0, True, False))

    def _payload(self, name: str, arguments: Mapping[str, Any], tenant: str) -> Plan[Definition]:
        return payload_of((yield from plans.get(name, tenant)), self._app.tasks.get, arguments)

    def _ensure_known(self, definition: Definition) -> Plan[None]:
        wanted = definition.get("type")
        if wanted is not None and wanted != FLOW and wanted not in self._app.tasks:
            yield from plans.ensure_known(wanted)
