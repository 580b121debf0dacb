"""app.jobs, app.queues, app.cluster: looking at jobs and acting on them, each call with its `a`-twin."""

from __future__ import annotations

import builtins
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Unpack
from uuid import UUID

from watchbill.client import plans, plans_families
from watchbill.model.family import Family
from watchbill.model.job import AttemptRecord, JobConditions, JobFilter, JobRecord, NodeRecord, Pause, QueueCount
from watchbill.telemetry.events import tell_canceled

if TYPE_CHECKING:
    from watchbill.app.application import App


class Jobs:
    """Single jobs and lists of them."""

    def __init__(self, app: App) -> None:
        self._app = app

    def get(self, id: UUID) -> JobRecord:
        """The job as it stands. Raises NoSuchJob."""
        return self._app.run(plans.get(id))

    async def aget(self, id: UUID) -> JobRecord:
        return await self._app.arun(plans.get(id))

    def list(self, wanted: JobFilter | None = None, **conditions: Unpack[JobConditions]) -> builtins.list[JobRecord]:
        """Newest first: `list(state="dead", queue="mail")`, or a JobFilter. The next page is `after=` the last id."""
        return self._app.run(plans.find(replace(wanted or JobFilter(), **conditions)))

    async def alist(
        self, wanted: JobFilter | None = None, **conditions: Unpack[JobConditions]
    ) -> builtins.list[JobRecord]:
        return await self._app.arun(plans.find(replace(wanted or JobFilter(), **conditions)))

    def attempts(self, id: UUID) -> builtins.list[AttemptRecord]:
        """Its attempts so far, except a first one that succeeded."""
        return self._app.run(plans.attempts(id))

    async def aattempts(self, id: UUID) -> builtins.list[AttemptRecord]:
        return await self._app.arun(plans.attempts(id))

    def cancel(self, id: UUID, *, reason: str | None = None, force: bool = False) -> str:
        """The state it is in afterwards; `running`: it was asked to stop."""
        return self._app.run(plans.cancel(id, reason=reason, force=force, tell=self._tell_canceled))

    async def acancel(self, id: UUID, *, reason: str | None = None, force: bool = False) -> str:
        return await self._app.arun(plans.cancel(id, reason=reason, force=force, tell=self._tell_canceled))

    def _tell_canceled(self, id: UUID) -> None:
        tell_canceled(self._app.events, id)

    def retry(self, id: UUID, *, run_at: datetime | None = None) -> str:
        """Reschedules it with fresh attempts; the state it was in."""
        return self._app.run(plans.retry(id, run_at=run_at))

    async def aretry(self, id: UUID, *, run_at: datetime | None = None) -> str:
        return await self._app.arun(plans.retry(id, run_at=run_at))

    def family(self, id: UUID) -> Family:
        """It, what it waits for and what waits for it, however far away, and how they are connected."""
        return self._app.run(plans_families.family(id))

    async def afamily(self, id: UUID) -> Family:
        return await self._app.arun(plans_families.family(id))

    def release(self, id: UUID) -> bool:
        """Takes a running job away from its node and queues it again; one that was asked to stop is canceled by it."""
        return self._app.run(plans.release(id, tell=self._tell_canceled))

    async def arelease(self, id: UUID) -> bool:
        return await self._app.arun(plans.release(id, tell=self._tell_canceled))


class Queues:
    """Queues and types: how much there is, and whether it runs."""

    def __init__(self, app: App) -> None:
        self._app = app

    def stats(self) -> list[QueueCount]:
        """How many jobs there are by queue and state, and since when the oldest waits."""
        return self._app.run(plans.stats())

    async def astats(self) -> list[QueueCount]:
        return await self._app.arun(plans.stats())

    def pause(self, queue: str | None = None, *, type: str | None = None, reason: str | None = None) -> bool:
        """Nothing of it is started until resume; False when it was paused already."""
        return self._app.run(plans.pause(queue=queue, type=type, reason=reason))

    async def apause(self, queue: str | None = None, *, type: str | None = None, reason: str | None = None) -> bool:
        return await self._app.arun(plans.pause(queue=queue, type=type, reason=reason))

    def resume(self, queue: str | None = None, *, type: str | None = None) -> bool:
        """Starts them again; False when it was not paused."""
        return self._app.run(plans.resume(queue=queue, type=type))

    async def aresume(self, queue: str | None = None, *, type: str | None = None) -> bool:
        return await self._app.arun(plans.resume(queue=queue, type=type))

    def pauses(self) -> list[Pause]:
        """What is paused, by whom, and why."""
        return self._app.run(plans.pauses())

    async def apauses(self) -> list[Pause]:
        return await self._app.arun(plans.pauses())


class Cluster:
    """The nodes."""

    def __init__(self, app: App) -> None:
        self._app = app

    def nodes(self, *, gone: bool = False) -> list[NodeRecord]:
        """Those that live; with `gone` also those that have left or were lost."""
        return self._app.run(plans.nodes(gone=gone))

    async def anodes(self, *, gone: bool = False) -> list[NodeRecord]:
        return await self._app.arun(plans.nodes(gone=gone))

    def drain(self, name: str) -> bool:
        """Asks a node to finish what it runs and stop; False when no such node is active."""
        return self._app.run(plans.drain(name))

    async def adrain(self, name: str) -> bool:
        return await self._app.arun(plans.drain(name))
