"""examples/fastapi_app, served by uvicorn: an order is placed over HTTP, and shipped once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.examples.web import PATIENCE, serving
from tests.waiting import until

PROJECT = Path(__file__).parents[2] / "examples" / "fastapi_app"
UVICORN = [sys.executable, "-m", "uvicorn", "main:api", "--fd", "{fd}"]


class Project:
    def __init__(self, url: str) -> None:
        self.url = url
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))}
        self.environment = inherited | {"DATABASE_URL": url}

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=PROJECT, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()


@pytest.fixture
def project(schema_database: str) -> Project:
    made = Project(schema_database)
    made.run(sys.executable, "create_tables.py")
    return made


def test_tests_of_the_example_pass(project: Project, database: str) -> None:
    """On the fixture's database, although DATABASE_URL names another one."""
    own_settings = ["-c", os.devnull, "--rootdir", str(PROJECT), "-p", "no:cacheprovider"]  # not those of our tests
    command = [sys.executable, "-m", "pytest", "-q", *own_settings, f"--watchbill-database-url={database}"]
    said = project.run(*command, "test_orders.py")
    assert "2 passed" in said, said
    assert project.sql("SELECT count(*) FROM orders") == [(0,)]


def test_four_web_processes_with_nodes_ship_each_order_once(project: Project) -> None:
    with serving([*UVICORN, "--workers", "4"], PROJECT, project.environment | {"NODE": "1"}) as web:
        placed = [web("POST", "/orders", {"item": "tea"}) for _ in range(20)]
        assert {status for status, _ in placed} == {201}
        assert web("POST", "/orders", {"item": "unicorn"})[0] == 409  # raised after it has enqueued
        until(lambda: project.sql("SELECT count(*) FROM orders WHERE state <> 'shipped'") == [(0,)], PATIENCE)
        job = f"/jobs/{placed[0][1]['job']}"
        until(lambda: web("GET", job)[1]["state"] == "succeeded", PATIENCE)
        until(lambda: project.sql("SELECT count(*) FROM watchbill.nodes WHERE state = 'active'") == [(4,)], PATIENCE)
        status, shown = web("GET", "/watchbill/api/v1/jobs?q=type:tasks.ship")
        assert (status, len(shown["items"])) == (200, 20)
    assert project.sql("SELECT count(*), count(DISTINCT order_id) FROM shipments") == [(20, 20)]
    assert project.sql("SELECT count(*) FROM watchbill.job") == [(20,)], (
        "the order that was rolled back took its job along"
    )
    assert project.sql("SELECT DISTINCT state FROM watchbill.nodes") == [("left",)]


def test_separate_worker_ships_orders_enqueued_by_the_web(project: Project) -> None:
    with serving(UVICORN, PROJECT, project.environment) as web:
        _, placed = web("POST", "/orders", {"item": "tea"})
        assert web("GET", f"/jobs/{placed['job']}")[1]["state"] == "queued"
        said = project.run(str(Path(sys.executable).parent / "watchbill"), "worker", "--once", "--lines")
        assert "tasks:app   1 task  2 queues (default, warehouse)" in said
        told = web("GET", f"/jobs/{placed['job']}")[1]
        assert (told["state"], told["attempt"], told["error"]) == ("succeeded", 1, None)
        assert web("GET", "/jobs/019a0000-0000-7000-8000-000000000000")[0] == 404
