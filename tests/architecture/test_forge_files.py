"""The files for a forge: valid by their schemas, and they call what exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_workflow_and_forms_are_valid() -> None:
    for schema, files in (("github-workflows", [WORKFLOW]), ("github-issue-forms", FORMS)):
        assert files
        done = check(schema, *files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_invalid_workflow_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "tests.yml"
    broken.write_text(WORKFLOW.read_text().replace("runs-on:", "run-on:"))
    assert check("github-workflows", broken).returncode == 1


def test_workflow_calls_targets_of_make() -> None:
    called = set(re.findall(r"run: make (\S+)", WORKFLOW.read_text()))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"test", "dist"} <= called <= targets


def test_workflow_runs_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
    [listed] = re.findall(r"^        python: \[(.*)\]$", WORKFLOW.read_text(), re.MULTILINE)
    assert set(re.findall(r"3\.\d+", listed)) == named


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "CONTRIBUTING.md", "RELEASING.md"])
def test_pages_that_a_forge_shows_exist(name: str) -> None:
    assert (ROOT / name).read_text().startswith("# ")
