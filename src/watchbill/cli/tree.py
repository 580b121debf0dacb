"""`watchbill jobs tree`: draws a job with all jobs that it waits for, and all jobs that wait for it.

A job stands below the last of the jobs that it waits for, so that one reads from top to bottom. Many equal jobs, such
as ten thousand that one job waits for, share a line that counts them by state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from watchbill.cli.output import format_elapsed
from watchbill.cli.screen import STATE_COLOURS, Painted, paint
from watchbill.model.dependency_graph import DependencyGraph, GraphJob
from watchbill.telemetry.printable import printable

_MAX_SEPARATE = 5  # up to so many equal jobs have a line each; more share a line
_MAX_INDENT = 60


class _Line(NamedTuple):
    branch: str
    text: str
    state: str
    remarks: str = ""


def draw_tree(graph: DependencyGraph, marked: UUID, ids: Mapping[UUID, str]) -> Iterator[Painted]:
    """Yields the lines of the tree, with ids as they are given. `marked` is the job that was asked for, which is
    highlighted."""
    lines = list(_Tree(graph, marked, ids).make_lines())
    width = max(len(line.branch) + len(line.text) for line in lines)
    for line in lines:
        state = paint(line.state.ljust(9), STATE_COLOURS.get(line.state.split()[-1]))
        gap = " " * (width - len(line.branch) - len(line.text))
        yield Painted(f"{line.branch}{line.text}{gap}  {state}  {line.remarks}".rstrip())


class _Tree:
    def __init__(self, graph: DependencyGraph, marked: UUID, ids: Mapping[UUID, str]) -> None:
        self._jobs = {job.id: job for job in graph.jobs}
        self._marked, self._ids = marked, ids
        self._parents: dict[UUID, list[UUID]] = defaultdict(list)
        self._children: dict[UUID, list[UUID]] = defaultdict(list)
        self._run_if: dict[UUID, str] = {}
        self._taken: dict[UUID, dict[str, list[UUID]]] = defaultdict(dict)  # whose results its parameters take
        for each in graph.dependencies:
            if each.child in self._jobs and each.parent in self._jobs:
                self._parents[each.child].append(each.parent)
                self._children[each.parent].append(each.child)
                self._run_if[each.child] = each.run_if
                for name in each.arguments or ():
                    self._taken[each.child].setdefault(name, []).append(each.parent)
        self._undrawn_parents = {job: len(self._parents[job]) for job in self._jobs}

    def make_lines(self) -> Iterator[_Line]:
        """Yields line by line. This is a loop, not a recursion, because a chain may be longer than Python's stack."""
        roots = self._group_equal_jobs([job for job in self._jobs if not self._parents[job]])
        left = [(group, "", "") for group in roots][::-1]
        while left:
            group, here, below = left.pop()
            yield self._make_line(group, here)
            groups = self._group_equal_jobs(self._take_ready_children(group))
            left += [(g, *_draw_branch(below, last=place == len(groups) - 1)) for place, g in enumerate(groups)][::-1]

    def _group_equal_jobs(self, jobs: list[UUID]) -> list[list[UUID]]:
        """Returns groups of jobs that share a line: many equal jobs together, every other job alone."""
        equal: dict[tuple[object, ...], list[UUID]] = defaultdict(list)
        for job in jobs:
            relations = tuple(self._parents[job]), tuple(self._children[job])
            key = (self._jobs[job].type, self._run_if.get(job), *relations)
            equal[(job,) if job == self._marked else key].append(job)
        return [
            part
            for group in equal.values()
            for part in ([group] if len(group) > _MAX_SEPARATE else [[j] for j in group])
        ]

    def _take_ready_children(self, group: list[UUID]) -> list[UUID]:
        """Returns the children whose last parent has just been drawn."""
        found: list[UUID] = []
        for job in group:
            for child in self._children[job]:
                self._undrawn_parents[child] -= 1
                if not self._undrawn_parents[child]:
                    found.append(child)
        return found

    def _make_line(self, group: list[UUID], branch: str) -> _Line:
        first = self._jobs[group[0]]
        if len(group) > 1:
            states = Counter(self._jobs[job].state for job in group)
            counts = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
            return _Line(
                branch, f"{printable(first.type)}  {len(group):,} jobs", states.most_common(1)[0][0], f"({counts})"
            )
        mark = " <" if first.id == self._marked else ""
        return _Line(
            branch,
            f"{printable(first.type)}  {self._ids[first.id]}{mark}",
            first.state,
            "  ".join(self._list_remarks(first)),
        )

    def _list_remarks(self, job: GraphJob) -> Iterator[str]:
        if job.started_at is not None:
            yield format_elapsed(((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds())
        if (run_if := self._run_if.get(job.id, "all_succeeded")) != "all_succeeded":
            yield f"runs if {run_if.replace('_', ' ')}"
        for name, givers in self._taken[job.id].items():
            yield f"{printable(name)} from {self._ids[givers[0]] if len(givers) == 1 else f'{len(givers):,} jobs'}"
        parents = self._parents[job.id]
        if job.state == "blocked":
            yield f"waits for {sum(self._jobs[p].finished_at is None for p in parents):,} of {len(parents):,}"
        elif len(parents) > 1:
            yield f"after {len(parents):,} jobs"
        if job.state in ("dead", "failed", "canceled") and job.error and job.error.get("message"):
            yield printable(str(job.error["message"]).partition("\n")[0][:80])


def _draw_branch(above: str, *, last: bool) -> tuple[str, str]:
    """Returns the lines of the drawing that stand before a job, and those before the jobs below it. Stops indenting at
    some depth, so that deep trees still fit the terminal."""
    if len(above) >= _MAX_INDENT:
        return f"{above}↳ ", above
    return above + ("└─ " if last else "├─ "), above + ("   " if last else "│  ")
