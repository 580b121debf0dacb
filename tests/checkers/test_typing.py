"""mypy and pyright over `uses.py`: they find every wrong use, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from watchbill.app.job_options import JobOptions, JobOptionsDict

ROOT = Path(__file__).parents[2]
USES = Path(__file__).with_name("uses.py")
WRONG = {number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# wrong")}


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


def test_choices_typed_dict_lists_every_option() -> None:
    """`using` takes them as a TypedDict; what it does with them is written in a dataclass."""
    assert set(JobOptionsDict.__annotations__) == {field.name for field in dataclasses.fields(JobOptions)}
