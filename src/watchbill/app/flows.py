"""Several jobs as one: `chain(...)` one after the other, `group(...)` side by side, and both inside each other.

A flow is a set of calls, each of which names the calls it waits for (`depends_on`). It is enqueued in one transaction:
all of its jobs or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import orjson

from watchbill.app.bound_results import BoundResult
from watchbill.app.job import Job
from watchbill.app.job_options import JobOptionsDict, refuse_unsent, stored_id
from watchbill.app.task import Call, Task
from watchbill.client.operations import as_object
from watchbill.model.dependency_graph import RunIf
from watchbill.model.ids import new_ids
from watchbill.model.job import AlikeJobs, NewJob

R = TypeVar("R", covariant=True)


class Flow(Generic[R]):
    """Calls that are not sent yet. `first_calls` wait for no other call of the flow; the next step of a chain waits for
    its `last_calls`."""

    def __init__(
        self, calls: tuple[Call[Any], ...], first_calls: tuple[Call[Any], ...], last_calls: tuple[Call[Any], ...]
    ) -> None:
        self.calls, self.first_calls, self.last_calls = calls, first_calls, last_calls

    def __repr__(self) -> str:
        return f"<Flow of {len(self.calls)} job{'' if len(self.calls) == 1 else 's'}>"

    @property
    def results(self) -> list[R]:
        """The results of its last calls, as an argument of another call: `total.bind(parts=flow.results)`."""
        return cast("list[R]", BoundResult(self.last_calls, is_list=True))

    def on_failure(self, alternative: Call[Any] | Flow[Any]) -> Flow[R]:
        """Adds an alternative that runs when this flow fails, and is skipped when it succeeds."""
        other = _to_flow(alternative).after(self.last_calls, "any_failed")
        return Flow(self.calls + other.calls, self.first_calls, self.last_calls)

    def enqueue(self, *, connection: Any = None) -> list[Job[R]]:
        """Stores all its jobs in one transaction. They are in the order in which their calls were named."""
        return self.calls[0].task.producer.send_many(self.calls, connection=connection)

    async def aenqueue(self, *, connection: Any = None) -> list[Job[R]]:
        return await self.calls[0].task.producer.asend_many(self.calls, connection=connection)

    def definition(self) -> list[dict[str, Any]]:
        """What the SQL function enqueue_many takes, without ids, so that each use of it makes new jobs."""
        jobs = make_new_jobs(self.calls)
        places = {job.id: place for place, job in enumerate(jobs)}
        objects: list[dict[str, Any]] = orjson.loads(orjson.dumps([as_object(job) for job in jobs]))
        for job, each in zip(jobs, objects, strict=True):
            del each["id"]
            if job.depends_on:
                each["depends_on"] = [places.get(parent, str(parent)) for parent in job.depends_on]
            if job.results:
                texts = {str(parent): place for parent, place in places.items()}
                each["results"] = {
                    name: [texts.get(one, one) for one in given] if isinstance(given, list) else texts.get(given, given)
                    for name, given in job.results.items()
                }
        return objects

    def after(self, parents: tuple[Call[Any], ...], run_if: RunIf | None = None) -> Flow[R]:
        """A copy of this flow that waits for these parents. Calls refer to each other, so a call is copied if one
        that it waits for is."""
        first_calls, changed = {id(call) for call in self.first_calls}, dict[int, Call[Any]]()
        for call in self.calls:
            before = call.task.options.depends_on
            waits = tuple(changed.get(id(parent), parent) for parent in before)
            if id(call) in first_calls:
                changed[id(call)] = _wait_for(call, waits + parents, run_if)
            else:
                changed[id(call)] = call if waits == before else _wait_for(call, waits, None)
        calls, first, last = (
            tuple(changed[id(call)] for call in part) for part in (self.calls, self.first_calls, self.last_calls)
        )
        return Flow(calls, first, last)


def chain(*steps: Call[Any] | Flow[Any]) -> Flow[Any]:
    """One after the other: each step waits until the one before it has succeeded, or as its own `run_if` says."""
    _refuse_empty(steps, "chain")
    whole = _to_flow(steps[0])
    for step in steps[1:]:
        after = _to_flow(step).after(whole.last_calls)
        whole = Flow(whole.calls + after.calls, whole.first_calls, after.last_calls)
    return whole


def group(*steps: Call[R] | Flow[R]) -> Flow[R]:
    """Side by side: what follows waits for all of them."""
    _refuse_empty(steps, "group")
    flows = [_to_flow(step) for step in steps]
    return Flow(
        tuple(call for flow in flows for call in flow.calls),
        tuple(call for flow in flows for call in flow.first_calls),
        tuple(call for flow in flows for call in flow.last_calls),
    )


def flatten(steps: Iterable[Call[Any] | Flow[Any]]) -> list[Call[Any]]:
    """The calls of all these steps."""
    found: list[Call[Any]] = []
    for step in steps:
        if isinstance(step, Call):
            found.append(step)
        elif isinstance(step, Flow):
            found += step.calls
        else:
            raise TypeError(f"enqueue_many() takes calls, made with task.bind(...), and flows; {step!r} is neither")
    return found


def make_new_jobs(calls: Sequence[Call[Any]]) -> Sequence[NewJob]:
    """The jobs of calls that are enqueued together, each with the ids of those among them that it waits for."""
    tasks = {call.task for call in calls}
    if len(tasks) == 1 and next(iter(tasks)).makes_alike_jobs:
        return AlikeJobs(calls[0].new_job(), new_ids(len(calls)), [call.payload for call in calls])
    jobs = [call.new_job() for call in calls]
    if not any(task.options.depends_on for task in tasks):
        return jobs
    ids: dict[int, list[UUID]] = {}
    originals: dict[int, list[UUID]] = {}
    for call, job in zip(calls, jobs, strict=True):
        ids.setdefault(id(call), []).append(job.id)
        originals.setdefault(id(call.original or call), []).append(job.id)
    found = [_add_parents(call, job, ids, originals) for call, job in zip(calls, jobs, strict=True)]
    return [_add_results(call, job, ids, originals) for call, job in zip(calls, found, strict=True)]


def choose_connection(tasks: Iterable[Task[..., Any]], given: Any) -> Any:
    """The connection that the caller or a task gave, if any. All jobs share one transaction, so two are refused."""
    found = {id(c): c for c in (given, *(task.options.connection for task in tasks)) if c is not None}
    if len(found) > 1:
        raise ValueError(
            "enqueue_many() was given several connections; its jobs share one transaction, so give one connection"
        )
    return next(iter(found.values()), None)


def _add_parents(call: Call[Any], job: NewJob, ids: dict[int, list[UUID]], originals: dict[int, list[UUID]]) -> NewJob:
    found: list[UUID] = []
    for parent in call.task.options.depends_on:
        known = stored_id(parent)
        if known is not None:
            found.append(known)
            continue
        jobs = ids.get(id(parent)) or originals.get(id(parent))
        if jobs is None:
            refuse_unsent([parent])
        found += jobs or ()
    return job._replace(depends_on=tuple(dict.fromkeys(found))) if found else job


def _add_results(call: Call[Any], job: NewJob, ids: dict[int, list[UUID]], originals: dict[int, list[UUID]]) -> NewJob:
    """Names the jobs whose results its parameters take."""
    results: dict[str, Any] = {}
    for name, source in call.bindings:
        jobs = [ids.get(id(each)) or originals.get(id(each)) or [] for each in source.calls]
        if any(len(found) != 1 for found in jobs):
            raise ValueError(
                f"{call.task.type}: {name} is {source!r}, which is not enqueued once in the same call; make each call "
                "with a bind() of its own, and enqueue it together with those that take its result"
            )
        texts = [str(found[0]) for found in jobs]
        results[name] = texts if source.is_list else texts[0]
    return job._replace(results=results) if results else job


def _to_flow(step: Any) -> Flow[Any]:
    if isinstance(step, Flow):
        return step
    if not isinstance(step, Call):
        raise TypeError(f"chain() and group() take calls, made with task.bind(...), and flows; {step!r} is neither")
    return Flow((step,), (step,), (step,))


def _wait_for(call: Call[Any], parents: tuple[Any, ...], run_if: RunIf | None) -> Call[Any]:
    options: JobOptionsDict = {"depends_on": parents} if run_if is None else {"depends_on": parents, "run_if": run_if}
    return Call(call.task.using(**options), call.payload, call.bindings, call.original or call)


def _refuse_empty(steps: tuple[Any, ...], name: str) -> None:
    if not steps:
        raise ValueError(f"{name}() needs at least one call")
