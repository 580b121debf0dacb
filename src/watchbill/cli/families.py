"""Draws jobs that are connected by dependencies: what each waits for stands above it.

A job is drawn in full below the last of those it waits for, so that one reads from top to bottom. Many alike, such as
the ten thousand that one job waits for, are one line with a count of their states.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import typer

from watchbill.model.family import Family, Relative

COLOURS = {
    "succeeded": "green", "running": "cyan", "failed": "yellow", "dead": "red", "canceled": "magenta",
    "blocked": "blue",
}  # fmt: skip
FEW = 5  # so many alike are drawn one by one
WIDEST = 60


class Line(NamedTuple):
    """One line of the drawing: the branch, what stands on it, and in which state that is."""

    branch: str
    text: str
    state: str
    more: str = ""


def draw(family: Family, marked: UUID) -> Iterator[str]:
    """Lines for a terminal; `marked` is the job that was asked for."""
    lines = list(_Drawing(family, marked).lines())
    width = max(len(line.branch) + len(line.text) for line in lines)
    for line in lines:
        state = typer.style(line.state.ljust(9), fg=COLOURS.get(line.state.split()[-1]))
        gap = " " * (width - len(line.branch) - len(line.text))
        yield f"{line.branch}{line.text}{gap}  {state}  {line.more}".rstrip()


class _Drawing:
    def __init__(self, family: Family, marked: UUID) -> None:
        self._jobs = {job.id: job for job in family.jobs}
        self._marked = marked
        self._parents: dict[UUID, list[UUID]] = defaultdict(list)
        self._children: dict[UUID, list[UUID]] = defaultdict(list)
        self._rules: dict[UUID, str] = {}
        for each in family.dependencies:
            if each.child in self._jobs and each.parent in self._jobs:
                self._parents[each.child].append(each.parent)
                self._children[each.parent].append(each.child)
                self._rules[each.child] = each.run_if
        self._open = {job: len(self._parents[job]) for job in self._jobs}  # parents not drawn yet

    def lines(self) -> Iterator[Line]:
        """Without recursion: a chain may be longer than Python's stack is deep."""
        left = [(group, "", "") for group in self._groups([job for job in self._jobs if not self._parents[job]])][::-1]
        while left:
            group, here, below = left.pop()
            yield self._line(group, here)
            groups = self._groups(self._ready_below(group))
            left += [(g, *_branch(below, last=place == len(groups) - 1)) for place, g in enumerate(groups)][::-1]

    def _groups(self, jobs: list[UUID]) -> list[list[UUID]]:
        """Each by itself, but many alike together."""
        alike: dict[tuple[object, ...], list[UUID]] = defaultdict(list)
        for job in jobs:
            alike[self._likeness(job)].append(job)
        return [part for group in alike.values() for part in ([group] if len(group) > FEW else [[j] for j in group])]

    def _likeness(self, job: UUID) -> tuple[object, ...]:
        if job == self._marked:
            return (job,)
        relations = tuple(self._parents[job]), tuple(self._children[job])
        return (self._jobs[job].type, self._rules.get(job), *relations)

    def _ready_below(self, group: list[UUID]) -> list[UUID]:
        """Children of which this was the last parent to be drawn; they stand below it."""
        found: list[UUID] = []
        for job in group:
            for child in self._children[job]:
                self._open[child] -= 1
                if not self._open[child]:
                    found.append(child)
        return found

    def _line(self, group: list[UUID], branch: str) -> Line:
        first = self._jobs[group[0]]
        if len(group) > 1:
            states = Counter(self._jobs[job].state for job in group)
            counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
            return Line(branch, f"{first.type}  {len(group):,} jobs", states.most_common(1)[0][0], f"({counts})")
        mark = " <" if first.id == self._marked else ""
        return Line(branch, f"{first.type}  {first.id}{mark}", first.state, self._about(first))

    def _about(self, job: Relative) -> str:
        said = [_duration(job)]
        rule = self._rules.get(job.id, "all_succeeded")
        if rule != "all_succeeded":
            said.append(f"runs if {rule.replace('_', ' ')}")
        parents = self._parents[job.id]
        if job.state == "blocked":
            said.append(f"waits for {sum(self._jobs[p].finished_at is None for p in parents):,} of {len(parents):,}")
        elif len(parents) > 1:
            said.append(f"after {len(parents):,} jobs")
        if job.state in ("dead", "failed", "canceled") and job.error:
            said.append(str(job.error.get("message") or "").partition("\n")[0][:80])
        return "  ".join(word for word in said if word)


def _branch(above: str, *, last: bool) -> tuple[str, str]:
    """What stands before a job, and before what is below it; no deeper than a line is wide."""
    if len(above) >= WIDEST:
        return f"{above}↳ ", above
    return above + ("└─ " if last else "├─ "), above + ("   " if last else "│  ")


def _duration(job: Relative) -> str:
    if job.started_at is None:
        return ""
    seconds = ((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
