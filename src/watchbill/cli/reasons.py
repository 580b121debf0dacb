"""Prints why jobs do not run: the deciding cause first, and below each cause the commands that help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import typer

from watchbill.cli.output import GlobalOptions, print_json, print_table
from watchbill.cli.screen import paint, say, say_wrapped
from watchbill.cli.table import Wrapped
from watchbill.client import job_operations
from watchbill.errors import name_commands
from watchbill.model.job import CauseCount, JobReason

# From this rank on a cause is about the turn of the job, which comes when the causes before it have ended.
_FIRST_RANK_OF_TURNS = 11
_RANK_OF_LONG_DELAY = 4
_ENDS_WAITING = ("finished", "running", "stopping")


def print_reasons(reasons: Sequence[JobReason]) -> None:
    deciding, *others = reasons
    say_wrapped(f"{deciding.reason[0].upper()}{deciding.reason[1:]}", indent="")
    _print_commands(deciding)
    for reason in others:
        follows = deciding.rank == _RANK_OF_LONG_DELAY or reason.rank >= _FIRST_RANK_OF_TURNS
        say_wrapped(f"{'Then' if follows else 'Also'}: {reason.reason}", indent="")
        _print_commands(reason)


def _print_commands(reason: JobReason | CauseCount) -> None:
    for command in reason.way_out:
        say("    ", paint(name_commands(command), dim=True))


def needs_action(reasons: Sequence[JobReason]) -> bool:
    """Says whether the job will not start before a person acts."""
    return any(reason.needs_action for reason in reasons)


def is_over(reasons: Sequence[JobReason]) -> bool:
    """Says whether the job waits no longer: it runs or has ended."""
    return reasons[0].cause in _ENDS_WAITING


def find_number_before(reasons: Sequence[JobReason]) -> int | None:
    """Returns how many jobs come before the job in its queue; None if that is not known."""
    return next((reason.detail["before"] for reason in reasons if reason.cause in ("behind", "turn")), None)


def tell_causes(
    options: GlobalOptions,
    *,
    queue: str | None = None,
    type: str | None = None,
    tenant: str | None = None,
    as_json: bool,
) -> None:
    """Prints why the jobs of a queue, a type or a tenant do not run. Exits with 1 if a person must act."""
    found = options.run(job_operations.count_causes(queue=queue, type=type, tenant=tenant))
    if as_json:
        print_json([asdict(count) for count in found])
    elif found:
        _print_counts(options, found)
    else:
        say(options.explain_empty("It has no unfinished jobs."), err=True)
    raise typer.Exit(1 if any(count.needs_action for count in found) else 0)


def _print_counts(options: GlobalOptions, found: Sequence[CauseCount]) -> None:
    short = options.shorten_ids([count.example for count in found])
    print_table(
        ("jobs", "cause", "example", Wrapped("why the example waits")),
        [(_show_number(count), count.cause, short[count.example], count.reason) for count in found],
    )
    for count in found:
        if count.needs_action:
            say(count.cause)
            _print_commands(count)
    if any(count.is_estimate for count in found):
        say("≈ marks an estimate from a sample of the jobs. Rare causes may be missing.")


def _show_number(count: CauseCount) -> str:
    return f"{'≈ ' if count.is_estimate else ''}{count.jobs:,}"
