"""How runs ended: what a worker gathers for one statement, and what the database made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from foliot.worker.run import Claimed, Run


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

    ids: list[bytes] = field(default_factory=list)
    fences: list[int] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    results: list[bytes | None] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    observed: list[Run] = field(default_factory=list)  # successes that somebody wants to hear of, after commit
    with_results: bool = False

    def __len__(self) -> int:
        return len(self.ids) + len(self.endings)

    @property
    def all_fences(self) -> list[int]:
        return self.fences + [ending.claimed.fence for ending in self.endings]

    @property
    def all_ids(self) -> list[bytes]:
        return self.ids + [ending.claimed.id for ending in self.endings]

    def without(self, ids: set[bytes]) -> Batch:
        """Takes these jobs out, and returns them as a batch of their own; what is left does not close their claims."""
        taken = Batch(with_results=self.with_results)
        rows = list(zip(self.ids, self.fences, self.started, self.results, strict=True))
        for batch, chosen in ((taken, [r for r in rows if r[0] in ids]), (self, [r for r in rows if r[0] not in ids])):
            batch.ids, batch.fences = [row[0] for row in chosen], [row[1] for row in chosen]
            batch.started, batch.results = [row[2] for row in chosen], [row[3] for row in chosen]
        taken.endings = [ending for ending in self.endings if ending.claimed.id in ids]
        taken.observed = [run for run in self.observed if run.claimed.id in ids]
        self.endings = [ending for ending in self.endings if ending.claimed.id not in ids]
        self.observed = [run for run in self.observed if run.claimed.id not in ids]
        self.keep_open(taken.all_fences)
        return taken

    def keep_open(self, fences: list[int]) -> None:
        """These claims have a job yet."""
        self.closed = [fence for fence in self.closed if fence not in fences]

    def add(self, other: Batch) -> None:
        for mine, more in (
            (self.ids, other.ids), (self.fences, other.fences), (self.started, other.started),
            (self.results, other.results), (self.endings, other.endings), (self.closed, other.closed),
            (self.observed, other.observed),
        ):  # fmt: skip
            cast("list[object]", mine).extend(more)
        self.with_results |= other.with_results
