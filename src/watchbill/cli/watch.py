"""`watchbill jobs watch`: follows one job to its end, or prints what ends and fails as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NoReturn
from uuid import UUID

from psycopg.errors import ReadOnlySqlTransaction

from watchbill.cli.output import GlobalOptions, format_elapsed, format_local_time, show_json
from watchbill.cli.screen import STATE_COLOURS, is_terminal, paint, say, say_lines
from watchbill.client import job_operations
from watchbill.client.client import Client
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.job import AttemptRecord, JobRecord
from watchbill.model.job_page import JobEnd
from watchbill.model.states import FINISHED

POLL_SECONDS = 0.5
LOOK_SECONDS = 10.0
TAIL_SECONDS = 1.0
MOST_LINES = 50  # of one second; the others are counted
_ID_WIDTH = 13  # of an id on a terminal: it says when the job was made, and differs for jobs of different milliseconds


def watch_job(options: GlobalOptions, job: UUID, *, as_json: bool) -> bool:
    """Prints a line whenever the job changes, until it ends. Returns whether it has succeeded."""
    with options.open_client() as client:
        seen = {attempt.run for attempt in client.run(job_operations.attempts(job))}
        last: tuple[object, ...] | None = None
        next_look = 0.0
        while True:
            if time.monotonic() >= next_look:
                look_at(client, job)
                next_look = time.monotonic() + LOOK_SECONDS / 3
            record = client.run(job_operations.get(job))
            for attempt in _read_new_attempts(client, record, seen):
                _print_attempt(attempt, as_json=as_json)
            state = (record.state, record.waits, record.run, record.holder, show_json(record.progress))
            if state != last:
                last = state
                _print_state(record, as_json=as_json)
            if record.state in FINISHED:
                return record.state == "succeeded"
            time.sleep(POLL_SECONDS)


def look_at(client: Client, job: UUID) -> bool:
    """Has the node that runs the job show its progress and log lines each second. Returns whether the job is open."""
    try:
        return client.run(job_operations.watch(job, LOOK_SECONDS))
    except ReadOnlySqlTransaction:  # such as a standby
        return client.run(job_operations.get(job)).state not in FINISHED


def _read_new_attempts(client: Client, record: JobRecord, seen: set[int]) -> Iterator[AttemptRecord]:
    """Runs that have ended since the last look. Those after the one of the record come with the next look; that of a
    finished job is its end."""
    for attempt in client.run(job_operations.attempts(record.id)):
        is_end = record.state in FINISHED and attempt.run == record.run
        if attempt.run not in seen and attempt.run <= record.run and not is_end:
            seen.add(attempt.run)
            yield attempt


def _print_attempt(attempt: AttemptRecord, *, as_json: bool) -> None:
    if as_json:
        say_lines(show_json({"event": "attempt"} | asdict(attempt)))
        return
    where = f" on {attempt.holder}" if attempt.holder else ""
    error = _show_error(attempt.error)
    _print_line(attempt.ended_at, attempt.outcome, f"run {attempt.run}{where}{error and ': '}{error}")


def _print_state(record: JobRecord, *, as_json: bool) -> None:
    if as_json:
        names = ("id", "state", "waits", "attempt", "max_attempts", "run", "run_at", "holder", "progress", "error")
        say_lines(
            show_json({"event": "state", "at": datetime.now(UTC)} | {name: getattr(record, name) for name in names})
        )
        return
    _print_line(record.finished_at or datetime.now(UTC), record.state, _describe_state(record))


def _describe_state(record: JobRecord) -> str:
    if record.state in FINISHED:
        took = ""
        if record.finished_at is not None and record.started_at is not None:
            took = format_elapsed((record.finished_at - record.started_at).total_seconds())
        what = _show_error(record.error) or (show_json(record.result) if record.result is not None else "")
        return "  ".join(filter(None, (took, what)))
    if record.state == "running":
        progress = f"  {show_json(record.progress)}" if record.progress is not None else ""
        return f"on {record.holder or 'a node'}, attempt {record.attempt + 1} of {record.max_attempts}{progress}"
    later = f" until {format_local_time(record.run_at)}" if record.run_at > datetime.now(UTC) else ""
    return f"{record.waits or ''}{later}".strip()


def _show_error(error: dict[str, object] | None) -> str:
    if not error:
        return ""
    kind, message = str(error.get("type", error.get("kind", ""))), str(error.get("message", ""))
    return (kind if message == kind else f"{kind}: {message}").partition("\n")[0]


def watch_matches(options: GlobalOptions, conditions: Sequence[Condition], *, as_json: bool) -> NoReturn:
    """Prints what ends and fails, until Ctrl-C. It is about two seconds behind."""
    written = write_conditions(conditions)
    with options.open_client() as client:
        since: datetime | None = None
        while True:
            page = client.run(job_operations.read_ends(written, since, limit=10_000 if as_json else MOST_LINES))
            since = page.until
            for end in page.ends:
                _print_end(end, as_json=as_json)
            if page.total > len(page.ends):
                left_out = page.total - len(page.ends)
                say_lines(show_json({"event": "more", "count": left_out}) if as_json else f"and {left_out:,} more")
            time.sleep(TAIL_SECONDS)


def _print_end(end: JobEnd, *, as_json: bool) -> None:
    if as_json:
        say_lines(show_json({"event": "end"} | asdict(end)))
        return
    took = "" if end.started_at is None else format_elapsed((end.ended_at - end.started_at).total_seconds())
    error = (end.error or "").partition("\n")[0]
    again = f"again at {format_local_time(end.run_at)}" if end.run_at is not None else ""
    node = f"on {end.node}" if end.node else ""
    shown = str(end.id)[:_ID_WIDTH] if is_terminal() else str(end.id)
    what = "  ".join(filter(None, (shown, end.type, node, took, error, again)))
    _print_line(end.ended_at, end.outcome if end.state == "failed" else end.state, what)


def _print_line(at: datetime, word: str, text: str) -> None:
    say(format_local_time(at), "  ", paint(f"{word:<9}", STATE_COLOURS.get(word)), "  ", text)
