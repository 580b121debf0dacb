"""Cells: several installations that one App uses. A job lives in one cell, and its tenant decides in which.

The producer of an App with cells hands each call to the producer of one cell, which is an ordinary producer with a
runtime of its own. A call names the cell itself (`using(cell=...)`, `app.cell(...)`), or its tenant does. In a worker
it is the cell of the worker, unless the call is for another tenant.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from watchbill.app.flows import Flow, choose_connection, flatten, make_new_jobs
from watchbill.app.job import Job, ResultDecoder
from watchbill.app.job_options import JobOptions
from watchbill.app.producer import JobProducer, choose_rules
from watchbill.app.task import Call
from watchbill.client.job_operations import NoSuchJob, get
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.model.cell import acting_cell, home_cell
from watchbill.model.job import JobRecord, NewJob
from watchbill.model.tenant import DEFAULT_TENANT
from watchbill.store.refusals import TenantMoved
from watchbill.telemetry.context import current
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.settings import Settings

R = TypeVar("R")
MOVE_PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.5)  # while a tenant moves


class NoCell(WatchbillError):
    """It is not known to which cell a call goes, or there is no such cell."""

    exit_code = 2


class Cells:
    """The producers of an App's cells, made at first use."""

    def __init__(
        self,
        producer: JobProducer,
        settings: Settings,
        make_producer: Callable[[str], JobProducer],
        find_cell: Callable[[str], str | None] | None,
    ) -> None:
        self._producer, self._settings = producer, settings
        self._make_producer, self._find_cell = make_producer, find_cell
        self.names = tuple(cell.name for cell in settings.cells)
        self._made: dict[str, JobProducer] = {}

    def __getitem__(self, name: str) -> JobProducer:
        found = self._made.get(name)
        if found is None:
            if name not in self.names:
                raise NoCell(f"There is no cell {name!r}.", hint=f"Cells are: {', '.join(self.names)}.")
            found = self._made.setdefault(name, self._make_producer(name))
        return found

    @property
    def opened(self) -> Iterable[JobProducer]:
        return self._made.values()

    def choose(self, cell: str | None = None, tenant: str | None = None) -> JobProducer:
        """The producer of the cell that the call names, or its tenant, or this process."""
        found = self.find(cell, tenant)
        if found is None:
            raise NoCell(
                "This call names neither a cell nor a tenant, so it is not known where it goes.",
                hint=f"Name one: task.using(cell=...), with app.cell(...), or with app.tenant(...) if the App has "
                f"cell_from. Cells are: {', '.join(self.names)}.",
            )
        return found

    def find(self, cell: str | None = None, tenant: str | None = None) -> JobProducer | None:
        name = cell or acting_cell.get() or self._find_by_tenant(tenant or self._producer.find_tenant())
        return None if name is None else self[name]

    def _find_by_tenant(self, tenant: str | None) -> str | None:
        home = home_cell.get() or self._settings.cell
        if tenant is None or tenant == DEFAULT_TENANT or self._find_cell is None:
            return home
        running = current.get()
        if home is not None and isinstance(running, Run) and running.tenant == tenant:
            return home
        return self._find_cell(tenant) or home

    def find_of_schedule(self, cell: str | None, tenant: str) -> str:
        """The cell in which a schedule is declared: the one that it names, that of its tenant, or the first."""
        if cell is None and tenant != DEFAULT_TENANT and self._find_cell is not None:
            cell = self._find_cell(tenant)
        return cell or self.names[0]

    # -- These methods enqueue jobs, each call in one cell. A call that was refused because the tenant moves is repeated
    # with the same ids: a cell may have stored the jobs, its reply was lost, and they have moved with the tenant.

    def send(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]:
        def send(to: JobProducer, is_repeated: bool) -> Job[R]:
            return to.send(job, replace(options, id=job.id) if is_repeated else options, task)

        return self._follow(self._choose_for([options]), options.connection, send)

    async def asend(self, job: NewJob, options: JobOptions, task: ResultDecoder[R] | None) -> Job[R]:
        def send(to: JobProducer, is_repeated: bool) -> Awaitable[Job[R]]:
            return to.asend(job, replace(options, id=job.id) if is_repeated else options, task)

        return await self._afollow(self._choose_for([options]), options.connection, send)

    def send_many(self, steps: Iterable[Call[R] | Flow[R]], connection: Any) -> list[Job[R]]:
        if not (calls := flatten(steps)):
            return []
        tasks = {call.task for call in calls}
        connection, rules, jobs = choose_connection(tasks, connection), choose_rules(tasks), make_new_jobs(calls)

        def send(to: JobProducer, is_repeated: bool) -> list[Job[R]]:
            return to.send_made(calls, jobs, connection, rules._replace(new_ids=rules.new_ids and not is_repeated))

        return self._follow(self._choose_for([task.options for task in tasks]), connection, send)

    async def asend_many(self, steps: Iterable[Call[R] | Flow[R]], connection: Any) -> list[Job[R]]:
        if not (calls := flatten(steps)):
            return []
        tasks = {call.task for call in calls}
        connection, rules, jobs = choose_connection(tasks, connection), choose_rules(tasks), make_new_jobs(calls)

        def send(to: JobProducer, is_repeated: bool) -> Awaitable[list[Job[R]]]:
            return to.asend_made(calls, jobs, connection, rules._replace(new_ids=rules.new_ids and not is_repeated))

        return await self._afollow(self._choose_for([task.options for task in tasks]), connection, send)

    def _choose_for(self, options: Sequence[JobOptions]) -> JobProducer:
        found = {self.choose(each.cell, _own_tenant(each)) for each in options}
        cells = {each.cell for each in found}
        cells |= {job.cell for each in options for job in each.depends_on if isinstance(job, Job)}
        if len(cells) > 1:
            raise NoCell(
                f"One call cannot span cells {' and '.join(sorted(str(cell) for cell in cells))}.",
                hint="Enqueue the jobs of each cell with a call of their own; depends_on names jobs of the same cell.",
            )
        return next(iter(found))

    def _follow(self, here: JobProducer, connection: Any, send: Callable[[JobProducer, bool], R]) -> R:
        tries = _Tries(self, here, self._settings.client_timeout)
        while True:
            try:
                return send(tries.here, tries.is_repeated)
            except TenantMoved as moved:
                if connection is not None:  # the caller's transaction has failed
                    raise
                time.sleep(tries.note(moved))

    async def _afollow(
        self, here: JobProducer, connection: Any, send: Callable[[JobProducer, bool], Awaitable[R]]
    ) -> R:
        tries = _Tries(self, here, self._settings.client_timeout)
        while True:
            try:
                return await send(tries.here, tries.is_repeated)
            except TenantMoved as moved:
                if connection is not None:
                    raise
                await asyncio.sleep(tries.note(moved))

    # -- A job whose cell is not known is looked for in all of them at once.

    def find_job(self, id: UUID) -> JobRecord:
        with ThreadPoolExecutor(len(self.names), "watchbill-cells") as pool:
            context = [copy_context() for _ in self.names]
            asked = [
                pool.submit(each.run, _ask, lambda name=name: self[name].run_apart(get(id)))
                for name, each in zip(self.names, context, strict=True)
            ]
            return self._choose_answer(id, [each.result() for each in asked])

    async def afind_job(self, id: UUID) -> JobRecord:
        return self._choose_answer(
            id, await asyncio.gather(*(_aask(self[name].arun_apart(get(id))) for name in self.names))
        )

    def _choose_answer(self, id: UUID, answers: Sequence[JobRecord | WatchbillError]) -> JobRecord:
        for answer in answers:
            if isinstance(answer, JobRecord):
                return answer
        for name, answer in zip(self.names, answers, strict=True):
            if not isinstance(answer, NoSuchJob):
                raise NoDatabase(f"Job {id} is in none of the other cells, and cell {name} cannot say: {answer}")
        raise answers[0]  # type: ignore[misc]


