"""An App that is told `embedded` brings its own PostgreSQL; no other App or command does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded.holders import is_quiet

SCRIPT = """
from watchbill import App

app = App({given})


@app.task
def double(number: int) -> int:
    return 2 * number


if __name__ == "__main__":
    with app.node():
        print(double.enqueue(21).result(timeout=30))
"""


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "DATABASE_URL" not in name and name != "WATCHBILL_APP"}


def run(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("given", "variable"), [("embedded=True", {}), ("", {"WATCHBILL_EMBEDDED": "1"})])
def test_a_script_brings_its_own_database_and_takes_it_away(
    project: Path, environment: dict[str, str], given: str, variable: dict[str, str]
) -> None:
    (project / "tasks.py").write_text(SCRIPT.format(given=given))
    ended = run(project, "tasks.py", **environment, **variable)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("42\n", "", 0)
    assert is_quiet(project / ".watchbill")


def test_an_app_that_was_not_told_starts_nothing(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given=""))
    ended = run(bare_project, "tasks.py", **environment)
    assert ended.returncode == 1
    assert "NoDatabase: No database is known." in ended.stderr
    assert not (bare_project / ".watchbill").exists()


def test_an_address_comes_first(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given="embedded=True"))
    ended = run(bare_project, "tasks.py", **environment, DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert "nothing listens there" in ended.stderr
    assert not (bare_project / ".watchbill").exists()


def test_a_worker_joins_it_and_never_starts_it(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given="embedded=True"))
    ended = run(bare_project, "-m", "watchbill.cli", "worker", "--once", **environment)
    assert ended.returncode == 3
    assert "other commands only join" in ended.stderr
    assert not (bare_project / ".watchbill").exists()
