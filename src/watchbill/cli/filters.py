"""The option --where: jobs that match a filter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated
from uuid import UUID

import typer

from watchbill.cli.output import GlobalOptions, format_local_time, pluralize, print_json, print_records
from watchbill.cli.screen import say
from watchbill.cli.table import LongName, Wrapped
from watchbill.client import job_operations
from watchbill.filters.condition import Condition, write_conditions
from watchbill.filters.parser import parse_filter
from watchbill.model.job_page import JobPage, ListedJob

Where = Annotated[
    str | None,
    typer.Option("--where", metavar="FILTER", help="Only what matches, such as 'state:failed type:mail.* run>5s'."),
]
GivenWhere = Annotated[
    str, typer.Option("--where", metavar="FILTER", help="Which jobs, such as 'queue:mail error:refused'.")
]
_LOOK_SECONDS = 2.0  # how long a list goes on looking for matches before it says how far it got


def read_where(where: str | None, **options: str | Sequence[str] | None) -> list[Condition]:
    """Returns the conditions of --where and of other options, such as --queue; a job must match all of them."""
    chosen = {name: [value] if isinstance(value, str) else list(value) for name, value in options.items() if value}
    return [*parse_filter(where or ""), *(Condition(name, "=", tuple(values)) for name, values in chosen.items())]


def list_matches(
    options: GlobalOptions, conditions: Sequence[Condition], *, after: UUID | None, limit: int, as_json: bool
) -> None:
    page = _find_page(options, write_conditions(conditions), after, limit)
    if as_json:
        print_json({
            "jobs": [asdict(job) for job in page.jobs],
            "next": page.next, "scanned": page.scanned, "reached": page.reached, "is_complete": page.next is None,
        })  # fmt: skip
        return
    if page.jobs or page.next is None:
        _print_jobs(options, page.jobs)
    if page.next is not None:
        looked = f"Looked at {pluralize(page.scanned, 'job')}, back to {format_local_time(page.reached)}."
        say(f"{looked} For older ones add: --after {page.next}", err=True)


def _find_page(options: GlobalOptions, conditions: str, after: UUID | None, limit: int) -> JobPage:
    """Reads on until the page is full, all jobs are looked at, or the time is over."""
    until = time.monotonic() + _LOOK_SECONDS
    page = options.run(job_operations.read_page(conditions, after=after, limit=limit))
    while page.next is not None and len(page.jobs) < limit and time.monotonic() < until:
        more = options.run(job_operations.read_page(conditions, after=page.next, limit=limit - len(page.jobs)))
        reached = more.reached or page.reached
        page = replace(more, jobs=[*page.jobs, *more.jobs], scanned=page.scanned + more.scanned, reached=reached)
    return page


def _print_jobs(options: GlobalOptions, jobs: Sequence[ListedJob]) -> None:
    short = options.shorten_ids([job.id for job in jobs])
    print_records(
        jobs,
        ("id", "state", "attempt", LongName("type"), LongName("queue"), "run at", "ended", Wrapped("error")),
        lambda j: (
            short[j.id], j.waits or j.state, f"{j.attempt + (j.state == 'running')}/{j.max_attempts}", j.type, j.queue,
            j.run_at, j.finished_at, (j.error or "").partition("\n")[0],
        ),
        as_json=False,
        empty="No job matches." if jobs else options.explain_empty("No job matches."),
    )  # fmt: skip
