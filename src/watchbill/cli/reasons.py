"""Prints why jobs do not run: the deciding cause first, and below each cause the commands that help."""

from __future__ import annotations

from collections.abc import Sequence

from watchbill.cli.screen import paint, say, say_wrapped
from watchbill.errors import name_commands
from watchbill.model.job import JobReason

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


def _print_commands(reason: JobReason) -> None:
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
