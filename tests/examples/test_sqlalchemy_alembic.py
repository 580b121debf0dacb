"""examples/sqlalchemy_alembic: autogenerate sees the project's tables and none of ours; an order gets its invoice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "sqlalchemy_alembic"
ALEMBIC = [sys.executable, "-m", "alembic"]
WATCHBILL = str(Path(sys.executable).parent / "watchbill")


class Project:
    """A copy of the example, since Alembic writes into it."""

    def __init__(self, directory: Path, url: str) -> None:
        shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("__pycache__"))
        self.directory, self.url = directory, url
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))}
        self._environment = inherited | {"DATABASE_URL": url}

    def _try(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.directory, env=self._environment, capture_output=True, text=True)

    def run(self, *command: str) -> str:
        done = self._try(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *command: str) -> str:
        done = self._try(command)
        assert done.returncode != 0
        return done.stdout + done.stderr

    def rewrite(self, file: str, old: str, new: str) -> None:
        text = (self.directory / file).read_text()
        assert old in text
        (self.directory / file).write_text(text.replace(old, new))


@pytest.fixture
def project(schema_database: str, tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", schema_database)
    project.run(*ALEMBIC, "upgrade", "head")
    return project


def test_autogenerate_ignores_watchbill_schemas(project: Project) -> None:
    assert "No new upgrade operations detected" in project.run(*ALEMBIC, "check")
    project.rewrite("models.py", "unique=True)", "unique=True)\n    paid: Mapped[bool]")
    said = project.refused(*ALEMBIC, "check")
    assert "add_column" in said, "of other schemas than ours it misses nothing"
    assert "remove_table" not in said


@pytest.mark.long
def test_autogenerate_without_our_filter_would_drop_our_tables(project: Project) -> None:
    project.rewrite("migrations/env.py", "include_name=without_watchbill(),", "")
    assert "remove_table" in project.refused(*ALEMBIC, "check")


def test_worker_invoices_an_order(project: Project) -> None:
    assert project.run(sys.executable, "app.py", "tea").strip() == "1"
    project.run(WATCHBILL, "worker", "--once")
    with psycopg.connect(project.url) as connection:
        assert connection.execute("SELECT state FROM orders").fetchall() == [("invoiced",)]
        assert connection.execute("SELECT state, result FROM watchbill.job").fetchall() == [("succeeded", 1)]
