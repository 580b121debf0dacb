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
def test_embedded_app_starts_and_stops_its_own_server(
    project: Path, environment: dict[str, str], given: str, variable: dict[str, str]
) -> None:
    (project / "tasks.py").write_text(SCRIPT.format(given=given))
    ended = run(project, "tasks.py", **environment, **variable)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("42\n", "", 0)
    assert is_quiet(project / ".watchbill")


def test_app_without_embedded_starts_no_server(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given=""))
    ended = run(bare_project, "tasks.py", **environment)
    assert ended.returncode == 1
    assert "NoDatabase: No database address is set." in ended.stderr
    assert not (bare_project / ".watchbill").exists()


def test_database_address_wins_over_embedded(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given="embedded=True"))
    ended = run(bare_project, "tasks.py", **environment, DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert "nothing listens there" in ended.stderr
    assert not (bare_project / ".watchbill").exists()


def test_worker_command_never_starts_an_embedded_server(bare_project: Path, environment: dict[str, str]) -> None:
    (bare_project / "pyproject.toml").touch()
    (bare_project / "tasks.py").write_text(SCRIPT.format(given="embedded=True"))
    ended = run(bare_project, "-m", "watchbill.cli", "worker", "--once", **environment)
    assert ended.returncode == 3
    assert "other commands do not" in ended.stderr
    assert not (bare_project / ".watchbill").exists()
