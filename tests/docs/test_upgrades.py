"""docs/howto/upgrades.md: old and new code side by side, a restored copy, and what `watchbill db` says."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.docs.programs import DOCS, blocks, run_program
from tests.servers import Server
from tests.store.test_copies import dump, restore
from watchbill.cli.db import _EXIT_CODES

PAGE = "howto/upgrades.md"
_SIDE_BY_SIDE = """
import time

import after
import before

old = before.charge.enqueue(1, 2.50)
new = after.charge.enqueue(2, 350)
with before.app.node():
    print(old.result(timeout=30))
    until = time.monotonic() + 30
    while new.get().wait != "unsupported" and time.monotonic() < until:
        time.sleep(0.05)
print(new.get().wait)
old = before.charge.enqueue(3, 4.50)
with after.app.node():
    print(old.result(timeout=30))
    print(new.result(timeout=30))
"""
_NEW_PARAMETER = """
import time

from watchbill import App

old, new, careless = App(), App(), App()


@old.task(type="greet")
def greet(name: str) -> str:
    return f"hello {name}"


@new.task(type="greet", version=2)
def greet_again(name: str, mark: str = ".") -> str:
    return f"hello {name}{mark}"


@careless.task(type="greet")
def greet_without_version(name: str, mark: str = ".") -> str:
    return f"hello {name}{mark}"


def wait_for(job, **expected) -> None:
    until = time.monotonic() + 30
    while any(getattr(job.get(), name) != value for name, value in expected.items()) and time.monotonic() < until:
        time.sleep(0.05)
    print(expected)


sent, lost = greet_again.enqueue("bob", "!"), greet_without_version.enqueue("cy", "!")
with old.node():
    wait_for(sent, wait="unsupported")
    wait_for(lost, state="dead")
waiting = greet.enqueue("ada")
with new.node():
    print(waiting.result(timeout=30), sent.result(timeout=30))
print(lost.get().state)
"""
_WAIT_FOR_END = """
import time

from after import app

with app.node():
    until = time.monotonic() + 60
    while app.jobs.get(JOB).state not in ("succeeded", "dead") and time.monotonic() < until:
        time.sleep(0.05)
print(app.jobs.get(JOB).state)
"""


def write_modules(directory: Path) -> None:
    for text in blocks(PAGE):
        name = text.partition("\n")[0].removeprefix("# ")
        (directory / name).write_text(text)


def test_upgrade_guide_runs_both_versions_of_a_task(schema_database: str, tmp_path: Path) -> None:
    write_modules(tmp_path)
    lines = run_program(_SIDE_BY_SIDE, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert lines == ["order 1: 250 cents", "unsupported", "order 3: 450 cents", "order 2: 350 cents"]


def test_upgrade_guide_new_parameter_needs_a_new_version(schema_database: str, tmp_path: Path) -> None:
    lines = run_program(_NEW_PARAMETER, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert lines[-2:] == ["hello ada. hello bob!", "dead"]


def test_upgrade_guide_statement_counts_versions(schema_database: str, tmp_path: Path) -> None:
    write_modules(tmp_path)
    program = "import after, before\nbefore.charge.enqueue(1, 2.5)\nafter.charge.enqueue(2, 350)\n"
    run_program(program, tmp_path, {"DATABASE_URL": schema_database})
    [statement] = blocks(PAGE, "sql")
    with psycopg.connect(schema_database) as connection:
        assert sorted(connection.execute(statement.encode()).fetchall()) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("max_attempts", [10, 1])
def test_upgrade_guide_restored_copy_continues(
    server: Server, schema_database: str, tmp_path: Path, max_attempts: int
) -> None:
    """Its job was running when the backup was made."""
    write_modules(tmp_path)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('old', lease => '1 second', types => '{\"shop.charge\": 1}')")
        connection.execute(
            "SELECT watchbill.enqueue('shop.charge', '{\"order\": 1, \"euros\": 2.5}', max_attempts => %s)",
            [max_attempts],
        )
        claim = "SELECT c.id FROM watchbill.node n, LATERAL watchbill.claim(n.epoch) c"
        [(job,)] = connection.execute(claim.encode()).fetchall()
    copy = server.url(server.create_database())
    restore(server, copy, dump(server, schema_database))
    program = _WAIT_FOR_END.replace("JOB", repr(str(job)))
    expected = "dead\n" if max_attempts == 1 else "succeeded\n"
    assert run_program(program, tmp_path, {"DATABASE_URL": copy}) == expected


def test_upgrade_guide_commands_work(schema_database: str, tmp_path: Path) -> None:
    watchbill = Watchbill(tmp_path, {"DATABASE_URL": schema_database})
    assert watchbill("db", "status").returncode == 0
    assert "continues here as generation" in watchbill("db", "adopt").stdout


def test_upgrade_guide_lists_every_status() -> None:
    rows = (DOCS / PAGE).read_text().partition("| status | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert {row.split("|")[1].strip() for row in rows.splitlines()} == set(_EXIT_CODES)
