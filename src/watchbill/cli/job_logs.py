"""`watchbill jobs logs`: the last log lines of a job, and those that come while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from watchbill.cli.output import GlobalOptions, show_json
from watchbill.cli.screen import paint, say, say_lines
from watchbill.cli.watch import look_at
from watchbill.client import job_operations
from watchbill.client.client import Client
from watchbill.telemetry.printable import printable

FOLLOW_SECONDS = 1.0


def print_logs(options: GlobalOptions, job: UUID, *, run: int | None, follow: bool, as_json: bool) -> None:
    with options.open_client() as client:
        printed = _print_new_lines(client, job, run, {}, as_json=as_json)
        if not follow:
            if not printed and not as_json:
                say(f"No log lines are stored. Those of a running job: watchbill jobs logs {job} --follow", err=True)
            return
        progress: Any = None
        is_open = True
        while is_open:
            is_open = look_at(client, job)
            record = client.run(job_operations.get(job))
            if record.progress != progress and record.progress is not None:
                progress = record.progress
                _print_progress(progress, as_json=as_json)
            printed = _print_new_lines(client, job, run, printed, as_json=as_json)
            if is_open:
                time.sleep(FOLLOW_SECONDS)


def _print_progress(progress: Any, *, as_json: bool) -> None:
    if as_json:
        say_lines(show_json({"progress": progress}))
    else:
        say(paint(f"progress {show_json(progress)}", "cyan"))


def _print_new_lines(
    client: Client, job: UUID, run: int | None, printed: Mapping[int, list[str]], *, as_json: bool
) -> dict[int, list[str]]:
    """Prints the lines that were not printed before. Returns those of each run."""
    found = [each for each in client.run(job_operations.logs(job)) if run in (None, each.run)]
    for each in found:
        lines = find_new_lines(printed.get(each.run, []), each.lines)
        if as_json and lines:
            say_lines(show_json({"run": each.run, "ended_at": each.ended_at, "lines": lines}))
        for line in () if as_json else lines:
            say(printable(line))
    return {each.run: each.lines for each in found}


def find_new_lines(before: list[str], now: list[str]) -> list[str]:
    """Returns the lines that have come since: of a run only the last lines are known."""
    common = (size for size in range(min(len(before), len(now)), 0, -1) if before[-size:] == now[:size])
    return now[next(common, 0) :]
