"""Checks of this machine: Python, its time zones, the embedded server."""

from __future__ import annotations

import re
import sys
import zoneinfo
from datetime import datetime, timedelta
from pathlib import Path

import psycopg

from watchbill.errors import WatchbillError
from watchbill.postgres.checks.finding import Finding, Patient
from watchbill.postgres.embedded import running_url
from watchbill.postgres.embedded.data_directory import choose_binaries
from watchbill.postgres.embedded.home import find_home
from watchbill.postgres.embedded.leftovers import find_leftovers
from watchbill.settings import Settings

_OLDEST_PYTHON = (3, 11)
# Names that are no places, and those that PostgreSQL takes for abbreviations with a fixed offset.
_NO_PLACES = {"localtime", "Factory", "EET", "WET", "CET", "MET", "EST", "MST", "HST"}
_STARTS = re.compile(r"^(\S+ \S+) \S+ \[\d+\] LOG:  starting PostgreSQL", re.MULTILINE)
_READY = re.compile(r"^(\S+ \S+) \S+ \[\d+\] LOG:  database system is ready to accept", re.MULTILINE)


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding("python", "wrong", f"Python {version} is too old.", "Watchbill needs Python 3.11 or newer.")
    if psycopg.pq.__impl__ == "python":
        says = f"Python {version}; psycopg {psycopg.__version__} runs without its fast part."
        return Finding("python", "note", says, "pip install 'psycopg[binary]' makes it some times as quick.")
    return Finding("python", "ok", f"Python {version}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__}).")


def check_zones(patient: Patient) -> Finding:
    """A schedule's next time is computed by one side and may be shown by the other: their data should agree."""
    here = zoneinfo.available_timezones() - _NO_PLACES
    if "Europe/Berlin" not in here:
        return Finding("zones", "wrong", "Python has no time zone data.", "pip install tzdata")
    there = {name for (name,) in patient.ask("SELECT name FROM pg_timezone_names")}
    both = sorted(here & there)
    other = _different(patient, both) + sorted(here - there)
    if other:
        says = f"Python and the server disagree on {len(other)} of {len(here)} zones: {', '.join(other[:20])}."
        hint = "Update the older data: `pip install -U tzdata` here, the package tzdata on the server."
        return Finding("zones", "note", says, hint)
    return Finding("zones", "ok", f"Python and the server agree on {len(both)} zones.")


def _different(patient: Patient, names: list[str]) -> list[str]:
    """Compared at four instants of the coming year, which any change of rules that matters now will touch."""
    instants = [patient.clock() + timedelta(days=91 * quarter) for quarter in range(4)]
    query = """
        SELECT name, array_agg(extract(epoch FROM (at AT TIME ZONE name) - (at AT TIME ZONE 'UTC'))::int ORDER BY at)
        FROM unnest(%s::text[]) AS name, unnest(%s::timestamptz[]) AS at GROUP BY name ORDER BY name
    """
    return [name for name, offsets in patient.ask(query, names, instants) if offsets != _offsets(name, instants)]


def _offsets(name: str, instants: list[datetime]) -> list[int]:
    zone = zoneinfo.ZoneInfo(name)
    offsets = (instant.astimezone(zone).utcoffset() for instant in instants)
    return [int(offset.total_seconds()) for offset in offsets if offset is not None]


def check_embedded(project: Path, settings: Settings) -> Finding:
    if not (project / ".watchbill").exists():
        return Finding("embedded", "ok", f"No embedded server in {project}; `watchbill up` would make one.")
    try:
        home = find_home(project)
        home.refuse_if_foreign()
        binaries = choose_binaries(home.data, settings.embedded_binaries)
    except WatchbillError as error:
        return Finding("embedded", "wrong", error.message, error.hint or "")
    state = "runs" if running_url(project) else "is stopped"
    took = _start_took(home.log)
    last = f"; its last start took {took:.2f} s" if took is not None else ""
    return Finding("embedded", "ok", f"The server in {home.directory} {state}{last}. {binaries}.")


def check_leftovers() -> Finding:
    found = [*find_leftovers()]
    if not found:
        return Finding("leftovers", "ok", "No data of projects that are gone.")
    says = f"{len(found)} projects that are not there any more have data: {', '.join(str(p) for _, p in found[:5])}."
    return Finding("leftovers", "note", says, "\n".join(f"rm -r {directory}" for directory, _ in found[:5]))


def _start_took(log: Path) -> float | None:
    """From the server's own log: seconds from its first word to its readiness."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return None
    started = [*_STARTS.finditer(text)]
    ready = _READY.search(text, started[-1].end()) if started else None
    if ready is None:
        return None
    return (datetime.fromisoformat(ready[1]) - datetime.fromisoformat(started[-1][1])).total_seconds()
