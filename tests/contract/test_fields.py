"""The catalogues of fields agree with everything that writes the fields out: classes, TypedDicts, SQL, commands."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import psycopg
import pytest

from watchbill.app.job_options import JobOptions, JobOptionsDict
from watchbill.app.schedule_definition import Changes, Rule, Timing
from watchbill.cli import jobs as job_commands
from watchbill.cli import schedules as schedule_commands
from watchbill.cron.compiler import Policy
from watchbill.model.job import JobRecord, NewJob
from watchbill.model.job_fields import JOB_COLUMNS, JOB_FIELDS, JOB_OPTIONS
from watchbill.model.schedule import ScheduleRecord
from watchbill.model.schedule_fields import SCHEDULE_COLUMNS, SCHEDULE_FIELDS, SCHEDULE_OPTIONS
from watchbill.store.queries import queries

BESIDE_OPTIONS = {"name", "tenant", "now"}  # what else the SQL function add_schedule takes


@pytest.fixture
def connection(schema_database: str) -> Any:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def field_names(record: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]


def parameters(connection: psycopg.Connection, function: str) -> set[str]:
    """The names of a SQL function's parameters, of all its forms."""
    rows = connection.execute(
        "SELECT unnest(p.proargnames[:p.pronargs]) FROM pg_proc p"
        " WHERE p.pronamespace = 'watchbill'::regnamespace AND p.proname = %s",
        (function,),
    ).fetchall()
    return {name for (name,) in rows}


def columns(connection: psycopg.Connection, relation: str) -> list[str]:
    rows = connection.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum",
        (f"watchbill.{relation}",),
    ).fetchall()
    return [name for (name,) in rows]


def selected(connection: psycopg.Connection, query: str, params: Any) -> list[str]:
    """The columns that a named query answers with."""
    cursor = connection.execute(queries("watchbill")[query].encode(), params)
    return [column.name for column in cursor.description or ()]


def flags(group: Any, command: str) -> set[str]:
    """The options of a command, as they are typed."""
    import typer

    found = typer.main.get_command(group).commands[command]  # type: ignore[attr-defined]
    return {flag for param in found.params for flag in param.opts if flag.startswith("--")}


# -- jobs


def test_options_of_a_job_are_those_of_the_catalogue() -> None:
    assert set(field_names(JobOptions)) == JOB_OPTIONS.keys()
    assert list(JobOptionsDict.__annotations__) == field_names(JobOptions)


def test_columns_of_a_job_are_those_of_the_catalogue_in_its_order(connection: psycopg.Connection) -> None:
    """COPY depends on the order."""
    names = [field.name for field in JOB_COLUMNS]
    assert list(NewJob._fields) == names
    assert columns(connection, "new_job") == names
    assert parameters(connection, "enqueue") >= {*names, "strict"}


def test_queries_of_jobs_answer_with_the_fields_of_their_record(connection: psycopg.Connection) -> None:
    wanted: dict[str, Any] = dict.fromkeys(("type", "queue", "tenant", "after", "message"))
    wanted |= {"state": [], "limit": 1}
    assert selected(connection, "job", (None,)) == field_names(JobRecord)
    assert selected(connection, "jobs", wanted) == field_names(JobRecord)


def test_the_command_takes_the_options_of_a_job_that_have_a_flag() -> None:
    assert flags(job_commands.app, "enqueue") - {"--json", "--wait", "--unchecked"} == {
        field.flag for field in JOB_FIELDS if field.flag
    }


# -- schedules


def test_options_of_a_schedule_are_those_of_the_catalogue() -> None:
    assert Changes.__annotations__.keys() == SCHEDULE_OPTIONS.keys()
    assert Rule.__annotations__.keys() == SCHEDULE_OPTIONS.keys() - {"pattern"}
    assert Timing.__annotations__.keys() == Rule.__annotations__.keys() - {"task", "command", "role", "created_by"}
    assert SCHEDULE_OPTIONS["dst"].choices == get_args(Policy)


def test_columns_of_a_schedule_are_those_of_the_catalogue(connection: psycopg.Connection) -> None:
    assert set(columns(connection, "schedules")) >= set(SCHEDULE_COLUMNS)
    assert set(field_names(ScheduleRecord)) >= set(SCHEDULE_COLUMNS)
    assert parameters(connection, "add_schedule") == {*SCHEDULE_COLUMNS, *BESIDE_OPTIONS}


def test_queries_of_schedules_answer_with_the_fields_of_their_record(connection: psycopg.Connection) -> None:
    wanted = {"tenant": None, "category": None, "tag": None, "status": None, "after": None, "limit": 1}
    assert selected(connection, "schedule", ("", "")) == field_names(ScheduleRecord)
    assert selected(connection, "schedules", wanted) == field_names(ScheduleRecord)


@pytest.mark.parametrize(("command", "missing"), [("add", {"--pattern"}), ("update", {"--enabled"})])
def test_the_commands_take_the_options_of_a_schedule(command: str, missing: set[str]) -> None:
    of_catalogue = {
        (field.flag or f"--{field.name.replace('_', '-')}").partition("/")[0] for field in SCHEDULE_FIELDS if field.help
    }
    assert flags(schedule_commands.app, command) - {"--json", "--tenant", "--unchecked"} == of_catalogue - missing
