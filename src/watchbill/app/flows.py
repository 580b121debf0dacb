"""Several jobs as one: `chain(...)` one after the other, `group(...)` side by side, and both inside each other.

A flow is its calls, each of which names those it waits for (`depends_on`). It is enqueued in one transaction: all of
its jobs or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from watchbill.app.parents import with_parents
from watchbill.app.task import Call, Choices
from watchbill.model.family import RunIf

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.handle import Job
    from watchbill.model.job import NewJob

R = TypeVar("R", covariant=True)


class Flow(Generic[R]):
    """Calls, not sent yet. `starts` wait for nothing in it; what follows it waits for its `ends`."""

    def __init__(
        self, calls: tuple[Call[Any], ...], starts: tuple[Call[Any], ...], ends: tuple[Call[Any], ...]
    ) -> None:
        self.calls, self.starts, self.ends = calls, starts, ends

    def __repr__(self) -> str:
        return f"<Flow of {len(self.calls)} job{'' if len(self.calls) == 1 else 's'}>"

    def on_failure(self, alternative: Call[Any] | Flow[Any]) -> Flow[R]:
        """With an alternative that runs when this fails, and is skipped when it succeeds."""
        other = _flow(alternative).after(self.ends, "any_failed")
        return Flow(self.calls + other.calls, self.starts, self.ends)

    def enqueue(self, *, connection: Any = None) -> list[Job[R]]:
        """All in one transaction; the jobs in the order in which their calls were named."""
        return self._app.enqueue_many(self.calls, connection=connection)

    async def aenqueue(self, *, connection: Any = None) -> list[Job[R]]:
        return await self._app.aenqueue_many(self.calls, connection=connection)

    @property
    def _app(self) -> App:
        return self.calls[0].task.app

    def definition(self) -> list[dict[str, Any]]:
        """What the SQL function enqueue_many takes, without ids: each time it is given that, it makes new jobs."""
        from watchbill.client.plans import as_object

        jobs = new_jobs(list(self.calls))
        places = {job.id: place for place, job in enumerate(jobs)}
        told: list[dict[str, Any]] = orjson.loads(orjson.dumps([as_object(job) for job in jobs]))
        for job, each in zip(jobs, told, strict=True):
            del each["id"]
            if job.depends_on:
                each["depends_on"] = [places.get(parent, str(parent)) for parent in job.depends_on]
        return told

    def after(self, parents: tuple[Call[Any], ...], run_if: RunIf | None = None) -> Flow[R]:
        """The same, once those have ended. Calls name each other, so whoever names a changed one changes too."""
        starts, changed = {id(call) for call in self.starts}, dict[int, Call[Any]]()
        for call in self.calls:
            before = call.task.options.depends_on
            waits = tuple(changed.get(id(parent), parent) for parent in before)
            if id(call) in starts:
                changed[id(call)] = _waiting(call, waits + parents, run_if)
            else:
                changed[id(call)] = call if waits == before else _waiting(call, waits, None)
        calls, first, last = (
            tuple(changed[id(call)] for call in part) for part in (self.calls, self.starts, self.ends)
        )
        return Flow(calls, first, last)


def chain(*steps: Call[Any] | Flow[Any]) -> Flow[Any]:
    """One after the other: each step waits until the one before it has succeeded, or as its own `run_if` says."""
    _refuse_none(steps, "chain")
    whole = _flow(steps[0])
    for step in steps[1:]:
        after = _flow(step).after(whole.ends)
        whole = Flow(whole.calls + after.calls, whole.starts, after.ends)
    return whole


def group(*steps: Call[R] | Flow[R]) -> Flow[R]:
    """Side by side: what follows waits for all of them."""
    _refuse_none(steps, "group")
    flows = [_flow(step) for step in steps]
    return Flow(
        tuple(call for flow in flows for call in flow.calls),
        tuple(call for flow in flows for call in flow.starts),
        tuple(call for flow in flows for call in flow.ends),
    )


def flat(steps: Iterable[Call[Any] | Flow[Any]]) -> list[Call[Any]]:
    """All calls of these."""
    found: list[Call[Any]] = []
    for step in steps:
        if not isinstance(step, Call | Flow):
            raise TypeError(f"enqueue_many() takes calls, task.bind(...), and flows; not {step!r}")
        found += step.calls if isinstance(step, Flow) else (step,)
    return found


def new_jobs(calls: list[Call[Any]]) -> list[NewJob]:
    """Of calls that are enqueued together."""
    jobs = [call.new_job() for call in calls]
    return with_parents(calls, jobs) if any(call.task.options.depends_on for call in calls) else jobs


def _flow(step: Any) -> Flow[Any]:
    if isinstance(step, Flow):
        return step
    if not isinstance(step, Call):
        raise TypeError(f"chain() and group() take calls, task.bind(...), and each other; not {step!r}")
    return Flow((step,), (step,), (step,))


def _waiting(call: Call[Any], parents: tuple[Any, ...], run_if: RunIf | None) -> Call[Any]:
    options: Choices = {"depends_on": parents} if run_if is None else {"depends_on": parents, "run_if": run_if}
    return Call(call.task.using(**options), call.payload)


def _refuse_none(steps: tuple[Any, ...], name: str) -> None:
    if not steps:
        raise ValueError(f"{name}() needs at least one call")
