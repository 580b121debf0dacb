"""Calls between SQL functions point down: a function calls functions of its own room and of the rooms below it.

The rooms are the folders of src/watchbill/store/sql, in the order of rooms.txt. Some calls point up on purpose: what
ends a job or a node must tell those who watch it. They are listed here; a call that is not listed fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from watchbill.postgres.migration_files import Source

ROOT = Path(__file__).parents[2]
SQL_FILES = {str(file.relative_to(ROOT)) for folder in ("src", "tests") for file in ROOT.glob(f"{folder}/**/*.sql")}
FILES = [file for file in Source.of_package("watchbill.store").functions if "/" in file.name]
ROOMS = list(dict.fromkeys(file.name.split("/")[0] for file in FILES))

_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)(.*?)(?=CREATE OR REPLACE FUNCTION|\Z)", re.DOTALL)
_NO_CODE = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")
_FILE_OF_A_ROOM = re.compile(rf"\b(?:{'|'.join(ROOMS)})/\w+\.sql\b|(?<![\w/])\d{{3}}_\w+\.sql\b")

# (caller, called): why the call points up.
POINTS_UP = {
    ("_report_endings", "_close_slots"): "the end of a job closes its slot in the same transaction",
    ("_set_full_jobs_aside", "_finish_jobs"): "a limit may end the jobs that find it full",
    ("_replace_waiting_jobs", "_finish_jobs"): "a limit may keep only the newest job that waits",
    ("_replace_waiting_jobs", "_request_stop"): "a limit may stop the job that holds it for a newer one",
    ("_find_route_lane", "_route_lane"): "the lane of a routed job is that of its token",
    ("_job_flow", "_route_lane"): "the lane of a routed job is that of its token",
    ("_reschedule_job", "_check_command_start"): "a bound role must not run a SQL command again",
    ("_reinsert_finished_job", "_reopen_slot"): "a job that runs again opens its slot again",
    ("leave", "_end_candidacies"): "a node that ends leads nothing any more",
    ("leave", "_wake_fellow_members"): "other members take over its tokens",
    ("leave", "_release_orphans"): "schedules that only this node declared",
    ("_mark_node_lost", "_end_candidacies"): "a node that ends leads nothing any more",
    ("_mark_node_lost", "_wake_fellow_members"): "other members take over its tokens",
    ("_mark_node_lost", "_release_orphans"): "schedules that only this node declared",
}


class Call(NamedTuple):
    """`caller` contains a call of `called`."""

    caller: str
    called: str


def read_functions() -> Iterator[tuple[str, str, str]]:
    """Name, room and code of each function."""
    for file in FILES:
        for name, text in _FUNCTION.findall(file.text):
            yield name, file.name.split("/")[0], _NO_CODE.sub("", text)


def find_calls_up() -> set[Call]:
    functions = list(read_functions())
    room_of = {name: ROOMS.index(room) for name, room, _ in functions}
    return {
        Call(name, called)
        for name, room, code in functions
        for called in _CALL.findall(code)
        if room_of.get(called, -1) > ROOMS.index(room)
    }


def test_rooms_are_those_of_the_architecture_page() -> None:
    shown = re.findall(r"^\| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert shown == ROOMS


def test_calls_between_rooms_point_down() -> None:
    assert sorted(find_calls_up() - set(POINTS_UP)) == []


def test_every_listed_exception_is_still_needed() -> None:
    assert sorted(set(POINTS_UP) - find_calls_up()) == []


def test_every_sql_file_that_code_or_documents_name_exists() -> None:
    """Also by an old name with a number. Migrations never change, and so may name files that are gone."""
    pages = [*ROOT.glob("*.md"), *(file for end in ("py", "md", "sql") for file in ROOT.glob(f"[bdest]*/**/*.{end}"))]
    missing = [
        (file.name, name)
        for file in pages
        if "migrations" not in file.parts and not file.is_relative_to(ROOT / "tests/migration")
        for name in _FILE_OF_A_ROOM.findall(file.read_text())
        if not (name[0].isdigit() and file.is_relative_to(ROOT / "tests"))  # tests of the migrator make up such names
        if not any(path.endswith(f"/{name}") for path in SQL_FILES)
    ]
    assert missing == []
