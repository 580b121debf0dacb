"""The drawing of jobs that wait for others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import click

from watchbill.cli.tree import draw_tree
from watchbill.model.dependency_graph import Dependency, DependencyGraph, GraphJob

NOON = datetime(2031, 3, 14, 12, tzinfo=UTC)


def job(number: int, type: str = "task", state: str = "succeeded", seconds: float | None = 2.5) -> GraphJob:
    started = None if seconds is None else NOON
    ended = None if started is None or state == "running" else started + timedelta(seconds=seconds or 0)
    error = {"message": "no luck\nat all"} if state == "dead" else None
    return GraphJob(UUID(int=number), type, state, 1, 5, NOON, started, ended, error)


def waits(child: int, *parents: int) -> list[Dependency]:
    return [
        Dependency(UUID(int=child), UUID(int=parent), place, "all_succeeded", None, None)
        for place, parent in enumerate(parents, 1)
    ]


def drawn(jobs: list[GraphJob], dependencies: list[Dependency], marked: int = 1) -> list[str]:
    graph, ids = DependencyGraph(jobs, dependencies, True), {job.id: str(job.id) for job in jobs}
    lines = [click.unstyle(line) for line in draw_tree(graph, UUID(int=marked), ids)]
    return [" ".join(line.replace("00000000-0000-0000-0000-0000000000", "#").split()) for line in lines]


def test_single_job_is_drawn_as_one_line() -> None:
    assert drawn([job(1)], []) == ["task #01 < succeeded 2.5 s"]


def test_job_is_drawn_below_its_last_parent() -> None:
    jobs = [job(1, "a"), job(2, "b"), job(3, "c", "dead"), job(4, "d", "blocked", None)]
    assert drawn(jobs, [*waits(2, 1), *waits(3, 1), *waits(4, 2, 3)]) == [
        "a #01 < succeeded 2.5 s",
        "├─ b #02 succeeded 2.5 s",
        "└─ c #03 dead 2.5 s no luck",
        "└─ d #04 blocked waits for 0 of 2",
    ]


def test_job_that_takes_results_says_from_which_jobs() -> None:
    takes = [
        Dependency(UUID(int=3), UUID(int=1), 1, "all_succeeded", None, {"parts": 1, "first": None}),
        Dependency(UUID(int=3), UUID(int=2), 2, "all_succeeded", None, {"parts": 2}),
    ]
    assert drawn([job(1, "a"), job(2, "b"), job(3, "c", seconds=0.01)], takes)[-1] == (
        "└─ c #03 succeeded 10 ms parts from 2 jobs first from #01 after 2 jobs"
    )


def test_similar_jobs_are_drawn_as_one_line_with_a_count() -> None:
    jobs = [job(n, "part", "succeeded" if n % 3 else "dead") for n in range(10, 40)] + [job(50, "end", seconds=0.01)]
    assert drawn(jobs, waits(50, *range(10, 40)), marked=50) == [
        "part 30 jobs succeeded (20 succeeded, 10 dead)",
        "└─ end #32 < succeeded 10 ms after 30 jobs",
    ]


def test_long_chain_is_drawn_within_the_line_width() -> None:
    count = 3000
    jobs = [job(n) for n in range(1, count + 1)]
    lines = drawn(jobs, [edge for n in range(2, count + 1) for edge in waits(n, n - 1)])
    assert len(lines) == count
    assert max(map(len, lines)) < 200
