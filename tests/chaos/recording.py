"""How the handlers of the chaos workers write down that they start and end, in the journal of their process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests.chaos.journal import Journal
from watchbill import BatchFailed, current_job


@contextmanager
def recorded(**more: Any) -> Iterator[None]:
    """`more` is written with the start: arguments that the checker compares."""
    told = _tell(current_job())
    journal().write("start", **told, **more)
    try:
        yield
    except BaseException as error:
        journal().write("end", how=type(error).__name__, **told)
        raise
    else:
        journal().write("end", how="returned", **told)


@contextmanager
def recorded_batch(items: Sequence[int]) -> Iterator[None]:
    """The same for each job of a batch; `item` is what the handler got for that job."""
    jobs = [_tell(job) for job in current_job().batch]
    for told, item in zip(jobs, items, strict=True):
        journal().write("start", **told, item=item, batch=len(items))
    how = ["returned"] * len(jobs)
    try:
        yield
    except BatchFailed as failed:
        for place, error in failed.errors.items():
            how[place] = type(error).__name__
        raise
    except BaseException as error:
        how = [type(error).__name__] * len(jobs)
        raise
    finally:
        for told, word in zip(jobs, how, strict=True):
            journal().write("end", how=word, **told)


def _tell(job: Any) -> dict[str, Any]:
    return {"id": str(job.id), "type": job.type, "run": job.claimed.run, "attempt": job.attempt, "fence": job.fence}


@cache
def journal() -> Journal:
    """Made when first used: who only enqueues has none."""
    return Journal.of_environment()
