"""Bulk operations with real processes: a node that is killed, and a command that is interrupted."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until

JOBS = 3000
FILL = f"""
SELECT count(*) FROM watchbill.enqueue_many((
  SELECT jsonb_agg('{{"type": "task", "queue": "elsewhere", "max_attempts": 1, "payload": {{}}}}'::jsonb)
  FROM generate_series(1, {JOBS})));
SELECT watchbill.register('clerk', '1 hour');
SELECT count(*)
FROM watchbill.node n, LATERAL watchbill.claim(n.epoch, '{{elsewhere}}', {JOBS}) c,
  LATERAL watchbill.fail(c.id, c.fence);
SELECT watchbill.leave(epoch) FROM watchbill.node
"""
PROGRAM = """
from watchbill import App

app = App(lease="1s")
"""


@pytest.fixture
def connection(schema_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute(FILL.encode())
        yield connection


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


@contextmanager
def process(watchbill: Watchbill, *words: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        watchbill.command(*words), cwd=watchbill.directory, env=watchbill.environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def read(connection: psycopg.Connection) -> tuple[str, int]:
    row = connection.execute("SELECT state, done FROM watchbill.bulk_operations").fetchone()
    return row or ("", 0)


def test_killed_node_repeats_nothing_and_leaves_nothing_out(
    watchbill: Watchbill, connection: psycopg.Connection
) -> None:
    connection.execute(
        """SELECT watchbill.start_operation('retry', '[{"field": "type", "operator": "=", "values": ["task"]}]')"""
    )
    with process(watchbill, "worker", "shop:app") as first:
        until(lambda: read(connection)[1] > 0)
        first.send_signal(signal.SIGKILL)
        first.wait()
    state, done = read(connection)
    assert (state, done < JOBS) == ("running", True), "it was killed too late"
    with process(watchbill, "worker", "shop:app"):
        until(lambda: read(connection)[0] == "done")
    assert read(connection) == ("done", JOBS)
    retried = connection.execute(
        "SELECT count(*), count(DISTINCT subject) FROM watchbill.audit WHERE action = 'reschedule'"
    ).fetchone()
    assert retried == (JOBS, JOBS)
    assert connection.execute("SELECT count(*) FROM watchbill.jobs").fetchone() == (JOBS,)


def test_backfill_of_a_schedule_and_of_a_file(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    """These are the commands of docs/howto/bulk.md."""
    connection.execute(
        "SELECT watchbill.add_schedule('nightly', every => '1 hour', type => 'nightly', start => '2025-01-01Z')"
    )
    span = ("--from", "2025-03-01T00:00Z", "--to", "2025-03-01T04:30Z")
    looked = watchbill.here("backfill", "slots", "nightly", *span, "--dry-run")
    assert (looked.returncode, looked.stdout.split(",")[0]) == (0, "5 slots")
    done = watchbill.here("backfill", "slots", "nightly", *span, "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "5 jobs enqueued")
    again = watchbill.here("backfill", "slots", "nightly", *span, "--yes")
    assert again.stdout.splitlines() == ["0 slots", "5 other slots left out: a backfill has made its job already"]
    shown = watchbill.here("schedules", "history", "nightly").stdout
    assert shown.count("(backfill)") == 5
    assert "no schedule 'nightli'" in watchbill.here("backfill", "slots", "nightli", *span).stderr

    items = watchbill.directory / "items.jsonl"
    items.write_text('{"item_id": 1}\n\n{"item_id": "b"}\n')
    words = ("backfill", "enqueue", "reindex", "--file", "items.jsonl", "--key", "{item_id}", "--unchecked", "--yes")
    first, second = watchbill.here(*words), watchbill.here(*words)
    assert (first.returncode, first.stdout.splitlines()) == (0, ["2 jobs of type reindex", "2 jobs enqueued"])
    assert second.stdout.splitlines()[1:] == ["0 jobs enqueued", "2 items not enqueued: a job has its key"]
    found = connection.execute("SELECT idempotency_key, payload FROM watchbill.jobs WHERE type = 'reindex' ORDER BY 1")
    assert found.fetchall() == [("1", {"item_id": 1}), ("b", {"item_id": "b"})]
    for text, message in (
        ("{", "Line 1 is not JSON"),
        ("[1]", "Line 1 is not a JSON object"),
        ("{}", "has no 'item_id'"),
    ):
        items.write_text(text)
        refused = watchbill.here(*words)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


def test_interrupted_command_leaves_its_operation_and_says_how_to_find_it(
    watchbill: Watchbill, connection: psycopg.Connection
) -> None:
    words = ("jobs", "retry", "--where", "type:task", "--rate", "1/s", "--yes")
    with process(watchbill, *words) as started:
        until(lambda: read(connection)[1] > 0)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate()
    (number,) = connection.execute("SELECT id FROM watchbill.bulk_operations").fetchone() or (0,)
    assert started.returncode == 130
    assert f"Operation {number} goes on while a node runs." in errors
    assert f"`watchbill operations show {number}`" in errors
    assert read(connection)[0] == "running"
