"""The results of earlier jobs, for the handler of a later one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from watchbill.errors import WatchbillError

if TYPE_CHECKING:
    from watchbill.model.family import EarlierJob

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class NoResult(WatchbillError):
    """No earlier job of this task has a result."""


class Source(Protocol[R_co]):
    """A task, as far as its results are concerned."""

    @property
    def type(self) -> str: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def decode_result(self) -> Callable[[Any], R_co]: ...


def names(source: Source[Any]) -> list[str]:
    return [source.type, *source.aliases]


def results(source: Source[R], found: list[EarlierJob]) -> list[R]:
    return [source.decode_result(job.result) for job in found if job.state == "succeeded"]


def nearest(source: Source[R], found: list[EarlierJob]) -> R:
    """The one result of the nearest; two at the same distance are one too many."""
    near = [job for job in found if job.depth == found[0].depth] if found else []
    ended = [job for job in near if job.state == "succeeded"]
    if len(near) > 1:
        raise NoResult(
            f"This job waits for {len(near)} jobs of {source.type}, so there is no single result.",
            hint="results_of() has all of them, in the order in which they were named.",
        )
    if not ended:
        why = f"it is {near[0].state}" if near else "it waits for none, or its job is no longer kept"
        raise NoResult(f"This job has no result of {source.type}: {why}.")
    return source.decode_result(ended[0].result)
