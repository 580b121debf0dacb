"""Several migrators at once, and migrators that are killed: real processes, because locks and death need them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.store.migration_sets import COLUMN, FUNCTION, INDEX, TABLE, read_set, source_of, write_set
from tests.waiting import until
from watchbill.postgres.migrate import migrate, status

GATE = 4711
# Without its lock_timeout, after which a migration is rolled back and lets another migrator in.
WAIT_AT_GATE = f"SET lock_timeout = 0; SELECT pg_advisory_lock_shared({GATE}), pg_advisory_unlock_shared({GATE});"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
WAITS_FOR_BUILD = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'watchbill migrate' AND state = 'idle' AND query LIKE '%pg_stat_progress_create_index%'
"""
MIGRATOR = """
import sys
from pathlib import Path
from watchbill.postgres.migrate import Source, migrate
url, directory = sys.argv[1], Path(sys.argv[2])
source = Source.of_directories(directory / "migrations", directory / "sql")
migrate(url, "watchbill", source, report=lambda line: print(line, flush=True))
"""

Migrator = subprocess.Popen[str]
Start = Callable[[str, Path], Migrator]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Migrator] = []

    def start_migrator(database: str, directory: Path) -> Migrator:
        command = [sys.executable, "-c", MIGRATOR, database, str(directory)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start_migrator
    for migrator in started:
        migrator.kill()
        migrator.communicate()


def kill_at_gate(start: Start, database: str, directory: Path) -> None:
    """The migration waits at a gate that is shut; there it is killed, and the server ends its session."""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'watchbill migrate'"
    with psycopg.connect(database, autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        migrator = start(database, directory)
        until(lambda: gate.execute(WAITING, (GATE,)).fetchone() == (1,))
        migrator.kill()
        migrator.wait()
        gate.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchbill migrate'"
        )
        until(lambda: gate.execute(sessions).fetchone() == (0,))


def test_concurrent_migrators_all_succeed(start: Start, database: str, tmp_path: Path) -> None:
    directory = write_set(tmp_path, TABLE, COLUMN, INDEX, "DROP INDEX boxes_size", functions={"010.sql": FUNCTION})
    migrators = [start(database, directory) for _ in range(4)]
    assert [migrator.wait() for migrator in migrators] == [0, 0, 0, 0]
    found = status(database, "watchbill", read_set(directory))
    assert (found.verdict, [row.version for row in found.applied]) == ("ready", [1, 2, 3, 4])


@pytest.mark.parametrize("first_line", ["", "-- no transaction\n"], ids=["transaction", "no transaction"])
def test_a_killed_migration_is_finished_by_the_next_run(
    start: Start, database: str, tmp_path: Path, first_line: str
) -> None:
    gated = f"{first_line}CREATE TABLE IF NOT EXISTS half ();\n{WAIT_AT_GATE}\nCREATE TABLE IF NOT EXISTS whole ();"
    directory = write_set(tmp_path, TABLE, gated, functions={"010.sql": FUNCTION})
    kill_at_gate(start, database, directory)
    source = read_set(directory)
    assert [row.version for row in status(database, "watchbill", source).applied] == [1]
    assert migrate(database, "watchbill", source).verdict == "ready"
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('watchbill.whole')::text").fetchone() == ("watchbill.whole",)


def test_a_waiting_migrator_takes_over_from_a_killed_one(start: Start, database: str, tmp_path: Path) -> None:
    directory = write_set(tmp_path, TABLE, f"{COLUMN}{WAIT_AT_GATE}")
    with psycopg.connect(database, autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        first = start(database, directory)
        assert first.stdout is not None
        assert [first.stdout.readline() for _ in range(2)] == ["schema watchbill\n", "migration 0001_step.sql\n"]
        until(lambda: gate.execute(WAITING, (GATE,)).fetchone() == (1,))
        second = start(database, directory)
        assert second.stdout is not None
        assert "the lock for migrations of this schema is held by server process" in second.stdout.readline()
        first.kill()
        gate.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
        assert second.wait() == 0
    assert status(database, "watchbill", read_set(directory)).verdict == "ready"


def test_migrate_waits_for_the_index_build_of_a_killed_migrator(start: Start, database: str, tmp_path: Path) -> None:
    """The server notices a client's death only at the end of the build, so the next migrator meets it at work."""
    waiting = """SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'watchbill migrate' AND wait_event_type = 'Lock'"""
    migrate(database, "watchbill", source_of(tmp_path, TABLE))
    directory = write_set(tmp_path, TABLE, INDEX)
    with psycopg.connect(database) as reader, psycopg.connect(database, autocommit=True) as observer:
        reader.execute(
            "DECLARE open_portal CURSOR FOR SELECT * FROM watchbill.boxes"
        )  # its snapshot holds the build up
        first = start(database, directory)
        until(lambda: observer.execute(waiting).fetchone() == (1,))
        first.kill()
        first.wait()
        second = start(database, directory)
        until(lambda: observer.execute(WAITS_FOR_BUILD).fetchone() == (1,))
        reader.rollback()
        assert second.wait() == 0
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'watchbill.boxes_size'::regclass"
        assert observer.execute(valid).fetchone() == (True,)
    assert status(database, "watchbill", read_set(directory)).verdict == "ready"
