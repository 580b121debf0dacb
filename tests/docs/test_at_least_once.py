"""docs/howto/at_least_once.md: its module, its tests and its statement, with tests for what it says beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.docs.programs import blocks, environment

PAGE = "howto/at_least_once.md"
_TABLES = """
import psycopg
import pytest

from watchbill.testing import Database

STATEMENTS = (
    "CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, state text)",
    "CREATE TABLE IF NOT EXISTS entries (order_id int, amount int)",
    "CREATE TABLE IF NOT EXISTS invoices (order_id int, text text)",
)


@pytest.fixture(scope="session", autouse=True)
def tables(watchbill_database: Database) -> None:
    with psycopg.connect(watchbill_database.url) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
"""
_MORE_TESTS = """
import psycopg

import shop
from watchbill import current_job


def rows(table):
    with psycopg.connect(shop.app.database_url) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def test_a_failed_booking_leaves_no_entry_and_no_receipt(watchbill, monkeypatch):
    fails = True

    def using(**options):
        nonlocal fails
        if fails:
            fails = False
            raise ConnectionError
        return type(shop.receipt).using(shop.receipt, **options)

    monkeypatch.setattr(shop.receipt, "using", using)
    before = len(rows("entries"))
    shop.book.enqueue(2, 9)
    runs = watchbill.drain(fast_retries=True)
    assert [(run.type, run.outcome) for run in runs] == [
        ("shop.book", "failed"), ("shop.book", "succeeded"), ("shop.receipt", "succeeded")
    ]
    assert len(rows("entries")) == before + 1


def test_a_run_that_lost_its_job_publishes_nothing(watchbill, monkeypatch):
    texts = iter(["old", "new"])

    def render(order):
        text = next(texts)
        if text == "old":
            shop.app.jobs.release(current_job().id)
        return text

    monkeypatch.setattr(shop, "render", render)
    shop.publish.enqueue(3)
    watchbill.drain()
    assert rows("invoices") == [(3, "new")]


def test_one_attempt_is_dead_at_once(watchbill):
    shop.announce.enqueue("sale")
    assert [run.state for run in watchbill.drain(fast_retries=True)] == ["dead"]


def test_a_key_makes_one_job(watchbill):
    jobs = [shop.charge.using(idempotency_key="event-1").enqueue(7) for _ in range(2)]
    assert [job.created for job in jobs] == [True, False]
    assert jobs[0].id == jobs[1].id
"""


def test_at_least_once_guide_tests_pass(database: str, tmp_path: Path) -> None:
    for text in blocks(PAGE):
        file = re.match(r"# (\w+\.py)\n", text)
        assert file
        with (tmp_path / file[1]).open("a") as written:
            written.write(text)
    (tmp_path / "conftest.py").write_text(_TABLES)
    (tmp_path / "test_more.py").write_text(_MORE_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--watchbill-database-url", database]
    done = subprocess.run(command, cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=False)
    assert "7 passed" in done.stdout, done.stdout


def test_at_least_once_guide_fence_refuses_an_older_write(database: str) -> None:
    [statement] = blocks(PAGE, "sql")
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE documents (id int PRIMARY KEY, text text, fence bigint)")
        connection.execute("INSERT INTO documents VALUES (1, 'first', 41)")
        assert connection.execute(statement.encode()).rowcount == 1
        connection.execute("UPDATE documents SET fence = 43")
        assert connection.execute(statement.encode()).rowcount == 0
