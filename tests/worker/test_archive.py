"""Archive: a day is in a file, recorded and whole, before it is gone; a crash at any step loses and doubles nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from watchbill.maintenance.archive import Archiver
from watchbill.maintenance.retention import Keep, Retention
from watchbill.redaction import Redaction
from watchbill.store.node_connection import NodeConnection
from watchbill.store.queries import queries

DAY = "finished_succeeded_20200505"
JOBS = 30


@pytest.fixture
def url(schema_database: str) -> str:
    """With thirty succeeded jobs of a day in 2020, one of them with an idempotency key."""
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.make_partitions(0, '2020-05-05', '{finished_succeeded}')")
        for number in range(JOBS):
            connection.execute(
                "SELECT watchbill.enqueue("
                "'old', jsonb_build_object('n', %s::int, 'card', '4711'), idempotency_key => %s)",
                (number, "k" if number == 0 else None),
            )
        connection.execute("SELECT watchbill.register('n', '1 hour')")
        connection.execute("""
            SELECT watchbill.settle(epoch, array_agg(c.id), array_agg(c.fence), now => '2020-05-05 12:00+00')
            FROM watchbill.nodes, watchbill.claim(epoch, max => 100) c
            GROUP BY epoch""")
    return schema_database


class Stop(Exception):
    """The process dies here."""


def run(url: str, place: str | None, redaction: Redaction = Redaction(), die_at: str = "") -> list[str]:  # noqa: B008
    """Retention, until it dies before or after the statement `die_at`. What it reports."""
    said: list[str] = []

    async def retain() -> None:
        connection = NodeConnection(url, queries("watchbill"), purpose="retention", timeout=60)
        if die_at:
            connection.execute = die(connection.execute, die_at)  # type: ignore[method-assign, assignment]
        report = lambda message, *params: said.append(message % params)  # noqa: E731
        archiver = None if place is None else Archiver(connection, place, redaction, report)
        try:
            await Retention(connection, Keep(), report, archiver).run()
        finally:
            await connection.close()

    asyncio.run(retain())
    return said


def die(execute: Callable[..., Awaitable[Any]], at: str) -> Callable[..., Awaitable[Any]]:
    word, query = at.split()

    async def execute_and_die(name: str, *params: Any) -> Any:
        if name == query and word == "before":
            raise Stop
        answer = await execute(name, *params)
        if name == query:
            raise Stop
        return answer

    return execute_and_die


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def rows_of(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file) as lines:
        return [json.loads(line) for line in lines]


def test_a_day_is_in_a_file_before_it_is_gone(url: str, tmp_path: Path) -> None:
    said = run(url, str(tmp_path))
    (file,) = tmp_path.iterdir()
    assert f"Retention has archived {JOBS} rows of {DAY} in {file}" in said
    assert sorted(row["payload"]["n"] for row in rows_of(file)) == list(range(JOBS))
    assert ask(url, "SELECT partition, row_count, place FROM watchbill.archive_list()") == [(DAY, JOBS, str(file))]
    assert ask(url, f"SELECT to_regclass('watchbill.{DAY}')") == [(None,)]
    assert ask(url, "SELECT count(*) FROM watchbill.finished_jobs") == [(0,)]
    assert ask(url, "SELECT count(*) FROM watchbill.idempotency") == [(0,)]


@pytest.mark.parametrize(
    "die_at",
    [
        "after prune_history",
        "before read_detached_day",
        "after read_detached_day",
        "before end_archive",
        "after end_archive",
    ],
)
def test_a_crash_loses_nothing_and_doubles_nothing(url: str, tmp_path: Path, die_at: str) -> None:
    with pytest.raises(Stop):
        run(url, str(tmp_path), die_at=die_at)
    run(url, str(tmp_path))
    (file,) = tmp_path.iterdir()
    assert len(rows_of(file)) == JOBS
    assert ask(url, "SELECT partition, row_count FROM watchbill.archive_list()") == [(DAY, JOBS)]
    assert ask(url, "SELECT name FROM watchbill._list_detached_days()") == []


def test_what_is_hidden_is_hidden_in_the_file(url: str, tmp_path: Path) -> None:
    run(url, str(tmp_path), Redaction(("payload.card",)))
    (file,) = tmp_path.iterdir()
    assert {row["payload"]["card"] for row in rows_of(file)} == {"[hidden]"}


def test_a_place_that_cannot_be_written_keeps_the_day(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with caplog.at_level(logging.ERROR):
        run(url, str(blocked / "below"))
    assert f"Could not archive {DAY}" in caplog.text
    assert ask(url, "SELECT name, parent FROM watchbill._list_detached_days()") == [(DAY, "finished_succeeded")]
    assert ask(url, f"SELECT count(*) FROM watchbill.{DAY}") == [(JOBS,)]
    found = ask(url, "SELECT reason FROM watchbill._find_table_alerts(watchbill.now()) WHERE rule = 'retention'")
    assert found == [(f"1 days of finished_succeeded wait to be archived, the first is {DAY}",)]


def test_a_node_without_a_place_drops_no_day_while_others_archive(url: str, tmp_path: Path) -> None:
    run(url, str(tmp_path))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT watchbill.make_partitions(0, '2020-05-06', '{attempts}')")
    assert any("no archive_to" in line for line in run(url, None))
    assert ask(url, "SELECT to_regclass('watchbill.attempts_20200506') IS NULL") == [(False,)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE watchbill.archives SET at = at - interval '8 days'")
    assert "Retention has removed attempts_20200506" in run(url, None)


def test_an_archive_in_a_url(url: str) -> None:
    run(url, "memory://archive/watchbill")
    ((place,),) = ask(url, "SELECT place FROM watchbill.archive_list()")
    assert place.startswith("memory://")
    from watchbill.maintenance.archive import open_place, read_rows

    assert len(list(read_rows(open_place(place).open(place)))) == JOBS


@pytest.fixture
def watchbill(url: str, tmp_path: Path) -> Watchbill:
    project = tmp_path / "project"
    project.mkdir()
    place = {"WATCHBILL_ARCHIVE_TO": str(tmp_path / "archive")}
    return Watchbill(project, {"WATCHBILL_DATABASE_URL": url, **place})


def test_commands_list_check_and_restore(watchbill: Watchbill, url: str, tmp_path: Path) -> None:
    assert watchbill.here("archive", "list").stdout.startswith("No day was archived.")
    preview = json.loads(watchbill.here("retention", "run", "--dry-run", "--json").stdout)
    assert [(row["what"], row["action"]) for row in preview] == [(DAY, "archive")]
    assert f"Retention has archived {JOBS} rows of {DAY}" in watchbill.here("retention", "run").stdout
    (listed,) = json.loads(watchbill.here("archive", "list", "--json").stdout)
    assert (listed["day"], listed["rows"]) == (DAY, JOBS)
    assert watchbill.here("archive", "check").returncode == 0
    done = watchbill.here("archive", "restore", DAY)
    assert done.stdout == f"{JOBS} rows of {DAY} are in the table archived_{DAY}. Drop it when you have done.\n"
    rows = ask(url, f"SELECT count(*), min(finished_at)::text FROM watchbill.archived_{DAY}")
    assert rows[0][0] == JOBS
    again = watchbill.here("archive", "restore", DAY)
    assert (again.returncode, f"There is a table archived_{DAY} already." in again.stderr) == (2, True)
    (file,) = (tmp_path / "archive").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    damaged = watchbill.here("archive", "check", DAY)
    assert (damaged.returncode, "changed" in damaged.stdout) == (1, True)
    file.unlink()
    assert "missing" in watchbill.here("archive", "check").stdout
    assert watchbill.here("archive", "restore", DAY).returncode == 1
    assert watchbill.here("archive", "check", "other").returncode == 2
