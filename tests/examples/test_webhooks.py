"""examples/webhooks: signed webhooks arrive, also while their secret is replaced and when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.examples.web import PATIENCE, Web, serving
from tests.waiting import until

PROJECT = Path(__file__).parents[2] / "examples" / "webhooks"
OLD, NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


class Shop:
    def __init__(self, url: str, web: Web) -> None:
        self.web = web
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))}
        self.environment = inherited | {
            "DATABASE_URL": url,
            "RECEIVER": f"http://127.0.0.1:{web.port}/hooks",
            "WATCHBILL_CONNECTOR_ALLOW": f"127.0.0.1:{web.port}",
            "WATCHBILL_SECRET_OLD": OLD,
            "WATCHBILL_SECRET_NEW": NEW,
            "WATCHBILL_LEASE": "2s",
        }

    def run(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, *command], cwd=PROJECT, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def sign_with(self, *names: str) -> None:
        options = [word for name in names for word in ("--signature", f"env:WATCHBILL_SECRET_{name}")]
        self.run("-m", "watchbill.cli", "endpoints", "update", "crm", *options)

    def start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "watchbill.cli", "worker", "shop:app"]
        return subprocess.Popen(command, cwd=PROJECT, env=self.environment, stdout=subprocess.DEVNULL)

    @contextmanager
    def working(self) -> Iterator[subprocess.Popen[bytes]]:
        process = self.start_worker()
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def orders(self) -> list[int]:
        found: list[int] = self.web("GET", "/orders")[1]["orders"]
        return found

    def deliveries(self) -> list[str]:
        found: list[str] = self.web("GET", "/orders")[1]["deliveries"]
        return found


def end_other_sessions(url: str, kept: int) -> None:
    """End every session of the database but `kept`, and wait until they are gone."""
    query = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)
    """
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: not connection.execute(query, [kept]).fetchall(), PATIENCE)


@pytest.fixture
def shop(schema_database: str) -> Iterator[Shop]:
    environment = {**os.environ, "WATCHBILL_SECRET_OLD": OLD, "WATCHBILL_SECRET_NEW": NEW}
    command = [sys.executable, "-m", "uvicorn", "receiver:api", "--fd", "{fd}"]
    with serving(command, PROJECT, environment) as web:
        yield Shop(schema_database, web)


def test_no_webhook_is_lost_while_the_secret_is_replaced(shop: Shop, schema_database: str) -> None:
    with shop.working(), psycopg.connect(schema_database, autocommit=True) as connection:
        until(lambda: connection.execute("SELECT FROM watchbill.connector_endpoints").fetchall(), PATIENCE)
        shop.run("shop.py", *map(str, range(10)))
        until(lambda: len(shop.orders()) == 10, PATIENCE)
        shop.sign_with("OLD", "NEW")
        shop.run("shop.py", *map(str, range(10, 20)))
        shop.web("PUT", "/secrets/WATCHBILL_SECRET_NEW")
        shop.run("shop.py", *map(str, range(20, 30)))
        until(lambda: len(shop.orders()) == 30, PATIENCE)
        shop.sign_with("NEW")
        shop.run("shop.py", *map(str, range(30, 40)))
        until(lambda: len(shop.orders()) == 40, PATIENCE)
    assert shop.orders() == list(range(40))
    assert shop.web("POST", "/hooks", {"type": "forged"})[0] == 400


def test_a_worker_that_is_killed_after_the_answer_delivers_again_with_the_same_id(
    shop: Shop, schema_database: str
) -> None:
    """Another session keeps the history locked, so the worker waits with its ending when it is killed.

    PostgreSQL would finish a statement that waits for the lock although its client is gone, so these sessions are ended
    before the lock is given back.
    """
    with psycopg.connect(schema_database) as connection:
        shop.run("shop.py", "7")
        connection.execute("LOCK TABLE watchbill.finished_jobs IN SHARE MODE")
        first = shop.start_worker()
        until(lambda: len(shop.deliveries()) == 1, PATIENCE)
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
        end_other_sessions(schema_database, connection.info.backend_pid)
        connection.rollback()
        with shop.working():
            until(lambda: len(shop.deliveries()) == 2, PATIENCE)
            connection.autocommit = True
            until(lambda: connection.execute("SELECT FROM watchbill.finished_jobs").fetchall(), PATIENCE)
    assert len(set(shop.deliveries())) == 1
    assert shop.orders() == [7]