class _Tries:
    """Where to send what a cell has refused because the tenant moves: once to the cell that it names, and again after a
    pause while the move is under way."""

    def __init__(self, cells: Cells, here: JobProducer, timeout: float) -> None:
        self.here, self.is_repeated = here, False
        self._cells, self._gives_up_at = cells, time.monotonic() + timeout
        self._followed = False
        self._pauses = 0

    def note(self, moved: TenantMoved) -> float:
        """Returns the seconds until the next try. Raises the error if there is none."""
        self.is_repeated = True
        if moved.cell is not None:
            if self._followed or moved.cell not in self._cells.names:
                raise moved
            self._followed, self.here = True, self._cells[moved.cell]
            return 0.0
        if time.monotonic() >= self._gives_up_at:
            raise moved
        self._pauses += 1
        return random.uniform(0.6, 1) * MOVE_PAUSES_SECONDS[min(self._pauses, len(MOVE_PAUSES_SECONDS) - 1)]  # noqa: S311


def _own_tenant(options: JobOptions) -> str | None:
    return None if options.tenant == DEFAULT_TENANT else options.tenant


def _ask(run: Callable[[], JobRecord]) -> JobRecord | WatchbillError:
    try:
        return run()
    except WatchbillError as error:
        return error


async def _aask(asked: Awaitable[JobRecord]) -> JobRecord | WatchbillError:
    try:
        return await asked
    except WatchbillError as error:
        return error
