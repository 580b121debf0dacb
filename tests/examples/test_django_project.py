"""examples/django_project, served by gunicorn: an order is placed over HTTP, and shipped once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.environments import environment
from tests.examples.web import PATIENCE, Web, serving
from tests.integrations.test_django import REQUIREMENTS
from tests.servers import Server
from tests.waiting import until

PROJECT = Path(__file__).parents[2] / "examples" / "django_project"
GUNICORN = ["-m", "gunicorn", "config.wsgi", "--bind", "fd://{fd}"]


class Project:
    """The example with a database of its own, migrated."""

    def __init__(self, python: Path, server: Server, database: str, home: Path) -> None:
        self.python, self.url = str(python), server.url(database)
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))}
        place = {"PGDATABASE": database, "PGUSER": "postgres", "PGHOST": server.socket_directory, "HOME": str(home)}
        self.environment = inherited | place

    def manage(self, *words: str) -> str:
        done = subprocess.run(
            [self.python, "manage.py", *words], cwd=PROJECT, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def all_done(self) -> bool:
        """An order is shipped a moment before its job has ended."""
        return self.sql("SELECT count(*) FROM watchbill.job WHERE state <> 'succeeded'") == [(0,)]


@contextmanager
def made(python: Path, server: Server, home: Path) -> Iterator[Project]:
    name = server.create_database()
    project = Project(python, server, name, home)
    assert "Watchbill: schema watchbill is at version" in project.manage("migrate")
    yield project
    server.drop_database(name)


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Iterator[Project]:
    with made(Path(sys.executable), server, tmp_path) as project:
        yield project


@pytest.fixture
def newest(server: Server, tmp_path: Path) -> Iterator[Project]:
    """On Django 6, which has tasks of its own."""
    with made(environment("django-6", *REQUIREMENTS["django-6"], at_least=(3, 12)), server, tmp_path) as project:
        yield project


def place_orders(web: Web, count: int) -> None:
    for _ in range(count):
        status, answer = web("POST", "/orders/", {"item": "tea"})
        assert status == 201, answer
    status, _ = web("POST", "/orders/", {"item": "unicorn"})  # it raises after it has enqueued
    assert status == 500


def test_four_web_processes_with_nodes_ship_each_order_once(project: Project) -> None:
    with serving([project.python, *GUNICORN], PROJECT, project.environment) as web:
        place_orders(web, 20)
        until(project.all_done, PATIENCE)
        status, told = web("GET", "/orders/1/")
        assert (status, told) == (200, {"order": 1, "state": "shipped", "job": "succeeded", "attempt": 1})
        until(lambda: project.sql("SELECT count(*) FROM watchbill.nodes WHERE state = 'active'") == [(4,)], PATIENCE)
    assert project.sql("SELECT count(*), count(DISTINCT order_id) FROM shop_shipment") == [(20, 20)]
    assert project.sql("SELECT count(*) FROM watchbill.job") == [(20,)], (
        "the order that was rolled back took its job along"
    )
    assert project.sql("SELECT DISTINCT state FROM watchbill.nodes") == [("left",)]


@pytest.mark.long  # tests/docs/test_django_guide.py runs a worker on Django 6 each time
def test_separate_worker_runs_jobs_enqueued_by_the_web(newest: Project) -> None:
    command = [newest.python, *GUNICORN, "--config", "python:config"]  # not the file that runs nodes
    with serving(command, PROJECT, newest.environment) as web:
        place_orders(web, 3)
        status, told = web("POST", "/subscribe/", {"address": "ada@example.org"})
        assert (status, told["status"]) == (201, "READY")
        assert newest.sql("SELECT count(*) FROM watchbill.jobs") == [(4,)]
        said = newest.manage("watchbill", "worker", "--once", "--lines")
        assert said.count("succeeded") == 4
        assert "(from DATABASES['default'])" in said
        assert web("GET", "/orders/3/")[1]["state"] == "shipped"
        _, told = web("GET", f"/letters/{told['letter']}/")
        assert told == {"status": "SUCCESSFUL", "value": "sent to ada@example.org", "attempts": 1}
