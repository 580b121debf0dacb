"""How runs ended: what a worker gathers for one statement, and what the database made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from watchbill.worker.run import Claimed, Run


@dataclass(slots=True)
class Ending:
    """The end of a run that did more than succeed."""

    claimed: Claimed
    outcome: str
    started: float | None = None
    delay: float | None = None
    result: bytes | None = None
    error: dict[str, Any] | None = None
    run: Run | None = None  # None: it never started


@dataclass(slots=True)
class Settled:
    """What the database made of an ending; state None: refused, it was not ours any more."""

    ending: Ending
    state: str | None


@dataclass(slots=True)
class Batch:
    """Plain successes as columns, everything else as endings."""

    succeeded: list[Claimed] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    results: list[bytes | None] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)  # claims of which this batch ends the last jobs
    observed: list[Run] = field(default_factory=list)  # successes that somebody wants to hear of, after commit
    with_results: bool = False
    refused: Batch | None = None  # the one end that the server did not take: this batch tells it as a failure

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.endings)

    @property
    def all_jobs(self) -> list[Claimed]:
        return self.succeeded + [ending.claimed for ending in self.endings]

    @property
    def all_fences(self) -> list[int]:
        return [claimed.fence for claimed in self.all_jobs]

    @property
    def all_ids(self) -> list[bytes]:
        return [claimed.id for claimed in self.all_jobs]

    @property
    def has_run_once(self) -> bool:
        """Whether a job with one attempt is among them, and its handler was started."""
        started = self.succeeded + [ending.claimed for ending in self.endings if ending.started is not None]
        return any(claimed.max_attempts == 1 for claimed in started)

    def take(self, ids: set[bytes]) -> Batch:
        """Takes these jobs out, and returns them as a batch of their own."""
        taken = self._part([claimed for claimed in self.all_jobs if claimed.id in ids])
        rest = self._part([claimed for claimed in self.all_jobs if claimed.id not in ids])
        self.succeeded, self.started, self.results = rest.succeeded, rest.started, rest.results
        self.endings, self.observed = rest.endings, rest.observed
        return taken

    def halves(self) -> tuple[Batch, Batch]:
        """Copies, which close nothing."""
        jobs, middle = self.all_jobs, len(self) // 2
        return self._part(jobs[:middle]), self._part(jobs[middle:])

    def _part(self, jobs: list[Claimed]) -> Batch:
        chosen = {(claimed.id, claimed.fence) for claimed in jobs}
        part = Batch(with_results=self.with_results)
        for claimed, started, result in zip(self.succeeded, self.started, self.results, strict=True):
            if (claimed.id, claimed.fence) in chosen:
                part.succeeded.append(claimed)
                part.started.append(started)
                part.results.append(result)
        part.endings = [e for e in self.endings if (e.claimed.id, e.claimed.fence) in chosen]
        part.observed = [run for run in self.observed if (run.claimed.id, run.claimed.fence) in chosen]
        return part

    def keep_open(self, fence: int) -> bool:
        """This claim has a job yet; whether this batch was about to close it."""
        closes = fence in self.closed
        if closes:
            self.closed.remove(fence)
        return closes

    def add(self, other: Batch) -> None:
        for mine, more in (
            (self.succeeded, other.succeeded), (self.started, other.started), (self.results, other.results),
            (self.endings, other.endings), (self.closed, other.closed), (self.observed, other.observed),
        ):  # fmt: skip
            cast("list[object]", mine).extend(more)
        self.with_results |= other.with_results
