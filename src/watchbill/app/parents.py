"""What `depends_on` takes: jobs, their ids, and calls or flows that are enqueued in the same call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from watchbill.app.flows import Flow
    from watchbill.app.handle import Job
    from watchbill.app.task import Call
    from watchbill.model.job import NewJob

    Parent: TypeAlias = Job[Any] | UUID | Call[Any] | Flow[Any]
    Parents: TypeAlias = Parent | Sequence[Parent]


def parents_of(given: Parents) -> tuple[Parent, ...]:
    """One or several, as several; a flow stands for the steps at its end."""
    several: Iterable[Any] = given if isinstance(given, list | set | frozenset) or type(given) is tuple else (given,)
    parents = tuple(parent for each in several for parent in getattr(each, "ends", (each,)))
    known_ids(parents)  # refuses what is none of these
    return parents


def known_ids(parents: Sequence[Parent]) -> tuple[UUID, ...] | None:
    """Of those that have been enqueued."""
    found = tuple(known for parent in parents if (known := _id(parent)) is not None)
    return found or None


def refuse_unsent(parents: Sequence[Parent]) -> None:
    """A job that is enqueued alone cannot wait for one that is not."""
    for parent in parents:
        if _id(parent) is None:
            raise ValueError(
                f"depends_on names {parent!r}, which has not been enqueued; enqueue both together, "
                "with app.enqueue_many([...]) or chain(...)"
            )


def with_parents(calls: Sequence[Call[Any]], jobs: list[NewJob]) -> list[NewJob]:
    """The jobs of these calls, each with the ids of those among them that it waits for."""
    places: dict[int, list[UUID]] = {}
    for call, job in zip(calls, jobs, strict=True):
        places.setdefault(id(call), []).append(job.id)
    return [_waiting(call, job, places) for call, job in zip(calls, jobs, strict=True)]


def _waiting(call: Call[Any], job: NewJob, places: dict[int, list[UUID]]) -> NewJob:
    parents = call.task.options.depends_on
    if not parents:
        return job
    ids: list[UUID] = []
    for parent in parents:
        known = _id(parent)
        ids += places.get(id(parent), ()) if known is None else (known,)
        if known is None and id(parent) not in places:
            refuse_unsent([parent])
    return job._replace(depends_on=tuple(ids))


def _id(parent: Any) -> UUID | None:
    if isinstance(parent, UUID):
        return parent
    if hasattr(parent, "new_job"):  # a call
        return None
    found = getattr(parent, "id", None)
    if not isinstance(found, UUID):
        raise TypeError(f"depends_on takes jobs, ids of jobs, calls (task.bind(...)) and flows, not {parent!r}")
    return found
