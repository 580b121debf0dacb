"""docs/howto/schedules.md: its programs run, and its commands say what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "schedules.md"
_BLOCK = re.compile(r"```(\w+)\n(?:# (\w+\.py)\n)?(.*?)```", re.DOTALL)


@pytest.fixture
def project(tmp_path: Path, schema_database: str) -> Watchbill:
    return Watchbill(tmp_path, {"DATABASE_URL": schema_database})


def test_every_block_of_the_schedules_guide_runs(project: Watchbill, schema_database: str) -> None:
    ran = []
    for language, file, text in _BLOCK.findall(PAGE.read_text()):
        if language == "python":
            (project.directory / file).write_text(text)
            run_python(project, file)
            ran.append(file)
        elif language == "console":
            for command, expected in commands_of(text):
                check(project, command, expected)
                ran.append(command)
    assert len(ran) > 10
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT DISTINCT action FROM watchbill.audit ORDER BY 1").fetchall()
    verbs = {"add", "update", "enable", "disable", "remove", "run"}
    assert {f"{verb}_schedule" for verb in verbs} <= {action for (action,) in rows}


def run_python(project: Watchbill, file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        cwd=project.directory,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{file}: {done.stderr}"


def commands_of(text: str) -> list[tuple[str, str]]:
    """Each command with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def check(project: Watchbill, command: str, expected: str) -> None:
    """Each line that is shown is found, in its order; `...` stands for anything."""
    done = project.here(*shlex.split(command)[1:])
    said = iter(line.rstrip() for line in done.stdout.splitlines())
    for shown in expected.splitlines():
        pattern = "*".join(re.sub(r"([\[*?])", r"[\1]", piece) for piece in shown.split("..."))
        found = any(fnmatchcase(line, pattern) for line in said)
        assert found, f"{command}: no {shown!r} in\n{done.stdout}{done.stderr}"
