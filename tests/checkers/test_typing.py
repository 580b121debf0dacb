"""mypy, pyright, pyrefly and ty over `uses.py`: they find every wrong use, and nothing else. The last two have
exceptions, which are named here."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from watchbill.app.job_options import JobOptions, JobOptionsDict

ROOT = Path(__file__).parents[2]
USES = Path(__file__).with_name("uses.py")
WRONG = {number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# wrong")}
TAKES_ANY = "takes_any(shout)"  # pyrefly and ty compare the names of parameters too
UNKNOWN_NAMES = re.compile(
    r"prioritty=|to=\"a@b\.c\"|timezone=|command=\"SELECT|patern="
)  # ty ignores those of a TypedDict


def run(*command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def test_mypy_finds_every_wrong_use_and_nothing_else() -> None:
    said = run("mypy", "--no-pretty", "--no-error-summary", str(USES))
    found = {int(line): text for line, text in re.findall(r"uses\.py:(\d+): error: (.*)", said)}
    assert len(WRONG) > 30
    assert found.keys() == WRONG, said


def test_pyright_finds_every_wrong_use_and_nothing_else(tmp_path: Path) -> None:
    project = tmp_path / "pyrightconfig.json"
    project.write_text(
        json.dumps({"include": [str(USES)], "typeCheckingMode": "strict", "enableTypeIgnoreComments": False})
    )
    said = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project))
    found: list[dict[str, Any]] = json.loads(said)["generalDiagnostics"]
    assert {each["range"]["start"]["line"] + 1 for each in found} == WRONG, said


@pytest.mark.parametrize(
    ("checker", "words"),
    [
        ("pyrefly", ["check", "--preset", "default", "--output-format", "min-text", "--python-interpreter-path"]),
        ("ty", ["check", "--output-format", "concise", "--python"]),
    ],
)
def test_younger_checkers_find_wrong_uses_and_nothing_else(checker: str, words: list[str], tmp_path: Path) -> None:
    """As a user's program: in a directory of its own, without our settings."""
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    (tmp_path / "uses.py").write_text(USES.read_text())
    said = subprocess.run(
        [sys.executable, "-m", checker, *words, sys.executable, "uses.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {int(number) for number in re.findall(r"uses\.py:(\d+):", said.stdout)}
    lines = dict(enumerate(USES.read_text().splitlines(), 1))
    assert {lines[number].strip() for number in found - WRONG} == {TAKES_ANY}, said.stdout + said.stderr
    missed = {number for number in WRONG - found if UNKNOWN_NAMES.search(lines[number]) is None}
    assert missed == set(), said.stdout + said.stderr
    assert checker == "ty" or found >= WRONG


def test_choices_typed_dict_lists_every_option() -> None:
    """`using` takes them as a TypedDict; what it does with them is written in a dataclass."""
    assert set(JobOptionsDict.__annotations__) == {field.name for field in dataclasses.fields(JobOptions)}
