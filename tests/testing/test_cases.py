"""WatchbillTestCase in a project that runs its tests with unittest alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

TASKS = """
from watchbill import App

app = App("postgresql://nobody@nowhere.invalid/orders")
sent = []

@app.task
def send(to: str) -> int:
    sent.append(to)
    return len(to)

@app.task
async def asend(to: str) -> None:
    sent.append(to)
"""
TESTS = """
import unittest

from tasks import app, asend, send, sent
from watchbill.testing import WatchbillTestCase


class Blocking(WatchbillTestCase):
    def setUp(self):
        super().setUp()
        send.enqueue("set@up")

    def test_what_was_enqueued_is_found_and_run(self):
        self.assertEqual(len(app.jobs.list()), 1)
        self.watchbill.assert_enqueued(send, to="set@up")
        self.watchbill.assert_not_enqueued(send, to="x@y")
        job = send.using(delay=3600).enqueue("a@b")
        self.assertEqual([run.outcome for run in self.watchbill.drain()], ["succeeded"])
        self.watchbill.advance(hours=1)
        self.assertEqual(len(self.watchbill.drain()), 1)
        self.assertEqual((job.result(timeout=0), sent[-1]), (3, "a@b"))

    def test_each_test_begins_with_an_empty_queue(self):
        self.assertEqual(len(self.watchbill.jobs()), 1)

    def test_a_failed_assertion_is_a_failure(self):
        with self.assertRaisesRegex(self.failureException, "These were:"):
            self.watchbill.assert_enqueued(send, to="x@y")


class Async(WatchbillTestCase, unittest.IsolatedAsyncioTestCase):
    async def test_async_tasks_run_on_the_loop_of_the_test(self):
        await asend.aenqueue("c@d")
        self.watchbill.assert_enqueued(asend, to="c@d")
        await self.watchbill.aassert_enqueued(asend, to="c@d")
        await self.watchbill.adrain(raising=True)
        self.assertEqual(sent[-1], "c@d")


class Plain(unittest.TestCase):
    def test_after_the_test_an_app_is_connected_as_before(self):
        self.assertIn("nowhere.invalid", app.database_url)
"""


def run_unittest(directory: Path, **variables: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WATCHBILL_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unittest", "-v"],
        cwd=directory,
        env=inherited | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_unittest_project_has_a_queue_on_the_database_it_names(tmp_path: Path, given_database: str) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "test_tasks.py").write_text(TESTS)
    for _ in range(2):
        assert "Ran 5 tests" in run_unittest(tmp_path, WATCHBILL_TEST_DATABASE_URL=given_database)
    with psycopg.connect(given_database) as connection:
        assert connection.execute("SELECT test FROM watchbill.installation").fetchall() == [(True,)]


def test_unittest_project_uses_the_embedded_server_by_default(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "test_tasks.py").write_text(TESTS)
    assert "OK" in run_unittest(tmp_path)
    assert [path.name.split("-")[0] for path in (tmp_path / ".watchbill").iterdir()] == ["tests"]
